"""The tasks that BERT is trained for: what all of them share, and the driver that runs any task.

- How does a run proceed? `driver`, with `task` (the steps of a task), `starting_weights`, `model_checks`,
  `training_plan`, `estimator_setup`, `inference`, `learning_curve` and `results`
- What is a model? `target` (what it predicts), `head` (its graph), `head_labels` (the head in a checkpoint),
  `hub_encoder`
- How is a trained model used? `answers`, `loaded_model`, `export_model`, `warmup`
- What do several tasks share? `shared_flags`, `split_data`, `window_pooling`

This module registers the tasks in `bertlib.runs.registry`. It imports none of their modules.
"""

from bertlib.runs import registry

registry.TARGETS.update({
    "questions": "bertlib.tasks.squad.squad_target.Spans",
    "multiple_choice": "bertlib.tasks.classification.choice_target.Endings",
    "tagging": "bertlib.tasks.tagging.tagging_target.Tags",
    "multilabel": "bertlib.tasks.classification.text_targets.MultiLabel",
    "regression": "bertlib.tasks.classification.text_targets.Score",
    "classification": "bertlib.tasks.classification.text_targets.SingleLabel",
    "pre-training": "bertlib.tasks.pretraining.pretraining_target.MaskedTokens"})
registry.ANSWERS.update({
    "classification": "bertlib.tasks.classification.text_answers.ChosenLabel",
    "regression": "bertlib.tasks.classification.text_answers.PredictedScore",
    "multilabel": "bertlib.tasks.classification.text_answers.ChosenLabels",
    "tagging": "bertlib.tasks.tagging.tagging_target.TaggedText",
    "questions": "bertlib.tasks.squad.squad_target.SquadQuestions",
    "multiple_choice": "bertlib.tasks.classification.choice_target.ChosenEnding",
    "masked_words": "bertlib.tasks.pretraining.pretraining_target.MaskedWords",
    "vectors": "bertlib.tasks.classification.text_answers.TextVector"})
registry.COMMANDS.update({
    "run_classifier": "bertlib.tasks.classification.classification_flags.RUN_CLASSIFIER",
    "run_classifier_with_tfhub":
        "bertlib.tasks.classification.classification_flags.RUN_CLASSIFIER_WITH_TFHUB",
    "run_ner": "bertlib.tasks.tagging.tagging_flags.RUN_NER",
    "run_pretraining": "bertlib.tasks.pretraining.pretraining_flags.RUN_PRETRAINING",
    "run_squad": "bertlib.tasks.squad.squad_flags.RUN_SQUAD",
    "run_swag": "bertlib.tasks.classification.choice_flags.RUN_SWAG"})
