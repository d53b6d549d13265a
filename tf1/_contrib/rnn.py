"""Defines the names of tf.contrib.rnn that `tf.nn` lacks. Variable names are those of TensorFlow 1.15."""

import tensorflow.compat.v1 as tf

from tf1._contrib import layers
from tf1._names import keyed_random

_StateTuple = tf.nn.rnn_cell.LSTMStateTuple


class _Cell(tf.nn.rnn_cell.RNNCell):
    """Base class of the cells in this module. It defines the sizes of the state and of the output."""

    _num_units = None  # set by subclasses

    @property
    def state_size(self):
        return _StateTuple(self._num_units, self._num_units)

    @property
    def output_size(self):
        return self._num_units


class _LayerCell(_Cell):
    """Base class of the cells that create their variables in `build`. If two cells are called in one scope,
    the second cell gets a new scope, such as lstm_cell_1."""

    def __call__(self, inputs, state, scope=None):
        return super(tf.nn.rnn_cell.RNNCell, self).__call__(inputs, state, scope=scope)


class LayerNormBasicLSTMCell(_Cell):
    """Implements an LSTM with layer normalization (arXiv:1607.06450) and dropout (arXiv:1603.05118).

    The variable `kernel` always exists. Without layer_norm, there is also the variable `bias`. With
    layer_norm, each of the scopes `input`, `transform`, `forget`, `output` and `state` contains the variables
    `gamma` and `beta`. Dropout (`keyed_random.dropout`) is applied only to the new values that each step adds
    to the state of the cell.
    """

    def __init__(self, num_units, forget_bias=1.0, input_size=None, activation=tf.tanh, layer_norm=True,
                 *, dropout_keep_prob=1.0, dropout_prob_seed=None, reuse=None):
        """Creates a cell.

        Args:
          num_units: size of the state and of the output.
          forget_bias: bias that is added to the forget gate.
          input_size: ignored.
          activation: activation function. The default is tanh.
          layer_norm: whether to use layer normalization.
          dropout_keep_prob: probability that dropout keeps a new value. A float or a scalar tensor.
          dropout_prob_seed: an additional key for the random numbers of the mask.
          reuse: whether to reuse existing variables.
        """
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._normalizes, self._keep_prob, self._seed = layer_norm, dropout_keep_prob, dropout_prob_seed

    def call(self, inputs, state):
        cell, hidden = state
        arguments = tf.concat([inputs, hidden], 1)
        kernel = tf.get_variable("kernel", [arguments.shape[-1], 4 * self._num_units], arguments.dtype)
        gates = tf.matmul(arguments, kernel)
        if not self._normalizes:
            gates += tf.get_variable("bias", [4 * self._num_units], arguments.dtype)
        i, j, f, o = (self._normalized(gate, name) for gate, name in zip(
            tf.split(gates, 4, 1), ("input", "transform", "forget", "output")))
        new = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            new = keyed_random.dropout(new, self._keep_prob, seed=self._seed)
        cell = self._normalized(cell * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * new, "state")
        hidden = self._activation(cell) * tf.sigmoid(o)
        return hidden, _StateTuple(cell, hidden)

    def _normalized(self, values, name):
        return layers.layer_norm(values, scope=name) if self._normalizes else values


class CoupledInputForgetGateLSTMCell(_Cell):
    """Implements an LSTM in which input gate = 1 - forget gate (Greff et al. 2015, arXiv:1503.04069).

    The names of the variables are W and B. A cell with peepholes also has W_F_diag and W_O_diag.
    """

    def __init__(self, num_units, use_peepholes=False, initializer=None, *, forget_bias=1.0,
                 state_is_tuple=True, activation=tf.tanh, reuse=None):
        """Creates a cell.

        Args:
          num_units: size of the state.
          use_peepholes: whether the gates depend on the state of the cell.
          initializer: initializer of the weights.
          forget_bias: bias that is added to the forget gate.
          state_is_tuple: must be true.
          activation: activation function. The default is tanh.
          reuse: whether to reuse existing variables.

        Raises:
          ValueError: state_is_tuple is false.
        """
        if not state_is_tuple:
            raise ValueError("CoupledInputForgetGateLSTMCell: state_is_tuple=False is not supported. The "
                             "state is a pair.")
        super().__init__(_reuse=reuse)
        self._num_units, self._peepholes, self._initializer = num_units, use_peepholes, initializer
        self._forget_bias, self._activation = forget_bias, activation

    def call(self, inputs, state):
        cell, hidden = state
        arguments = tf.concat([inputs, hidden], 1)
        units, dtype = self._num_units, inputs.dtype
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            weights = tf.get_variable("W", [arguments.shape[-1], 3 * units], dtype)
            bias = tf.get_variable("B", [3 * units], dtype, tf.zeros_initializer())
            of_forget, of_output = [tf.get_variable(f"W_{gate}_diag", [units], dtype) if (
                self._peepholes) else 0.0 for gate in "FO"]
        j, f, o = tf.split(tf.matmul(arguments, weights) + bias, 3, 1)
        forget = tf.sigmoid(f + of_forget * cell + self._forget_bias)
        cell = forget * cell + (1 - forget) * self._activation(j)
        hidden = tf.sigmoid(o + of_output * cell) * self._activation(cell)
        return hidden, _StateTuple(cell, hidden)


