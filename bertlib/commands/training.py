"""FLAGS → an Estimator whose training step fits into memory."""

import functools
import math

from absl import flags, logging
import tensorflow.compat.v1 as tf

from bertlib.commands import checks, common_flags
from bertlib.runtime import estimator, input_pipeline, memory_planner, session_hooks
import modeling

FLAGS = flags.FLAGS

# --- What the flags say of the step ----------------------------------------------------------------------


def model_options():
    """Returns what the flags ask of `modeling.BertModel` beyond the published arguments."""
    training = {"recompute": FLAGS.recompute, "recompute_segment": FLAGS.recompute_segment} if FLAGS.do_train else {}
    return {"precision": FLAGS.precision, **training}


def optimizer_options():
    """Returns what the flags ask of `optimization.create_optimizer` beyond the published arguments and accumulation."""
    return {**{name: FLAGS[name].value for name in ("optimizer", "lr_schedule", "adam_bias_correction")},
            "loss_scaling": FLAGS.precision == "fp16"}


def _compiles_kernels(config):
    """Whether the elementwise parts of a training step are to be made for this machine's CPU."""
    if FLAGS.compile_kernels is not None or FLAGS.use_xla:
        return bool(FLAGS.compile_kernels)
    # Narrow models should not need a compiler. With a GPU there are no such kernels.
    return config.hidden_size >= 256 and not tf.config.list_physical_devices("GPU")


# --- Memory ----------------------------------------------------------------------------------------------


