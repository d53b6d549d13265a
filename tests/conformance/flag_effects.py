"""The table for test_flag_effects.py: for each flag, a value and the place of its effect.

A flag that names a file to read needs no entry: the command refuses a path that does not exist.
ELSEWHERE lists flags whose effect another test shows. WITHOUT lists flags without an effect, and says why.
"""

import json
from typing import Any, NamedTuple

from helpers import DATA
import rows

FLAGS = json.loads((DATA / "capabilities.json").read_text(encoding="utf-8"))["flags"]
TRAINING_COMMANDS = {**{row.script.removesuffix(".py"): row for row in reversed(rows.ROWS.values())},
                     "run_squad": rows.ROWS["SQuAD 2.0"]}
# If the value of a flag is the path of a file that a command reads, the name ends in one of these texts.
_READ_PATHS = ("_file", "_dir", "_checkpoint", "_handle", "_module", "input", "extend")


class Effect(NamedTuple):
    """How a flag changes a run.

    Attributes:
      value: a value of the flag.
      where: "message": the command refuses the value, and names the flag. "log": the lines of the log.
        "output": stdout. "weights": the variables of the newest checkpoint. Otherwise a pattern of files,
        which appear, disappear or have other contents.
      base: {flag: value} of both runs, the one with the flag and the one without it.
    """
    value: Any
    where: str
    base: dict = {}


def _at(where, base=None, **values):
    """Returns {flag: `Effect`} for flags whose effects are seen at one place."""
    return {name: Effect(value, where, base or {}) for name, value in values.items()}


_EVAL = {"do_eval": True}
# With this learning rate, no evaluation is better than the first.
_BEST = {**_EVAL, "eval_every_steps": 1, "keep_best": "METRIC", "learning_rate": 1e-30,
         "num_train_epochs": 1}
