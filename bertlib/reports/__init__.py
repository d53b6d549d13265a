"""Shows the results of an evaluation or a prediction: tables of predictions and HTML reports."""
