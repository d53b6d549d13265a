"""Compares the cost of a classifier's answers in this project and in the pipeline of transformers.

    python benchmarks/serving.py --peer_python=PYTHON --model_dir=output/mrpc [--rounds=3] [--lines=2000] \\
      [--onnx] [--one_core] [--results=NAME]

PYTHON is a Python interpreter with torch and transformers. Without --peer_python, the script measures only
this project. convert_checkpoint.py converts the model for the pipeline. Both programs answer the same --lines
pairs. They are the pairs of the sample; if the sample has fewer pairs, its pairs are repeated. First, each
call answers one pair. Then one call answers all pairs in batches of 32. In both programs, a batch contains
pairs of similar length: this project sorts the pairs itself, and the pipeline gets pairs that are already
sorted.

Each round of a program is a separate process, and the programs run alternately. CPU seconds are user and
system time. Loading is measured separately. The script also compares the answers. With --onnx, export.py
writes the same model as ONNX files in fp32 and with int8 weights, and the script measures them, too. With
--one_core, all programs have one core and one thread.
"""

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
import results

SINGLE_CALLS = 200
UNITS = {"load and first answer, CPU ms": "CPU ms", "load and first answer, ms": "ms",
         "a call, CPU ms": "CPU ms", "a call, ms": "ms", "an answer of many, CPU ms": "CPU ms",
         "an answer of many, ms": "ms", "peak": "GB", "largest_difference": "probability"}


def pairs_of(path, count):
    """Returns `count` pairs of texts from a file in the format of MRPC.

    If the file has fewer pairs, its pairs are repeated.
    """
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [rows[index % len(rows)][3:5] for index in range(count)]


def main():
    """Measures the programs, and prints a table with the median costs of each program."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", help="path of a Python that has torch and transformers")
    parser.add_argument("--model_dir", required=True,
                        help="output directory of a training; its classifier must take pairs of texts")
    parser.add_argument("--data_file", default=os.path.join(compare.ROOT, "samples", "MRPC", "train.tsv"))
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--onnx", action="store_true", help="measure ONNX files too")
    parser.add_argument("--one_core", action="store_true", help="run on one core, with one thread")
    results.add_flag(parser)
    arguments = parser.parse_args()
    if arguments.one_core:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    recorder = results.Recorder(arguments.results, UNITS, [arguments.peer_python])
    with tempfile.TemporaryDirectory() as directory:
        peer, pairs = os.path.join(directory, "hugging_face"), os.path.join(directory, "pairs.json")
        with open(pairs, "w", encoding="utf-8") as writer:
            json.dump(pairs_of(arguments.data_file, arguments.lines), writer)
        sides = {compare.OURS: [sys.executable, "our_answers.py", arguments.model_dir]}
        if arguments.peer_python:
            compare.run([sys.executable, os.path.join(compare.ROOT, "convert_checkpoint.py"),
                         f"--input={arguments.model_dir}", f"--output={peer}", "--to=hugging_face"])
            sides[compare.HUGGING_FACE] = [arguments.peer_python, "hf_pipeline.py", peer]
        for side, flags in compare.ONNX.items() if arguments.onnx else ():
            exports = os.path.join(directory, side.replace(" ", "_"))
            compare.run([sys.executable, os.path.join(compare.ROOT, "export.py"), "--format=onnx",
                         f"--model_dir={arguments.model_dir}", f"--output_dir={exports}",
                         "--compare_examples=1", *flags])
            export, = os.listdir(exports)
            sides[side] = [sys.executable, "our_answers.py", os.path.join(exports, export)]
        found, peaks = {side: [] for side in sides}, {side: [] for side in sides}
        for turn in range(arguments.rounds):
            for side, (python, program, model) in sides.items():
                done = compare.run([python, os.path.join(compare.PEERS, program), model, pairs,
                                    str(SINGLE_CALLS)])
                found[side].append(json.loads(done.output.splitlines()[-1]))
                peaks[side].append(done.peak / 1e9)
                shown = {name: value for name, value in found[side][-1].items() if name != "probabilities"}
                recorder.add(round=turn + 1, side=side, lines=arguments.lines, **shown, peak=peaks[side][-1])
                compare.report(f"round {turn + 1}, {side}: {shown}, {done.peak / 1e9:.2f} GB")
    names = [name for name in found[compare.OURS][0] if name != "probabilities"]
    print(f"| side | {' | '.join(names)} | peak GB |\n" + "|---" * (len(names) + 2) + "|")
    for side, rounds in found.items():
        cells = [f"{statistics.median(found[name] for found in rounds):.4g}" for name in names]
        print(f"| {side} | {' | '.join(cells)} | {statistics.median(peaks[side]):.2f} |")
    for side in list(sides)[1:]:
        ours, theirs = (found[name][0]["probabilities"] for name in (compare.OURS, side))
        largest = max(abs(one - other) for one, other in zip(ours, theirs))
        recorder.add(side=side, largest_difference=largest)
        print(f"\nLargest difference of a probability, {side}: {largest:.1e}")
    recorder.write()


if __name__ == "__main__":
    main()