_TRAINING = {
    **_at("output/model.ckpt-*.index", _EVAL, do_train=False),
    **_at("output/eval_results.json", do_eval=True),
    **_at("output/export/*", do_export=True),
    **_at("output/test_predictions.csv", do_predict=True),
    **_at("elsewhere/run.json", output_dir="elsewhere"),
    **_at("elsewhere/eval_results.json", _EVAL, results_dir="elsewhere"),
    **_at("cache/*", features_cache="cache"),
    **_at("message", _EVAL, dev_file="no/such", predict_file="no/such", eval_file="no/such"),
    **_at("message", {"do_predict": True}, test_file="no/such"),
    **_at("message", label_map="no/such", task_name="nonsense", threshold=0.3, text_column="nonsense",
          label_column="nonsense", version_2_with_negative=False, max_predictions_per_seq=3, use_tpu=True),
    **_at("output/eval_predictions.*", _EVAL, predictions_format="jsonl"),
    **_at("output/eval_predictions.csv", _EVAL, output_delimiter="pipe", output_decimal="comma"),
    **_at("weights", init_checkpoint=None, class_weights="1,9", label_smoothing=0.3, max_train_examples=9,
          crf=True, train_batch_size=2, learning_rate=0.1, optimizer="lamb", adam_bias_correction=True,
          lr_schedule="constant", weight_decay=9, clip_norm=1e-3, layer_decay=0.5, reinit_layers=1,
          freeze_layers=1, freeze_embeddings=True, seed=1, num_train_epochs=0.25, warmup_proportion=1,
          num_train_steps=1, num_warmup_steps=0, max_steps=1, precision="bf16", trim_padding=False),
    **_at("output/labels.txt", task_type="regression", tag_column=1),
    **_at("output/train.tf_record", {"max_seq_length": 12}, doc_stride=4),
    **_at("output/dev_rows.txt", {"dev_file": None, **_EVAL}, dev_fraction=0.25),
    **_at("log", header="false", delimiter="tab", encoding="utf-16"),
    **_at("output/eval_results.json", _EVAL, max_eval_examples=3, baseline="true"),
    **_at("output/eval_results.*", _EVAL, max_eval_steps=1),
    **_at("output/eval_results.txt", _EVAL, eval_batch_size=3),
    **_at("output/train.tf_record", token_column=2, max_query_length=1, max_seq_length=12),
    **_at("output/nbest_predictions.json", _EVAL, max_answer_length=1, n_best_size=1),
    **_at("output/predictions.json", _EVAL, null_score_diff_threshold=-1e6),
    **_at("output/tokenizer_config.json", do_lower_case=False),
    **_at("output/model.ckpt-1.index", save_checkpoints_steps=1),
    **_at("output/model.ckpt-1.index", {"save_checkpoints_steps": 1}, keep_checkpoint_max=1),
    **_at("output/learning_curve.tsv", _EVAL, eval_each_checkpoint=True, eval_every_steps=1),
    **_at("output/best/*", {**_EVAL, "eval_every_steps": 1}, keep_best="METRIC"),
    **_at("output/model.ckpt-*.index", _BEST, early_stopping_evals=1),
    **_at("output/eval_results.json", _BEST, weights="last"),
    **_at("log", {"num_train_epochs": 1}, log_steps=3),
    **_at("output/plugins/*", profile_steps="1,1"),
    **_at("output/graph.pbtxt", gradient_accumulation_steps=2, recompute="layers", compile_kernels=True),
    **_at("output/graph.pbtxt", {"trim_padding": True}, tokens_per_micro_batch=128),
    **_at("output/graph.pbtxt", {"recompute": "layers"}, recompute_segment=2),
    **_at("log", {"recompute": "auto"}, memory_limit_gb=1e-6),
    **_at("log", {"init_checkpoint": "no/such"}, traceback=True),
}
_OVERRIDES = {
    "run_squad": {**_at("weights", trim_padding=True),
                  **_at("output/train.tf_record", {"max_seq_length": 16}, doc_stride=3),
                  **_at("output/train.tf_record", max_seq_length=16),
                  **_at("output/test_predictions.csv", {"do_eval": None}, do_predict=True)},
    "run_pretraining": {
        **_at("message", max_seq_length=12),
        **{name: _TRAINING[name]._replace(base={**_BEST, "num_train_epochs": None, "num_train_steps": 4})
           for name in ("early_stopping_evals", "weights")},
        **_at("log", {"num_train_steps": 4}, log_steps=3)},
    "run_swag": _at("output/train.tf_record", max_seq_length=20),
    "run_classifier": _at("output/train.tf_record", {"max_seq_length": 8}, doc_stride=2),
    "run_ner": _at("message", dict.fromkeys(["train_file", "dev_file", "test_file"]), data_dir="no/such"),
    # A hub module has these properties itself.
    "run_classifier_with_tfhub": {
        **_at("log", {"gradient_accumulation_steps": 0}, memory_limit_gb=1e-6),
        **_at("message", do_lower_case=False, dev_fraction=0.25, bert_config_file="model/bert_config.json",
              init_checkpoint="model/bert_model.ckpt", precision="bf16", recompute="layers",
              recompute_segment=2, compile_kernels=True, layer_decay=0.5, freeze_layers=1,
              freeze_embeddings=True, reinit_layers=1)},
}
# {flag: the test file that shows its effect}. These effects need several processes, a server, other data or
# other machines.
ELSEWHERE = {
    "label_all_pieces": "tasks/test_tagging_parts.py", "use_one_hot_embeddings": "test_modeling.py",
    "num_replicas": "commands/test_replicas_train.py", "replica_timeout": "commands/test_replicas.py",
    "max_restarts": "commands/test_replicas.py", "gradient_dtype": "estimator/test_step_config.py",
    "open_ports": "commands/test_open_ports.py", "use_xla": "commands/test_xla.py",
    "csv_safe": "reports/test_prediction_files.py", "skip_bad_lines": "conformance/test_changes.py",
    "xnli_language": "commands/test_task_module.py", "num_workers": "tasks/test_featurization.py",
    "protect_special_tokens": "commands/test_tokenizer_files.py",
    "marker_tokens": "commands/test_marker_tokens.py",
    "label_separator": "commands/test_task_module.py", "spm_model_file": "test_sentencepiece.py",
    "find_null_threshold": "commands/test_run_squad.py",
    "verbose_logging": "tasks/test_squad_predictions.py"}
