"""Measures how much of the CPU time of run_squad.py is needed after all logits are computed.

    python benchmarks/squad_predictions.py --do_eval=true [--results=NAME] [any flags of run_squad.py]

The script runs run_squad.py with these flags in its own process. After all logits are computed, it measures
the rest: the search for the answers, the result files, the scores and the report. The exit code is 1 if the
rest takes more than a tenth of the CPU seconds of the process.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import results

from bertlib.command_line import launch

from bertlib.training import question_answering
import run_squad

ALLOWED_SHARE = 0.1


class MeasuredTask(question_answering.QuestionAnswering):
    """A task whose evaluation also measures the cost of its last part, in CPU seconds. This part begins when
    the model has computed all outputs, and ends when all files of the evaluation are written. The seconds are
    stored with a `results.Recorder`."""

    def model_outputs(self, split, inference):
        self.features, raw = map(list, super().model_outputs(split, inference))
        self.start = time.process_time()
        return self.features, raw

    def write(self, split, inference):
        super().write(split, inference)
        whole = time.process_time()
        spent = whole - self.start
        share = spent / whole
        questions = len({feature.example_index for feature in self.features})
        print(f"{questions} questions, {len(self.features)} windows: {spent:.3f} of {whole:.3f} CPU s, "
              f"{share:.1%}", flush=True)
        self.recorder.add(questions=questions, windows=len(self.features), search=spent, whole=whole)
        self.recorder.write()
        if share > ALLOWED_SHARE:
            raise RuntimeError(f"The work after the logits took more than {ALLOWED_SHARE:.0%} of the CPU "
                               "time of the process.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    MeasuredTask.recorder = results.Recorder(arguments.results, {"search": "CPU s", "whole": "CPU s"})
    sys.argv[1:] = flags
    question_answering.QuestionAnswering = MeasuredTask
    launch.run(run_squad.main)