class SRUCell(_LayerCell):
    """Implements a simple recurrent unit (Lei et al. 2017, arXiv:1709.02755, equations 3 to 7).

    The variables are `kernel` and `bias`. The inputs are added to the output, so the last dimension of the
    inputs must have the size num_units.
    """

    def __init__(self, num_units, activation=None, reuse=None, name=None):
        """Creates a cell. The activation function is tanh by default."""
        super().__init__(_reuse=reuse, name=name)
        self._num_units, self._activation = num_units, activation or tf.tanh

    @property
    def state_size(self):
        return self._num_units

    def build(self, inputs_shape):
        units, depth = self._num_units, inputs_shape[-1]
        if depth != units:
            raise ValueError(f"SRUCell: num_units is {units}, but the last dimension of the inputs is "
                             f"{depth}. Both must be the same.")
        self._kernel = self.add_weight("kernel", [units, 3 * units])
        self._bias = self.add_weight("bias", [2 * units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs, state):
        new, *gates = tf.split(tf.matmul(inputs, self._kernel), 3, 1)
        forget, reset = tf.split(tf.sigmoid(tf.concat(gates, 1) + self._bias), 2, 1)
        cell = forget * state + (1 - forget) * new
        return reset * self._activation(cell) + (1 - reset) * inputs, cell


class NASCell(_LayerCell):
    """Implements the recurrent cell that was found by architecture search (Zoph and Le 2017,
    arXiv:1611.01578, appendix A).

    The variables are `recurrent_kernel` and `kernel`.
    """

    def __init__(self, num_units, reuse=None, **kwargs):
        """Creates a cell.

        Args:
          num_units: size of the state and of the output.
          reuse: whether to reuse existing variables.
          kwargs: further arguments of `tf.layers.Layer`, such as the name.
        """
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units = num_units

    def build(self, inputs_shape):
        width = 8 * self._num_units
        self._recurrent_kernel = self.add_weight("recurrent_kernel", [self._num_units, width])
        self._kernel = self.add_weight("kernel", [inputs_shape[-1], width])
        self.built = True

    def call(self, inputs, state):
        cell, hidden = state
        x, h = (tf.split(tf.matmul(values, kernel), 8, 1) for values, kernel in (
            (inputs, self._kernel), (hidden, self._recurrent_kernel)))
        # The leaves of the tree are eight pairs of x and h. Each line below combines two leaves.
        first = tf.tanh(tf.sigmoid(x[0] + h[0]) * tf.nn.relu(x[1] + h[1]))
        second = tf.tanh(tf.sigmoid(x[2] + h[2]) + tf.nn.relu(x[3] * h[3]))
        third = tf.tanh(tf.tanh(x[4] + h[4]) * tf.sigmoid(x[5] + h[5]))
        fourth = tf.sigmoid(tf.tanh(x[6] + h[6]) + tf.sigmoid(x[7] + h[7]))
        cell = tf.tanh(first + cell) * second
        hidden = tf.tanh(cell * tf.tanh(third + fourth))
        return hidden, _StateTuple(cell, hidden)


class LSTMBlockCell(tf.nn.rnn_cell.LSTMCell):
    """Implements an LSTM (arXiv:1409.2329): `tf.nn.rnn_cell.LSTMCell` with the arguments of contrib."""

    def __init__(self, num_units, forget_bias=1.0, cell_clip=None, use_peephole=False, dtype=None, reuse=None,
                 name="lstm_cell", **kwargs):
        """Creates a cell.

        Args:
          num_units: size of the state and of the output.
          forget_bias: bias that is added to the forget gate.
          cell_clip: maximum absolute value of the cell's state. None, 0 and negative values mean no limit.
          use_peephole: whether the gates depend on the state of the cell. This adds the variables w_i_diag,
            w_f_diag and w_o_diag.
          dtype: dtype of the inputs. The variables always have the dtype of the inputs.
          reuse: whether to reuse existing variables.
          name: name of the cell, and scope of its variables.
          kwargs: further arguments of `tf.layers.Layer`.
        """
        limit = cell_clip if cell_clip and cell_clip > 0 else None
        super().__init__(num_units, use_peephole, limit, forget_bias=forget_bias, reuse=reuse, name=name,
                         dtype=dtype, **kwargs)


class LSTMBlockFusedCell:
    """Runs an `LSTMBlockCell` over whole sequences. The variables are lstm_fused_cell/kernel and
    lstm_fused_cell/bias."""

    def __init__(self, num_units, forget_bias=1.0, cell_clip=None, use_peephole=False, reuse=None, dtype=None,
                 name="lstm_fused_cell"):
        """Creates a cell. The arguments are those of `LSTMBlockCell`."""
        self.num_units, self._cell = num_units, None
        self._settings = (num_units, forget_bias, cell_clip, use_peephole, dtype, reuse, name)

    def __call__(self, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
        """Runs the LSTM over sequences.

        Args:
          inputs: float [T, B, D].
          initial_state: pair of tensors [B, num_units]. None means zeros.
          dtype: dtype of the zeros, if initial_state is None. If dtype is None, the zeros have the dtype of
            the inputs.
          sequence_length: integer [B]. None means that all sequences have length T.
          scope: scope of the variables.

        Returns:
          (outputs, state). The outputs have the shape [T, B, num_units]. After the end of a sequence, the
          outputs are 0. The state is an LSTMStateTuple with the state at the end of each sequence.
        """
        inputs = tf.convert_to_tensor(inputs)
        if self._cell is None:
            self._cell = LSTMBlockCell(*self._settings, _scope=scope)
            self._cell.build(inputs.shape[1:])  # otherwise, the variables would be in a scope `rnn`
        initial_state = initial_state if initial_state is None else _StateTuple(*initial_state)
        return tf.nn.dynamic_rnn(self._cell, inputs, sequence_length, initial_state, dtype or inputs.dtype,
                                 time_major=True)


class TimeReversedFusedRNN:
    """Runs a fused cell, such as `LSTMBlockFusedCell`, from the end of each sequence to its beginning."""

    def __init__(self, cell):
        self._cell = cell

    def __call__(self, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
        """Runs the cell over sequences; see `LSTMBlockFusedCell.__call__`."""
        def reverse(values):
            if sequence_length is None:
                return tf.reverse(values, [0])
            return tf.reverse_sequence(values, sequence_length, seq_axis=0, batch_axis=1)

        outputs, state = self._cell(reverse(inputs), initial_state, dtype, sequence_length, scope)
        return reverse(outputs), state


def stack_bidirectional_dynamic_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None,
                                    initial_states_bw=None, dtype=None, sequence_length=None,
                                    parallel_iterations=None, time_major=False, scope=None,
                                    swap_memory=False):
    """Builds bidirectional layers. Each layer reads the outputs of both directions of the layer below.

    Args:
      cells_fw, cells_bw: lists of cells, one for each layer.
      inputs: float [B, T, D]. If time_major is true, float [T, B, D].
      initial_states_fw, initial_states_bw: lists of states. None means zeros.
      dtype, sequence_length, parallel_iterations, swap_memory: see `tf.nn.bidirectional_dynamic_rnn`.
      scope: scope of the variables, by default stack_bidirectional_rnn. The variables of a layer are below
        cell_<layer>/bidirectional_rnn/fw and …/bw.

    Returns:
      (outputs, forward states, backward states). The outputs of both directions of the last layer are
      concatenated along the last dimension. The states are tuples with the last state of each layer.

    Raises:
      ValueError: there are no cells, or the lists have different lengths.
    """
    none = [None] * len(cells_fw)
    lists = cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none
    if not cells_fw or len(set(map(len, lists))) > 1:
        raise ValueError("stack_bidirectional_dynamic_rnn: cells_fw, cells_bw, initial_states_fw and "
                         "initial_states_bw must have one element for each layer, and there must be at least "
                         f"one layer. Their lengths are {', '.join(str(len(one)) for one in lists)}.")
    states = []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, (forward, backward, first, last) in enumerate(zip(*lists)):
            with tf.variable_scope(f"cell_{index}"):
                outputs, pair = tf.nn.bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, first, last, dtype, parallel_iterations,
                    swap_memory, time_major)
                inputs = tf.concat(outputs, 2)
            states.append(pair)
    return (inputs, *zip(*states))


def transpose_batch_time(x):
    """Swaps the first two dimensions of a tensor. A tensor with fewer dimensions is returned unchanged."""
    x = tf.convert_to_tensor(x)
    if x.shape.rank is not None:
        return x if x.shape.rank < 2 else tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    return tf.transpose(x, tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0))
