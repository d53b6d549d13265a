"""The tasks that BERT is trained for: what all of them share, and the driver that runs any task.

- How does a run proceed? `driver`, with `task` (the steps of a task), `starting_weights`, `model_checks`,
  `training_plan`, `estimator_setup`, `inference`, `training_with_evaluations` and `results`
- What is a model? `target` (what it predicts), `head` (its graph), `head_labels` (the head in a checkpoint),
  `hub_encoder`
- How is a trained model used? `answers`, `loaded_model`, `export_model`, `serving_warmup`
- What do several tasks share? `shared_flags`, `data_splits`, `text_windows`

This module registers the tasks in `bertlib.runs.registry`, as "module:name". A module is imported when
something in it is used for the first time.
"""

from bertlib.runs import registry


def _here(places):
    """Returns the absolute form of places in this package, {name: "package.module:name"}."""
    return {name: f"{__name__}.{place}" for name, place in places.items()}


registry.TARGETS.update(_here({
    "questions": "squad.squad_target:Spans",
    "multiple_choice": "classification.choice_target:Endings",
    "tagging": "tagging.tagging_target:Tags",
    "multilabel": "classification.classification_target:MultiLabel",
    "regression": "classification.classification_target:Score",
    "classification": "classification.classification_target:SingleLabel",
    "pre-training": "pretraining.pretraining_target:MaskedTokens"}))
registry.ANSWERS.update(_here({
    "classification": "classification.classification_answers:ChosenLabel",
    "regression": "classification.classification_answers:PredictedScore",
    "multilabel": "classification.classification_answers:ChosenLabels",
    "tagging": "tagging.tagging_target:TaggedText",
    "questions": "squad.squad_target:SquadQuestions",
    "multiple_choice": "classification.choice_target:ChosenEnding",
    "masked_words": "pretraining.pretraining_target:MaskedWords",
    "vectors": "classification.classification_answers:TextVector"}))
registry.COMMANDS.update(_here({
    "run_classifier": "classification.classification_flags:RUN_CLASSIFIER",
    "run_classifier_with_tfhub": "classification.classification_flags:RUN_CLASSIFIER_WITH_TFHUB",
    "run_ner": "tagging.tagging_flags:RUN_NER",
    "run_pretraining": "pretraining.pretraining_flags:RUN_PRETRAINING",
    "run_squad": "squad.squad_flags:RUN_SQUAD",
    "run_swag": "classification.classification_flags:RUN_SWAG"}))
