"""Multiple choice: the most plausible of several endings, as in SWAG."""
