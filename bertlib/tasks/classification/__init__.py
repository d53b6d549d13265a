"""Judges whole texts: labels, scores, the best of several endings, vectors."""
