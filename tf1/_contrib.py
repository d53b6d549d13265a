"""What forks of BERT used of `tf.contrib`, which TensorFlow 2 removed. `tf1` puts it back under its names.

The functions keep the arguments, the variable names and the results of TensorFlow 1.15.
"""

import contextlib
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.runtime import checkpoint_files

# --- contrib.layers --------------------------------------------------------------------------------------


def layer_norm(inputs, center=True, scale=True, activation_fn=None, reuse=None, variables_collections=None,
               outputs_collections=None, trainable=True, begin_norm_axis=1, begin_params_axis=-1, scope=None):
    """Layer normalization (Ba et al. 2016, arXiv:1607.06450), variables LayerNorm/beta, LayerNorm/gamma.

    Args:
      inputs: float tensor.
      center: add beta.
      scale: multiply by gamma.
      activation_fn: applied to the result.
      reuse, scope: of the variables.
      variables_collections: further collections of the variables.
      outputs_collections: collections of the result.
      trainable: whether the variables are.
      begin_norm_axis: mean and variance are taken over this axis and those after it.
      begin_params_axis: beta and gamma have the dimensions from this axis on.
    """
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        rank = inputs.shape.rank
        shape = inputs.shape[begin_params_axis:].as_list()
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        beta = _variable("beta", shape, tf.zeros_initializer(), inputs, trainable,
                         variables_collections) if center else None
        gamma = _variable("gamma", shape, tf.ones_initializer(), inputs, trainable,
                          variables_collections) if scale else None
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return _finished(outputs, inputs, activation_fn, outputs_collections)


def batch_norm(inputs, decay=0.999, center=True, scale=False, epsilon=0.001, activation_fn=None,
               param_initializers=None, updates_collections=tf.GraphKeys.UPDATE_OPS, is_training=True,
               reuse=None, variables_collections=None, outputs_collections=None, trainable=True, scope=None,
               **unsupported):
    """Batch normalization over the last dimension (Ioffe and Szegedy 2015, arXiv:1502.03167).

    Variables: BatchNorm/beta, gamma, moving_mean, moving_variance. Arguments are those of `layer_norm`, and

      decay: of the moving averages.
      epsilon: added to the variance.
      param_initializers: {variable: initializer}.
      updates_collections: where the updates of the moving averages go; None makes the result wait for them.
      is_training: bool or tensor; false normalizes with the moving averages.
    """
    others = {name: value for name, value in unsupported.items() if value is not None and name != "fused"}
    if others:
        raise ValueError(f"tf.contrib.layers.batch_norm: no {', '.join(others)} here. Use "
                         "tf.layers.batch_normalization.")
    initializers = {"beta": tf.zeros_initializer(), "gamma": tf.ones_initializer(),
                    "moving_mean": tf.zeros_initializer(),
                    "moving_variance": tf.ones_initializer(), **(param_initializers or {})}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse):
        def variable(name, wanted=True, trained=trainable):
            return _variable(name, inputs.shape[-1:].as_list(), initializers[name], inputs, trained,
                             variables_collections) if wanted else None

        beta, gamma = variable("beta", center), variable("gamma", scale)
        moving = [variable("moving_mean", trained=False), variable("moving_variance", trained=False)]
        training = tf.convert_to_tensor(is_training)
        batch = tf.nn.moments(inputs, list(range(inputs.shape.rank - 1)))
        rate = tf.where(training, tf.cast(1.0 - decay, inputs.dtype), tf.zeros([], inputs.dtype))
        factors = [1.0, _bessel(inputs) if inputs.shape.rank in (2, 4)
                   and unsupported.get("fused") is not False else 1.0]
        updates = [tf.assign_sub(average, (average - now * factor) * rate)
                   for average, now,
                   factor in zip(moving, batch, factors)] if is_training is not False else []
        mean, variance = (tf.where(training, now, tf.identity(average))
                          for average, now in zip(moving, batch))
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        if updates_collections is None:
            with tf.control_dependencies(updates):
                outputs = tf.identity(outputs)
        else:
            for update in updates:
                tf.add_to_collections(updates_collections, update)
        return _finished(outputs, inputs, activation_fn, outputs_collections)


