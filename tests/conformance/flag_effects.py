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


_EVAL = {"do_eval": True}
# With this learning rate, no evaluation is better than the first.
_BEST = {**_EVAL, "eval_every_steps": 1, "keep_best": "METRIC", "learning_rate": 1e-30,
         "num_train_epochs": 1}
_TRAINING = {
    # Phases and files.
    "do_train": Effect(False, "output/model.ckpt-*.index", _EVAL),
    "do_eval": Effect(True, "output/eval_results.json"), "do_export": Effect(True, "output/export/*"),
    "do_predict": Effect(True, "output/test_predictions.csv"),
    "output_dir": Effect("elsewhere", "elsewhere/run.json"),
    "results_dir": Effect("elsewhere", "elsewhere/eval_results.json", _EVAL),
    "features_cache": Effect("cache", "cache/*"), "dev_file": Effect("no/such", "message", _EVAL),
    "predict_file": Effect("no/such", "message", _EVAL),
    "eval_file": Effect("no/such", "message", _EVAL),
    "test_file": Effect("no/such", "message", {"do_predict": True}),
    "label_map": Effect("no/such", "message"),
    "predictions_format": Effect("jsonl", "output/eval_predictions.*", _EVAL),
    "output_delimiter": Effect("pipe", "output/eval_predictions.csv", _EVAL),
    "init_checkpoint": Effect(None, "weights"),
    # The task.
    "task_name": Effect("nonsense", "message"), "task_type": Effect("regression", "output/labels.txt"),
    "doc_stride": Effect(4, "output/train.tf_record", {"max_seq_length": 12}),
    "class_weights": Effect("1,9", "weights"), "label_smoothing": Effect(0.3, "weights"),
    "threshold": Effect(0.3, "message"), "dev_fraction": Effect(0.25, "output/dev_rows.txt",
                                                                {"dev_file": None, **_EVAL}),
    "text_column": Effect("nonsense", "message"), "label_column": Effect("nonsense", "message"),
    "header": Effect("false", "log"), "delimiter": Effect("tab", "log"),
    "encoding": Effect("utf-16", "log"),
    "max_train_examples": Effect(9, "weights"),
    "max_eval_examples": Effect(3, "output/eval_results.json", _EVAL),
    "max_eval_steps": Effect(1, "output/eval_results.*", _EVAL),
    "eval_batch_size": Effect(3, "output/eval_results.txt", _EVAL),
    "baseline": Effect("true", "output/eval_results.json", _EVAL),
    "token_column": Effect(2, "output/train.tf_record"), "tag_column": Effect(1, "output/labels.txt"),
    "crf": Effect(True, "weights"),
    "version_2_with_negative": Effect(False, "message"),
    "max_query_length": Effect(1, "output/train.tf_record"),
    "max_answer_length": Effect(1, "output/nbest_predictions.json", _EVAL),
    "n_best_size": Effect(1, "output/nbest_predictions.json", _EVAL),
    "null_score_diff_threshold": Effect(-1e6, "output/predictions.json", _EVAL),
    "max_predictions_per_seq": Effect(3, "message"),
    # The model and the text.
    "max_seq_length": Effect(12, "output/train.tf_record"),
    "do_lower_case": Effect(False, "output/tokenizer_config.json"),
    # The training.
    "train_batch_size": Effect(2, "weights"), "learning_rate": Effect(0.1, "weights"),
    "optimizer": Effect("lamb", "weights"), "adam_bias_correction": Effect(True, "weights"),
    "lr_schedule": Effect("constant", "weights"), "weight_decay": Effect(9, "weights"),
    "clip_norm": Effect(1e-3, "weights"), "layer_decay": Effect(0.5, "weights"),
    "reinit_layers": Effect(1, "weights"), "freeze_layers": Effect(1, "weights"),
    "freeze_embeddings": Effect(True, "weights"), "seed": Effect(1, "weights"),
    "num_train_epochs": Effect(0.25, "weights"), "warmup_proportion": Effect(1, "weights"),
    "num_train_steps": Effect(1, "weights"), "num_warmup_steps": Effect(0, "weights"),
    "max_steps": Effect(1, "weights"), "precision": Effect("bf16", "weights"),
    "save_checkpoints_steps": Effect(1, "output/model.ckpt-1.index"),
    "keep_checkpoint_max": Effect(1, "output/model.ckpt-1.index", {"save_checkpoints_steps": 1}),
    "eval_each_checkpoint": Effect(True, "output/learning_curve.tsv", _EVAL),
    "eval_every_steps": Effect(1, "output/learning_curve.tsv", _EVAL),
    "keep_best": Effect("METRIC", "output/best/*", {**_EVAL, "eval_every_steps": 1}),
    "early_stopping_evals": Effect(1, "output/model.ckpt-*.index", _BEST),
    "weights": Effect("last", "output/eval_results.json", _BEST),
    "log_steps": Effect(3, "log", {"num_train_epochs": 1}),
    "profile_steps": Effect("1,1", "output/plugins/*"),
    # Memory and speed.
    "trim_padding": Effect(False, "weights"),
    "gradient_accumulation_steps": Effect(2, "output/graph.pbtxt"),
    "tokens_per_micro_batch": Effect(128, "output/graph.pbtxt", {"trim_padding": True}),
    "recompute": Effect("layers", "output/graph.pbtxt"),
    "recompute_segment": Effect(2, "output/graph.pbtxt", {"recompute": "layers"}),
    "memory_limit_gb": Effect(1e-6, "log", {"recompute": "auto"}),
    "compile_kernels": Effect(True, "output/graph.pbtxt"),
    # Errors.
    "use_tpu": Effect(True, "message"), "traceback": Effect(True, "log", {"init_checkpoint": "no/such"}),
}
_OVERRIDES = {
    "run_squad": {"trim_padding": Effect(True, "weights"),
                  "doc_stride": Effect(3, "output/train.tf_record", {"max_seq_length": 16}),
                  "max_seq_length": Effect(16, "output/train.tf_record"),
                  "do_predict": Effect(True, "output/test_predictions.csv", {"do_eval": None})},
    "run_pretraining": {
        "max_seq_length": Effect(12, "message"),
        **{name: _TRAINING[name]._replace(base={**_BEST, "num_train_epochs": None, "num_train_steps": 4})
           for name in ("early_stopping_evals", "weights")},
        "log_steps": Effect(3, "log", {"num_train_steps": 4})},
    "run_swag": {"max_seq_length": Effect(20, "output/train.tf_record")},
    "run_classifier": {"doc_stride": Effect(2, "output/train.tf_record", {"max_seq_length": 8})},
    "run_ner": {"data_dir": Effect("no/such", "message",
                                   dict.fromkeys(["train_file", "dev_file", "test_file"]))},
    # A hub module has these properties itself.
    "run_classifier_with_tfhub": {
        "do_lower_case": Effect(False, "message"), "dev_fraction": Effect(0.25, "message"),
        "memory_limit_gb": Effect(1e-6, "log", {"gradient_accumulation_steps": 0}),
        **{name: Effect(value, "message") for name, value in dict(
            bert_config_file="model/bert_config.json", init_checkpoint="model/bert_model.ckpt",
            precision="bf16", recompute="layers", recompute_segment=2, compile_kernels=True,
            layer_decay=0.5, freeze_layers=1, freeze_embeddings=True, reinit_layers=1).items()}},
}
# {flag: the test file that shows its effect}. These effects need several processes, a server, other data or
# other machines.
ELSEWHERE = {
    "label_all_pieces": "tasks/test_tagging_data.py", "use_one_hot_embeddings": "test_modeling.py",
    "num_replicas": "commands/test_replicas_train.py", "replica_timeout": "commands/test_replicas.py",
    "max_restarts": "commands/test_replicas.py", "gradient_dtype": "estimator/test_step_config.py",
    "open_ports": "commands/test_open_ports.py", "use_xla": "commands/test_xla.py",
    "csv_safe": "reports/test_prediction_files.py", "skip_bad_lines": "commands/test_skip_bad_lines.py",
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
    **{command: {} for command in ("sweep", "compare_results", "download", "glue_submission", "reproduce",
                                   "serve")},
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
        "task": Effect("vectors", "output"),
        "weights": Effect("last", "output", {"model_dir": "best_trained"}),
        "precision": Effect("bf16", "output"),
        "engine": Effect("onnx", "log"), "output_file": Effect("answers.jsonl", "answers.jsonl"),
        "input_format": Effect("jsonl", "output"), "output_format": Effect("csv", "output"),
        "skip_bad_lines": Effect(True, "output", {"input_file": "bad.txt"}),
        "interactive": Effect(True, "output"), "csv_safe": Effect(True, "output", {"output_format": "csv"}),
        "output_delimiter": Effect("pipe", "output", {"output_format": "csv"}),
        "text_column": Effect("nonsense", "message", {"input_file": "lines.csv"}),
        "header": Effect("false", "message", {"input_file": "lines.csv"}),
        "delimiter": Effect("tab", "output", {"input_file": "lines.csv"}),
        "encoding": Effect("utf-16", "message", {"input_file": "lines.csv"})},
    "export": {
        "task": Effect("vectors", "trained/export_vectors/*"),
        "format": Effect("onnx", "trained/export_onnx/*"),
        "weights": Effect("last", "log", {"model_dir": "best_trained"}),
        "quantize": Effect("int8", "trained/export_onnx/*", _ONNX),
        "text": Effect(True, "trained/export_text/*"), "output_dir": Effect("exported", "exported/*"),
        "compare_file": Effect("no/such", "message", _ONNX),
        "compare_examples": Effect(1, "log", {**_ONNX, "compare_file": "lines.txt"}),
        "warmup_requests": Effect(0, "trained/export/*")},
    "extract_features": {
        "output_file": Effect("v.jsonl", "v.jsonl"), "output_format": Effect("npz", _VECTORS),
        "layers": Effect("-2", _VECTORS), "pooling": Effect("mean", _VECTORS),
        "output_dtype": Effect("float16", _VECTORS, {"output_format": "npz"}),
        "max_seq_length": Effect(4, _VECTORS), "do_lower_case": Effect(False, _VECTORS),
        "precision": Effect("bf16", _VECTORS)},
    "create_pretraining_data": {
        "output_file": Effect("a.tfrecord,b.tfrecord", "b.tfrecord"), "max_seq_length": Effect(9, _RECORDS),
        "max_predictions_per_seq": Effect(1, _RECORDS), "masked_lm_prob": Effect(0.5, _RECORDS),
        "do_whole_word_mask": Effect(True, _RECORDS), "next_sentence": Effect(False, _RECORDS),
        "short_seq_prob": Effect(1, _RECORDS), "dupe_factor": Effect(1, _RECORDS),
        "random_seed": Effect(1, _RECORDS), "do_lower_case": Effect(False, _RECORDS),
        "shuffle_buffer_documents": Effect(1, _RECORDS)},
    "build_vocab": {
        "output_file": Effect("v.txt", "v.txt"), "vocab_size": Effect(50, "vocab.txt"),
        "do_lower_case": Effect(False, "vocab.txt"), "min_frequency": Effect(9, "vocab.txt"),
        "num_unused": Effect(2, "vocab.txt")},
    "convert_checkpoint": {
        "output": Effect("other", "other/*"), "to": Effect("tensorflow", "converted/*"),
        "weights_only": Effect(True, "converted/*"),
        "force": Effect(True, "log", {"output": "model/hugging_face"}),
        "do_lower_case": Effect(False, "converted/tokenizer_config.json")},
    "plan_memory": {
        "model": Effect("large", "output", {"bert_config_file": None}), "max_seq_length": Effect(8, "output"),
        "task": Effect("squad", "output"), "batch_size": Effect(4, "output"),
        "precision": Effect("bf16", "output"), "recompute": Effect("layers", "output"),
        "optimizer": Effect("adafactor", "output"), "freeze_layers": Effect(1, "output"),
        "freeze_embeddings": Effect(True, "output"), "phase": Effect("prediction", "output"),
        "gradient_accumulation_steps": Effect(2, "output"),
        "output_file": Effect("chart.svg", "chart.svg", {"batch_size": None})}}
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
    "sweep": {**dict.fromkeys(["sweep_dir", "grid", "jobs", "metric"], "commands/test_sweep.py"),
              "samples": "reports/test_sweeps.py", "sample_seed": "reports/test_sweeps.py",
              "keep_checkpoints": "conformance/test_flag_pairs.py"},
    "compare_results": dict.fromkeys(["metric", "resamples", "seed", "output_format"],
                                     "commands/test_compare_results.py"),
    "download": dict.fromkeys(["model", "data", "list", "output_dir", "base_url"],
                              "commands/test_download_command.py"),
    "glue_submission": dict.fromkeys(["output_file", "partial"], "commands/test_glue_tasks.py"),
    "reproduce": dict.fromkeys(["output_dir", "until", "anyway"], "commands/test_reproduce.py"),
    "serve": dict.fromkeys(["model_dir", "task", "engine", "host", "port", "token", "max_texts", "max_queue",
                            "request_timeout", "weights", "precision", "batch_wait_ms", "max_body_kb",
                            "max_requests"], "commands/test_serve.py")}


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
    return Effect("no/such", "message") if flag.endswith(_READ_PATHS) else None


def effects():
    """Returns [(command, flag)] with the flags whose effect test_flag_effects.py shows."""
    return [(command, flag) for command in FLAGS for flag in flags_of(command)
            if isinstance(effect_of(command, flag), Effect)
            and (command in TRAINING_COMMANDS or command in OTHER_COMMANDS)]
