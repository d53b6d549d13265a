"""Judges whole texts: labels, scores, the best of several endings, vectors.

- What is run_classifier.py? `classification_task`, with `classification_flags`, `classification_head`,
  `classification_target` (one label, a score, any number of labels) and `classification_answers`;
  `hub_classification` for run_classifier_with_tfhub.py
- Which examples does it read? `classification_processor` finds the processor: one of `classifier_data` (GLUE
  and others), a processor of a `task_module` (the user's code), or `own_data` (the user's files, with
  `row_examples` and `dev_split`). `classifier_features` makes the features. `class_weights` weighs them.
- What does it compute and write? `classification_metrics`, `classification_results`, `glue_submission_files`
- What is run_swag.py? `choice_task`, with `choice_target` (the questions, the endings and the answers)
- What is extract_features.py? `feature_extraction`
"""
