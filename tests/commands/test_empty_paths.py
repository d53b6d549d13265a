"""Every command refuses an empty path, for every flag whose value is a path.

An empty path comes, for example, from a shell variable that is not set.
"""

import pytest
import tiny

PATHS = {
    "run_classifier": "data_dir output_dir bert_config_file vocab_file spm_model_file init_checkpoint",
    "run_squad": "train_file predict_file output_dir bert_config_file vocab_file init_checkpoint",
    "run_pretraining": "input_file eval_file output_dir bert_config_file init_checkpoint",
    "create_pretraining_data": "input_file output_file vocab_file spm_model_file",
    "extract_features": "input_file output_file bert_config_file vocab_file spm_model_file init_checkpoint",
    "convert_checkpoint": "input output bert_config_file vocab_file",
    "build_vocab": "input_file output_file",
    "plan_memory": "bert_config_file output_file",
    "glue_submission": "output_file",
    "export": "model_dir output_dir compare_file",
}


@pytest.mark.parametrize("command", PATHS)
def test_an_empty_path_is_refused(command, scripts, tmp_path):
    for name in PATHS[command].split():
        finished = scripts.run(f"{command}.py", *tiny.flags(**{name: ""}), cwd=tmp_path)
        assert finished.code == 1
        assert finished.err == (
            f"{command}.py: error: --{name} is empty. Pass a path, or leave the flag out. If the "
            "path comes from a shell variable, the variable is not set.\n")
    assert not list(tmp_path.iterdir())
