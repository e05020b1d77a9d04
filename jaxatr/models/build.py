"""From the ``model`` part of a configuration to a linen module."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.config.common import COMMON
from jaxatr.models.cbam import CBAM
from jaxatr.models.embedding import EmbeddingNetwork
from jaxatr.models.freezing import frozen_parts
from jaxatr.models.mobile import EfficientNetLite0, EfficientNetLite2, MobileNetV2
from jaxatr.models.open_set import OpenSetClassifier
from jaxatr.models.published import named
from jaxatr.models.resnet import ResNet18, ResNet34, ResNet50, ResNet50V1, ResNet101
from jaxatr.models.student import Student
from jaxatr.models.surrogate import ExplanationNetwork, Surrogate
from jaxatr.models.track import TrackClassifier
from jaxatr.resolve import nearest, resolve
from jaxatr.typing import Config

RESIDUAL = {
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "resnet50_v1": ResNet50V1,
    "resnet101": ResNet101,
}
BACKBONES = {
    **RESIDUAL,
    "mobilenet_v2": MobileNetV2,
    "efficientnet_lite0": EfficientNetLite0,
    "efficientnet_lite2": EfficientNetLite2,
}

_DEFAULT = COMMON["model.backbone"].default

_ONNX = "jaxatr.onnx.backbone:OnnxBackbone"
_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def build_open_set(
    config: Config, num_classes: int, *, reciprocal: bool = False
) -> OpenSetClassifier:
    """Returns the open-set classifier that ``config.model`` describes.

    Args:
      config: ``backbone`` (a name in :data:`BACKBONES`, or ``"my.module:Class"``), or in its
        place ``onnx`` and ``output``
        (:class:`~jaxatr.onnx.backbone.OnnxBackbone`), or ``pretrained``, the name of a published
        network (:mod:`jaxatr.models.published`); ``stem`` and ``width`` (of the residual
        backbones), ``dtype`` (of the built-in ones), ``args`` (further keyword arguments of the
        backbone's constructor), ``freeze`` (:mod:`jaxatr.models.freezing`) and ``head_bias``.
      num_classes: number of known classes.
      reciprocal: as :class:`~jaxatr.models.open_set.OpenSetClassifier` has it.

    Raises:
      ValueError: an unknown backbone or dtype, or a class that is no linen module.
    """
    return OpenSetClassifier(
        _backbone(config),
        num_classes,
        head_bias=config.head_bias,
        still=_is_still(config),
        reciprocal=reciprocal,
    )


def build_track(config: Config, num_classes: int, hidden: int) -> TrackClassifier:
    """Returns the recogniser of tracks on the backbone that ``config.model`` describes.

    Args:
      config: as :func:`build_open_set` has it.
      num_classes: number of known classes.
      hidden: components of the LSTM's state.

    Raises:
      ValueError: as :func:`build_open_set`.
    """
    return TrackClassifier(
        _backbone(config), num_classes, hidden, head_bias=config.head_bias, still=_is_still(config)
    )


def build_embedding(
    config: Config, num_coarse: int, num_fine: int, *, dimension: int, unit_length: bool
) -> EmbeddingNetwork:
    """Returns the embedding network on the backbone that ``config.model`` describes.

    Args:
      config: as :func:`build_open_set` has it; ``head_bias`` plays no part.
      num_coarse: number of coarse classes.
      num_fine: number of fine classes.
      dimension: as :class:`~jaxatr.models.embedding.EmbeddingNetwork` has it.
      unit_length: as there.

    Raises:
      ValueError: as :func:`build_open_set`.
    """
    return EmbeddingNetwork(
        _backbone(config),
        num_coarse,
        num_fine,
        dimension=dimension,
        unit_length=unit_length,
        still=_is_still(config),
    )


def build_surrogate(config: Config, num_classes: int) -> Surrogate:
    """Returns the student and the explanation network that a configuration describes.

    Args:
      config: ``model``, as :func:`build_open_set` has it but for a built-in backbone only, which
        becomes the student's; ``surrogate.width``, of
        :class:`~jaxatr.models.surrogate.ExplanationNetwork`, and ``surrogate.deltas``, of
        :class:`~jaxatr.models.student.Student`.
      num_classes: of the target network.

    Raises:
      ValueError: an unknown backbone, one's own, or an unknown dtype.
    """
    model, fields = config.model, config.surrogate
    if model.freeze:
        raise ValueError(f"model.freeze: got {model.freeze!r}; a student trains as a whole")
    if model.onnx:
        raise ValueError("model.onnx: a student has attention, which a network from a file has not")
    if (name := backbone_name(model)) not in RESIDUAL:
        raise ValueError(
            f"model.backbone: got {name!r}, wanted a student among "
            f"{', '.join(RESIDUAL)}{nearest(name, RESIDUAL)}"
        )
    backbone = _backbone(model, attention=CBAM)
    student = Student(backbone, num_classes, head_bias=model.head_bias, deltas=fields.deltas)
    return Surrogate(student, ExplanationNetwork(fields.width, backbone.dtype, backbone.axis_name))


def backbone_name(config: Config) -> str:
    """Returns the name of the backbone that ``config.model`` describes.

    Raises:
      ValueError: ``pretrained`` names a published network that is another one.
    """
    if (network := named(config.pretrained)) is None:
        return config.backbone
    if config.onnx:
        raise ValueError(f"model.onnx: got {config.onnx!r} beside model.pretrained={network.name}")
    if config.backbone not in (_DEFAULT, network.backbone):
        raise ValueError(
            f"model.backbone: got {config.backbone!r}, but model.pretrained={network.name} is "
            f"{network.backbone}"
        )
    return network.backbone


def _is_still(config: Config) -> bool:
    """Whether the backbone runs in test mode while the rest trains.

    So does one that is not built in and frozen in parts: whose statistics are whose is not known.
    """
    built_in = backbone_name(config) in BACKBONES and not config.onnx
    return bool(config.freeze) and not (built_in and frozen_parts(config.freeze))


def _backbone(config: Config, **own: Any) -> Any:
    """Returns the module; ``own`` are further arguments of a built-in one."""
    name, args = backbone_name(config), dict(config.args)
    if config.onnx:  # by name: that room stands above this one, and needs a package of its own
        return resolve(_ONNX)(file=config.onnx, output=config.output, **own, **args)
    if config.output:
        raise ValueError(f"model.output: got {config.output!r} without a model.onnx that it is of")
    if name in BACKBONES:
        dtype = config.dtype
        if dtype not in _DTYPES:
            raise ValueError(f"model.dtype: got {dtype!r}, wanted one of {', '.join(_DTYPES)}")
        own |= {"dtype": _DTYPES[dtype], "frozen": frozen_parts(config.freeze)}
        if name in RESIDUAL:
            own |= {"stem": config.stem, "width": config.width}
        return BACKBONES[name](**own | args)
    if ":" not in name and "." not in name:
        raise ValueError(
            f"model.backbone: got {name!r}, wanted one of {', '.join(BACKBONES)} or "
            f"'my.module:Class'{nearest(name, BACKBONES)}"
        )
    module = resolve(name)(**args)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"model.backbone: {name!r} made a {type(module).__name__}, no linen module"
        )
    return module