def _bessel(inputs):
    """n / (n - 1) for n values of a channel. TensorFlow's kernel for two and four dimensions averaged so."""
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]), inputs.dtype)
    return count / tf.maximum(count - 1, 1)


def fully_connected(inputs, num_outputs, activation_fn=tf.nn.relu, normalizer_fn=None, normalizer_params=None,
                    weights_initializer=None, weights_regularizer=None, biases_initializer="zeros",
                    biases_regularizer=None, reuse=None, variables_collections=None, outputs_collections=None,
                    trainable=True, scope=None):
    """activation_fn(inputs · fully_connected/weights + fully_connected/biases) over the last dimension.

    Defaults are a ReLU, Xavier weights and zero biases; biases_initializer=None or a normalizer_fn leaves the
    biases out.
    """
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        weights = _variable("weights", [inputs.shape.as_list()[-1], num_outputs],
                            weights_initializer or xavier_initializer(), inputs, trainable,
                            variables_collections, weights_regularizer)
        outputs = tf.tensordot(inputs, weights, 1)
        outputs.set_shape(inputs.shape[:-1].concatenate(num_outputs))
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            initializer = tf.zeros_initializer() if biases_initializer == "zeros" else biases_initializer
            outputs += _variable("biases", [num_outputs], initializer, inputs, trainable,
                                 variables_collections, biases_regularizer)
        return _finished(outputs, outputs, activation_fn, outputs_collections)


def _variable(name, shape, initializer, like, trainable, collections, regularizer=None):
    if isinstance(collections, dict):
        collections = collections.get(name)
    return tf.get_variable(name, shape, like.dtype.base_dtype, initializer, regularizer, trainable,
                           collections=[tf.GraphKeys.GLOBAL_VARIABLES, *(collections or [])])


def _finished(outputs, like, activation_fn, collections):
    outputs.set_shape(like.shape)
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    if collections:
        tf.add_to_collections(collections, outputs)
    return outputs


def flatten(inputs, outputs_collections=None, scope=None):
    """Returns [batch, everything else]."""
    with tf.name_scope(scope, "Flatten", [inputs]):
        size = inputs.shape[1:].num_elements()
        outputs = tf.reshape(inputs, [tf.shape(inputs)[0], -1 if size is None else size])
        tf.add_to_collections(outputs_collections or [], outputs)
        return outputs


def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
    """Weights of variance 2 / (inputs + outputs) (Glorot and Bengio 2010), uniform or normal."""
    return (tf.glorot_uniform_initializer if uniform else tf.glorot_normal_initializer)(seed, dtype)


def l1_regularizer(scale, scope=None):
    """Returns a function of weights: scale · Σ|w|."""
    return lambda weights: tf.multiply(scale, tf.reduce_sum(tf.abs(weights)), name=scope)


def l2_regularizer(scale, scope=None):
    """Returns a function of weights: scale · Σw²/2."""
    return lambda weights: tf.multiply(scale, tf.nn.l2_loss(weights), name=scope)


_OPTIMIZERS = {"Adagrad": tf.train.AdagradOptimizer, "Adam": tf.train.AdamOptimizer,
               "Ftrl": tf.train.FtrlOptimizer,
               "Momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, momentum=0.9),
               "RMSProp": tf.train.RMSPropOptimizer, "SGD": tf.train.GradientDescentOptimizer}


