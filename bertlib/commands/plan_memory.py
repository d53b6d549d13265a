"""Predicts the largest micro-batch that fits on a GPU, by simulating a training step. No GPU is needed.

    python plan_memory.py --model=large --max_seq_length=128,384,512 --recompute=all --card=rtx3060

This command prints a table of the largest micro-batch for each sequence length and each mode of
--recompute. For other cards, pass --gpu_memory_gb instead of --card. By default, a step has a single
micro-batch. A training with several micro-batches also stores the sums of their gradients. To plan such a
training, pass its --gradient_accumulation_steps. For your own model, pass --bert_config_file instead of
--model. 1 GB is 10⁹ bytes.

The next command plans a training. The words after -- are its command, also with a recipe:

    python plan_memory.py --card=rtx3060 -- python run_squad.py --flagfile=recipes/squad1.1-large-12gb.flags

If the files of the model are not downloaded yet, add --model=large before the separator --.
"""

import dataclasses
import functools
import time

from bertlib.commands import common_flags, training_command

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator import memory_planner
from bertlib.estimator.estimator import ModeKeys
from bertlib.estimator.step_config import (
    GB,
    SURELY_FITS,
    StepConfig,
    divisors,
    flags_for_less_memory,
    gb,
    plan_step,
)
from bertlib.reports import charts
from bertlib.runs import checks, entries, model_config, registry
from bertlib.runs.input_paths import refuse_directory
from bertlib.system import files, gpu_cards, terminal
from bertlib.tasks import head, shared_flags, starting_weights, training_plan
from bertlib.tasks.classification import choice_target, classification_target
from bertlib.tasks.squad import squad_target
from bertlib.tasks.tagging import tagging_target
import modeling

MODELS = {
    "base": dict(vocab_size=30522, type_vocab_size=2),
    "large": dict(vocab_size=30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                  intermediate_size=4096, type_vocab_size=2),
}
MODELS |= {f"{size}-cased": dict(MODELS[size], vocab_size=28996) for size in ("base", "large")}
# {value of --task: its target}. The numbers of outputs are those of MRPC, CoNLL-2003 and SWAG.
TASKS = {"classifier": classification_target.SingleLabel(["0", "1"]), "ner": tagging_target.Tags([""] * 9),
         "squad": squad_target.Spans(), "swag": choice_target.Endings(4)}
TAKES_PATHS = True  # the training command


ENTRIES = entries.section("Model", None, [
    entries.Choice("model", "base", sorted(MODELS),
                   "Published model. The models base and large are uncased."),
    entries.Path("bert_config_file", None,
                 "bert_config.json of your own model, or a Hugging Face config.json. Pass it instead of "
                 "--model."),
    entries.Texts("max_seq_length", ["128", "384", "512"], "Sequence lengths, with commas between them."),
    entries.Choice("task", "classifier", sorted(TASKS),
                   "Task of the model. classifier: two classes. ner: the nine tags of CoNLL-2003. squad: "
                   "answers in a text. swag: four endings; each example has four sequences."),
]) + entries.section("Step", None, [
    entries.Choice("recompute", "none", [*modeling.RECOMPUTE, "all"],
                   "Gradient checkpointing: which activations are computed again in the backward pass "
                   "instead of being kept in memory. --recompute=all prints a row of the table for each of "
                   "the other values."),
    *(registry.find_definitions(name, "run_classifier.py")[0]
      for name in ("optimizer", "precision", "freeze_layers", "freeze_embeddings")),
    entries.Choice("phase", "training", ["training", "prediction"],
                   "Phase whose memory is predicted. Pass --phase=prediction also for an evaluation: "
                   "prediction and evaluation need neither gradients nor an optimizer."),
    entries.Integer("batch_size", None,
                    "Size of a micro-batch. With this flag, the command prints how much memory a micro-batch "
                    "of this size needs. Without this flag, it prints the largest size that fits.", least=1),
    entries.Integer("gradient_accumulation_steps", 1,
                    "Number of micro-batches of a training step. With two or more, the memory includes the "
                    "sums of the gradients.", least=1),
]) + entries.section("Card", None, [
    entries.Choice("card", None, list(gpu_cards.CARDS),
                   "GPU whose usable memory is known from logs of TensorFlow or from a formula. Pass --card "
                   "instead of --gpu_memory_gb and --reserve_gb."),
    entries.Number("gpu_memory_gb", 12, "Memory of the card in GB.", least=0, most=shared_flags.MAX_GB),
    entries.Number("reserve_gb", memory_planner.CARD_OVERHEAD / GB,
                   "Memory in GB that TensorFlow cannot use: driver, CUDA context and the reserve for CUDA's "
                   "libraries.", least=0),
]) + entries.section("Output", None, [
    entries.Path("output_file", None, "Write a chart of the table to this SVG file."),
])


