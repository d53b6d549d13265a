"""Builds parts of TensorFlow graphs: the arithmetic of a layer with its gradients (also in C++, in `cpp/`,
and with oneDNN), random numbers, recomputation, sums over replicas, CRFs.

- How is a layer computed? `kernel_choice` chooses the kernels. `training_kernels` keep few tensors for the
  gradients. `inference_kernels` compute no gradients. Those for ONNX use only ops that ONNX also has.
- With which formulas? `products` are the matrix products. `formulas` are the operations between them, with
  TensorFlow's ops or compiled by XLA, and `native_formulas` the same with ops in C++. `native` compiles and
  loads the C++ code. `one_dnn` uses oneDNN's ops. `packing` removes the padding from batches.
- How are gradients our own? `custom_gradient`, `recompute_grad`, `collectives` (sums over replicas)
- What else is in a graph? `randomness`, `crf`, `graph_keys` (the collections)
- How is TensorFlow imported? `lazy_tensorflow` delays it. `tensorflow_internals` has its private names.
"""
