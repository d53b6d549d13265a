"""docs/howto/porting.md lists what works. The list is written from `ROWS`, and each row names its test.

After a change of `ROWS`, write the list with `python tests/tf1/test_porting.py`.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "porting.md"
BEGIN, END = "<!-- This table is written by tests/tf1/test_porting.py. -->\n\n", "\n<!-- end -->"
# (part of a program, result, file of the test, name of the test)
ROWS = [
    ("A script with an Estimator: training, evaluation, prediction",
     "works", "test_forks", "test_it_evaluates_what_it_predicts"),
    ("Its export", "works", "test_forks", "test_the_exported_model_predicts_the_same"),
    ("A training that was killed and started again", "ends with the same weights",
     "test_forks", "test_killed_and_started_again_it_ends_in_the_same_weights"),
    ("`RunConfig(save_checkpoints_steps=0)`", "saves no checkpoints",
     "test_tf1_estimator", "test_a_run_can_save_no_checkpoints"),
    ("`evaluate(checkpoint_path=\"directory/\")`", "uses the newest checkpoint of the directory",
     "test_tf1_estimator", "test_the_directory_of_a_checkpoint_means_its_newest"),
    ("`x if variable else y`", "a variable is true, as in TF 1",
     "test_reference_variables", "test_a_variable_is_true"),
    ("`tf.Variable(w * 0)`, a value computed from another variable", "works in any order",
     "test_reference_variables", "test_an_initial_value_uses_the_initial_values_of_other_variables"),
    ("`feed_dict={variable: …}`, `feed_dict={\"w:0\": …}`",
     "works. An error names the ops for which it needs `--reference_variables`",
     "test_reference_variables", "test_a_variable_is_fed_by_name_or_as_an_object"),
    ("`graph.get_tensor_by_name(\"w:0\") * 2`", "is the value of the variable",
     "test_reference_variables", "test_the_tensor_with_the_name_of_a_variable_is_its_value"),
    ("Variables of `import_meta_graph` or `hub.Module` in `fit` of Keras", "works",
     "test_reference_variables", "test_an_imported_variable_has_what_a_new_one_has"),
    ("`tensorflow.python.keras`, `tf.contrib.keras`", "the same Keras as `tf.keras`",
     "test_keras_modules", "test_a_name_is_the_one_of_tf_keras"),
    ("Several cells of `tf.contrib.rnn` in one graph", "names of variables as in TF 1",
     "test_contrib_rnn", "test_a_second_cell_gets_a_scope_with_a_number"),
    ("`tf.contrib.learn.preprocessing.VocabularyProcessor`", "works",
     "test_texts_and_sequences", "test_texts_become_arrays_of_word_ids"),
    ("`legacy_seq2seq`: `rnn_decoder`, `sequence_loss`, `sequence_loss_by_example`", "works",
     "test_texts_and_sequences", "test_a_language_model_of_lists"),
    ("`pickle.dump(x, tf.gfile.GFile(…))`", "works", "test_texts_and_sequences", "test_a_file_takes_buffers"),
    ("`--num_replicas` and an Estimator", "as one process with twice the batch",
     "test_forks_replicas", "test_two_replicas_train_as_one_process_with_twice_the_batch"),
    ("Horovod and an Estimator", "works", "test_forks_replicas", "test_horovod"),
    ("Horovod and `tf.Session` or `MonitoredTrainingSession`", "works",
     "test_sessions_with_horovod", "test_a_script_with_its_own_sessions_trains_in_two_processes"),
    ("Names that `--check` reports", "cannot be used",
     "test_check", "test_a_name_is_reported_exactly_if_it_cannot_be_used"),
    ("Imports that `--check` reports", "fail",
     "test_check", "test_an_import_is_reported_exactly_if_it_fails"),
]


def table():
    """Returns the table in Markdown."""
    lines = ["| part of a program | result | test |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {part} | {result} | `{file}.py::{name}` |"
                                for part, result, file, name in ROWS)]) + "\n"


def test_the_page_has_the_table():
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == table()


def test_each_row_has_a_test():
    for _, _, file, name in ROWS:
        source = (pathlib.Path(__file__).parent / f"{file}.py").read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.M), name


if __name__ == "__main__":
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} lacks the comments around the table.")
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")
