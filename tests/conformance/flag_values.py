"""The table of values for test_flag_pairs.py: the flags of a command, with the values to combine.

A parameter is a flag, or a group of flags that depend on each other. Each of its values is a dict of flags.
"""

import itertools

from bertlib.estimator import step_config

# --- Parameters of the training commands -----------------------------------------------------------------


def flags(**values):
    """Returns {name: its values}. A tuple contains several values. The first value is that the flag is not
    given."""
    return {name: [{}, *({name: value} for value in (given if isinstance(given, tuple) else [given]))]
            for name, given in values.items()}


_EVALUATIONS = {"evaluations": [
    {}, {"eval_each_checkpoint": True}, {"eval_every_steps": 1, "keep_best": "METRIC"},
    {"eval_each_checkpoint": True, "keep_best": "METRIC", "early_stopping_evals": 1}]}
_TRAINING = {
    "optimizer": [*flags(optimizer=tuple(step_config.OPTIMIZERS[1:]))["optimizer"],
                  {"adam_bias_correction": True}],
    **flags(lr_schedule=tuple(step_config.LR_SCHEDULES[1:])),
    **flags(precision=("bf16", "fp16")),
    # Simulations of the memory take long, so only the first command of the table has them.
    "recompute": [{}, {"recompute": "attention"}, {"recompute": "layers", "recompute_segment": 2}],
    "micro-batches": [{}, {"gradient_accumulation_steps": 2},
                      {"tokens_per_micro_batch": 128, "trim_padding": True}],
    **flags(trim_padding=(True, False), compile_kernels=(True, False)),
    **_EVALUATIONS,
    **flags(weights="last", max_steps=1, save_checkpoints_steps=(1, 100), keep_checkpoint_max=(0, 1),
            layer_decay=0.9, reinit_layers=1, freeze_layers=1, freeze_embeddings=True, weight_decay=0,
            clip_norm=0, seed=-1, log_steps=100, profile_steps="1,1", deterministic=True, tf32=False,
            gpu_allow_growth=True, gradient_dtype="bf16", replica_timeout=5, max_restarts=1,
            open_ports=(True, False), results_dir="RESULTS", do_export=True),
    "TPU": [{}, {"use_tpu": False, "tpu_name": "a", "tpu_zone": "b", "gcp_project": "c", "master": "d",
                 "num_tpu_cores": 1, "iterations_per_loop": 1}],
    "start": [{}, {"init_checkpoint": "model/hugging_face"},
              {"init_checkpoint": "model/hugging_face", "bert_config_file": None, "vocab_file": None},
              {"init_checkpoint": None}]}
_FINE_TUNING = {
    **_TRAINING, **flags(warmup_proportion=(0, 1), num_train_epochs=1, predictions_format="jsonl",
                         csv_safe=True, features_cache="cache", output_delimiter="tab", num_workers=2,
                         output_decimal="comma", max_train_examples=9, max_eval_examples=3,
                         do_lower_case=False, protect_special_tokens=True, predict_batch_size=3,
                         marker_tokens="[E1],[/E1]"),
    "phases": [{}, {"do_predict": True}, {"do_eval": False},
               {"do_train": None, "do_eval": None, "do_predict": None}]}
_OWN_DATA = {**flags(skip_bad_lines=True, encoding="latin-1", header="true", delimiter="comma")}
TRAINING_COMMANDS = {
    "run_classifier.py": {
        "row": [{"row": name} for name in ("one text", "regression", "several labels", "task module")],
        **_FINE_TUNING,
        "recompute": [{}, {"recompute": "layers"}, {"recompute": "auto", "memory_limit_gb": 4}],
        "micro-batches": [{}, {"gradient_accumulation_steps": 2},
                          {"gradient_accumulation_steps": 0, "memory_limit_gb": 4}],
        **flags(skip_bad_lines=True, encoding="latin-1", header="true", eval_batch_size=3,
                class_weights="balanced", label_smoothing=0.1, threshold=0.3,
                baseline=("true", "false"), label_map="spellings.csv"),
        "windows": [{}, {"max_seq_length": 12, "doc_stride": 4}],
        "development set": [{}, {"dev_fraction": 0.25, "dev_file": None}]},
    "run_classifier_with_tfhub.py": {
        "row": [{"row": "hub module"}],
        # The other parameters are properties of the module.
        **{name: values for name, values in _FINE_TUNING.items() if name not in (
            "start", "precision", "recompute", "compile_kernels", "layer_decay", "reinit_layers",
            "freeze_layers", "freeze_embeddings", "do_export", "do_lower_case", "marker_tokens")},
        **flags(eval_batch_size=3, class_weights="1,3", label_smoothing=0.1, baseline=("true", "false")),
        "windows": [{}, {"max_seq_length": 12, "doc_stride": 4}]},
    "run_squad.py": {
        "row": [{"row": "SQuAD 1.1"}, {"row": "SQuAD 2.0"}], **_FINE_TUNING,
        **flags(doc_stride=3, max_query_length=3, max_answer_length=1, n_best_size=1,
                null_score_diff_threshold=-1, find_null_threshold=True, verbose_logging=True)},
    "run_ner.py": {
        "row": [{"row": "tagging, columns"}, {"row": "tagging, JSON Lines"}], **_FINE_TUNING,
        **flags(crf=True, label_all_pieces=True, skip_bad_lines=True, token_column=-2, tag_column=2)},
    "run_swag.py": {
        "row": [{"row": "multiple choice"}], **_FINE_TUNING, **_OWN_DATA},
    "run_pretraining.py": {
        "row": [{"row": "pre-training"}], **_TRAINING, **flags(eval_batch_size=3, max_eval_steps=1,
                                                               num_warmup_steps=0),
        "phases": [{}, {"do_eval": False}, {"do_train": None, "do_eval": None}]},
}

