"""Classification, regression and multi-label classification of texts and pairs of texts."""
