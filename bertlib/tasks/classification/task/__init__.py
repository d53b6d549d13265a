"""The task of run_classifier.py and run_classifier_with_tfhub.py, on the data of a user or of GLUE."""