def load_config(settings, lengths):
    """Returns the `modeling.BertConfig` that the flags name.

    Raises:
      ValueError: a length is above the model's number of positions, or the flags name two models.
    """
    if settings.bert_config_file and settings.is_given("model"):
        raise ValueError("--model and --bert_config_file cannot be combined. Leave one of them out.")
    config = (model_config.read_config(settings) if settings.bert_config_file
              else modeling.BertConfig(**MODELS[settings.model]))
    settings.max_seq_length = max(lengths)
    model_config.check_length(settings, config)
    return config


def parse_lengths(settings):
    """Returns --max_seq_length as a list of ints."""
    texts = settings.max_seq_length
    if not texts or not all(text.isdecimal() and int(text) >= 3 for text in texts):
        raise ValueError(f"--max_seq_length={','.join(texts)}: pass whole numbers of "
                         "at least 3, with commas between them.")
    return list(map(int, texts))


def check_flags(settings):
    """Checks that the flags do not contradict each other and that --output_file can be written.

    Raises:
      ValueError: the flags contradict each other, or --output_file cannot be written.
    """
    for name in ("gpu_memory_gb", "reserve_gb"):
        if settings.card and settings.is_given(name):
            raise ValueError(f"--card and --{name} cannot be combined. Leave one of them out.")
    if settings.reserve_gb >= settings.gpu_memory_gb:
        raise ValueError(f"--reserve_gb={settings.reserve_gb} leaves nothing of "
                         f"--gpu_memory_gb={settings.gpu_memory_gb}. Lower --reserve_gb.")
    if settings.output_file:
        if settings.batch_size:
            raise ValueError("--batch_size and --output_file cannot be combined: the chart in --output_file "
                             "shows the largest micro-batches, which are not computed with --batch_size. "
                             "Leave one of the two flags out.")
        refuse_directory(settings)
        checks.refuse_overwriting(settings, {}, {"output_file": [settings.output_file]})


def take_training(settings, words):
    """Sets flags to the values of a training command, also flags that only the training command has.

    Args:
      settings: a `Settings`.
      words: list of str, the words of the training command.

    Raises:
      ValueError, OSError: the training command is wrong or cannot be planned, a flag is on both sides of the
        separator --, or the model does not exist.
    """
    command, arguments = training_command.split(words)
    task = command.removeprefix("run_")
    if task not in TASKS:
        raise ValueError(f"The memory of {command}.py cannot be planned.")
    flags = training_command.CommandFlags(command)
    flags.parse(arguments)
    values = {name: flags.values[name].value for name in flags.names}
    values.update(task=task, phase="training", do_train=True, batch_size=None, output_file=None)
    for name, value in values.items():
        if settings.is_given(name):
            raise ValueError(f"--{name} cannot be combined with a training command. If it is a flag of the "
                             "training, write it after --.")
        setattr(settings, name, value)
    if not settings.is_given("model"):
        try:
            model_config.resolve_model_flags(settings)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} To plan without the files of the model, pass --model=large or "
                                    "another published model before the separator --.") from error
    settings.max_seq_length = [str(settings.max_seq_length)]
    settings.num_replicas = settings.num_replicas or 1


