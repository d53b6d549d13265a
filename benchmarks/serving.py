"""Measures the answers of a trained classifier, compared with transformers' pipeline with the same weights.

    python benchmarks/serving.py --peer_python=PYTHON --model_dir=output/mrpc [--rounds=3] [--lines=2000] \\
      [--results=NAME]

PYTHON is an interpreter with torch and transformers. Without --peer_python, only this project is measured.
convert_checkpoint.py converts the model for transformers. Both programs answer the same pairs, which are
repeated from a file of the sample. First they answer one pair at a time, then all pairs in batches of 32.
This project sorts the pairs by length, and the pipeline gets sorted pairs. Each round of each program is a
separate process, and the programs take turns. CPU seconds are user and system time. The loading is counted
separately. The script also compares the answers.
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
    """Returns that many pairs of texts of a file of MRPC's form, over and over."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [rows[index % len(rows)][3:5] for index in range(count)]


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", help="interpreter with torch and transformers")
    parser.add_argument("--model_dir", required=True, help="output directory of a classifier of pairs")
    parser.add_argument("--data_file", default=os.path.join(compare.ROOT, "samples", "MRPC", "train.tsv"))
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    results.add_flag(parser)
    arguments = parser.parse_args()
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
    if arguments.peer_python:
        ours, theirs = (found[side][0]["probabilities"] for side in sides)
        largest = max(abs(one - other) for one, other in zip(ours, theirs))
        recorder.add(largest_difference=largest)
        print(f"\nLargest difference of a probability: {largest:.1e}")
    recorder.write()


if __name__ == "__main__":
    main()
