"""A command without training uses the values of flags in run.json, or refuses other values.

The class of a flag decides which of these happens.
"""


import model_directories
import tiny

# --- Tags ------------------------------------------------------------------------------------------------


def tagger(directory, model, **settings):
    labels = model_directories.TAGS
    return model_directories.write(directory, model, "tagging", model_directories.linear(len(labels)), labels,
                                   task="ner", **settings)


def test_what_the_record_does_not_contain_is_not_contradicted(scripts, tiny_model, tmp_path):
    (tmp_path / "test.conll").write_text("the O\ncat B-ANIMAL\n")
    output = tagger(tmp_path / "output", tiny_model)
    done = scripts.run("run_ner.py", *tiny.flags(
        do_predict=True, test_file="test.conll", output_dir=output, learning_rate=0.5, crf=False),
                       cwd=tmp_path)
    assert done.code == 0 and "token_column" not in done.err, done.err