def describe_step(settings):
    """Returns a description of the planned step in one line.

    The line names the model, the task and the precision. For a training step, it also names the optimizer,
    the number of micro-batches and the frozen layers.
    """
    model = settings.bert_config_file or "BERT-" + settings.model.title()
    task = f"{model}, {settings.task}, {settings.precision}"
    if settings.phase == "prediction":
        return f"{task}, prediction"
    frozen_part = ""
    if settings.freeze_layers:
        frozen_part = f", frozen: embeddings and all layers below layer {settings.freeze_layers}"
    elif settings.freeze_embeddings:
        frozen_part = ", frozen: embeddings"
    count = settings.gradient_accumulation_steps
    sums = f", sums of the gradients of {count} micro-batches" if count > 1 else ""
    return f"{task}, optimizer {settings.optimizer}, dropout on{sums}{frozen_part}"


def usable_memory(settings):
    """Returns (number of bytes that TensorFlow can use on the card, name of the card, text that says where
    this number comes from)."""
    if settings.card:
        card = gpu_cards.CARDS[settings.card]
        return card.usable_mib * gpu_cards.MIB, card.title, card.source
    memory, reserve = settings.gpu_memory_gb, settings.reserve_gb
    return (memory - reserve) * GB, f"Card of {memory:g} GB", f"without the {reserve:g} GB of --reserve_gb"


def task_model(config, task):
    """Returns the `training_plan.TrainableModel` of a task, one of the keys of `TASKS`."""
    def build_model_fn(task_head):
        return head.model_fn_builder(task_head, config, None, 5e-5, 100, 10)

    target = TASKS[task]
    return training_plan.TrainableModel(config, target.create_head(), target.feature_fields, build_model_fn)


def build_prediction(trainable, step_config):
    """Builds the prediction of one batch in the current graph. Returns a tensor that is computed from all
    outputs of the model."""
    features = input_pipeline.placeholders(trainable.feature_fields(step_config.max_seq_length),
                                           step_config.batch.micro_batch_size, trainable.head.batch_totals)
    predictions = trainable.build_spec(features, ModeKeys.PREDICT, step_config).predictions
    # The returned tensor is computed from all outputs. If `tf.group` were returned instead, TensorFlow would
    # remove the ops of the model, because nothing would use their outputs.
    return tf.concat([tf.reshape(tf.cast(output, tf.float32), [-1]) for output in predictions.values()], 0)


def memory_need(trainable, step_config, phase):
    """Simulates one micro-batch. Logs and returns its `memory_planner.MemoryNeed`."""
    need = trainable.memory_need(step_config) if phase == "training" else memory_planner.predict_memory(
        build_prediction, trainable, step_config)
    logging.info("Length %d, --recompute=%s: %d examples need %s.", step_config.max_seq_length,
                 step_config.recompute, step_config.batch.micro_batch_size, need)
    return need


def plan_row(budget, need_of_size, batch_size=None):
    """Returns (size of a micro-batch, text about its memory).

    Args:
      budget: bytes that TensorFlow can use on the card.
      need_of_size: function that takes a batch size and returns its `memory_planner.MemoryNeed`.
      batch_size: int, size of the micro-batch. None: the largest size that fits.
    """
    margin = memory_planner.ALLOCATOR_MARGIN

    def describe_need(need):
        return f"{gb(margin * need.total)} = {margin:g} × {need}"

    if batch_size:
        need = need_of_size(batch_size)
        fits = "fits" if margin * need.total <= budget else "does not fit"
        return batch_size, f"{describe_need(need)}; {fits}"
    largest = memory_planner.largest_batch(need_of_size, budget / margin)
    text = [describe_need(largest.need),
            f"{gb(budget - margin * largest.need.total)} free"] if largest.need else []
    if largest.one_more:
        text.append(f"{largest.batch_size + 1} would need {gb(margin * largest.one_more.total)}")
    return largest.batch_size, "; ".join(text)


