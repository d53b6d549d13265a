"""Pre-training data on Apache Beam's local runner: the files are equal to those of the local command."""

import gzip
import os
import pathlib
import sys

import grpc
from helpers import ROOT
import pytest
from test_pretraining_data import contents, corpus, stream, stream_until_killed, tokenizer_of, write

from bertlib.tasks.pretraining import pretraining_beam, pretraining_stream
from bertlib.tasks.pretraining.pretraining_data import Recipe

SMALL = {"max_seq_length": 32, "dupe_factor": 2}


def cluster():
    return pretraining_beam.BeamRunner("DirectRunner")


# --- The same files --------------------------------------------------------------------------------------


def test_several_input_files_and_more_output_files_than_records(tmp_path, monkeypatch):
    """The workers use the scheme file:// of another file system."""
    monkeypatch.setattr(grpc, "server", None)  # nothing opens a port
    texts = corpus(7, 3, 4)
    text = "\n\n".join("\n".join(text) for text in texts[:6])
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "empty.txt").write_text("\n\n")
    write(tmp_path / "b.txt", texts[6:])  # the last block has one document more
    manifests, arguments = [], (tokenizer_of(texts),
                                Recipe(max_seq_length=32, dupe_factor=1, shuffle_buffer_documents=3))
    remote = f"file://{tmp_path}", cluster()
    for root, where in ((str(tmp_path), None), remote, remote):
        sources = [f"{root}/{name}" for name in ("a.gz", "empty.txt", "b.txt")]
        paths = [f"{root}/{'there' if where else 'here'}/{index}" for index in range(20)]
        manifests.append(pretraining_stream.write_training_data(sources, paths, *arguments, cluster=where))
    here, *there = ({name: manifest[name] for name in ("statistics", "fingerprint", "sizes")}
                    for manifest in manifests)
    assert here == there[0] == there[1] and here["statistics"]["instances"] < 20
    assert contents(sorted((tmp_path / "there").glob("*[0-9]"))) == contents(
        sorted((tmp_path / "here").glob("*[0-9]")))
    assert len(os.listdir(tmp_path / "there")) == 21  # the manifest, and no temporary files
    with pytest.raises(ValueError, match="is not a local file"):
        pretraining_stream.write_training_data(sources, paths, *arguments)


# --- Earlier runs ----------------------------------------------------------------------------------------


def test_a_run_here_that_was_interrupted_is_finished(tmp_path, monkeypatch):
    texts, recipe = corpus(20, 4, 5), Recipe(**SMALL)
    arguments = {"files": 2, "shuffle_buffer_documents": 5}
    expected, _ = stream(tmp_path, texts, recipe, name="whole", **arguments)
    stream_until_killed(2, monkeypatch, tmp_path, texts, recipe, **arguments)
    # The first file is from an attempt that was killed. The second one belongs to another program.
    for path in ("out-0.beam-1", "out-0.beam"):
        (tmp_path / path).write_bytes(b"half a record")
    paths, _ = stream(tmp_path, texts, recipe, cluster=cluster(), **arguments)
    assert contents(paths) == contents(expected)
    assert sorted(os.listdir(tmp_path)) == [
        "corpus.txt", "out-0", "out-0.beam", "out-0.manifest.json", "out-1", "whole-0",
        "whole-0.manifest.json", "whole-1"]
    # All files are complete, so a run on a cluster does nothing.
    monkeypatch.setattr(pretraining_beam.BeamRunner, "make_blocks", None)
    stream(tmp_path, texts, recipe, cluster=cluster(), **arguments)


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content, complaint", [
    (b"one\ntwo \xe9\n", "^[^ ]*b, line 2: byte 5 of this line, 0xe9, is not UTF-8. Convert the file to "
                         "UTF-8.$"),
    (b"\n \n", "/b, .*: the input files contain no text")])
def test_bad_text(tmp_path, content, complaint, capfd):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    for path, text in zip(paths, (b"", content, b"" if b"\xe9" not in content else content)):
        pathlib.Path(path).write_bytes(text)
    with pytest.raises((ValueError, OSError), match=complaint):
        pretraining_stream.write_training_data(paths, [str(tmp_path / "out")], tokenizer_of([["one two"]]),
                                               Recipe(), cluster=cluster())
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    assert not capfd.readouterr().err.strip()