class _Training(object):
    """The training step that the flags describe: settles what of it is open, and knows what it needs of memory."""

    def __init__(self, build_model_fn, config, fields, batch_totals):
        self._build_model_fn = build_model_fn
        self._config = config
        self._fields = fields
        self._batch_totals = batch_totals

    def build(self, micro_batch_size, recompute=None, optimizer=None, max_seq_length=None):
        """Builds a step in the current graph; returns its op. What is None is as the flags say."""
        model_fn = self._build_model_fn(
            model_options={**model_options(), "recompute": recompute or FLAGS.recompute},
            optimizer_options={**optimizer_options(), "optimizer": optimizer or FLAGS.optimizer})
        tf.train.get_or_create_global_step()
        features = input_pipeline.placeholders(self._fields(max_seq_length or FLAGS.max_seq_length), micro_batch_size,
                                               self._batch_totals)
        # Two micro-batches need what any other number needs.
        params = {"batch_size": micro_batch_size,
                  "gradient_accumulation_steps": 1 if micro_batch_size >= FLAGS.train_batch_size else 2}
        return model_fn(features, None, estimator.ModeKeys.TRAIN, params).train_op

    def settle(self):
        """Sets --recompute=auto and --gradient_accumulation_steps=0 to what fits; warns if what was given will not fit.

        Raises:
          ValueError: nothing fits.
        """
        if common_flags.tokens_per_micro_batch():
            _settle_accumulation_by_tokens()
        steps = FLAGS.gradient_accumulation_steps
        if steps and not common_flags.tokens_per_micro_batch():
            estimator.micro_batch_size(FLAGS.train_batch_size, steps)
        if FLAGS.recompute != "auto" and steps:
            self._warn_if_too_large()
            return
        usable, source = _usable_memory()
        logging.info("Simulating what fits into %s.", source)
        choice = memory_planner.choose(
            self.build, steps * self._micro_batch_size() if steps else FLAGS.train_batch_size, usable,
            modeling.RECOMPUTE if FLAGS.recompute == "auto" else [FLAGS.recompute], [steps] if steps else None)
        FLAGS.recompute, FLAGS.gradient_accumulation_steps = choice.recompute, choice.accumulation_steps
        if not steps and tf.config.list_physical_devices("GPU"):
            self._probe()
        logging.info("--recompute=%s --gradient_accumulation_steps=%d: a micro-batch of %d needs %s.", FLAGS.recompute,
                     FLAGS.gradient_accumulation_steps, self._micro_batch_size(), choice.prediction)

    def _micro_batch_size(self):
        # Cut by tokens, none needs more memory than so many examples of full length.
        return math.ceil(FLAGS.train_batch_size / FLAGS.gradient_accumulation_steps)

    def _warn_if_too_large(self):
        usable, source = _usable_memory()
        size, config, length = self._micro_batch_size(), self._config, FLAGS.max_seq_length
        # Korthikanti et al. 2022, arXiv:2205.05198, equation 2, in 32 bits and doubled. Where there is so much room, a
        # simulation, which takes seconds, is not needed.
        a_position = 68 * config.hidden_size + 10 * config.num_attention_heads * length
        weights = sum(math.prod(shape) for shape in modeling.variable_shapes(config).values())
        if 20 * weights + 2 * size * length * config.num_hidden_layers * a_position <= usable:
            return
        needed = memory_planner.predict(self.build, size)
        if needed.total > usable:
            logging.warning(
                "A micro-batch of %d will probably not fit: by simulation it needs %s, and there are %s. Pass %s.",
                size, needed, source, common_flags.flags_for_less_memory())

    def _probe(self):
        """Takes a step of one micro-batch, and more and smaller ones until memory suffices."""
        while not memory_planner.runs(self.build, self._micro_batch_size()):
            tried, size = FLAGS.gradient_accumulation_steps, self._micro_batch_size()
            more = [steps for steps in memory_planner.divisors(FLAGS.train_batch_size) if steps >= 2 * tried]
            if not more:
                raise ValueError(self.explain())
            FLAGS.gradient_accumulation_steps = more[0]
            logging.warning("A micro-batch of %d ran out of memory: --gradient_accumulation_steps=%d instead of %d.", size,
                            more[0], tried)

    def explain(self):
        """Returns what to change after memory ran out, in text."""
        logging.info("Out of memory. Simulating what would fit; for a large model this takes minutes.")
        changes = [{}]
        changes += [{"recompute": mode} for mode in modeling.RECOMPUTE[modeling.RECOMPUTE.index(FLAGS.recompute) + 1:]]
        if FLAGS.optimizer != "adafactor":
            changes.append({**changes[-1], "optimizer": "adafactor"})
        if FLAGS.max_seq_length >= 32:
            changes.append({"max_seq_length": FLAGS.max_seq_length // 2})
        alternatives = {" ".join(f"--{name}={value}" for name, value in change.items()) or "as it is":
                        functools.partial(self.build, **change) for change in changes}
        usable, source = _usable_memory()
        return (f"out of memory ({source}).\n" + memory_planner.advice(
            alternatives, FLAGS.train_batch_size, self._micro_batch_size(), usable))


def _settle_accumulation_by_tokens():
    """Sets --gradient_accumulation_steps to as many micro-batches as --tokens_per_micro_batch takes, if it was not given.

    Raises:
      ValueError: the flags contradict each other.
    """
    tokens, length, batch_size = FLAGS.tokens_per_micro_batch, FLAGS.max_seq_length, FLAGS.train_batch_size
    steps, given = FLAGS.gradient_accumulation_steps, FLAGS["gradient_accumulation_steps"].present
    if not FLAGS.trim_padding:
        raise ValueError("--tokens_per_micro_batch with --trim_padding=false: untrimmed examples all have the same number of "
                         "tokens. Leave one of them out.")
    if tokens < length:
        raise ValueError(f"--tokens_per_micro_batch={tokens} is below --max_seq_length={length}: an example may not fit. "
                         f"Pass at least {length}.")
    if given and steps == 0:
        raise ValueError("--gradient_accumulation_steps=0 goes by memory and --tokens_per_micro_batch by tokens: leave one of "
                         "them out.")
    if steps > batch_size:
        raise ValueError(f"--gradient_accumulation_steps={steps}: --train_batch_size={batch_size} examples make at most "
                         f"{batch_size} micro-batches.")
    needed = math.ceil(batch_size / (tokens // length))
    if not given:
        checks.take_default("gradient_accumulation_steps", needed,
                     f"so many --tokens_per_micro_batch={tokens} takes if all {batch_size} examples have {length} tokens")
    elif steps < needed:
        raise ValueError(f"--gradient_accumulation_steps={steps} is too little for --tokens_per_micro_batch={tokens} if all "
                         f"{batch_size} examples have --max_seq_length={length} tokens. Pass "
                         f"--gradient_accumulation_steps={needed} or --tokens_per_micro_batch="
                         f"{math.ceil(batch_size / steps) * length}.")


def _usable_memory():
    """Returns (bytes that a training step may take, what they are)."""
    if FLAGS.memory_limit_gb is None:
        usable, source = memory_planner.usable_here()
    else:
        usable, source = FLAGS.memory_limit_gb * memory_planner.GB, "--memory_limit_gb"
    return usable, f"{memory_planner.gb(usable)}: {source}"


class _Estimator(estimator.Estimator):
    """An Estimator that says what to change when memory runs out."""

    training = None  # a `_Training`

    def train(self, *args, hooks=(), max_steps=None, **kwargs):
        hooks = [*(hooks or ()), *_profile_hooks(max_steps)]
        try:
            return super().train(*args, hooks=hooks, max_steps=max_steps, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(self.training.explain()) from error

    def evaluate(self, *args, **kwargs):
        try:
            return super().evaluate(*args, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory in evaluation. Lower --eval_batch_size.") from error

    def predict(self, *args, **kwargs):
        try:
            yield from super().predict(*args, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory in prediction. Lower --predict_batch_size.") from error


# --- FLAGS → Estimator -----------------------------------------------------------------------------------


def _profile_hooks(num_train_steps):
    """What traces the steps that --profile_steps names.

    Raises:
      ValueError: training ends before, or is not asked for.
    """
    if FLAGS.profile_steps is None:
        return []
    first, last = common_flags.steps_of(FLAGS.profile_steps)
    if not FLAGS.do_train:
        raise ValueError(f"--profile_steps={FLAGS.profile_steps} is about training: pass --do_train=true, or leave it out.")
    if num_train_steps is not None and last > num_train_steps:
        raise ValueError(f"--profile_steps={FLAGS.profile_steps}: training ends at step {num_train_steps}. Pass steps from 1 "
                         f"to {num_train_steps}, or train longer.")
    return [session_hooks.ProfileHook(FLAGS.output_dir, first, last)]


def _session_config():
    """The tf.ConfigProto of all sessions; None for TensorFlow's own settings.

    Raises:
      ValueError: two flags exclude each other.
    """
    if not FLAGS.use_xla:
        return None
    if FLAGS.compile_kernels:
        raise ValueError("--use_xla=true compiles the whole model, the parts that --compile_kernels=true is about too: leave "
                         "one of them out.")
    if "trim_padding" in FLAGS and FLAGS.trim_padding:
        logging.info("--use_xla: trimmed batches differ in length, and each length is compiled anew. With "
                     "--trim_padding=false there is one.")
    return estimator.xla_session_config()


def create_estimator(build_model_fn, bert_config, fields, batch_totals=(), eval_batch_size=None, predict_batch_size=None,
                     num_train_steps=None, remove_padding=False):
    """Returns the `estimator.Estimator` that the flags describe.

    If it is to train, --recompute=auto and --gradient_accumulation_steps=0 become what fits into memory.

    Args:
      build_model_fn: function of model_options and optimizer_options that returns the model_fn.
      bert_config: the `modeling.BertConfig`.
      fields: sequence length -> list of the `input_pipeline.Field`s of a training example.
      batch_totals: see `input_pipeline.record_dataset`.
      eval_batch_size, predict_batch_size: examples at a time.
      num_train_steps: the last step of training, if known; a flag that asks for what is beyond is refused here.
      remove_padding: whether the loss looks at real tokens only, so that training need not compute the others; see
        `modeling.BertModel`.

    Raises:
      ValueError: nothing fits into memory, or flags contradict each other.
    """
    checks.check_precision()
    _profile_hooks(num_train_steps)
    session_config = _session_config()
    training = _Training(build_model_fn, bert_config, fields, batch_totals)
    if FLAGS.do_train:
        training.settle()
    config = estimator.RunConfig(
        model_dir=FLAGS.output_dir, tf_random_seed=FLAGS.seed, save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        log_step_count_steps=FLAGS.log_steps, save_summary_steps=FLAGS.log_steps, session_config=session_config,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps if FLAGS.do_train else 1,
        unequal_micro_batches=common_flags.tokens_per_micro_batch() > 0)
    model_fn = build_model_fn(model_options={**model_options(), "compile_kernels": _compiles_kernels(bert_config),
                                             "remove_padding": remove_padding and not FLAGS.use_xla},
                              optimizer_options=optimizer_options())
    created = _Estimator(model_fn, config=config, use_tpu=FLAGS.use_tpu, train_batch_size=FLAGS.train_batch_size,
                         eval_batch_size=eval_batch_size, predict_batch_size=predict_batch_size)
    created.training = training
    return created
