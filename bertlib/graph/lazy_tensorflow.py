"""TensorFlow, imported when a name of it is used for the first time.

    from bertlib.graph import lazy_tensorflow as tf

Modules that need TensorFlow only in some calls import it in this way. So the readers of data and records can
be imported without TensorFlow.
"""


def __getattr__(name):
    # TensorFlow is imported here, and not at the top, because that is the purpose of this module.
    import tensorflow.compat.v1 as tf

    return getattr(tf, name)
