"""Writes the tables of the pages in docs, and the picture of README.md, from benchmarks/results.

    python benchmarks/render.py            after a result was added or changed
    python benchmarks/render.py --check    changes nothing; exits with 1 if a table or a picture differs

A table is the text between the lines `<!-- generated: NAME -->` and `<!-- end -->` of a page. NAME is a key
of `TABLES`. Everything outside of these lines is written by hand.
"""

import argparse
import glob
import os
import re
import statistics
import sys

import results

sys.path.insert(0, results.ROOT)

from bertlib.reports import (
    charts,  # noqa: E402
    paired_tests,  # noqa: E402 (needs the path above)
)

FOLDER = os.path.join(results.ROOT, "docs", "development")
OURS, PEER, PUBLISHED = "this project", "Hugging Face", "google-research/bert"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def find_pages():
    """Returns the paths of the pages with a table, relative to `FOLDER` and sorted."""
    docs, found = os.path.dirname(FOLDER), []
    for path in sorted(glob.glob(os.path.join(docs, "**", "*.md"), recursive=True)):
        with open(path, encoding="utf-8") as reader:
            if _BLOCK.search(reader.read()):
                found.append(os.path.relpath(path, FOLDER))
    return found


PAGES = find_pages()


# --- Values of results -----------------------------------------------------------------------------------


def rows_of(result, **labels):
    """Returns the rounds of a benchmark's result in which each given field has the given value. For example,
    length=128 selects the rounds whose field `length` is 128."""
    return [row for row in result.get("rounds", ()) if all(row.get(name) == value
                                                          for name, value in labels.items())]


def values_of(result, field, **labels):
    """Returns the values of a field in all rounds that have the field and the given labels."""
    return [row[field] for row in rows_of(result, **labels) if field in row]


def mean_and_each(values, digits):
    """Returns a mean as text. If there are several rounds, the value of each round follows in brackets."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ({', '.join(f'{value:.{digits}f}' for value in values)})" if len(values) > 1 else mean


def comparison(result, work):
    """Returns the medians and the ratios of one kind of work as a dict.

    If the summary of the result has a row for this work, this row is returned. Otherwise, the numbers are
    computed from the rounds of the result.

    Args:
      result: a result of compare.py or tasks.py.
      work: name of the kind of work.
    """
    for row in result.get("summary", ()):
        if row["work"] == work:
            return row
    sides = {side: rows_of(result, work=work, side=side) for side in (OURS, PEER)}
    ratios = {field: [one[field] / other[field] for one, other in zip(*sides.values())]
              for field in ("cpu", "wall", "peak")}
    medians = {prefix + field: statistics.median(row[field] for row in sides[side])
               for prefix, side in (("", OURS), ("peer_", PEER)) for field in ("cpu", "peak")}
    return {"work": work, **medians, "cpu_ratio": statistics.median(ratios["cpu"]),
            "cpu_ratio_smallest": min(ratios["cpu"]), "cpu_ratio_largest": max(ratios["cpu"]),
            "memory_ratio": statistics.median(ratios["peak"]),
            "wall_ratio": statistics.median(ratios["wall"])}


def cpu_ratio(row):
    """Returns the CPU seconds of this project, divided by those of the other program, as text. The smallest
    and the largest ratio of all rounds follow in brackets."""
    return f"{row['cpu_ratio']:.2f} ({row['cpu_ratio_smallest']:.2f}–{row['cpu_ratio_largest']:.2f})"


# --- Markdown --------------------------------------------------------------------------------------------


def table(titles, rows):
    """Returns a table in Markdown."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [titles, ["---"] * len(titles), *rows])


def place(result):
    """Returns a text with the machine and the date of a measurement."""
    about = result["machine"]
    sets = ", ".join(name for name in about["instructions"] if name not in ("avx2", "fma"))
    cores = f"{about['cores']} core{'s' * (about['cores'] != 1)} of " if about["cores"] else ""
    words = [f"{cores}{about['cpu']}" + f" ({sets})" * bool(sets), result["date"], result.get("note")]
    return "; ".join(word.rstrip(".") for word in words if word)