def optimize_loss(loss, global_step, learning_rate, optimizer, gradient_noise_scale=None,
                  gradient_multipliers=None, clip_gradients=None, learning_rate_decay_fn=None,
                  update_ops=None, variables=None, name=None, summaries=None,
                  colocate_gradients_with_ops=False, increment_global_step=True):
    """Builds a training step; returns the loss, a tensor that waits for it.

    Args:
      loss: scalar.
      global_step: the step to count; the graph's if None.
      learning_rate: float, then kept in the variable OptimizeLoss/learning_rate, scalar tensor, or None if
        the optimizer has its own.
      optimizer: a name (Adagrad, Adam, Ftrl, Momentum, RMSProp, SGD), a class, an instance, or a function of
        the learning rate.
      gradient_noise_scale: standard deviation of noise added to gradients.
      gradient_multipliers: {variable or its name: factor}.
      clip_gradients: global norm to clip to, or a function of (gradient, variable) pairs.
      learning_rate_decay_fn: function of learning_rate and global_step.
      update_ops: what the loss waits for; the collection UPDATE_OPS if None.
      variables: what to train; all trainable ones if None.
      name: variable scope.
      summaries: names among loss, learning_rate, gradients, gradient_norm, global_gradient_norm.
      colocate_gradients_with_ops: see `tf.gradients`.
      increment_global_step: whether to count the step.

    Raises:
      ValueError: the optimizer is unknown, or no variable has a gradient.
    """
    global_step = tf.train.get_global_step() if global_step is None else global_step
    with tf.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        with tf.control_dependencies(
                tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops):
            loss = tf.identity(loss)
        rate = learning_rate
        if isinstance(rate, (int, float)):
            rate = tf.get_variable("learning_rate", [], trainable=False,
                                   initializer=tf.constant_initializer(rate))
        if learning_rate_decay_fn is not None:
            rate = learning_rate_decay_fn(rate, global_step)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(loss, tf.trainable_variables() if variables is None else variables,
                                         colocate_gradients_with_ops=colocate_gradients_with_ops)
        pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not pairs:
            raise ValueError("optimize_loss: the loss depends on no trainable variable.")
        pairs = _changed_gradients(pairs, gradient_noise_scale, gradient_multipliers, clip_gradients)
        _summarize(summaries or ["loss", "learning_rate", "global_gradient_norm"], loss, rate, pairs)
        update = chosen.apply_gradients(pairs, global_step if increment_global_step else None, name="train")
        with tf.control_dependencies([update]):
            return tf.identity(loss)


def _optimizer(optimizer, rate):
    if isinstance(optimizer, str):
        if optimizer not in _OPTIMIZERS:
            raise ValueError(f"optimize_loss: unknown optimizer {optimizer!r}; known: "
                             f"{', '.join(_OPTIMIZERS)}.")
        optimizer = _OPTIMIZERS[optimizer]
    if isinstance(optimizer, tf.train.Optimizer):
        return optimizer
    if not callable(optimizer):
        raise ValueError(f"optimize_loss: {optimizer!r} is no optimizer's name, class, instance or function.")
    return optimizer() if rate is None else optimizer(rate)


def _changed_gradients(pairs, noise_scale, multipliers, clip):
    if noise_scale is not None:
        pairs = [(tf.convert_to_tensor(gradient) + tf.random.truncated_normal(variable.shape) * noise_scale,
                  variable)
                 for gradient, variable in pairs]
    factors = {key.split(":")[0] if isinstance(key, str) else key.op.name: factor
               for key, factor in (multipliers or {}).items()}
    pairs = [(tf.convert_to_tensor(gradient) * factors[variable.op.name], variable)
             if variable.op.name in factors else (gradient, variable) for gradient, variable in pairs]
    if callable(clip):
        return clip(pairs)
    if clip is not None:
        clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip)
        return [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs)]
    return pairs


def _summarize(names, loss, rate, pairs):
    if "loss" in names:
        tf.summary.scalar("loss", loss)
    if "learning_rate" in names and rate is not None:
        tf.summary.scalar("learning_rate", rate)
    if "global_gradient_norm" in names:
        tf.summary.scalar("global_norm/gradient_norm", tf.global_norm([gradient for gradient, _ in pairs]))
    for gradient, variable in pairs:
        if "gradients" in names:
            tf.summary.histogram(f"gradients/{variable.op.name}", tf.convert_to_tensor(gradient))
        if "gradient_norm" in names:
            tf.summary.scalar(f"gradient_norm/{variable.op.name}", tf.global_norm([gradient]))


# --- contrib.crf -----------------------------------------------------------------------------------------
# Linear-chain conditional random field (Lafferty, McCallum and Pereira 2001). B examples, T positions, N
# tags; s[t, j] is the score of tag j at position t, A[i, j] that of tag j after tag i.


