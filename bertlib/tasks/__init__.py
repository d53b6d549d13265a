"""The tasks that BERT is trained for: what all of them share, and the driver that runs any task.

- How does a run proceed? `driver`, with `task` (the steps of a task), `starting_weights`, `model_checks`,
  `training_plan`, `estimator_setup`, `inference`, `learning_curve` and `results`
- What is a model? `target` (what it predicts), `head` (its graph), `head_labels` (the head in a checkpoint),
  `hub_encoder`
- How is a trained model used? `answers`, `loaded_model`, `export_model`, `warmup`
- What do several tasks share? `shared_flags`, `split_data`, `window_pooling`

This module registers the tasks in `bertlib.runs.registry`. Each function below imports the modules of a task
when something of this task is used for the first time.
"""

from bertlib.runs.registry import ANSWERS, COMMANDS, TARGETS, register

# --- Targets -------------------------------------------------------------------------------------------


@register(TARGETS, "questions")
def _spans():
    from bertlib.tasks.squad import squad_target
    return squad_target.Spans()


@register(TARGETS, "multiple_choice")
def _endings():
    from bertlib.tasks.classification import choice_target
    return choice_target.Endings()


@register(TARGETS, "tagging")
def _tags():
    from bertlib.tasks.tagging import tagging_target
    return tagging_target.Tags()


@register(TARGETS, "multilabel")
def _labels():
    from bertlib.tasks.classification import text_targets
    return text_targets.MultiLabel()


@register(TARGETS, "regression")
def _score():
    from bertlib.tasks.classification import text_targets
    return text_targets.Score()


@register(TARGETS, "classification")
def _label():
    from bertlib.tasks.classification import text_targets
    return text_targets.SingleLabel()


@register(TARGETS, "pre-training")
def _masked_tokens():
    from bertlib.tasks.pretraining import pretraining_target
    return pretraining_target.MaskedTokens()


# --- Answers -------------------------------------------------------------------------------------------


@register(ANSWERS, "classification")
def _chosen_label():
    from bertlib.tasks.classification import text_answers
    return text_answers.ChosenLabel


@register(ANSWERS, "regression")
def _predicted_score():
    from bertlib.tasks.classification import text_answers
    return text_answers.PredictedScore


@register(ANSWERS, "multilabel")
def _chosen_labels():
    from bertlib.tasks.classification import text_answers
    return text_answers.ChosenLabels


@register(ANSWERS, "tagging")
def _tagged_text():
    from bertlib.tasks.tagging import tagging_target
    return tagging_target.TaggedText


@register(ANSWERS, "questions")
def _squad_questions():
    from bertlib.tasks.squad import squad_target
    return squad_target.SquadQuestions


@register(ANSWERS, "multiple_choice")
def _chosen_ending():
    from bertlib.tasks.classification import choice_target
    return choice_target.ChosenEnding


@register(ANSWERS, "masked_words")
def _masked_words():
    from bertlib.tasks.pretraining import pretraining_target
    return pretraining_target.MaskedWords


@register(ANSWERS, "vectors")
def _text_vector():
    from bertlib.tasks.classification import text_answers
    return text_answers.TextVector


# --- Flags of the commands that train ------------------------------------------------------------------


@register(COMMANDS, "run_classifier")
def _run_classifier():
    from bertlib.tasks.classification import classification_flags
    return classification_flags.RUN_CLASSIFIER


@register(COMMANDS, "run_classifier_with_tfhub")
def _run_classifier_with_tfhub():
    from bertlib.tasks.classification import classification_flags
    return classification_flags.RUN_CLASSIFIER_WITH_TFHUB


@register(COMMANDS, "run_ner")
def _run_ner():
    from bertlib.tasks.tagging import tagging_flags
    return tagging_flags.RUN_NER


@register(COMMANDS, "run_pretraining")
def _run_pretraining():
    from bertlib.tasks.pretraining import pretraining_flags
    return pretraining_flags.RUN_PRETRAINING


@register(COMMANDS, "run_squad")
def _run_squad():
    from bertlib.tasks.squad import squad_flags
    return squad_flags.RUN_SQUAD


@register(COMMANDS, "run_swag")
def _run_swag():
    from bertlib.tasks.classification import choice_flags
    return choice_flags.RUN_SWAG
