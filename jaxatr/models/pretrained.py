"""Loading published weights into a built-in backbone."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxatr.models.tensor_names import RESNET, Names, names_of
from jaxatr.models.weight_file import arrays_of, read_content
from jaxatr.typing import PyTree

_DTYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


class Weights(NamedTuple):
    """A backbone's weights and their provenance.

    Attributes:
      variables: ``{"params": …, "batch_stats": …}``, float32 NumPy arrays.
      source: provenance for a run's record, JSON values.
    """

    variables: PyTree
    source: dict[str, Any]


def load(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Literal["same", "sum"] = "same",
) -> PyTree:
    """Loads a file's weights as the variables of ``model``.

    Names and shapes of residual networks are those of torchvision and timm: ``conv1.weight``,
    ``layer1.0.bn1.running_mean``, ``layer2.0.downsample.0.weight``. For the other built-in
    backbones see :func:`jaxatr.models.tensor_names.names_of`. A prefix common to all names
    (``module.``) is removed. The classifier (``fc``) and the counters ``num_batches_tracked`` are
    not part of a feature extractor and are ignored. Properties that names and shapes do not reveal
    must match torchvision: ReLU, batch norm's ε of 1e-5, and a bottleneck's stride on its 3×3.

    Weights from ImageNet were trained on images normalised by ImageNet's mean and standard
    deviation. By default this package normalises each channel by those of the training images
    instead, so inputs have the same mean and spread, but not the same values for the same pixel.
    Training updates the file's batch statistics.

    For a network with attention, these are the variables without those of the attention modules;
    :func:`put_into` keeps the initial values of the latter.

    Args:
      path: a safetensors file, or a ``state_dict`` saved with ``torch.save``, of float64, float32,
        float16 or bfloat16 tensors.
      model: a built-in backbone of the same depth, width and stem.
      in_channels: channels of the model's images.
      channels: ``"same"`` requires the file to have as many channels; ``"sum"`` adapts the stem's
        kernel by summing it over the file's channels and dividing the sum evenly among the model's,
        which preserves the output for images whose channels are all equal.

    Returns:
      ``{"params": …, "batch_stats": …}``, float32 arrays.

    Raises:
      ValueError: the file does not exist, is corrupt or a pickle of anything but tensors, or does
        not fit the model: all wrong shapes, missing and unexpected names are listed.
    """
    weights = read(path, model, in_channels=in_channels, channels=channels)
    return jax.tree.map(jnp.asarray, weights.variables)


def read(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Literal["same", "sum"] = "same",
) -> Weights:
    """Loads weights like :func:`load`, together with the file's path and SHA-256."""
    tensors, digest = _tensors(path, names_of(model, str(path)))
    variables = fit(tensors, model, in_channels=in_channels, channels=channels, title=str(path))
    return Weights(variables, {"path": str(path), "sha256": digest})


def fit(
    tensors: Mapping[str, np.ndarray],
    model: nn.Module,
    *,
    in_channels: int,
    channels: Literal["same", "sum"],
    title: str,
) -> PyTree:
    """Converts tensors with published names to the variables of ``model``; see :func:`load`.

    Args:
      tensors: arrays by name; kernels are ``[out, in, h, w]``.
      model: a built-in backbone of the same depth, width and stem.
      in_channels: channels of the model's images.
      channels: ``"same"``, or ``"sum"`` to adapt the stem's kernel to ``in_channels``.
      title: name of the tensors' source in error messages.

    Returns:
      ``{"params": …, "batch_stats": …}``, float32 NumPy arrays.

    Raises:
      ValueError: the tensors do not fit the model; all mismatches are listed.
    """
    if channels not in ("same", "sum"):
        raise ValueError(f"channels: got {channels!r}, wanted 'same' or 'sum'")
    names = names_of(model, title)
    if channels == "sum" and names.stem in tensors:
        tensors = {**tensors, names.stem: _shared_out(tensors[names.stem], in_channels)}
    plain = model.clone(attention=None)
    variables = jax.eval_shape(plain.init, jax.random.key(0), jnp.zeros((1, 32, 32, in_channels)))
    leaves: Any = flax.traverse_util.flatten_dict(variables)
    wanted = {names.of(path): _torch_shape(leaf.shape) for path, leaf in leaves.items()}
    problems = [
        f"  {name}: {problem}"
        for name in sorted({*wanted, *tensors})
        if (problem := _problem(tensors.get(name), wanted.get(name), stem=name == names.stem))
    ]
    if problems:
        raise ValueError("\n".join([f"{title} does not fit the model:", *problems]))
    return flax.traverse_util.unflatten_dict(
        {path: _from_torch(tensors[names.of(path)]) for path in leaves}
    )


