"""Predicts the largest micro-batch that fits on a GPU, by simulating a training step. No GPU is needed.

    python plan_memory.py --model=large --max_seq_length=128,384,512 --recompute=all --card=rtx3060

This command prints a table of the largest micro-batch for each sequence length and each mode of
--recompute. For other cards, pass --gpu_memory_gb instead of --card. By default, a step has a single
micro-batch. A training with several micro-batches also stores the sums of their gradients. To plan such a
training, pass its --gradient_accumulation_steps. For your own model, pass --bert_config_file instead of
--model. 1 GB is 10⁹ bytes.
"""

import dataclasses
import time

from bertlib.commands import common_flags

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator import memory_planner
from bertlib.estimator.estimator import ModeKeys
from bertlib.estimator.step_config import GB, OPTIMIZERS, StepConfig, gb
from bertlib.reports import charts
from bertlib.runs import checks, entries, model_config
from bertlib.runs.input_paths import refuse_directory
from bertlib.system import files, gpu_cards, terminal
from bertlib.tasks import head, shared_flags, starting_weights, training_plan
from bertlib.tasks.choice import choice_target
from bertlib.tasks.classification import text_targets
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
TASKS = {"classifier": text_targets.SingleLabel(["0", "1"]), "ner": tagging_target.Tags([""] * 9),
         "squad": squad_target.Spans(), "swag": choice_target.Endings(4)}


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
    entries.Choice("optimizer", "adamw", sorted(OPTIMIZERS), "Optimizer."),
    entries.Choice("precision", "fp32", sorted(modeling.PRECISIONS),
                   "Number format of the encoder's computation."),
    entries.Integer("freeze_layers", 0,
                    "Number of layers, counted from the lowest one, that are not trained. If it is not 0, "
                    "the embeddings are not trained either.", least=0),
    entries.Switch("freeze_embeddings", False, "Do not train the embeddings.", advanced="training"),
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
    if settings.bert_config_file:
        if settings.is_given("model"):
            raise ValueError("--model and --bert_config_file cannot be combined. Leave one of them out.")
        settings.max_seq_length = max(lengths)  # `model_config.load_config` checks this length
        return model_config.load_config(settings)
    config = modeling.BertConfig(**MODELS[settings.model])
    if max(lengths) > config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={max(lengths)}: the published models have "
                         f"{config.max_position_embeddings} positions. Pass at most this number.")
    return config


def parse_lengths(settings):
    """Returns --max_seq_length as a list of ints."""
    try:
        lengths = [int(text) for text in settings.max_seq_length]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 3:
        raise ValueError(f"--max_seq_length={','.join(settings.max_seq_length)}: pass whole numbers of "
                         "at least 3, with commas between them.")
    return lengths


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


def describe_step(settings):
    """Returns a description of the planned step in one line.

    The line names the model, the task and the precision. For a training step, it also names the optimizer,
    the number of micro-batches and the frozen layers.
    """
    model = settings.bert_config_file or "BERT-" + settings.model.title()
    task = f"{model}, {settings.task}, {settings.precision}"
    if settings.phase == "prediction":
        return f"{task}, prediction"
    frozen = ""
    if settings.freeze_layers:
        frozen = f", frozen: embeddings and all layers below layer {settings.freeze_layers}"
    elif settings.freeze_embeddings:
        frozen = ", frozen: embeddings"
    count = settings.gradient_accumulation_steps
    sums = f", sums of the gradients of {count} micro-batches" if count > 1 else ""
    return f"{task}, optimizer {settings.optimizer}, dropout on{sums}{frozen}"


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
    return training_plan.TrainableModel(config, target.create_head(), target.fields, build_model_fn)


def build_prediction(trainable, step_config):
    """Builds the prediction of one batch in the current graph. Returns a tensor that is computed from all
    outputs of the model."""
    features = input_pipeline.placeholders(trainable.fields(step_config.max_seq_length),
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


def plan_row(usable, need_of_size, batch_size=None):
    """Returns (size of a micro-batch, text about its memory).

    Args:
      usable: bytes that TensorFlow can use on the card.
      need_of_size: function that takes a batch size and returns its `memory_planner.MemoryNeed`.
      batch_size: int, size of the micro-batch. None: the largest size that fits.
    """
    margin = memory_planner.ALLOCATOR_MARGIN

    def describe_need(need):
        return f"{gb(margin * need.total)} = {margin:g} × {need}"

    if batch_size:
        need = need_of_size(batch_size)
        fits = "fits" if margin * need.total <= usable else "does not fit"
        return batch_size, f"{describe_need(need)}; {fits}"
    largest = memory_planner.largest_batch(need_of_size, usable / margin)
    text = [describe_need(largest.need)] if largest.need else []
    if largest.one_more:
        text.append(f"{largest.batch_size + 1} would need {gb(margin * largest.one_more.total)}")
    return largest.batch_size, "; ".join(text)


def main(_):
    """Prints the table, and draws the chart."""
    settings = common_flags.read_settings()
    lengths = parse_lengths(settings)
    check_flags(settings)
    config = load_config(settings, lengths)
    starting_weights.check_frozen_layers(settings, config)
    modes = modeling.RECOMPUTE if settings.recompute == "all" else [settings.recompute]
    if settings.phase == "prediction":
        modes = ["none"]  # without gradients, nothing is recomputed
    usable, card, source = usable_memory(settings)
    trainable = task_model(config, settings.task)
    print(terminal.printable(describe_step(settings)))
    print(f"{card}: TensorFlow can use {gb(usable)} ({source}). 1 GB is 10⁹ bytes.")
    print("The memory below is simulated, with a factor for the fragmentation of TensorFlow's allocator.\n")
    print(f"{'length':>6} {'recompute':>9} {'micro-batch':>11}   memory", flush=True)
    steps = [StepConfig(max_seq_length=length, recompute=mode, precision=settings.precision,
                        optimizer=settings.optimizer,
                        gradient_accumulation_steps=settings.gradient_accumulation_steps,
                        freeze_layers=settings.freeze_layers, freeze_embeddings=settings.freeze_embeddings)
             for length in lengths for mode in modes]
    logging.info("The table has %s. Each row needs %s, and a simulation takes some seconds to a minute of "
                 "CPU time.", terminal.counted(len(steps), "row"),
                 "one simulation" if settings.batch_size else "about four simulations")
    rows = []
    for step_config in steps:
        size, memory = plan_row(usable, lambda size, step_config=step_config: memory_need(
            trainable,
            dataclasses.replace(step_config, train_batch_size=size * step_config.batch.num_micro_batches),
            settings.phase), settings.batch_size)
        print(f"{step_config.max_seq_length:6} {step_config.recompute:>9} {size:11}   {memory}", flush=True)
        rows.append((f"{step_config.max_seq_length} {step_config.recompute}", size))
    print(f"\n{time.process_time():.0f} CPU seconds")
    if settings.output_file:
        files.make_parent(settings.output_file)
        title = f"Largest micro-batch on {card}: {describe_step(settings)}"
        files.write_text(settings.output_file,
                         charts.bar_chart(title, [(label, size, size, 0) for label, size in rows]))
