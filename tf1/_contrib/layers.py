"""Defines tf.contrib.layers with the arguments, variable names and results of TensorFlow 1.15."""

import tensorflow.compat.v1 as tf

from tf1._contrib import framework, optimizers
from tf1._names import canned, keyed_random


@framework.add_arg_scope
def layer_norm(inputs, center=True, scale=True, activation_fn=None, reuse=None, variables_collections=None,
               outputs_collections=None, trainable=True, begin_norm_axis=1, begin_params_axis=-1, scope=None):
    """Applies layer normalization (arXiv:1607.06450). The variables are LayerNorm/beta and LayerNorm/gamma.

    Args:
      inputs: float tensor.
      center: whether to add beta.
      scale: whether to multiply by gamma.
      activation_fn: function that is applied to the result, or None.
      reuse, scope: reuse and scope of the variables; see tf.variable_scope.
      variables_collections: additional collections of the variables.
      outputs_collections: collections to which the result is added.
      trainable: whether the variables are trainable.
      begin_norm_axis: the mean and the variance are computed over this axis and all later axes.
      begin_params_axis: beta and gamma have the dimensions of this axis and of all later axes.

    Returns:
      float tensor with the shape of inputs.
    """
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        rank = inputs.shape.rank
        shape = inputs.shape[begin_params_axis:].as_list()
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        beta, gamma = (
            _variable(name, shape, initializer, inputs, trainable, variables_collections) if exists else None
            for name, initializer, exists in (("beta", tf.zeros_initializer(), center),
                                              ("gamma", tf.ones_initializer(), scale)))
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return _finished(outputs, inputs, activation_fn, outputs_collections)


@framework.add_arg_scope
def batch_norm(inputs, decay=0.999, center=True, scale=False, epsilon=0.001, activation_fn=None,
               param_initializers=None, updates_collections=tf.GraphKeys.UPDATE_OPS, is_training=True,
               reuse=None, variables_collections=None, outputs_collections=None, trainable=True, scope=None,
               **unsupported):
    """Normalizes each channel over the batch (Ioffe and Szegedy 2015, arXiv:1502.03167).

    A channel consists of all values with the same index in the last dimension. The variables are
    BatchNorm/beta, gamma, moving_mean and moving_variance. Arguments that are not listed below are described
    in `layer_norm`.

    Args:
      decay: decay of the moving averages.
      epsilon: number that is added to the variance.
      param_initializers: {name of a variable: initializer}.
      updates_collections: collections to which the updates of the moving averages are added, besides
        UPDATE_OPS. If None, the result of the layer is computed after the updates.
      is_training: bool or scalar tensor. If false, the moving averages are used for the normalization.
      **unsupported: other arguments of TensorFlow 1.15. All of them except `fused` must be None. With
        fused=False, the moving variance is computed without Bessel's correction.

    Returns:
      float tensor with the shape of inputs.

    Raises:
      ValueError: an argument is not supported.
    """
    others = {name: value for name, value in unsupported.items() if value is not None and name != "fused"}
    if others:
        raise ValueError(f"tf.contrib.layers.batch_norm: the argument {', '.join(others)} is not supported. "
                         "Use tf.layers.batch_normalization.")
    initializers = {f"{name}_initializer": value for name, value in (param_initializers or {}).items()}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as variables:
        layer = tf.layers.BatchNormalization(
            momentum=decay, epsilon=epsilon, center=center, scale=scale, trainable=trainable,
            fused=unsupported.get("fused"), _scope=variables, **initializers)
        # For inputs with two or four dimensions, TensorFlow 1.15 used a fused kernel, whose moving variance
        # has Bessel's correction. The layer uses this kernel only for four dimensions.
        is_matrix = inputs.shape.rank == 2
        values = inputs[:, tf.newaxis, tf.newaxis] if is_matrix else inputs
        outputs = layer(values, training=is_training)
        outputs = tf.squeeze(outputs, [1, 2]) if is_matrix else outputs
        for variable in layer.variables:
            framework.add_model_variable(variable)
            name = variable.op.name.rpartition("/")[2]
            tf.add_to_collections(get_variable_collections(variables_collections, name) or [], variable)
        if updates_collections is None:
            with tf.control_dependencies(layer.updates):
                outputs = tf.identity(outputs)
        elif updates_collections != tf.GraphKeys.UPDATE_OPS:  # the layer itself adds them to UPDATE_OPS
            for update in layer.updates:
                tf.add_to_collections(updates_collections, update)
        return _finished(outputs, inputs, activation_fn, outputs_collections)