def test_an_error_on_a_worker_is_one_message(tmp_path, monkeypatch, capfd):
    survey = pretraining_beam.BeamRunner.survey

    def survey_and_change(*arguments):
        found = survey(*arguments)
        write(tmp_path / "corpus.txt", corpus(8, 4, 5))
        return found

    monkeypatch.setattr(pretraining_beam.BeamRunner, "survey", survey_and_change)
    with pytest.raises(OSError, match="^[^ ]*corpus.txt was changed while it was read: at first, it had 9 "):
        stream(tmp_path, corpus(9, 4, 5), Recipe(**SMALL), cluster=cluster(), shuffle_buffer_documents=4)
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt", "out-0.partial"]
    assert not capfd.readouterr().err.strip()


def test_what_a_runner_loses_is_missed(tmp_path, monkeypatch):
    whole = pretraining_beam._parts_of_file
    monkeypatch.setattr(pretraining_beam, "_parts_of_file",
                        lambda *arguments, **others: list(whole(*arguments, **others))[1:])
    with pytest.raises(ChildProcessError, match="it read 4 of 9 documents, and made 1 of 2 blocks"):
        stream(tmp_path, corpus(9, 4, 5), Recipe(**SMALL), cluster=cluster(), shuffle_buffer_documents=5)
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt", "out-0.partial"]


@pytest.mark.parametrize("runner, options, complaint", [
    ("NoSuchRunner", [], "has no runner with this name. Its runners are DataflowRunner"),
    ("no.such.Runner", [], "has no runner with this name"),
    ("DirectRunner", ["direct_num_workers=two"], "argument --direct_num_workers: invalid int value: 'two'"),
    ("DirectRunner", ["direct_running_mode=x"], "argument --direct_running_mode: invalid choice: 'x'"),
    ("DirectRunner", ["direct_running_mode=multi_processing"], "would open ports .* pass --num_workers"),
    ("DirectRunner", ["direct_num_worker=2"], "has no option direct_num_worker"),
    ("DirectRunner", ["2"], "has no option 2")])
def test_runners_and_options_that_there_are_not(runner, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        pretraining_beam.BeamRunner(runner, options)


def test_options_that_only_a_cluster_knows_are_handed_on():
    pretraining_beam.BeamRunner("FlinkRunner", ["flink_master=host:8081", "--of_the_cluster=2"])


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match="pip install -r requirements-beam.txt"):
        cluster()


# --- The command -----------------------------------------------------------------------------------------

FLAGS = {"input_file": ROOT / "samples/pretraining/dev.txt", "dupe_factor": 2, "shuffle_buffer_documents": 20,
         "vocab_file": ROOT / "samples/pretraining/vocab.txt", "output_file": "out"}


@pytest.mark.parametrize("changes, complaint", [
    ({"beam_options": "direct_num_workers=2"}, "--beam_options has no effect without --beam_runner"),
    ({"beam_runner": "DirectRunner", "num_workers": 2}, "--num_workers cannot be used with --beam_runner"),
    ({"beam_runner": "Nobody", "beam_options": "a=1"}, "--beam_runner=Nobody --beam_options=a=1: Apache")])
def test_flags_that_contradict_each_other(run_script, tmp_path, changes, complaint):
    done = run_script("create_pretraining_data.py", **FLAGS, **changes)
    assert done.code == 1 and complaint in done.err and len(done.err.splitlines()) == 1
    assert not os.listdir(tmp_path)


def test_without_the_flag_nothing_of_beam_is_loaded(run_script, tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text("import sys\nimport create_pretraining_data\nfrom absl import flags\n"
                     "flags.FLAGS(sys.argv)\ncreate_pretraining_data.main([])\n"
                     "print([name for name in sys.modules if name.startswith('apache_beam')])\n")
    done = run_script(probe, **FLAGS)
    assert done.out == "[]\n" and (tmp_path / "out").exists(), done.err