_ACCEPTED = "Ignored on purpose: command lines of 2018 contain it."
_GPU = "It sets up a GPU. tests/system/test_gpu_libraries.py and the device checks cover it."
# {flag: the reason why it has no effect that a test on a CPU sees}.
WITHOUT = {
    **dict.fromkeys(["tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores",
                     "iterations_per_loop"], _ACCEPTED),
    **dict.fromkeys(["tf32", "deterministic", "gpu_allow_growth"], _GPU),
    **dict.fromkeys(["predict_batch_size", "batch_size"], "Speed only: no answer depends on the batches.")}

# --- Other commands --------------------------------------------------------------------------------------

# {command: the test file that shows the effects of its own flags, except those in _EFFECTS_ELSEWHERE}.
_TESTS_OF_COMMANDS = {
    "sweep": "commands/test_sweep.py", "compare_results": "commands/test_compare_results.py",
    "download": "commands/test_download_command.py", "glue_submission": "commands/test_glue_tasks.py",
    "reproduce": "commands/test_reproduce.py", "serve": "commands/test_serve.py"}
# {command: its flags in both runs}. They run in a workspace with the directories model/, trained/ (a trained
# classifier) and the file lines.txt.
OTHER_COMMANDS = {
    "predict": {"model_dir": "trained", "input_file": "texts.txt"},
    "export": {"model_dir": "trained"},
    "extract_features": {"input_file": "lines.txt", "output_file": "vectors.jsonl",
                         "init_checkpoint": "model/bert_model.ckpt", "vocab_file": "model/vocab.txt",
                         "bert_config_file": "model/bert_config.json", "max_seq_length": 20, "layers": "-1"},
    "create_pretraining_data": {"input_file": "lines.txt", "output_file": "train.tfrecord",
                                "vocab_file": "model/vocab.txt", "max_seq_length": 20,
                                "max_predictions_per_seq": 4, "dupe_factor": 2},
    "build_vocab": {"input_file": "lines.txt", "output_file": "vocab.txt", "vocab_size": 60,
                    "min_frequency": 1},
    "convert_checkpoint": {"input": "trained", "output": "converted"},
    "plan_memory": {"bert_config_file": "model/bert_config.json", "max_seq_length": 20, "batch_size": 2},
    # Without flags, these commands end with an error.
    **{command: {} for command in _TESTS_OF_COMMANDS},
}
# {command: flags of a run that ends with an error}.
_WRONG = {"predict": {"model_dir": None}, "export": {"model_dir": None},
          "extract_features": {"input_file": "no/such"},
          "create_pretraining_data": {"input_file": "no/such"}, "build_vocab": {"input_file": "no/such"},
          "convert_checkpoint": {"input": None}, "plan_memory": {"bert_config_file": "no/such"}}