@framework.add_arg_scope
def fully_connected(inputs, num_outputs, activation_fn=tf.nn.relu, normalizer_fn=None, normalizer_params=None,
                    weights_initializer=None, weights_regularizer=None, biases_initializer="zeros",
                    biases_regularizer=None, reuse=None, variables_collections=None, outputs_collections=None,
                    trainable=True, scope=None):
    """Applies a fully connected layer to the last dimension: activation_fn(inputs · weights + biases).

    The variables are fully_connected/weights and fully_connected/biases. By default, the activation is a
    ReLU, the weights have Xavier initialization, and the biases start at zero. There are no biases if
    biases_initializer is None or a normalizer_fn is given.
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
    return framework.model_variable(name, shape, like.dtype.base_dtype, initializer, regularizer, trainable,
                                    get_variable_collections(collections, name))


def _finished(outputs, like, activation_fn, collections):
    outputs.set_shape(like.shape)
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return collect_named_outputs(collections, None, outputs)


def get_variable_collections(variables_collections, name):
    """Returns the additional collections of a variable.

    Args:
      variables_collections: list of collections for all variables, or {name of a variable: list}.
      name: name of the variable.
    """
    if isinstance(variables_collections, dict):
        return variables_collections.get(name)
    return variables_collections


def collect_named_outputs(collections, alias, outputs):
    """Adds the result of a layer to collections and returns it. The argument alias is ignored."""
    if collections:
        tf.add_to_collections(collections, outputs)
    return outputs


@framework.add_arg_scope
def flatten(inputs, outputs_collections=None, scope=None):
    """Reshapes [B, …] to [B, N], where N is the product of all dimensions after the first."""
    with tf.name_scope(scope, "Flatten", [inputs]):
        size = inputs.shape[1:].num_elements()
        outputs = tf.reshape(inputs, [tf.shape(inputs)[0], -1 if size is None else size])
        return collect_named_outputs(outputs_collections, None, outputs)


@framework.add_arg_scope
def dropout(inputs, keep_prob=0.5, noise_shape=None, is_training=True, outputs_collections=None,
            scope=None, seed=None):
    """Applies dropout with the mask of `keyed_random.dropout`."""
    outputs = keyed_random.layer_dropout(inputs, 1.0 - keep_prob, noise_shape, seed, is_training, scope)
    return collect_named_outputs(outputs_collections, None, outputs)


def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
    """Returns an initializer (Glorot and Bengio 2010). The variance is 2 / (number of inputs + number of
    outputs).

    Args:
      uniform: whether the distribution is uniform. If false, it is normal.
      seed, dtype: seed and dtype of the initializer.
    """
    return (tf.glorot_uniform_initializer if uniform else tf.glorot_normal_initializer)(seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=tf.float32):
    """Returns an initializer with variance factor / n (He et al. 2015, arXiv:1502.01852, equation 10).

    Args:
      factor: numerator of the variance.
      mode: defines n. With FAN_IN, n is the number of inputs; with FAN_OUT, the number of outputs; with
        FAN_AVG, the mean of both numbers.
      uniform: whether the distribution is uniform. If false, it is normal, truncated at two standard
        deviations.
      seed, dtype: seed and dtype of the initializer.
    """
    return tf.variance_scaling_initializer(factor, mode.lower(), "uniform" if uniform else "truncated_normal",
                                           seed, dtype)


def l1_regularizer(scale, scope=None):
    """Returns a function that takes weights and returns scale · Σ|w|."""
    return lambda weights: tf.multiply(scale, tf.reduce_sum(tf.abs(weights)), name=scope)


def l2_regularizer(scale, scope=None):
    """Returns a function that takes weights and returns scale · Σw²/2."""
    return lambda weights: tf.multiply(scale, tf.nn.l2_loss(weights), name=scope)


def l1_l2_regularizer(scale_l1=1.0, scale_l2=1.0, scope=None):
    """Returns a function that takes weights and returns scale_l1 · Σ|w| + scale_l2 · Σw²/2."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(regularizer_list, scope=None):
    """Returns a function that takes weights and returns the sum of all regularizers in a list.

    Elements of the list can be None. If all elements are None, the result is None instead of a function.
    """
    regularizers = [regularizer for regularizer in regularizer_list if regularizer is not None]
    return (lambda weights: tf.add_n([regularizer(weights) for regularizer in regularizers],
                                     name=scope)) if regularizers else None


def apply_regularization(regularizer, weights_list=None):
    """Returns the sum of a regularizer over weights, and adds it to the collection REGULARIZATION_LOSSES.

    Args:
      regularizer: function that takes a weight and returns a scalar tensor. The result None counts as 0.
      weights_list: list of weights. None means the collection WEIGHTS.

    Raises:
      ValueError: there are no weights.
    """
    weights = tf.get_collection(tf.GraphKeys.WEIGHTS) if weights_list is None else weights_list
    if not weights:
        raise ValueError("apply_regularization: there are no weights to regularize.")
    with tf.name_scope("get_regularization_penalty", values=weights):
        terms = [regularizer(one) for one in weights]
        penalty = tf.add_n([tf.constant(0.0) if term is None else term for term in terms])
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, penalty)
    return penalty