def origin(prefix):
    """Returns a line with the machines, the dates and the files of the results that begin with a prefix."""
    names = [name for name in results.names() if name.startswith(prefix)]
    machines = "; ".join(dict.fromkeys(place(results.read(name)).replace("; ", ", ") for name in names))
    file = f"{prefix}{'*' * (len(names) > 1)}.json"
    return f"Measured on {machines}. Commands and rounds: `benchmarks/results/{file}`."


def state(names):
    """Returns a warning if results were measured with older versions of the scripts, otherwise ""."""
    repeated = [results.read(name)["repeated"] for name in names]
    return "" if all(repeated) else "*partly repeated*" if any(repeated) else "*not repeated*"


# --- Tables ----------------------------------------------------------------------------------------------

# {(name of the results, work): its title}
WORKS = {("finetune_fp32", "finetune"): "MRPC, whole fine-tuning, installed model, fp32",
         ("finetune_bf16", "finetune"): "MRPC, whole fine-tuning, installed model, bf16",
         ("steps", "step, fp32"): "BERT-Base, training step, fp32",
         ("steps", "step, bf16"): "BERT-Base, training step, bf16",
         ("evaluation", "evaluate"): "BERT-Base, evaluation, bf16",
         ("compare", "predict"): "BERT-Base, prediction"}


def compare_table():
    """Returns the table of CPU seconds and memory for five kinds of work."""
    rows = []
    for (name, work), title in WORKS.items():
        row = comparison(results.read(name), work)
        rows.append([title, f"{row['cpu']:.4g}", f"{row['peer_cpu']:.4g}", cpu_ratio(row),
                     f"{row['wall_ratio']:.2f}", f"{row['peak']:.2f}", f"{row['peer_peak']:.2f}",
                     f"{row['memory_ratio']:.2f}"])
    return table(["work", f"CPU s per example: {OURS}", PEER, "ratio (smallest–largest)",
                  "ratio of wall time", f"peak memory, GB: {OURS}", PEER, "ratio"], rows)


def mrpc_table():
    """Returns a table of MRPC with the accuracies and the CPU seconds of each program."""
    rows = []
    for side, precision, setting in ((OURS, "fp32", None), (OURS, "bf16", "published"), (PEER, "fp32", None),
                                     (PEER, "bf16", "hugging_face"), (PUBLISHED, "fp32", None)):
        result = results.read(f"finetune_{precision}")
        # In bf16, more seeds were measured later, without a record of their CPU seconds.
        accuracies = (values_of(results.read("stability_mrpc_bf16"), "eval_accuracy", setting=setting)
                      if setting else values_of(result, "accuracy", side=side))
        rows.append([f"{side}, {precision}", len(accuracies), mean_and_each(accuracies, 3),
                     f"{run_seconds(side, precision):,.0f}"])
    return table(["program", "runs", "accuracy: mean (each run)", "CPU s per run"], rows)


def run_seconds(side, precision):
    """Returns the mean CPU seconds of a program's fine-tunings on MRPC."""
    return statistics.mean(values_of(results.read(f"finetune_{precision}"), "CPU s of the run", side=side))


def sample_line():
    """Returns a sentence with the scores and the CPU time of `make mrpc`, which trains on the sample data."""
    texts = []
    for name, seeds in (("sample_one_seed", "seed 0"), ("sample", "five seeds")):
        result = results.read(name)
        trained = [row for row in result["rounds"] if "seed" in row]
        accuracy, matthews, cpu = (values_of({"rounds": trained}, field)
                                   for field in ("accuracy", "matthews", "cpu"))
        mark = "" if result["repeated"] else " (*not repeated*)"
        texts.append(f"{seeds}: accuracy {mean_and_each(accuracy, 2)}, Matthews "
                     f"{statistics.mean(matthews):.4f}, {statistics.mean(cpu):.0f} CPU s{mark}")
    return f"`make mrpc` on the 100 pairs of the sample's development set, {'; '.join(texts)}."


