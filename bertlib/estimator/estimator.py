"""A compact Estimator: train, evaluate, predict and export a `model_fn` in graph mode.

TensorFlow removed `tf.estimator` in 2.16. This keeps its published semantics over what TensorFlow still ships
(`SingularMonitoredSession`, `Scaffold`, `Saver`, `SessionRunHook`), runs an unmodified `model_fn(features,
labels, mode, params)` and takes `TPUEstimator`'s arguments on CPU and GPU. Each call builds a fresh graph.

Which weights a call starts from: a checkpoint in model_dir beats what the model_fn initializes from
(`init_checkpoint`), which beats random initialization. `resume` restores the checkpoint.
"""

import contextlib
import copy
import functools
import os
import tempfile

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, resume
from bertlib.data import input_pipeline
from bertlib.estimator import (
    estimator_spec,
    evaluation,
    model_graph,
    replica_sync,
    saved_model,
    session_hooks,
)
from bertlib.estimator.estimator_spec import EstimatorSpec, ModeKeys, ServingInputReceiver  # noqa: F401  public names here
from bertlib.estimator.run_config import RunConfig
from bertlib.estimator.session_hooks import NanLossError  # noqa: F401  what training may raise
from bertlib.graph import collectives, graph_keys
from bertlib.runtime import input_position, step_order
from bertlib.system import files, locks, stopping