def of_backbone(tensors: Mapping[str, np.ndarray], model: nn.Module) -> dict[str, np.ndarray]:
    """Returns the tensors that belong to a backbone, without those of the classifier.

    Args:
      tensors: arrays by published name.
      model: a built-in backbone.
    """
    return _without_ignored(tensors, names_of(model, "model"))


def put_into(drawn: PyTree, loaded: PyTree) -> PyTree:
    """Returns the variables ``drawn``, replaced by those of ``loaded`` where these exist.

    Args:
      drawn: initial variables, nested dictionaries of arrays.
      loaded: replacements for some of them, under the same names.

    Raises:
      ValueError: ``loaded`` has a name that is missing from ``drawn``.
    """
    leaves = flax.traverse_util.flatten_dict(drawn, sep="/")
    new = flax.traverse_util.flatten_dict(loaded, sep="/")
    if unknown := sorted(set(new) - set(leaves)):
        raise ValueError(f"loaded: the network has no variables {', '.join(unknown)}")
    return flax.traverse_util.unflatten_dict({**leaves, **new}, sep="/")


def to_torch(variables: PyTree, model: nn.Module | None = None) -> dict[str, np.ndarray]:
    """Converts a backbone's variables to tensors with published names, for ``safetensors``.

    Args:
      variables: variables of a built-in backbone; unknown names are kept.
      model: the backbone; by default a :class:`jaxatr.models.ResNet`.

    Returns:
      Arrays by name; kernels are ``[out, in, h, w]``.
    """
    names = RESNET if model is None else names_of(model, "model")
    tensors = {}
    for place, leaf in flax.traverse_util.flatten_dict(variables).items():
        array = np.asarray(leaf)
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
        tensors[names.of(place)] = np.ascontiguousarray(array)
    return tensors


def _tensors(path: str | os.PathLike, names: Names) -> tuple[dict[str, np.ndarray], str]:
    """Returns a file's tensors, without a prefix common to all names, and the file's SHA-256."""
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder: load a run's network with jaxatr.runs.backbone_variables, or "
            "train with --config.model.pretrained"
        )
    content, digest = read_content(path)
    read = arrays_of(content, str(path))
    common = os.path.commonprefix(list(read))
    prefix = common[: common.rfind(".") + 1]
    if prefix + names.stem not in read:
        prefix = ""  # part of the published names, for example in a file of a single block
    named = {name.removeprefix(prefix): array for name, array in read.items()}
    tensors = _without_ignored(named, names)
    types = {name: array.dtype for name, array in sorted(tensors.items())}
    if odd := [f"  {name}: {kind}" for name, kind in types.items() if kind not in _DTYPES]:
        wanted = ", ".join(np.dtype(kind).name for kind in _DTYPES)
        raise ValueError("\n".join([f"{path}: got dtypes other than {wanted}:", *odd]))
    return tensors, digest


def _without_ignored(tensors: Mapping[str, np.ndarray], names: Names) -> dict[str, np.ndarray]:
    return {name: array for name, array in tensors.items() if not names.ignored.fullmatch(name)}


def _problem(found: np.ndarray | None, wanted: tuple[int, ...] | None, *, stem: bool) -> str | None:
    if wanted is None:
        return "unexpected"
    if found is None:
        return "missing"
    if found.shape != wanted:
        hint = ""
        if stem and (*found.shape[:1], *found.shape[2:]) == (*wanted[:1], *wanted[2:]):
            hint = f" (channels='sum' adapts the file's {found.shape[1]} channels to {wanted[1]})"
        return f"got {list(found.shape)}, wanted {list(wanted)}{hint}"
    with np.errstate(over="ignore"):
        finite = np.all(np.isfinite(found.astype(np.float32)))
    return None if finite else "contains values that are not finite in float32"


def _shared_out(kernel: np.ndarray, in_channels: int) -> np.ndarray:
    if kernel.ndim != 4 or kernel.shape[1] == in_channels:
        return kernel
    shared = kernel.astype(np.float64).sum(axis=1, keepdims=True) / in_channels
    return np.repeat(shared, in_channels, axis=1)


def _torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else tuple(shape)


def _from_torch(array: np.ndarray) -> np.ndarray:
    array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
    return np.ascontiguousarray(array, np.float32)
