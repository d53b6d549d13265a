"""--deterministic: no graph contains an op that TensorFlow refuses on a GPU under this flag."""

import pytest
from tensorflow.python.framework import config
import test_gpu_kernels
from test_gpu_kernels import PREDICT, TRAIN

# The ops whose GPU kernels raise an error. The list was made from the messages in the library of TensorFlow
# 2.21: "Determinism is not yet supported …", "A deterministic GPU implementation of … is not currently
# available".
REFUSED = {
    "AdjustContrast", "AdjustContrastv2", "Bincount", "CropAndResizeGradBoxes", "CropAndResizeGradImage",
    "DebugNumericSummaryV2", "DenseBincount", "DepthwiseConv2dNativeBackpropFilter",
    "Dilation2DBackpropFilter", "Dilation2DBackpropInput", "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient", "FusedBatchNormGrad", "FusedBatchNormGradV2",
    "FusedBatchNormGradV3", "MaxPoolGradWithArgmax", "ResizeNearestNeighborGrad", "ScatterAdd", "ScatterDiv",
    "ScatterMax", "ScatterMin", "ScatterMul", "ScatterSub", "ScatterUpdate",
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "SparseTensorDenseMatMul", "Svd",
    "Timestamp"}


@pytest.fixture(autouse=True)
def refused_ops(monkeypatch):
    monkeypatch.setattr(test_gpu_kernels, "runs_on_a_gpu", lambda op: op.type not in REFUSED)


@pytest.mark.parametrize("name, settings", [  # together, they have the ops of all heads
    ("pretraining", dict(precision="bf16", recompute="layers", gradient_accumulation_steps=2)), ("crf", {})])
def test_no_op_is_refused(name, settings, monkeypatch):
    monkeypatch.setattr(config, "is_op_determinism_enabled", lambda: True)
    test_gpu_kernels.check(name, TRAIN, **settings)
    if PREDICT in test_gpu_kernels.HEADS[name][0].modes:
        test_gpu_kernels.check(name, PREDICT)


def test_without_the_flag_a_loss_has_an_op_that_would_be_refused():
    with pytest.raises(AssertionError, match="SparseSoftmaxCrossEntropyWithLogits"):
        test_gpu_kernels.check("tagger", TRAIN)