# --- Parameters of the other commands --------------------------------------------------------------------

# The row has trained the model in model_dir.
_KINDS = {"row": [{"row": name} for name in ("one text", "regression", "several labels", "tagging, columns",
                                             "SQuAD 1.1")]}
OTHER_COMMANDS = {
    "predict.py": {
        **_KINDS,
        "input": [{"input_file": "lines.jsonl"}, {"input_file": "lines.csv"}, {"input_file": "lines.txt"}],
        "output": [{}, {"output_file": "answers.jsonl"}, {"output_file": "answers.csv.gz"}],
        **flags(output_format=("csv", "jsonl"), task="vectors", weights="last", batch_size=1,
                precision="bf16", engine="tensorflow", skip_bad_lines=True, csv_safe=True, delimiter="comma",
                encoding="latin-1", header="true", token_column=2, tag_column=1, tf32=False,
                deterministic=True, gpu_allow_growth=True, open_ports=True, replica_timeout=5,
                num_replicas=1)},
    "export.py": {
        **_KINDS,
        "format": [{"format": "saved_model"}, {"format": "onnx"}, {"format": "tflite"}],
        "text": [{"text": False}, {"text": True}], **flags(quantize="int8", task="vectors", weights="last",
                                                           output_dir="exported", compare_file="lines.jsonl",
                                                           compare_examples=2, warmup_requests=0)},
}
PARAMETERS = {**TRAINING_COMMANDS, **OTHER_COMMANDS}

# --- Refused pairs ---------------------------------------------------------------------------------------

# Combinations that a command refuses with a message, as dicts of flags. No combination of the table contains
# one of them, because the other flags of a refused command line are not tried.
_HUGGING_FACE = {"init_checkpoint": "model/hugging_face"}
_ALL = [{"do_eval": False, "eval_each_checkpoint": True}, {"do_eval": False, "eval_every_steps": 1}]
_RANDOM = {"reinit_layers": 1, "init_checkpoint": None}
_FINE_TUNED = [*_ALL, _RANDOM, {"do_lower_case": False, **_HUGGING_FACE}]
REFUSED = {
    "run_classifier.py": [
        *_FINE_TUNED,
        *({"row": row, "threshold": 0.3} for row in ("one text", "regression", "task module")),
        *({"row": row, **setting} for row in ("regression", "several labels")
          for setting in ({"class_weights": "balanced"}, {"label_smoothing": 0.1})),
        {"row": "regression", "label_map": "spellings.csv"},
        *({"row": "task module", **setting} for setting in (
            {"label_map": "spellings.csv"}, {"skip_bad_lines": True}, {"encoding": "latin-1"},
            {"header": "true"}, {"dev_fraction": 0.25}))],
    "run_classifier_with_tfhub.py": _ALL,
    "run_squad.py": [
        *_FINE_TUNED, {"row": "SQuAD 1.1", "find_null_threshold": True},
        {"do_eval": False, "find_null_threshold": True}],
    "run_ner.py": _FINE_TUNED,
    "run_swag.py": _FINE_TUNED, "run_pretraining.py": [_RANDOM],
    "predict.py": [{"row": row, "task": "vectors", "input_file": name}
                   for row in ("tagging, columns", "SQuAD 1.1") for name in ("lines.csv", "lines.jsonl")],
    "export.py": [
        {"quantize": "int8", "format": "saved_model"}, {"compare_examples": 2, "format": "saved_model"},
        {"compare_file": "lines.jsonl", "format": "saved_model", "text": False},
        {"format": "tflite", "task": "vectors"}, {"row": "tagging, columns", "format": "tflite"},
        {"row": "SQuAD 1.1", "format": "tflite"}, {"row": "SQuAD 1.1", "text": True},
        *({"format": name, **setting} for name in ("onnx", "tflite")
          for setting in ({"text": True}, {"warmup_requests": 0}))]}


def is_possible(script, values):
    """Returns whether some values of different parameters can be given together to a command."""
    merged = {}
    for value in values:
        for name, setting in value.items():
            if merged.setdefault(name, setting) != setting:
                return False
    return not any(refused.items() <= merged.items() for refused in REFUSED.get(script, ()))


def chosen_values(script, name):
    """Returns the values of a parameter that are combined for a command.

    These are the default and two other values, so that few runs contain all pairs. Another command takes
    other values of the same parameter.
    """
    default, *others = PARAMETERS[script][name]
    start = 2 * list(PARAMETERS).index(script)
    return [default, *(others[(start + number) % len(others)] for number in range(min(2, len(others))))]


def combinations(script):
    """Returns dicts of flags of a command that contain all possible pairs of values of its parameters."""
    from allpairspy import AllPairs
    parameters = [PARAMETERS[script][name] if name == "row" else chosen_values(script, name)
                  for name in PARAMETERS[script]]
    found = AllPairs(parameters, filter_func=lambda values: is_possible(script, values))
    return [dict(itertools.chain(*(value.items() for value in values))) for values in found]
