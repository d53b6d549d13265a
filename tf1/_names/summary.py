"""tf.contrib.summary: summaries that an op writes when it runs, without a hook that fetches them."""

import tensorflow.compat.v1 as tf

from tf1._names.internals import should_record_summaries
from tf1._names.internals import summary_ops_v2 as _ops
from tf1._names.namespace import own_names


def start_writers():
    """Has what a session's start runs, wherever the session is from, start the writers that the graph has."""
    started = tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
    for start in _ops.summary_writer_initializer_op():
        if start not in started:
            tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, start)


def create_file_writer(logdir, max_queue=None, flush_millis=None, filename_suffix=None, name=None):
    """Returns a writer of event files; the summaries built in `with writer.as_default():` are its.

    The sessions of an Estimator start it; in a session of one's own `tf.contrib.summary.initialize()` does.

    Args:
      logdir: directory; None for a writer that writes nothing.
      max_queue: summaries kept before they are written; 10 if None.
      flush_millis: longest time until they are written; 120000 if None.
      filename_suffix: end of the file's name; ".v2" if None.
      name: of the writer. Two writers of one name are one.
    """
    writer = _ops.create_file_writer(logdir, max_queue, flush_millis, filename_suffix, name)
    if logdir is not None and not tf.executing_eagerly():
        start_writers()  # a second start changes nothing
    return writer


CONTRIB = dict(
    create_file_writer=create_file_writer, create_summary_file_writer=create_file_writer,
    all_summary_ops=tf.summary.all_v2_summary_ops, graph=_ops.graph_v1,
    should_record_summaries=should_record_summaries,
    initialize=tf.summary.initialize, **own_names(tf.compat.v2.summary, "SummaryWriter", "flush"),
    **own_names(_ops, "always_record_summaries", "audio", "eval_dir", "generic", "histogram", "image",
                "import_event", "never_record_summaries", "record_summaries_every_n_global_steps", "scalar",
                "summary_writer_initializer_op"))