def advise(step_config, largest, budget, need_of_step):
    """Returns a line that says into how many micro-batches a batch should be divided.

    Args:
      step_config: a `StepConfig`. Its train_batch_size is the batch.
      largest: size of the largest micro-batch that fits.
      budget: bytes that TensorFlow can use on the card.
      need_of_step: function that takes a `StepConfig` and returns its `memory_planner.MemoryNeed`.
    """
    batch_size = step_config.train_batch_size
    for count in divisors(batch_size):
        step = dataclasses.replace(step_config, gradient_accumulation_steps=count)
        if batch_size // count <= largest and (
                need := memory_planner.ALLOCATOR_MARGIN * need_of_step(step).total) <= SURELY_FITS * budget:
            return f"For a batch of {batch_size}, choose --gradient_accumulation_steps={count}: {gb(need)}."
    return "No micro-batch leaves a safe margin."


def list_steps(settings, lengths):
    """Returns a list of `StepConfig`, one for each row of the table. `lengths` is a list of sequence lengths.
    """
    modes = modeling.RECOMPUTE if settings.recompute == "all" else [settings.recompute]
    if settings.phase == "prediction":
        modes = ["none"]  # without gradients, nothing is recomputed
    step_config = StepConfig.from_flags(settings)
    return [dataclasses.replace(step_config, max_seq_length=length, recompute=mode)
            for length in lengths for mode in modes]


def main(argv):
    """Prints the table, and draws the chart."""
    settings = common_flags.read_settings()
    if argv[1:]:
        take_training(settings, argv[1:])
    lengths = parse_lengths(settings)
    check_flags(settings)
    config = load_config(settings, lengths)
    starting_weights.check_frozen_layers(settings, config)
    budget, card, source = usable_memory(settings)
    trainable = task_model(config, settings.task)
    need_of_step = functools.cache(lambda step: memory_need(trainable, step, settings.phase))
    steps = list_steps(settings, lengths)
    if argv[1:]:  # the step that the training would use on the card
        steps = [plan_step(steps[0], (budget / memory_planner.ALLOCATOR_MARGIN, gb(budget)), need_of_step,
                           sequences_per_example=trainable.head.sequences_per_example).step_config]
        settings.batch_size = steps[0].batch.micro_batch_size
        settings.gradient_accumulation_steps = steps[0].gradient_accumulation_steps
    print(terminal.printable(describe_step(settings)))
    print(f"{card}: TensorFlow can use {gb(budget)} ({source}). 1 GB is 10⁹ bytes.")
    print("The memory below is simulated, with a factor for the fragmentation of TensorFlow's allocator.\n")
    print(f"{'length':>6} {'recompute':>9} {'micro-batch':>11}   memory", flush=True)
    logging.info("The table has %s. Each row needs %s, and a simulation takes some seconds to a minute of "
                 "CPU time.", terminal.counted(len(steps), "row"),
                 "one simulation" if settings.batch_size else "about five simulations")
    rows = []
    for step_config in steps:
        size, memory = plan_row(budget, lambda size, step_config=step_config: need_of_step(
            dataclasses.replace(step_config, train_batch_size=size * step_config.batch.num_micro_batches)),
            settings.batch_size)
        print(f"{step_config.max_seq_length:6} {step_config.recompute:>9} {size:11}   {memory}", flush=True)
        if not settings.batch_size and settings.phase == "training":
            print(f"{'':31}{advise(step_config, size, budget, need_of_step)}", flush=True)
        rows.append((f"{step_config.max_seq_length} {step_config.recompute}", size, size, 0))
        if argv[1:] and memory.endswith("not fit"):
            print(f"{'':31}Pass {flags_for_less_memory(step_config.tokens_per_micro_batch)}.", flush=True)
    if settings.get("use_xla"):
        print("--use_xla is not simulated: with XLA, a step may need more or less memory.")
    print(f"\n{time.process_time():.0f} CPU seconds")
    if settings.output_file:
        files.make_parent(settings.output_file)
        title = f"Largest micro-batch on {card}: {describe_step(settings)}"
        files.write_text(settings.output_file, charts.bar_chart(title, rows))