def tasks_table():
    """Returns the table of the quality and the costs of three tasks."""
    result, rows = results.read("tasks"), []
    metrics = {"STS-B": ("pearson", "STS-B, 1 epoch, Pearson"),
               "CoLA": ("matthews", "CoLA, 2 epochs, Matthews"),
               "CoNLL-2003": ("f1", "CoNLL-2003, 2 epochs, F1")}
    for work, (metric, title) in metrics.items():
        row, quality = comparison(result, work), [
            mean_and_each(values_of(result, metric, work=work, side=side), 3) for side in (OURS, PEER)]
        # If a result contains the number of examples of a run, its CPU times are the times of one example.
        # Otherwise, they are the times of a whole run.
        counts = values_of(result, "examples_of_a_run", work=work) or [1]
        cpu = [f"{row[field] * counts[0]:.0f}" for field in ("cpu", "peer_cpu")]
        rows.append([title, *quality, ", ".join(cpu), cpu_ratio(row),
                     f"{row['peak']:.2f}, {row['peer_peak']:.2f}", f"{row['memory_ratio']:.2f}"])
    return table(["task and metric", "this project: mean (seeds 0 to 4)", PEER, "CPU s per run, both",
                  "ratio", "peak GB, both", "ratio"], rows)


def squad_table():
    """Returns the table of exact match and F1, with paired t-tests of F1."""
    rounds = sorted((row for name in SQUAD for row in results.read(name)["rounds"]),
                    key=lambda row: row["seed"])
    rows = []
    for version, exact in (("1.1", "exact_match"), ("2.0", "exact")):
        ours, theirs = ({row["seed"]: row for row in rows_of({"rounds": rounds}, version=version,
                                                             program=program)}
                        for program in ("run_squad.py", PEER))
        test = paired_tests.compare_pairs([theirs[seed]["f1"] for seed in ours],
                                          [row["f1"] for row in ours.values()])
        difference = statistics.mean(ours[seed]["f1"] - theirs[seed]["f1"] for seed in ours)
        low, high = test["interval"]
        for program, runs in (("run_squad.py", ours), (PEER, theirs)):
            figures = [[run[field] for run in runs.values() if field in run]
                       for field in (exact, "f1", "tuned_exact", "tuned_f1")]
            rows.append([f"{version}, seeds {', '.join(map(str, runs))}", program,
                         *(mean_and_each(some, 1) if some else "" for some in figures),
                         f"{difference:.1f} [{low:.1f}, {high:.1f}], p = {test['p_value']:.2f}"
                         if runs is ours else ""])
    return table(["SQuAD", "program", "exact match: mean (each seed)", "F1",
                  "with the best null threshold: exact match", "F1",
                  f"difference of F1 to {PEER} [95 % interval]"], rows)


def serving_table():
    """Returns the table of the time and the memory that a trained classifier needs for its answers."""
    result, alone = results.read("serving"), results.read("serving_this_project")
    fields = {"load and first answer, CPU ms": "loading and the first answer, CPU ms",
              "a call, CPU ms": "a call with one pair, CPU ms",
              "an answer of many, CPU ms": "one of a thousand pairs, in batches of 32, CPU ms",
              "peak": "peak memory, GB"}

    def median(side, field, which):
        copied = [row[field] for row in which.get("summary", ()) if row["side"] == side]
        return statistics.median(copied or values_of(which, field, side=side))

    rows = []
    for field, title in fields.items():
        ours, theirs = (median(side, field, result) for side in (OURS, PEER))
        again = median(OURS, field, alone)
        rows.append([title, f"{ours:.4g}", f"{theirs:.4g}", f"{ours / theirs:.2f}", f"{again:.4g}"])
    return table(["answers", OURS, PEER, "ratio of the medians", "this project alone, repeated"], rows)


