"""Defines tf.contrib.summary: ops that write summaries directly, so that no hook has to fetch and write
them."""

import tensorflow.compat.v1 as tf

from tf1._names.internals import should_record_summaries
from tf1._names.internals import summary_ops_v2 as _ops
from tf1._names.namespace import own_names


def start_writers():
    """Changes the current graph so that its summary writers are initialized when a session of it starts.

    The ops that initialize the writers are added to the collection of the table initializers, because each
    `tf.train.Scaffold` runs these initializers.
    """
    initializers = tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
    for initializer in _ops.summary_writer_initializer_op():
        if initializer not in initializers:
            tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, initializer)


def create_file_writer(logdir, max_queue=None, flush_millis=None, filename_suffix=None, name=None):
    """Returns a writer of event files. It writes the summaries that are built in `with writer.as_default():`.

    The sessions of an Estimator initialize the writer. A program with its own session calls
    `tf.contrib.summary.initialize()`.

    Args:
      logdir: directory of the event files. If it is None, the writer writes nothing.
      max_queue: number of summaries kept in memory before they are written. None means 10.
      flush_millis: maximum number of milliseconds until summaries are written. None means 120000.
      filename_suffix: end of the file's name. None means ".v2".
      name: name of the writer. Two writers with the same name are the same writer.
    """
    writer = _ops.create_file_writer(logdir, max_queue, flush_millis, filename_suffix, name)
    if logdir is not None and not tf.executing_eagerly():
        start_writers()  # a second initialization of a writer has no effect
    return writer


CONTRIB = dict(
    create_file_writer=create_file_writer, create_summary_file_writer=create_file_writer,
    should_record_summaries=should_record_summaries,
    **own_names(tf.summary, "all_summary_ops=all_v2_summary_ops initialize"),
    **own_names(tf.compat.v2.summary, "SummaryWriter flush"),
    **own_names(_ops, """
        always_record_summaries audio eval_dir generic graph=graph_v1 histogram image import_event
        never_record_summaries record_summaries_every_n_global_steps scalar summary_writer_initializer_op
    """))