_OPTIMIZERS = {**canned.OPTIMIZERS,
               "Momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, momentum=0.9)}


def optimize_loss(loss, global_step, learning_rate, optimizer, gradient_noise_scale=None,
                  gradient_multipliers=None, clip_gradients=None, learning_rate_decay_fn=None,
                  update_ops=None, variables=None, name=None, summaries=None,
                  colocate_gradients_with_ops=False, increment_global_step=True):
    """Builds a training step. Returns the loss as a tensor: a session that computes the tensor runs the step.

    Args:
      loss: scalar tensor.
      global_step: variable that counts the steps. None means the global step of the graph.
      learning_rate: float or scalar tensor. A float is stored in the variable OptimizeLoss/learning_rate.
        None if the optimizer has its own learning rate.
      optimizer: the name of an optimizer (Adagrad, Adam, Ftrl, Momentum, RMSProp, SGD), a class, an instance,
        or a function that takes the learning rate.
      gradient_noise_scale: standard deviation of noise that is added to the gradients, or None.
      gradient_multipliers: {variable, or name of a variable: factor of the gradient}, or None.
      clip_gradients: maximum global norm of the gradients, or a function that takes a list of (gradient,
        variable) pairs.
      learning_rate_decay_fn: function that takes learning_rate and global_step, and returns the learning rate
        of the step.
      update_ops: ops that run before the returned loss is computed. None means the collection UPDATE_OPS.
      variables: variables to train. None means all trainable variables.
      name: variable scope.
      summaries: list with some of the names loss, learning_rate, gradients, gradient_norm and
        global_gradient_norm. None means loss, learning_rate and global_gradient_norm. As in TensorFlow 1,
        global_norm/gradient_norm is the norm before clip_gradients, and global_norm/clipped_gradient_norm
        the norm after it.
      colocate_gradients_with_ops: see `tf.gradients`.
      increment_global_step: whether to increment global_step.

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
        summaries = summaries or ["loss", "learning_rate", "global_gradient_norm"]
        pairs = _changed_gradients(pairs, gradient_noise_scale, gradient_multipliers)
        _summarize_norm("gradient_norm", summaries, pairs)
        if clip_gradients is not None:
            pairs = clip_gradients(pairs) if callable(clip_gradients) else (
                optimizers.clip_gradients_by_global_norm(pairs, clip_gradients))
            _summarize_norm("clipped_gradient_norm", summaries, pairs)
        _summarize(summaries, loss, rate, pairs)
        update = chosen.apply_gradients(pairs, global_step if increment_global_step else None, name="train")
        with tf.control_dependencies([update]):
            return tf.identity(loss)


def _optimizer(optimizer, rate):
    if isinstance(optimizer, str):
        if optimizer not in _OPTIMIZERS:
            raise ValueError(f"optimize_loss: unknown optimizer {optimizer!r}; the known names are "
                             f"{', '.join(_OPTIMIZERS)}.")
        optimizer = _OPTIMIZERS[optimizer]
    if isinstance(optimizer, tf.train.Optimizer):
        return optimizer
    return optimizer() if rate is None else optimizer(rate)


def _changed_gradients(pairs, noise_scale, multipliers):
    factors = {key.split(":")[0] if isinstance(key, str) else key.op.name: factor
               for key, factor in (multipliers or {}).items()}
    changed = []
    for gradient, variable in pairs:
        if noise_scale is not None:
            gradient = tf.convert_to_tensor(gradient)
            gradient += tf.random.truncated_normal(variable.shape) * noise_scale
        if variable.op.name in factors:
            gradient = tf.convert_to_tensor(gradient) * factors[variable.op.name]
        changed.append((gradient, variable))
    return changed


def _summarize_norm(name, summaries, pairs):
    if {"global_gradient_norm", "gradient_norm"} & set(summaries):
        tf.summary.scalar(f"global_norm/{name}", tf.global_norm([gradient for gradient, _ in pairs]))


def _summarize(names, loss, rate, pairs):
    if "loss" in names:
        tf.summary.scalar("loss", loss)
    if "learning_rate" in names and rate is not None:
        tf.summary.scalar("learning_rate", rate)
    for gradient, variable in pairs:
        if "gradients" in names:
            tf.summary.histogram(f"gradients/{variable.op.name}", tf.convert_to_tensor(gradient))
        if "gradient_norm" in names:
            tf.summary.scalar(f"gradient_norm/{variable.op.name}", tf.global_norm([gradient]))