def card_table():
    """Returns the table of the largest batch sizes that fit on a card with 12 GB."""
    published, simulated = results.read("memory_measured_by_its_authors"), results.read("published_memory")
    lengths = sorted(set(values_of(simulated, "length")))
    programs = dict.fromkeys(values_of(simulated, "program"))

    def cells(result, program):
        return [values_of(result, "largest_batch", length=length, program=program)[0] for length in lengths]

    rows = [["published code, measured by its authors on a Titan X", *cells(published, "published code")],
            *([f"{program}, simulated", *cells(simulated, program)] for program in programs)]
    return table(["BERT-Base, sequence length", *lengths], rows)


def planner_line():
    """Returns a sentence that compares the predicted memory of training steps with the memory that was
    measured on a CPU."""
    texts = [f"`{row['recompute']}` {row['predicted']:,.0f} and {row['measured']:,.0f} MB "
             f"(ratio {row['predicted'] / row['measured']:.2f})"
             for row in results.read("memory_on_cpu")["rounds"]]
    mark = state(["memory_on_cpu"])
    return ("Activations of three training steps on CPU, predicted and measured (oneDNN off): "
            f"{', '.join(texts)}{f'; {mark}' * bool(mark)}.")


def memory_table():
    """Returns the table that shows how micro-batches and recomputation change CPU time and memory."""
    split = results.read("accumulation")["rounds"]
    rows = [[f"batch of 32, micro-batches: {row['micro_batches']}", f"{row['cpu'] / split[0]['cpu']:.2f}",
             f"{row['peak']:.2f} GB, all memory", "" if row is split[0] else f"{row['distance']:.1e}"]
            for row in split if row["micro_batches"] in (1, 4, 32)]
    seconds, memory = results.read("recompute_seconds"), results.read("recompute_memory")
    for row in memory["rounds"]:
        pairs = zip(values_of(seconds, "cpu", mode=row["mode"]), values_of(seconds, "cpu", mode="none"))
        ratio = statistics.median(one / other for one, other in pairs)
        rows.append([f"`--recompute={row['mode']}`", f"{ratio:.2f}",
                     f"{row['activations']:,.0f} MiB of activations", ""])
    return table(["micro-batches or recomputation", "CPU s, relative", "memory",
                  "difference of the weights"], rows)


def input_table():
    """Returns the table about the input: CPU times from texts to batches, and scores of a pre-training."""
    features, data = results.read("featurization"), results.read("pretraining_data")
    rows = [[f"reading a step of 32 examples of MRPC: {row['way']}", f"{row['cpu']:.2f} CPU ms"]
            for row in results.read("input_pipeline")["rounds"]
            if row["way"].endswith(("default)", "by tokens"))]
    for step, title in (("tokens", "text to tokens"), ("text pair to serialized", "text pairs to records")):
        found = rows_of(features, step=step)
        plain, fast = (min(row[field] for row in found) for field in ("plain", "remembered"))
        ratio = statistics.median(row["plain"] / row["remembered"] for row in found)
        rows.append([f"MRPC and CoLA, {title}: each word tokenized once, compared with each time it occurs",
                     f"{fast:.2f}, {plain:.2f} CPU s; {ratio:.1f} times as fast"])
    if "summary" in data:
        row = data["summary"][0]
    else:
        ratios = [one["plain"] / one["streamed"] for one in data["rounds"] if "plain" in one]
        row = {"ratio": statistics.median(ratios), **{field: min(values_of(data, field))
                                                      for field in ("plain", "streamed")}}
    rows.append(["making pre-training data, compared with the published algorithm",
                 f"{row['streamed']:.2f}, {row['plain']:.2f} CPU s; {row['ratio']:.1f} times as fast"])
    learned = results.read("pretraining")
    rows.append(["`make pretrain`, 1,500 steps of 32: share of correct masked words after step", ", ".join(
        f"{row['step']}: {row['accuracy']:.1%}" for row in learned["rounds"])])
    return table(["work", "result"], rows)


