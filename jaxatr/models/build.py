"""Building networks from the ``model`` group of a configuration."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr import parallel
from jaxatr.config.common import COMMON
from jaxatr.models.backbones import BACKBONES
from jaxatr.models.cbam import CBAM
from jaxatr.models.detector import DetectionNetwork
from jaxatr.models.embedding import EmbeddingNetwork
from jaxatr.models.freezing import frozen, frozen_parts
from jaxatr.models.open_set import OpenSetClassifier
from jaxatr.models.published import named
from jaxatr.models.student import Student
from jaxatr.models.surrogate import ExplanationNetwork, Surrogate
from jaxatr.models.track import TrackClassifier
from jaxatr.resolve import imported, nearest, resolve
from jaxatr.typing import Config

_DEFAULT = COMMON["model.backbone"].default

_ONNX = "jaxatr.onnx.backbone:OnnxBackbone"
_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def build_open_set(
    config: Config, num_classes: int, *, reciprocal: bool = False
) -> OpenSetClassifier:
    """Builds the open-set classifier that ``config.model`` describes.

    Args:
      config: the ``model`` group. The backbone is ``backbone`` (a name from
        :func:`jaxatr.models.list`, or
        ``"my.module:Class"``), ``onnx`` and ``output``
        (:class:`~jaxatr.onnx.backbone.OnnxBackbone`), or ``pretrained``, the name of a published
        network (:mod:`jaxatr.models.published`). Also used: ``stem`` and ``width`` (of residual
        backbones), ``dtype`` (of built-in backbones), ``args`` (further keyword arguments of the
        backbone's constructor), ``freeze`` (:mod:`jaxatr.models.freezing`) and ``head_bias``.
      num_classes: number of known classes.
      reciprocal: use reciprocal points as the closed-set head
        (:class:`~jaxatr.models.open_set.ReciprocalPoints`).

    Raises:
      ValueError: the backbone or dtype is unknown, or the class is not a linen module.
    """
    return OpenSetClassifier(
        _backbone(config),
        num_classes,
        head_bias=config.head_bias,
        still=_is_still(config),
        reciprocal=reciprocal,
    )


def build_track(config: Config, num_classes: int, hidden: int) -> TrackClassifier:
    """Builds the classifier of tracks on the backbone that ``config.model`` describes.

    Args:
      config: the ``model`` group, see :func:`build_open_set`.
      num_classes: number of known classes.
      hidden: size of the LSTM's state.

    Raises:
      ValueError: the backbone or dtype is unknown, or the class is not a linen module.
    """
    return TrackClassifier(
        _backbone(config), num_classes, hidden, head_bias=config.head_bias, still=_is_still(config)
    )


def build_embedding(
    config: Config, num_coarse: int, num_fine: int, *, dimension: int, unit_length: bool
) -> EmbeddingNetwork:
    """Builds the embedding network on the backbone that ``config.model`` describes.

    Args:
      config: the ``model`` group, see :func:`build_open_set`; ``head_bias`` is not used.
      num_coarse: number of coarse classes.
      num_fine: number of fine classes.
      dimension: of the embedding; 0 uses the backbone's features.
      unit_length: normalise embeddings to length 1.

    Raises:
      ValueError: the backbone or dtype is unknown, or the class is not a linen module.
    """
    return EmbeddingNetwork(
        _backbone(config),
        num_coarse,
        num_fine,
        dimension=dimension,
        unit_length=unit_length,
        still=_is_still(config),
    )


def build_detector(config: Config, num_classes: int, *, width: int) -> DetectionNetwork:
    """Builds the detector on the backbone that ``config.model`` describes.

    Args:
      config: the ``model`` group, see :func:`build_open_set`; ``head_bias`` is not used.
      num_classes: number of known classes.
      width: channels of the pyramid and of the heads.

    Raises:
      ValueError: the backbone has no maps at strides 4 to 32, or the dtype is unknown.
    """
    name = backbone_name(config)
    if not is_built_in(config):
        known, got = ", ".join(BACKBONES), config.onnx or name
        raise ValueError(f"model.backbone: got {got!r}, wanted for a detector {known}")
    if config.stem != "7x7" and "stem" in BACKBONES[name].fields:
        raise ValueError(f"model.stem: got {config.stem!r}, wanted '7x7' for a detector")
    return DetectionNetwork(_backbone(config), num_classes, width=width, still=_is_still(config))


def build_surrogate(config: Config, num_classes: int) -> Surrogate:
    """Builds the student and the explanation network that a configuration describes.

    Args:
      config: the whole configuration. ``model`` (see :func:`build_open_set`) must name a built-in
        backbone, which the student uses; ``surrogate.width`` is the width of the
        :class:`~jaxatr.models.surrogate.ExplanationNetwork`, and ``surrogate.deltas`` is passed to
        the :class:`~jaxatr.models.student.Student`.
      num_classes: number of classes of the target network.

    Raises:
      ValueError: the backbone is not built in or frozen, or the dtype is unknown.
    """
    model, fields = config.model, config.surrogate
    if model.freeze:
        raise ValueError(f"model.freeze: got {model.freeze!r}; a student cannot be frozen")
    if model.onnx:
        raise ValueError("model.onnx: a student needs attention, which ONNX networks do not have")
    if (name := backbone_name(model)) not in BACKBONES:
        raise ValueError(
            f"model.backbone: got {name!r}, wanted a student among "
            f"{', '.join(BACKBONES)}{nearest(name, BACKBONES)}"
        )
    openness = BACKBONES[name].openness
    attention = partial(CBAM, openness=openness) if openness else CBAM
    backbone = _backbone(model, attention=attention)
    student = Student(backbone, num_classes, head_bias=model.head_bias, deltas=fields.deltas)
    return Surrogate(student, ExplanationNetwork(fields.width, backbone.dtype, backbone.axis_name))


def is_built_in(config: Config) -> bool:
    """Returns whether the backbone that ``config.model`` describes is one of jaxatr's own.

    Raises:
      ValueError: ``pretrained`` names a published network with a different backbone.
    """
    return backbone_name(config) in BACKBONES and not config.onnx


def backbone_name(config: Config) -> str:
    """Returns the name of the backbone that ``config.model`` describes.

    Raises:
      ValueError: ``pretrained`` names a published network with a different backbone.
    """
    if (network := named(config.pretrained)) is None:
        return config.backbone
    if config.onnx:
        raise ValueError(
            f"model.onnx: got {config.onnx!r} together with model.pretrained={network.name}; set "
            "one of them"
        )
    if config.backbone not in (_DEFAULT, network.backbone):
        raise ValueError(
            f"model.backbone: got {config.backbone!r}, but model.pretrained={network.name} is "
            f"{network.backbone}"
        )
    return network.backbone


def _is_still(config: Config) -> bool:
    """Returns whether the backbone runs in test mode during training.

    This includes partly frozen backbones that are not built in, because it is not known which batch
    statistics belong to which part.
    """
    built_in = backbone_name(config) in BACKBONES and not config.onnx
    return bool(frozen(config.freeze)) and not (built_in and frozen_parts(config.freeze))


def _backbone(config: Config, **options: Any) -> Any:
    """Builds the backbone; ``options`` are further arguments of a built-in one."""
    name, args = backbone_name(config), dict(config.args)
    if config.onnx:  # resolved late: jaxatr.onnx is a higher layer and an optional dependency
        options |= {"file": config.onnx, "output": config.output}
        return _made(imported(_ONNX), options | args, config)
    if config.output:
        raise ValueError(f"model.output: got {config.output!r} without a model.onnx")
    if name in BACKBONES:
        built_in = BACKBONES[name]
        dtype = config.dtype
        if dtype not in _DTYPES:
            raise ValueError(f"model.dtype: got {dtype!r}, wanted one of {', '.join(_DTYPES)}")
        options |= {"dtype": _DTYPES[dtype], "frozen": frozen_parts(config.freeze)}
        options |= {"axis_name": parallel.AXIS}
        options |= {field: config[field] for field in built_in.fields}
        return _made(built_in.build, options | args, config)
    if ":" not in name and "." not in name:
        raise ValueError(
            f"model.backbone: got {name!r}, wanted one of {', '.join(BACKBONES)} or "
            f"'my.module:Class'{nearest(name, BACKBONES)}"
        )
    try:
        kind = resolve(name)
    except ValueError as error:
        raise ValueError(f"model.backbone: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"model.backbone: {name!r} is not a subclass of flax.linen.Module")
    return _made(kind, args, config)


def _made(build: Callable[..., nn.Module], arguments: dict[str, Any], config: Config) -> nn.Module:
    """Calls the constructor of a backbone.

    Raises:
      ValueError: it does not take the arguments.
    """
    try:
        inspect.signature(build).bind(**arguments)
    except TypeError as error:
        backbone = config.onnx or backbone_name(config)
        raise ValueError(f"model.args: {error}, of the backbone {backbone}") from error
    return build(**arguments)
