"""From the ``model`` part of a configuration to a linen module."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.models.cbam import CBAM
from jaxatr.models.embedding import EmbeddingNetwork
from jaxatr.models.freezing import frozen_parts
from jaxatr.models.open_set import OpenSetClassifier
from jaxatr.models.resnet import ResNet18, ResNet34, ResNet50, ResNet101
from jaxatr.models.student import Student
from jaxatr.models.surrogate import ExplanationNetwork, Surrogate
from jaxatr.models.track import TrackClassifier
from jaxatr.resolve import nearest, resolve
from jaxatr.typing import Config

BACKBONES = {
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "resnet101": ResNet101,
}

_ONNX = "jaxatr.onnx.backbone:OnnxBackbone"
_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def build_open_set(
    config: Config, num_classes: int, *, reciprocal: bool = False
) -> OpenSetClassifier:
    """Returns the open-set classifier that ``config.model`` describes.

    Args:
      config: ``backbone`` (a name in :data:`BACKBONES`, or ``"my.module:Class"``), or in its
        place ``onnx`` and ``output``
        (:class:`~jaxatr.onnx.backbone.OnnxBackbone`); ``stem``, ``width`` and ``dtype`` (of the
        built-in backbones), ``args`` (further keyword arguments of the backbone's constructor),
        ``freeze`` (:mod:`jaxatr.models.freezing`) and ``head_bias``.
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
    if model.backbone not in BACKBONES:
        raise ValueError(
            f"model.backbone: got {model.backbone!r}, wanted a student among "
            f"{', '.join(BACKBONES)}{nearest(model.backbone, BACKBONES)}"
        )
    backbone = _backbone(model, attention=CBAM)
    student = Student(backbone, num_classes, head_bias=model.head_bias, deltas=fields.deltas)
    return Surrogate(student, ExplanationNetwork(fields.width, backbone.dtype, backbone.axis_name))


def _is_still(config: Config) -> bool:
    """Whether the backbone runs in test mode while the rest trains.

    So does one that is not built in and frozen in parts: whose statistics are whose is not known.
    """
    built_in = config.backbone in BACKBONES and not config.onnx
    return bool(config.freeze) and not (built_in and frozen_parts(config.freeze))


def _backbone(config: Config, **own: Any) -> Any:
    """Returns the module; ``own`` are further arguments of a built-in one."""
    name, args = config.backbone, dict(config.args)
    if config.onnx:  # by name: that room stands above this one, and needs a package of its own
        return resolve(_ONNX)(file=config.onnx, output=config.output, **own, **args)
    if config.output:
        raise ValueError(f"model.output: got {config.output!r} without a model.onnx that it is of")
    if name in BACKBONES:
        dtype = config.dtype
        if dtype not in _DTYPES:
            raise ValueError(f"model.dtype: got {dtype!r}, wanted one of {', '.join(_DTYPES)}")
        own |= {"stem": config.stem, "width": config.width, "dtype": _DTYPES[dtype]}
        own |= {"frozen": frozen_parts(config.freeze)}
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