def _mask(lengths, inputs):
    return tf.sequence_mask(lengths, tf.shape(inputs)[1], inputs.dtype)


def crf_unary_score(tag_indices, sequence_lengths, inputs):
    """Returns Σ_t s[t, y_t], float [B]; arguments of `crf_log_likelihood`."""
    tags = tf.one_hot(tag_indices, tf.shape(inputs)[2], dtype=inputs.dtype)
    return tf.reduce_sum(tf.reduce_sum(inputs * tags, axis=2) * _mask(sequence_lengths, inputs), axis=1)


def crf_binary_score(tag_indices, sequence_lengths, transition_params):
    """Returns Σ_t A[y_(t-1), y_t], float [B]; arguments of `crf_log_likelihood`."""
    steps = tf.gather_nd(transition_params, tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=-1))
    mask = tf.sequence_mask(sequence_lengths, tf.shape(tag_indices)[1], transition_params.dtype.base_dtype)
    return tf.reduce_sum(steps * mask[:, 1:], axis=1)


def crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params):
    """Returns the unnormalized score of the tags, float [B]; arguments of `crf_log_likelihood`."""
    return (crf_unary_score(tag_indices, sequence_lengths, inputs)
            + crf_binary_score(tag_indices, sequence_lengths, transition_params))


def crf_log_norm(inputs, sequence_lengths, transition_params):
    """Returns the log partition function, float [B], 0 for length 0; arguments of `crf_log_likelihood`."""
    def forward(state, position):
        scores, mask = position
        following = tf.reduce_logsumexp(state[:, :, None] + transition_params[None], axis=1) + scores
        return tf.where(mask > 0, following, state)

    mask = _mask(sequence_lengths, inputs)
    # The loop takes the first position too, without effect: an empty loop (T = 1) would have no gradient.
    later = tf.concat([tf.zeros_like(mask[:, :1]), mask[:, 1:]], axis=1)
    wide = tf.tile(later[:, :, None], [1, 1, tf.shape(inputs)[2]])
    final = tf.foldl(forward, (tf.transpose(inputs, [1, 0, 2]), tf.transpose(wide, [1, 0, 2])), inputs[:, 0])
    return tf.reduce_logsumexp(final, axis=1) * mask[:, 0]


def crf_log_likelihood(inputs, tag_indices, sequence_lengths, transition_params=None):
    """Returns the log-likelihood of tags, and the transition scores.

    Args:
      inputs: s, float [B, T, N].
      tag_indices: y, integer [B, T].
      sequence_lengths: integer [B].
      transition_params: A, float [N, N]; the variable "transitions" if None.

    Returns:
      (float [B], A).
    """
    if transition_params is None:
        size = inputs.shape.as_list()[2]
        transition_params = tf.get_variable("transitions", [size, size])
    tag_indices = tf.cast(tag_indices, tf.int32)
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials, transition_params, sequence_length):
    """Finds the best tags by Viterbi's algorithm.

    Args:
      potentials: s, float [B, T, N].
      transition_params: A, float [N, N].
      sequence_length: integer [B].

    Returns:
      (tags int32 [B, T], 0 after the end; their scores float [B]).
    """
    def forward(state, position):
        scores, mask = position
        paths = state[0][:, :, None] + transition_params[None]
        best = tf.where(mask > 0, tf.reduce_max(paths, axis=1) + scores, state[0])
        # After the end each tag points to itself, so that going back changes nothing.
        return best, tf.where(mask > 0, tf.argmax(paths, axis=1, output_type=tf.int32), itself)

    size = tf.shape(potentials)[2]
    itself = tf.tile(tf.range(size)[None], [tf.shape(potentials)[0], 1])
    mask = _mask(sequence_length, potentials)
    wide = tf.transpose(tf.tile(mask[:, :, None], [1, 1, size]), [1, 0, 2])
    first = potentials[:, 0]
    scores, pointers = tf.scan(forward, (tf.transpose(potentials, [1, 0, 2])[1:], wide[1:]), (first, itself))
    final = tf.concat([first[None], scores], axis=0)[-1]
    last = tf.argmax(final, axis=1, output_type=tf.int32)
    earlier = tf.scan(lambda tags, pointer: tf.gather(pointer, tags, batch_dims=1), pointers, last,
                      reverse=True)
    tags = tf.transpose(tf.concat([earlier, last[None]], axis=0))
    return tags * tf.cast(mask, tf.int32), tf.reduce_max(final, axis=1)