def padding_table():
    """Returns the table of the speed of pre-training with and without padding, with a row for each result."""
    rows, found = [], [results.read(name) for name in PADDING]
    for result in found:
        first = result["rounds"][0]
        speeds = [values_of(result, "speed", way=way) for way in ("padded", "without padding")]
        ratios = [trimmed / padded for padded, trimmed in zip(*speeds)]
        rows.append([first["layers"], first["precision"],
                     *(f"{statistics.median(each):.0f}" for each in speeds),
                     f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"])
    titles = ["layers", "precision", "real tokens per CPU second: padded", "without padding",
              "ratio (smallest–largest)"]
    return f"{table(titles, sorted(rows))}\n\n{origin('pretraining_padding')}"


def replica_rows(result):
    """Computes medians and ratios from a result of benchmarks/replicas.py. Returns a list of dicts, one for
    each setting."""
    if "summary" in result:
        return result["summary"]
    rows = []
    for count, dtype in dict.fromkeys((row["replicas"], row["dtype"]) for row in result["rounds"]
                                      if row["kind"] == "sums"):
        alone, apart = (rows_of(result, replicas=count, kind=kind) for kind in ("alone", "apart"))
        rest, sums, bare, one = (rows_of(result, replicas=count, dtype=dtype, kind=kind)
                                 for kind in ("none", "sums", "bare", "bare one"))

        def over(less, sums=sums, rest=rest):
            return statistics.median((all_["cpu"] - without["cpu"]) / other["cpu"]
                                     for all_, without, other in zip(sums, rest, less))

        medians = {field: statistics.median(row[field] for row in sums)
                   for field in ("cpu", "wall", "waiting", "sent")}
        rows.append({"setting": f"{count} replicas, {dtype}", **medians, **{
            name: statistics.median(row["cpu"] / base["cpu"] for row, base in zip(some, alone))
            for name, some in (("outside_of_sums", rest), ("apart", apart))},
            "sums": over(bare), "sums_as_one_tensor": over(one)})
    return rows


def replicas_table():
    """Returns the table that shows what a training step with replicas costs."""
    fields = {"cpu": ".2f", "wall": ".2f", "waiting": ".2f", "sent": ".0f", "outside_of_sums": ".3f",
              "apart": ".3f", "sums": ".2f", "sums_as_one_tensor": ".2f"}
    rows = [[row["setting"], *(f"{row[field]:{form}}" if field in row else ""
                               for field, form in fields.items())]
            for row in replica_rows(results.read("replicas"))]
    return table(["replicas × micro-batches", "CPU s in a step, all processes", "wall s", "waiting s",
                  "MB sent", "rest / accumulation", "rest / accumulation without exchange",
                  "sums / bare all-reduce", "sums / one tensor"], rows)


def selection_table():
    """Returns the text about a sweep: the table of its runs, and the cost of choosing the best run."""
    result = results.read("selection_cost")
    *runs, cost = result["rounds"]
    columns = list(dict.fromkeys((run["train_batch_size"], run["learning_rate"]) for run in runs))
    rows = []
    for epochs in dict.fromkeys(run["num_train_epochs"] for run in runs):
        scores = {(run["train_batch_size"], run["learning_rate"]): run["score"]
                  for run in rows_of(result, num_train_epochs=epochs)}
        rows.append([f"{float(epochs):g} epochs", *(f"{scores[column]:.2f}" for column in columns)])
    titles = ["accuracy, %", *(f"batch {size}, rate {float(rate):g}" for size, rate in columns)]
    return f"""{table(titles, rows)}

| mean over {cost["splits"]:,} random halves of the {cost["examples"]} examples | accuracy, % |
| --- | --- |
| the best run on the first half, measured on the first half | {cost["chosen"]:.2f} |
| the same run, measured on the second half | {cost["fair"]:.2f} |
| all runs, measured on the second half | {cost["mean_run"]:.2f} |

So the choice improves the accuracy by {cost["fair"] - cost["mean_run"]:.2f} points, but its score suggests {
        cost["chosen"] - cost["mean_run"]:.2f}. The difference, {
        cost["cost"]:.2f} points, is the cost of the choice.

{origin("selection_cost")}"""


def stability_table():
    """Returns the results of benchmarks/stability.py: a table with a row for each data set and setting."""
    titles, rows = {"published": "published recipe", "hugging_face": "Hugging Face"}, []
    for result in map(results.read, STABILITY):
        summaries = [row for row in result["rounds"] if "seed" not in row]
        for row in summaries:
            of_all = f", `{result['flags']}`" * bool(result["flags"])
            failed = sum(run["failed"] for run in rows_of(result, data=row["data"], setting=row["setting"])
                         if "seed" in run)
            rows.append([
                f"{row['data']}, {row['metric'].removeprefix('eval_')}{of_all}",
                titles.get(row["setting"], f"`{row['flags']}`"),
                interval(row, "mean", "low", "high"), f"{failed} of {row['runs']}",
                interval(row, "difference", "difference_low", "difference_high"),
                p_value(row["p_value"]) if "p_value" in row else ""])
    return f"""{table(["data, metric", "flags", "mean [95 % interval]", "degenerate",
                       "difference from the published recipe", "p"], rows)}

{origin("stability")}"""


def p_value(value):
    """Returns a p-value as text with three digits."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def interval(row, value, low, high):
    """Returns a value of a row as text, with its interval if the row contains one. Returns "" if the row does
    not contain the value."""
    limits = f" [{row[low]:.3f}, {row[high]:.3f}]" if low in row else ""
    return f"{row[value]:.3f}{limits}" if value in row else ""


def server_table():
    """Returns the text about the server: a table of the speed, the memory, the threads and the open files."""
    result, rows = results.read("server_load"), []
    names = {("loop", 1): "loop over the predictor, one text in a call",
             ("loop", 32): "loop over the predictor, 32 texts in a call",
             **{("server", count): f"`serve.py`, {count} client{'s' * (count > 1)}" for count in (1, 8, 64)}}
    for (kind, clients), title in names.items():
        row = {field: statistics.median(values_of(result, field, kind=kind, clients=clients))
               for field in ("answers", "p50", "p99", "cpu")}
        ratios = [one / other for one, other in zip(values_of(result, "cpu", kind=kind, clients=clients),
                                                    values_of(result, "cpu", kind="loop", clients=1))]
        rows.append([title, f"{row['answers']:.1f}", f"{row['p50']:,.0f}", f"{row['p99']:,.0f}",
                     f"{row['cpu']:.1f}", f"{statistics.median(ratios):.2f}"])
    first, *_, last = rows_of(result, kind="memory")
    *_, malformed = rows_of(result, kind="malformed")
    states = [f"{state['memory']:.0f} MB, {state['threads']} threads" for state in (first, last, malformed)]
    rounds = "One round." if len(ratios) == 1 else f"Medians of {len(ratios)} rounds."
    onnx = statistics.median(values_of(results.read("server_load_onnx"), "ratio", kind="server", clients=64))
    titles = ["mixed lengths, installed model", "answers in a second", "p50, ms", "p99, ms",
              "CPU ms for each answer", "ratio of CPU time"]
    return f"""{table(titles, rows)}

{rounds} The last column is relative to the first row. With an
ONNX file, 64 clients have the ratio {onnx:.2f}: one text in a call is already cheap there.

The server had {states[0]}; after {last["sent"]:,} requests of 64 clients, {states[1]}; after
{malformed["sent"]:,} malformed requests, {states[2]}. All of these were answered with 4xx.

{origin("server_load")}"""


def onnx_table():
    """Returns a table of the CPU time of predictions with ONNX files of a model for MRPC, on each machine."""
    fields = {"a call, CPU ms": "a call with one pair, CPU ms",
              "an answer of many, CPU ms": "one of many, CPU ms"}
    rows = []
    for result in map(results.read, SERVING_ONNX):
        for side in dict.fromkeys(row["side"] for row in rows_of(result) if "round" in row):
            rows.append([special_instructions(result), side])
            for field in fields:
                milliseconds = values_of(result, field, side=side)
                rows[-1] += [f"{statistics.median(milliseconds):.1f}", ratio_to_ours(result, field, side)]
    titles = ["CPU with", "program", *(title for name in fields.values() for title in (name, "ratio"))]
    return f"""{table(titles, rows)}

One core and one thread; fp32 where int8 is not named. {origin("serving_onnx")}"""


def onnx_base_table():
    """Returns a table of the CPU time of predictions with BERT-Base, on each machine."""
    rows = []
    for result in map(results.read, COMPARE_PREDICT):
        # compare.py describes the settings as "batch_size 32, fp32, sdpa": the second one is the precision.
        precisions = {row["side"]: row["settings"].split(", ")[1]
                      for row in rows_of(result, work="predict") if "side" in row}
        rows += [[special_instructions(result), side, precision,
                  f"{1000 * statistics.median(values_of(result, 'cpu', side=side)):.0f}",
                  ratio_to_ours(result, "cpu", side)] for side, precision in precisions.items()]
    return f"""{table(["CPU with", "program", "precision", "CPU ms for each pair", "ratio"], rows)}

Batches of 32 pairs of MRPC, two threads. {origin("compare_predict")}"""


def ratio_to_ours(result, field, side):
    """Returns a value of a program divided by the value of this project, as text: the median of the rounds,
    the smallest and the largest."""
    ratios = [mine / ours for mine, ours in zip(values_of(result, field, side=side),
                                                values_of(result, field, side=OURS))]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def special_instructions(result):
    """Returns which instructions for int8 and bf16 the CPU of a result has, as text."""
    has = set(result["machine"]["instructions"])
    found = [name for name, flags in (("VNNI", {"avx512_vnni"}), ("bf16", {"avx512_bf16", "amx_bf16"}))
             if has & flags]
    return " and ".join(found) or "neither"


def domain_table():
    """Returns a table that compares the models of docs/tutorials/domain.md."""
    result, rows = results.read("domain"), []
    names = {"default": "default model, own vocabulary",
             "extended": "extended vocabulary",
             "continued": "extended vocabulary, continued pre-training",
             "random": "random weights, extended vocabulary"}
    for model, title in names.items():
        masked = [f"{value:.{digits}f}"
                  for field, digits in (("masked_lm_accuracy", 3), ("masked_lm_loss", 2))
                  for value in values_of(result, field, model=model)]
        accuracies = values_of(result, "accuracy", model=model)
        rows.append([title, *(masked or ["–", "–"]), mean_and_each(accuracies, 3) if accuracies else "–"])
    seeds = sorted({row["seed"] for row in result["rounds"] if "seed" in row})
    titles = ["model", "masked words: accuracy", "masked words: loss",
              f"period: accuracy, mean (seeds {', '.join(map(str, seeds))})"]
    return f"{table(titles, rows)}\n\n{origin('domain')}"


def onnx_quality_table():
    """Returns the table of the quality of ONNX files, with a row for each task."""
    rows = []
    for result in map(results.read, ONNX_QUALITY):
        ours, plain, int8 = (rows_of(result, side=side) for side in ("TensorFlow", "ONNX", "ONNX, int8"))
        losses = [before["quality"] - after["quality"] for before, after in zip(ours, int8, strict=True)]
        means = [statistics.mean(row["quality"] for row in some) for some in (ours, plain, int8)]
        rows.append([ours[0]["task"], len(ours), f"{ours[0]['examples']:,}",
                     *(f"{mean:.1f}" for mean in means),
                     f"{min(losses):.1f} to {max(losses):.1f}",
                     *(", ".join(str(row["differing"]) for row in some
                                 if row["differing"] is not None) or "–"
                       for some in (plain, int8))])
    titles = ["task", "trainings", "examples", "TensorFlow, %", "ONNX, %", "int8, %", "loss by int8, points",
              "predictions that differ: ONNX", "int8"]
    return f"""{table(titles, rows)}

Accuracy of MRPC and CoLA, F1 of the entities of CoNLL-2003 (ner), correlation of Pearson of STS-B: means of
trainings that differ in their seed. {origin("onnx_quality")}"""


# Each list contains the names of the results that begin with a prefix, such as "onnx_quality". One entry of
# `TABLES` shows all results of a list.
ONNX_QUALITY, SERVING_ONNX, COMPARE_PREDICT, SQUAD, STABILITY, PADDING = (
    [name for name in results.names() if name.startswith(prefix)]
    for prefix in ("onnx_quality", "serving_onnx", "compare_predict", "squad", "stability",
                   "pretraining_padding"))
# {name of a table: (function that returns the text of the table, names of the results in this text)}. A page
# marks the place of a table by a comment with this name.
TABLES = {
    "compare": (compare_table, [name for name, _ in WORKS]),
    "serving": (serving_table, ["serving", "serving_this_project"]),
    "mrpc": (mrpc_table, ["finetune_fp32", "finetune_bf16", "stability_mrpc_bf16"]),
    "sample": (sample_line, ["sample_one_seed", "sample"]),
    "tasks": (tasks_table, ["tasks"]),
    "squad": (squad_table, SQUAD),
    "card": (card_table, ["memory_measured_by_its_authors", "published_memory"]),
    "planner": (planner_line, ["memory_on_cpu"]),
    "memory": (memory_table, ["accumulation", "recompute_seconds", "recompute_memory"]),
    "input": (input_table, ["input_pipeline", "featurization", "pretraining_data", "pretraining"]),
    "padding": (padding_table, PADDING),
    "replicas": (replicas_table, ["replicas"]),
    "selection": (selection_table, ["selection_cost"]),
    "stability": (stability_table, STABILITY),
    "server": (server_table, ["server_load", "server_load_onnx"]),
    "onnx": (onnx_table, SERVING_ONNX),
    "domain": (domain_table, ["domain"]),
    "onnx_base": (onnx_base_table, COMPARE_PREDICT),
    "onnx_quality": (onnx_quality_table, ONNX_QUALITY)}


# --- The pictures ----------------------------------------------------------------------------------------


def picture():
    """Returns three bars as SVG: the CPU seconds of the fastest training of each program."""
    rows = []
    for index, (side, precision, more) in enumerate((
            (OURS, "bf16", ""), (PEER, "bf16", ""), (PUBLISHED, "fp32", ", TensorFlow 2.15"))):
        seconds = run_seconds(side, precision)
        rows.append((side, seconds, f"{seconds:,.0f} s ({precision}{more})", index))
    return charts.bar_chart("CPU seconds of one training: real MRPC, 3 epochs, 6 layers, two cores. Less is "
                            "better.", rows)


PICTURES = {"training.svg": picture}

# --- Pages -----------------------------------------------------------------------------------------------


def rendered(page):
    """Returns the text of a page with tables that are computed from the present results.

    Raises:
      ValueError: a name in the page is not a key of `TABLES`.
    """
    def block(match):
        if match[2] not in TABLES:
            raise ValueError(f"<!-- generated: {match[2]} -->: unknown table. Known: {', '.join(TABLES)}.")
        function, files = TABLES[match[2]]
        text, mark = function(), state(files)
        if mark and text.startswith("| "):
            text = f"| {mark}: {text[2:]}"  # the title of the first column begins with the warning
        return f"{match[1]}{text}\n{match[3]}"

    return _BLOCK.sub(block, page)


def main():
    """Writes the pages and the pictures, or checks them."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="write no file; exit code 1 if a file is out of date")
    check, stale = parser.parse_args().check, []
    for name in (*PAGES, *PICTURES):
        path = os.path.join(FOLDER, name)
        with open(path, encoding="utf-8") as reader:
            before = reader.read()
        after = PICTURES[name]() if name in PICTURES else rendered(before)
        if before != after:
            stale.append(name)
            if not check:
                with open(path, "w", encoding="utf-8") as writer:
                    writer.write(after)
    print(f"{'Not current' if check else 'Written'}: {', '.join(stale) or 'nothing'}")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