_VECTORS = "vectors.jsonl"
_RECORDS = "train.tfrecord"
_ONNX = {"format": "onnx"}
_EFFECTS = {
    "predict": {
        **_at("output", task="vectors", precision="bf16", input_format="jsonl", output_format="csv",
              interactive=True),
        **_at("output", {"model_dir": "best_trained"}, weights="last"),
        **_at("log", engine="onnx"),
        **_at("answers.jsonl", output_file="answers.jsonl"),
        **_at("output", {"input_file": "bad.txt"}, skip_bad_lines=True),
        **_at("output", {"output_format": "csv"}, csv_safe=True, output_delimiter="pipe",
              output_decimal="comma"),
        **_at("message", {"input_file": "lines.csv"}, text_column="nonsense", header="false",
              encoding="utf-16"),
        **_at("output", {"input_file": "lines.csv"}, delimiter="tab")},
    "export": {
        **_at("trained/export_vectors/*", task="vectors"),
        **_at("trained/export_onnx/*", format="onnx"),
        **_at("log", {"model_dir": "best_trained"}, weights="last"),
        **_at("trained/export_onnx/*", _ONNX, quantize="int8"),
        **_at("trained/export_text/*", text=True),
        **_at("exported/*", output_dir="exported"),
        **_at("message", _ONNX, compare_file="no/such"),
        **_at("log", {**_ONNX, "compare_file": "lines.txt"}, compare_examples=1),
        **_at("trained/export/*", warmup_requests=0)},
    "extract_features": {
        **_at("v.jsonl", output_file="v.jsonl"),
        **_at(_VECTORS, output_format="npz", layers="-2", pooling="mean", max_seq_length=4,
              do_lower_case=False, precision="bf16"),
        **_at(_VECTORS, {"output_format": "npz"}, output_dtype="float16")},
    "create_pretraining_data": {
        **_at("b.tfrecord", output_file="a.tfrecord,b.tfrecord"),
        **_at(_RECORDS, max_seq_length=9, max_predictions_per_seq=1, masked_lm_prob=0.5,
              do_whole_word_mask=True, next_sentence=False, short_seq_prob=1, dupe_factor=1, random_seed=1,
              do_lower_case=False, shuffle_buffer_documents=1)},
    "build_vocab": {
        **_at("v.txt", output_file="v.txt"),
        **_at("vocab.txt", vocab_size=50, do_lower_case=False, min_frequency=9, num_unused=2)},
    "convert_checkpoint": {
        **_at("other/*", output="other"),
        **_at("converted/*", to="tensorflow", weights_only=True),
        **_at("log", {"output": "model/hugging_face"}, force=True),
        **_at("converted/tokenizer_config.json", do_lower_case=False)},
    "plan_memory": {
        **_at("output", {"bert_config_file": None}, model="large"),
        **_at("output", max_seq_length=8, task="squad", batch_size=4, precision="bf16", recompute="layers",
              optimizer="adafactor", freeze_layers=1, freeze_embeddings=True, phase="prediction",
              gradient_accumulation_steps=2),
        **_at("chart.svg", {"batch_size": None}, output_file="chart.svg")}}
_EFFECTS_ELSEWHERE = {
    "predict": {"label_column": "serving/test_prediction_inputs.py",
                "token_column": "serving/test_prediction_inputs.py",
                "tag_column": "serving/test_prediction_inputs.py"},
    "create_pretraining_data": {"beam_runner": "tasks/test_pretraining_beam.py",
                                "beam_options": "tasks/test_pretraining_beam.py"},
    "convert_checkpoint": {"published_config": "commands/test_convert_checkpoint.py"},
    "build_vocab": {"init_checkpoint": "commands/test_extended_vocabulary.py",
                    "bert_config_file": "commands/test_extended_vocabulary.py"},
    "plan_memory": {"card": "estimator/test_memory_planner.py",
                    "gpu_memory_gb": "estimator/test_memory_planner.py",
                    "reserve_gb": "estimator/test_memory_planner.py"},
    "sweep": {"samples": "reports/test_sweeps.py", "sample_seed": "reports/test_sweeps.py"}}


# --- The table -------------------------------------------------------------------------------------------


def flags_of(command):
    """Returns {flag: its type, values and default} of a command."""
    return {name: text for section in FLAGS[command].values() for name, text in section.items()}


def effect_of(command, flag):
    """Returns the `Effect` of a flag, the test file that shows the effect, or the reason why there is none.

    None: the table has no entry for the flag.
    """
    own = _EFFECTS.get(command, {}), _EFFECTS_ELSEWHERE.get(command, {}), _OVERRIDES.get(command, {})
    training = _TRAINING if command in TRAINING_COMMANDS else {
        "use_tpu": _TRAINING["use_tpu"], "traceback": Effect(True, "log", _WRONG.get(command, {}))}
    for table in (*own, training, ELSEWHERE, WITHOUT):
        if flag in table:
            return table[flag]
    if command in _TESTS_OF_COMMANDS:
        return _TESTS_OF_COMMANDS[command]
    return Effect("no/such", "message") if flag.endswith(_READ_PATHS) else None


def effects():
    """Returns [(command, flag)] with the flags whose effect test_flag_effects.py shows."""
    return [(command, flag) for command in FLAGS for flag in flags_of(command)
            if isinstance(effect_of(command, flag), Effect)
            and (command in TRAINING_COMMANDS or command in OTHER_COMMANDS)]