class Estimator(object):
    """Trains, evaluates, runs and exports the model that a `model_fn` builds."""

    def __init__(self, model_fn, model_dir=None, config=None, params=None, use_tpu=False,
                 train_batch_size=None, eval_batch_size=None, predict_batch_size=None, warm_start_from=None):
        """Creates an Estimator.

        Args:
          model_fn: function of features, labels, mode, params and config (labels and the following may be
            absent) that returns an `EstimatorSpec`.
          model_dir: directory of checkpoints and summaries; the configuration's if None, and a new temporary
            one if that is None too.
          config: a `RunConfig`.
          params: dict for the model_fn and the input_fn; any other object is given to them as a copy, and has
            to have set_hparam (as HParams has) where the Estimator adds to it.
          use_tpu: must be false.
          train_batch_size, eval_batch_size, predict_batch_size: given to both as params["batch_size"]. In
            training that is the micro-batch: train_batch_size divided by the configuration's
            gradient_accumulation_steps, which is in params too, and by the number of replicas; but see
            unequal_micro_batches there.
          warm_start_from: a checkpoint, or an object with the arguments of `tf.train.warm_start` as
            attributes (`WarmStartSettings`), from which training starts if model_dir has no checkpoint.

        Raises:
          ValueError: TPUs are asked for, there are two different model_dirs, or params has a batch_size too,
            or train_batch_size is not divisible by gradient_accumulation_steps.
        """
        if use_tpu:
            raise ValueError("use_tpu=True: TPUs are not supported. Pass use_tpu=False to run on CPU or GPU.")
        config = config or RunConfig()
        model_dir = model_dir and os.fspath(model_dir)
        if model_dir and config.model_dir and model_dir != config.model_dir:
            raise ValueError(f"model_dir is {model_dir}, but the RunConfig says {config.model_dir}.")
        self._model_dir = model_dir or config.model_dir
        if not self._model_dir:
            self._model_dir = tempfile.mkdtemp()
            logging.warning("No model_dir: checkpoints go to the temporary directory %s.", self._model_dir)
        self._config = config.replace(model_dir=self._model_dir)
        self._builder = model_graph.Builder(model_fn, self._config, params, {
            ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size})
        self._warm_start_from = warm_start_from
        self._is_training = False

    @property
    def model_dir(self):
        """The directory of checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self):
        """The `RunConfig`."""
        return self._config

    @property
    def params(self):
        """A copy of the parameters."""
        return copy.copy(self._builder.params)

    @property
    def model_fn(self):
        """The model_fn."""
        return self._builder.model_fn

    def eval_dir(self, name=None):
        """Returns the directory of the summaries of `evaluate` with that name."""
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    # --- Training

    def train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None):
        """Trains the model until the input ends or a limit is reached. Meanwhile model_dir is locked.

        Args:
          input_fn: returns a dataset of features or (features, labels), or the tensors themselves; may take
            params.
          hooks: list of SessionRunHook.
          steps: train that many steps more.
          max_steps: train until the global step is this.
          saving_listeners: list of CheckpointSaverListener.

        Returns:
          self.

        Raises:
          ValueError: both limits are given, or one is not positive; the checkpoint in model_dir does not fit
            the model.
          NanLossError: the loss became NaN or infinite; the checkpoints are those of before.
          locks.InUseError: another process trains there.
          OSError: the disk cannot be written; the last whole checkpoint is kept.
          stopping.Stopped: the configuration's stop_request was made; the last whole step is saved.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Give steps or max_steps, not both.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        if self._config.is_chief:
            tf.gfile.MakeDirs(self._model_dir)
        with locks.directory(self._model_dir):  # but for replica 0 a replica takes no locks
            self._train_from_newest(input_fn, list(hooks or []), steps, max_steps, saving_listeners)
        return self

    @property
    def _group(self):
        """The `replica_group.Group` that trains, evaluates and predicts together, or None.

        A script that uses Horovod evaluates as it likes; so does what is called during a training.
        """
        group = self._config.replicas
        return None if group is None or group.horovod or self._is_training else group

    def _train_from_newest(self, input_fn, hooks, steps, max_steps, saving_listeners):
        """`train`, in a directory that is there and locked."""
        # Replica 0 has written by then what others read.
        checkpoint = self._newest_of_all()
        start = checkpoint_formats.step_in(checkpoint)
        if self._config.replicas:  # with Horovod, only replica 0 may have a checkpoint
            start = replica_sync.begin(self._config.replicas, start, self._model_dir)
        if max_steps is not None and start >= max_steps:
            logging.info("Nothing to train: %s is at step %d, and the last step is %d.", checkpoint, start,
                         max_steps)
            return

        last_step = max_steps if max_steps is not None else start + steps if steps is not None else None
        if last_step is not None:
            hooks.append(tf.train.StopAtStepHook(last_step=last_step))
        self._log_start(checkpoint, start, last_step)
        session_arguments = input_fn, hooks, saving_listeners, checkpoint, last_step
        with (self._explaining_disk(), session_hooks.quiet_event_writers(),
              collectives.explaining(self._config.replicas), self._training()):
            try:
                if not self._train_session(*session_arguments, continue_input=True):
                    # The checkpoint was written at the input's end: it begins anew.
                    self._train_session(*session_arguments, continue_input=False)
            except stopping.Stopped:
                last = self.latest_checkpoint()
                raise stopping.Stopped(*[f"The last step is saved in {last}"] if last else []) from None
            finally:
                session_hooks.close_event_files()

    def _newest_of_all(self):
        """Returns the newest checkpoint, that of replica 0; None if there is none."""
        newest = self.latest_checkpoint()
        return self._group.from_first(newest) if self._group else newest

    @contextlib.contextmanager
    def _training(self):
        """Says that the replicas train in the block. After it they have all closed their sessions."""
        self._is_training = True
        try:
            yield
        finally:
            self._is_training = False
        if self._config.replicas:
            self._config.replicas.barrier()

    def _train_session(self, input_fn, hooks, saving_listeners, checkpoint, last_step, continue_input):
        """Trains in one session.

        Returns:
          False if nothing was trained because the input, which goes on where it was in the checkpoint, was at
          its end.
        """
        group = self._config.replicas
        with tf.Graph().as_default() as graph, tf.device(collectives.device(group) if group else ""):
            position = None
            if group:
                self._add_exchange(group)

            def input_and_position():
                nonlocal position
                found = self._builder.call_input_fn(input_fn, ModeKeys.TRAIN)
                if not graph.get_collection(graph_keys.STARTS_AT_GLOBAL_STEP):
                    position = input_position.InputPosition(graph)
                return found

            spec, input_hooks = self._builder.build(input_and_position, ModeKeys.TRAIN)
            spec, micro_batches, accumulate = self._accumulated(spec)
            step_order.settle(tf.train.get_global_step(), spec.train_op)
            if self._warm_start_from is not None and checkpoint is None:
                resume.warm_start(self._warm_start_from)
            _summarize_loss(spec.loss)
            scaffold = resume.scaffold_of(spec, checkpoint, self._config)
            keeper = None
            listeners = list(saving_listeners or [])
            if position:
                # With Horovod each process reads an input of its own, and one position is saved.
                horovod = group is not None and group.horovod
                keeper = session_hooks.InputPositionKeeper(
                    position, self._model_dir, checkpoint if continue_input and not horovod else None,
                    micro_batches)
                input_hooks.append(keeper)
                listeners.append(keeper.listener)
                if group and not horovod and checkpoint is None:  # a fork may draw its own starting weights
                    input_hooks.append(replica_sync.SameStart(group))
            examples = self._builder.batch_size(ModeKeys.TRAIN)
            if examples and not self._config.unequal_micro_batches:
                examples *= micro_batches * collectives.replicas()
            take_steps = self._steps_alone
            if group:
                vote = replica_sync.Vote(group)
                listeners.append(vote.listener)
                take_steps = functools.partial(self._steps_together, group, vote)
            all_hooks = self._training_hooks(spec, scaffold, input_hooks + hooks, listeners, checkpoint,
                                             last_step, examples)
            if self._config.is_chief:
                checkpoint_files.remove_leftovers(self._model_dir)

            stop = self._config.stop_request
            with (input_pipeline.explaining_faults(), stop.being_awaited(),
                  resume.session(scaffold, checkpoint, self._config, all_hooks, is_training=True,
                                 group=group) as session):
                take_steps(session, spec, micro_batches, accumulate, keeper)
            stop.check()
            input_was_at_its_end = position and position.moved and not keeper.trained
            return not input_was_at_its_end

    def _steps_alone(self, session, spec, micro_batches, accumulate, keeper):
        """Takes steps until the session is to end, or the end is asked for: the last whole step is saved."""
        stop = self._config.stop_request

        def step(step_context):
            if keeper:
                keeper.restore(step_context.session)
            for index in range(micro_batches):
                # An input that is not ours is saved where it stands: between two steps.
                if stop.made and not (keeper and index):
                    step_context.request_stop()  # raises; the end of the session saves the last step
                if index < micro_batches - 1:
                    step_context.session.run(accumulate)
            # A file beyond its limit is an OutOfRangeError, which a session takes for the input's end.
            with self._explaining_disk():
                step_context.run_with_hooks([spec.train_op, spec.loss])

        while not session.should_stop():
            session.run_step_fn(step)

    def _steps_together(self, group, vote, session, spec, micro_batches, accumulate, keeper):
        """`_steps_alone`, of a replica: all take the same number of steps, and stop between two."""
        def step(step_context):
            if keeper:
                keeper.restore(step_context.session)
            vote.begin()
            for _ in range(micro_batches - 1):
                step_context.session.run(accumulate)
            with self._explaining_disk():
                found = step_context.run_with_hooks([spec.train_op, spec.loss, vote.fetches])
            vote.end(found[2])

        with replica_sync.telling(group):
            while not vote.ends(session, self._config.stop_request):
                session.run_step_fn(step)

    def _add_exchange(self, group):
        """Lets what trains in the current graph add up its gradients with other replicas."""
        step = self._config.training_step
        travels = tf.bfloat16 if step and step.gradient_dtype == "bf16" else None
        tf.add_to_collection(graph_keys.EXCHANGE, collectives.Exchange(group, travels))

    def _explaining_disk(self):
        return files.explaining_disk(
            self._model_dir, lambda: f"The last whole checkpoint is {self.latest_checkpoint() or 'none'}.")

    def _accumulated(self, spec):
        """Returns (the spec with the loss of the whole batch, micro-batches in it, op that adds a
        micro-batch's gradient).

        The train op adds the last one. Whatever ends a session between two of them leaves no trace: what was
        added is in local variables, which start at zero.
        """
        found = tf.get_collection(graph_keys.GRADIENT_ACCUMULATION)
        asked = self._config.gradient_accumulation_steps
        steps = found[0].steps if found else 1
        if asked not in (1, steps):
            raise ValueError(f"The RunConfig says gradient_accumulation_steps={asked}, the model_fn's "
                             f"train_op accumulates {steps}. Pass params[\"gradient_accumulation_steps\"] to "
                             "optimization.create_optimizer.")
        exchange = collectives.exchange()
        if exchange and not exchange.ops:
            raise ValueError(
                f"The model_fn trains {exchange.replicas} replicas whose gradients are not averaged: each "
                "would train by itself. Make its train_op by tf.gradients, or by minimize or "
                "compute_gradients of a tf.train.Optimizer, in a script that python -m tf1 starts; with "
                "Horovod by hvd.DistributedOptimizer.")
        if not found:
            if exchange:
                loss = exchange.sum(spec.loss) / exchange.replicas
                # All sums are made in all replicas, also those that only replica 0 writes into summaries.
                spec = spec._replace(loss=loss, train_op=tf.group(spec.train_op, *exchange.ops))
            return spec, 1, None
        return spec._replace(loss=found[0].loss), steps, found[0].accumulate_op

    def _training_hooks(self, spec, scaffold, worker_hooks, saving_listeners, checkpoint, last_step,
                        examples):
        """All hooks of a training session, in `tf.estimator`'s order, but for the check of the loss, which
        goes first.

        After a step hooks run in this order: a checkpoint saved before the check would keep broken weights.
        """
        config = self._config
        if not config.is_chief:
            others = replica_sync.keep_reading_hooks([*worker_hooks, *spec.training_hooks], config.replicas)
            return [session_hooks.StopOnNanHook(spec.loss),
                    session_hooks.ProgressHook(None, spec.loss, config.log_step_count_steps, last_step,
                                               examples), *others]
        saver_hooks = [hook for hook in worker_hooks + spec.training_chief_hooks + spec.training_hooks
                       if isinstance(hook, tf.train.CheckpointSaverHook)]
        hooks = [session_hooks.StopOnNanHook(spec.loss)]
        if saver_hooks:
            users = saver_hooks[0]
            # A hook may serve several calls; the position of a graph's input dies with that graph.
            users._listeners = [listener for listener in users._listeners
                                if not isinstance(listener, session_hooks.PositionListener)]
            users._listeners.extend(saving_listeners)
        else:
            hooks.append(session_hooks.SaveWholeHook(self._model_dir, save_secs=config.save_checkpoints_secs,
                                        save_steps=config.save_checkpoints_steps, scaffold=scaffold,
                                        listeners=saving_listeners, restored=checkpoint))
        hooks += spec.training_chief_hooks
        if config.save_summary_steps:
            hooks.append(tf.train.SummarySaverHook(save_steps=config.save_summary_steps,
                                                   output_dir=self._model_dir, scaffold=scaffold))
        hooks.append(session_hooks.ProgressHook(self._model_dir, spec.loss, config.log_step_count_steps,
                                                last_step, examples))
        return hooks + worker_hooks + spec.training_hooks

    def _log_start(self, checkpoint, start, last_step):
        where = f"to step {last_step}" if last_step is not None else "until the input ends"
        if checkpoint:
            logging.info("Resuming from %s: step %d %s. init_checkpoint, if given, is not used.", checkpoint,
                         start, where)
        else:
            logging.info("Training in %s, from step 0 %s.", self._model_dir, where)

    # --- Evaluation and prediction

    def evaluate(self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None, revise=None):
        """Evaluates the newest checkpoint.

        Args:
          input_fn: see `train`.
          steps: batches to evaluate; all if None.
          hooks: list of SessionRunHook.
          checkpoint_path: the checkpoint to evaluate.
          name: names the summary directory: eval_<name> in model_dir, or eval.
          revise: function of the results and of the predictions, a list with that of each example, a dict;
            what it returns are the results. The model_fn has to give predictions in this mode too then.

        Returns:
          dict with the model_fn's metrics, "loss" (mean over the batches) and "global_step".
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"steps is {steps}; it must be positive.")
        checkpoint = self._checkpoint_for(checkpoint_path, "evaluating")
        results = evaluation.evaluate(self._builder, self._config, checkpoint, input_fn, steps, hooks, revise,
                                      self._group)
        if self._config.is_chief or self._config.replicas.horovod:
            evaluation.write_summary(self.eval_dir(name), results)
        return results

    def predict(self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None,
                yield_single_examples=True):
        """Yields predictions, running the model only as they are asked for.

        Args:
          input_fn: see `train`; labels are ignored.
          predict_keys: names of the predictions wanted; all if None.
          hooks: list of SessionRunHook.
          checkpoint_path: the checkpoint to use.
          yield_single_examples: yield example by example; otherwise whole batches.

        Yields:
          The model_fn's predictions as NumPy arrays, a dict if they are one.
        """
        checkpoint = self._checkpoint_for(checkpoint_path, "predicting")
        for batch in evaluation.predicted_batches(self._builder, self._config, checkpoint, input_fn,
                                                  predict_keys, hooks, self._group):
            if not yield_single_examples:
                yield batch
            elif isinstance(batch, dict):
                yield from estimator_spec.examples_of(batch)
            else:
                yield from batch

    def export_saved_model(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                           checkpoint_path=None):
        """Writes the model as a SavedModel into a new directory, named by the time, under `export_dir_base`.

        Args:
          serving_input_receiver_fn: returns a `ServingInputReceiver`.
          assets_extra: {path under assets.extra: file to copy there}.
          as_text: write the graph as text.
          checkpoint_path: the checkpoint to export; the newest if None.

        Returns:
          the directory, as bytes.

        Raises:
          ValueError: there is no checkpoint.
        """
        group, written = self._group, None
        if not group or group.is_first:  # replica 0 exports
            checkpoint = checkpoint_path or self.latest_checkpoint()
            if not checkpoint:
                raise ValueError(f"There is no checkpoint in {self._model_dir} to export; train first.")
            logging.info("Weights for exporting: %s.", checkpoint)
            written = saved_model.write(self._builder, self._config, checkpoint, export_dir_base,
                                        serving_input_receiver_fn, assets_extra, as_text)
        return group.from_first(written) if group else written

    def export_savedmodel(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                          checkpoint_path=None, strip_default_attrs=True):
        """`export_saved_model` under its older name; attributes with default values are always left out."""
        del strip_default_attrs
        return self.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra, as_text,
                                       checkpoint_path)

    # --- Checkpoints

    def latest_checkpoint(self):
        """Returns the prefix of the newest checkpoint in model_dir, or None."""
        return checkpoint_formats.latest_checkpoint(self._model_dir)

    def get_variable_names(self):
        """Returns the names in the newest checkpoint."""
        return sorted(checkpoint_formats.open_checkpoint(self._trained_checkpoint()).shapes)

    def get_variable_value(self, name):
        """Returns the value of a variable in the newest checkpoint."""
        return tf.train.load_variable(checkpoint_files.openable(self._trained_checkpoint()), name)

    def _trained_checkpoint(self):
        checkpoint = self.latest_checkpoint()
        if not checkpoint:
            raise ValueError(f"There is no checkpoint in {self._model_dir}; train first.")
        return checkpoint

    def _checkpoint_for(self, checkpoint_path, doing):
        if self._group:
            self._group.barrier()  # replica 0 has written by then what others read
        checkpoint = checkpoint_path or self._newest_of_all()
        if checkpoint:
            logging.info("Weights for %s: %s.", doing, checkpoint)
        else:
            logging.warning("There is no checkpoint in %s: %s with the weights that training would start "
                            "from.",
                            self._model_dir, doing)
        return checkpoint

def _summarize_loss(loss):
    """Writes the loss as a summary unless the model_fn does. Its tag is "loss" even where a scope has that
    name."""
    summaries = tf.get_collection(tf.GraphKeys.SUMMARIES)
    if not any(summary.op.name == "loss" for summary in summaries):
        tf.add_to_collection(tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags="loss", values=loss))
