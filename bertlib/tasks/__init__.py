"""The tasks that BERT is trained for: what all of them share, and the driver that runs any task.

- How does a run proceed? `driver`, with `task` (the steps of a task), `starting_weights`, `model_checks`,
  `training_plan`, `estimator_setup`, `inference`, `learning_curve` and `results`
- What is a model? `target` (what it predicts), `head` (its graph), `head_labels` (the head in a checkpoint),
  `hub_encoder`
- How is a trained model used? `answers`, `loaded_model`, `export_model`, `warmup`
- What do several tasks share? `shared_flags`, `split_data`, `text_windows`

This module registers the tasks in `bertlib.runs.registry`. The modules of a task are imported when something
in them is used for the first time.
"""

from bertlib.runs import registry


def _squad_flags():
    from bertlib.tasks.squad import squad_flags
    return squad_flags


def _squad_target():
    from bertlib.tasks.squad import squad_target
    return squad_target


def _tagging_flags():
    from bertlib.tasks.tagging import tagging_flags
    return tagging_flags


def _tagging_target():
    from bertlib.tasks.tagging import tagging_target
    return tagging_target


def _pretraining_flags():
    from bertlib.tasks.pretraining import pretraining_flags
    return pretraining_flags


def _pretraining_target():
    from bertlib.tasks.pretraining import pretraining_target
    return pretraining_target


def _choice_flags():
    from bertlib.tasks.choice import choice_flags
    return choice_flags


def _choice_target():
    from bertlib.tasks.choice import choice_target
    return choice_target


def _classification_flags():
    from bertlib.tasks.classification import classification_flags
    return classification_flags


def _classification_answers():
    from bertlib.tasks.classification import classification_answers
    return classification_answers


def _classification_target():
    from bertlib.tasks.classification import classification_target
    return classification_target


registry.TARGETS.update({
    "questions": lambda: _squad_target().Spans(),
    "multiple_choice": lambda: _choice_target().Endings(),
    "tagging": lambda: _tagging_target().Tags(),
    "multilabel": lambda: _classification_target().MultiLabel(),
    "regression": lambda: _classification_target().Score(),
    "classification": lambda: _classification_target().SingleLabel(),
    "pre-training": lambda: _pretraining_target().MaskedTokens()})
registry.ANSWERS.update({
    "classification": lambda: _classification_answers().ChosenLabel,
    "regression": lambda: _classification_answers().PredictedScore,
    "multilabel": lambda: _classification_answers().ChosenLabels,
    "tagging": lambda: _tagging_target().TaggedText,
    "questions": lambda: _squad_target().SquadQuestions,
    "multiple_choice": lambda: _choice_target().ChosenEnding,
    "masked_words": lambda: _pretraining_target().MaskedWords,
    "vectors": lambda: _classification_answers().TextVector})
registry.COMMANDS.update({
    "run_classifier": lambda: _classification_flags().RUN_CLASSIFIER,
    "run_classifier_with_tfhub": lambda: _classification_flags().RUN_CLASSIFIER_WITH_TFHUB,
    "run_ner": lambda: _tagging_flags().RUN_NER,
    "run_pretraining": lambda: _pretraining_flags().RUN_PRETRAINING,
    "run_squad": lambda: _squad_flags().RUN_SQUAD,
    "run_swag": lambda: _choice_flags().RUN_SWAG})