def viterbi_decode(score, transition_params):
    """Finds the best tags of one sequence, in NumPy.

    Args:
      score: s, float [T, N].
      transition_params: A, float [N, N].

    Returns:
      (list of T tags, their score).
    """
    state, pointers = np.array(score[0]), []
    for scores in score[1:]:
        paths = state[:, None] + transition_params
        pointers.append(np.argmax(paths, axis=0))
        state = scores + np.max(paths, axis=0)
    tags = [int(np.argmax(state))]
    for pointer in reversed(pointers):
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], np.max(state)


# --- contrib.predictor -----------------------------------------------------------------------------------


class Predictor(object):
    """A model in a session: called with {input name: array}, returns {output name: array}.

    Attributes:
      graph, session, feed_tensors, fetch_tensors.
    """

    def __init__(self, session, feed_tensors, fetch_tensors):
        self.graph = session.graph
        self.session = session
        self.feed_tensors = feed_tensors
        self.fetch_tensors = fetch_tensors

    def __call__(self, input_dict):
        unknown = sorted(set(input_dict) - set(self.feed_tensors))
        if unknown:
            raise ValueError(f"The model has no input {', '.join(unknown)}; it has "
                             f"{', '.join(sorted(self.feed_tensors))}.")
        feeds = {self.feed_tensors[name]: value for name, value in input_dict.items() if value is not None}
        return self.session.run(self.fetch_tensors, feeds)


def from_saved_model(export_dir, signature_def_key=None, signature_def=None, input_names=None,
                     output_names=None, tags=None, graph=None, config=None):
    """Returns a `Predictor` of a SavedModel.

    Args:
      export_dir: its directory.
      signature_def_key: the signature; "serving_default" if None.
      signature_def, or input_names and output_names {name: tensor name}: other ways to say what to feed and
        fetch.
      tags: of the graph, comma-separated; "serve" if None.
      graph: graph to load it into; a new one if None.
      config: tf.ConfigProto.

    Raises:
      ValueError: the model has no such signature.
    """
    session = tf.Session(graph=graph or tf.Graph(), config=config)
    with session.graph.as_default():
        loaded = tf.saved_model.loader.load(session,
                                            (tags or tf.saved_model.tag_constants.SERVING).split(","),
                                            checkpoint_files.openable_directory(
                                                tf.compat.as_str(os.fspath(export_dir))))
    if input_names is None or output_names is None:
        if signature_def is None:
            key = signature_def_key or tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
            if key not in loaded.signature_def:
                raise ValueError(f"{export_dir} has no signature {key!r}; it has "
                                 f"{', '.join(sorted(loaded.signature_def))}.")
            signature_def = loaded.signature_def[key]
        input_names = {name: info.name for name, info in signature_def.inputs.items()}
        output_names = {name: info.name for name, info in signature_def.outputs.items()}
    find = session.graph.get_tensor_by_name
    return Predictor(session, {name: find(tensor) for name, tensor in input_names.items()},
                     {name: find(tensor) for name, tensor in output_names.items()})


def from_estimator(estimator, serving_input_receiver_fn, output_key=None, graph=None, config=None):
    """Returns a `Predictor` of an Estimator's newest checkpoint.

    Args:
      estimator: the Estimator.
      serving_input_receiver_fn: what it is fed.
      output_key: the export output; the default one if None.
      graph, config: see `from_saved_model`.
    """
    with tempfile.TemporaryDirectory() as directory:
        exported = estimator.export_saved_model(directory, serving_input_receiver_fn)
        return from_saved_model(tf.compat.as_str(exported), output_key, graph=graph, config=config)


# --- contrib.metrics -------------------------------------------------------------------------------------


def streaming_concat(values, axis=0, max_size=None, metrics_collections=None, updates_collections=None,
                     name=None):
    """A metric whose value is all values so far, one after the other.

    Args:
      values: tensor whose shape is known but for `axis`.
      axis: dimension to concatenate along.
      max_size: not supported.
      metrics_collections, updates_collections: where to add the value and the update.
      name: variable scope.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    if max_size is not None:
        raise ValueError("tf.contrib.metrics.streaming_concat: no max_size here; cut the result.")
    with tf.variable_scope(name, "streaming_concat", [values]):
        shape = values.shape.as_list()
        initial = [0 if index == axis % len(shape) else size for index, size in enumerate(shape)]
        kept = tf.Variable(tf.zeros(initial, values.dtype), trainable=False, use_resource=True,
                           shape=tf.TensorShape(None),
                           collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        update = kept.assign(tf.concat([kept.read_value(), values], axis), read_value=True)
        return _metric(kept.read_value(), update, metrics_collections, updates_collections)


def streaming_pearson_correlation(predictions, labels, weights=None, metrics_collections=None,
                                  updates_collections=None, name=None):
    """A metric: Pearson's correlation coefficient of predictions and labels, 0 if one of them is constant.

    Args:
      predictions, labels: float tensors of the same size.
      weights: likewise; all 1 if None.
      metrics_collections, updates_collections, name: see `streaming_concat`.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    with tf.variable_scope(name, "pearson_r", [predictions, labels]):
        x, y = (tf.reshape(tf.cast(values, tf.float64), [-1]) for values in (predictions, labels))
        weights = tf.ones_like(x) if weights is None else tf.reshape(tf.cast(weights, tf.float64), [-1])
        sums = tf.get_variable("sums", [6], tf.float64, tf.zeros_initializer(), trainable=False,
                               collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        batch = tf.stack([tf.reduce_sum(weights * terms) for terms in (
            tf.ones_like(x), x, y, x * x, y * y, x * y)])

        def correlation(sums):
            count, x, y, xx, yy, xy = tf.unstack(sums)
            spread = tf.sqrt((count * xx - x * x) * (count * yy - y * y))
            return tf.cast(tf.div_no_nan(count * xy - x * y, spread), tf.float32)

        return _metric(correlation(sums), correlation(tf.assign_add(sums, batch)), metrics_collections,
                       updates_collections)


def _metric(value, update, metrics_collections, updates_collections):
    tf.add_to_collections(metrics_collections or [], value)
    tf.add_to_collections(updates_collections or [], update)
    return value, update


# --- The rest --------------------------------------------------------------------------------------------


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  softmax_loss_function=None, name=None):
    """Weighted cross-entropy of sequences (contrib.seq2seq).

    Args:
      logits: float [B, T, N].
      targets: integer [B, T].
      weights: float [B, T].
      average_across_timesteps, average_across_batch: divide by the sum of the weights along these dimensions.
      softmax_loss_function: function of labels and logits, instead of the sparse cross-entropy.
    """
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        # Functions for this argument were written for flat tensors.
        flat = function(labels=tf.reshape(targets, [-1]),
                        logits=tf.reshape(logits, [-1, logits.shape.as_list()[2]]))
        losses = tf.reshape(flat, tf.shape(weights)) * weights
        axes = [axis for axis, averaged in enumerate([average_across_batch, average_across_timesteps])
                if averaged]
        if not axes:
            return losses
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def parallel_interleave(map_func, cycle_length, block_length=1, sloppy=False, buffer_output_elements=None,
                        prefetch_input_elements=None):
    """tf.data.experimental.parallel_interleave, never sloppy: a run has to repeat."""
    del sloppy
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, False,
                                                    buffer_output_elements, prefetch_input_elements)


def batch_and_drop_remainder(batch_size):
    """Returns a transformation for `Dataset.apply`: batches of exactly that size."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


@contextlib.contextmanager
def experimental_jit_scope(compile_ops=True, separate_compiled_gradients=False):
    """tf.xla.experimental.jit_scope."""
    with tf.xla.experimental.jit_scope(compile_ops, separate_compiled_gradients):
        yield
