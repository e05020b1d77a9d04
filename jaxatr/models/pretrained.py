"""Weights for a residual network from a safetensors file, under torchvision's and timm's names."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors

from jaxatr.models.resnet import ResNet
from jaxatr.typing import PyTree

_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_PICKLES = (".pth", ".pt", ".bin", ".ckpt", ".pkl", ".pickle")
_PICKLED = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))

_STEM = "conv1.weight"
_IGNORED = re.compile(r"fc\.(weight|bias)|.*\.num_batches_tracked")
_BLOCK = re.compile(r"stage(\d+)_block(\d+)")
_MODULES = {
    "stem_conv": "conv1",
    "stem_norm": "bn1",
    "norm1": "bn1",
    "norm2": "bn2",
    "norm3": "bn3",
    "shortcut_conv": "downsample.0",
    "shortcut_norm": "downsample.1",
}
_LEAVES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


class Weights(NamedTuple):
    """A backbone's weights, and where they are from.

    Attributes:
      variables: ``{"params": …, "batch_stats": …}``, float32 NumPy arrays.
      source: what a run records of them: JSON values.
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
    """Returns a file's weights as the variables of ``model``.

    Names and shapes are torchvision's, which timm shares: ``conv1.weight``,
    ``layer1.0.bn1.running_mean``, ``layer2.0.downsample.0.weight``. A prefix that all names have
    (``module.``) is left away. The classifier ``fc`` and the counters ``num_batches_tracked`` have
    no place in a feature extractor and are not read. What names and shapes do not show has to be
    as in torchvision: ReLU, batch norm's ε of 1e-5, and a bottleneck's stride on its 3×3.

    Weights from ImageNet were trained on images normalised by ImageNet's mean and deviation. This
    package normalises by those of the training images, channel by channel: inputs of the same mean
    and spread, though not the same numbers for the same pixel. Batch statistics move on from the
    file's as soon as the network trains.

    Of a network with attention these are the variables of its plain part; :func:`put_into` leaves
    the attention's own as they were drawn.

    Args:
      path: a safetensors file of float64, float32, float16 or bfloat16 tensors.
      model: a :class:`jaxatr.models.ResNet` of the same depth, width and stem.
      in_channels: channels of its images.
      channels: ``"same"`` wants the file's number of them; ``"sum"`` adapts a stem of another one:
        its kernel is summed over the file's channels and shared out evenly among the images', so
        that equal channels give what that image in all of the file's channels gave.

    Returns:
      ``{"params": …, "batch_stats": …}``, float32 arrays.

    Raises:
      ValueError: there is no such file, it is a pickle (nothing is unpickled; how to convert it is
        said) or broken, or it does not fit the model: all wrong shapes, missing and unexpected
        names are listed.
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
    """Loads weights as :func:`load` does, with the file's path and SHA-256 for the record."""
    tensors, digest = _tensors(path)
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
    """Returns tensors under torchvision's names as the variables of ``model``; see :func:`load`.

    Args:
      tensors: name to array; kernels ``[out, in, h, w]``.
      model: as of :func:`load`.
      in_channels: as there.
      channels: as there.
      title: what errors call the tensors' source.

    Returns:
      ``{"params": …, "batch_stats": …}``, float32 NumPy arrays.

    Raises:
      ValueError: they do not fit, and everything that does not is listed.
    """
    if channels not in ("same", "sum"):
        raise ValueError(f"channels: got {channels!r}, wanted 'same' or 'sum'")
    if not isinstance(model, ResNet):
        raise ValueError(
            f"{title}: got the backbone {type(model).__name__} to load it into, wanted a "
            "jaxatr.models.ResNet, whose names are known"
        )
    if channels == "sum" and _STEM in tensors:
        tensors = {**tensors, _STEM: _shared_out(tensors[_STEM], in_channels)}
    plain = model.clone(attention=None)
    variables = jax.eval_shape(plain.init, jax.random.key(0), jnp.zeros((1, 32, 32, in_channels)))
    leaves: Any = flax.traverse_util.flatten_dict(variables)
    wanted = {_torch_name(path): _torch_shape(leaf.shape) for path, leaf in leaves.items()}
    problems = [
        f"  {name}: {problem}"
        for name in sorted({*wanted, *tensors})
        if (problem := _problem(name, tensors.get(name), wanted.get(name)))
    ]
    if problems:
        raise ValueError("\n".join([f"{title} does not fit the model:", *problems]))
    return flax.traverse_util.unflatten_dict(
        {path: _from_torch(tensors[_torch_name(path)]) for path in leaves}
    )


def put_into(drawn: PyTree, loaded: PyTree) -> PyTree:
    """Returns the variables ``drawn`` with those of ``loaded`` in their places.

    Args:
      drawn: nested dictionaries of arrays.
      loaded: some of them, under the same names; the others stay as they are.

    Raises:
      ValueError: ``loaded`` has a name that ``drawn`` has not.
    """
    leaves = flax.traverse_util.flatten_dict(drawn, sep="/")
    new = flax.traverse_util.flatten_dict(loaded, sep="/")
    if strange := sorted(set(new) - set(leaves)):
        raise ValueError(f"loaded: got {', '.join(strange)}, wanted names of the network's own")
    return flax.traverse_util.unflatten_dict({**leaves, **new}, sep="/")


def to_torch(variables: PyTree) -> dict[str, np.ndarray]:
    """Returns a backbone's variables under torchvision's names, for ``safetensors`` to write.

    Args:
      variables: of a :class:`jaxatr.models.ResNet`; a name that is none of its own stays.

    Returns:
      Name to array; kernels ``[out, in, h, w]``.
    """
    tensors = {}
    for place, leaf in flax.traverse_util.flatten_dict(variables).items():
        array = np.asarray(leaf)
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
        tensors[_torch_name(place)] = np.ascontiguousarray(array)
    return tensors


def _tensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], str]:
    """Returns a file's tensors without a prefix that all names have, and the file's SHA-256."""
    parsed, digest = _parsed(path)
    common = os.path.commonprefix(list(parsed))
    prefix = common[: common.rfind(".") + 1]
    if prefix + _STEM not in parsed:
        prefix = ""  # a part of the names themselves, of a file that holds one block, say
    named = {name.removeprefix(prefix): entry for name, entry in parsed.items()}
    named = {name: entry for name, entry in named.items() if not _IGNORED.fullmatch(name)}
    types = {name: entry["dtype"] for name, entry in sorted(named.items())}
    if odd := [f"  {name}: {kind}" for name, kind in types.items() if kind not in _DTYPES]:
        raise ValueError("\n".join([f"{path}: got types other than {', '.join(_DTYPES)}:", *odd]))
    tensors = {
        name: np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in named.items()
    }
    return tensors, digest


def _parsed(path: str | os.PathLike) -> tuple[dict[str, Any], str]:
    """Returns name to type, shape and bytes; safetensors has checked that the sizes are right."""
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder: a run's network is what jaxatr.runs.backbone_variables reads, "
            "and a training with --config.model.pretrained"
        )
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    if Path(path).suffix.lower() in _PICKLES:
        raise ValueError(_advice(path))
    content = Path(path).read_bytes()
    try:
        return dict(safetensors.deserialize(content)), hashlib.sha256(content).hexdigest()
    except safetensors.SafetensorError as error:
        if content.startswith(_PICKLED):
            raise ValueError(_advice(path)) from error
        raise ValueError(f"{path} is no whole safetensors file: {error}") from error


def _advice(path: str | os.PathLike) -> str:
    target = Path(path).with_suffix(".safetensors").name
    return (
        f"{path} is a pickle, which can run any code, and is not unpickled. Convert it:\n"
        "  import torch\n"
        "  from safetensors.torch import save_file\n"
        f"  weights = torch.load({Path(path).name!r}, map_location='cpu', weights_only=True)\n"
        f"  save_file(weights, {target!r})"
    )


def _problem(name: str, found: np.ndarray | None, wanted: tuple[int, ...] | None) -> str | None:
    if wanted is None:
        return "unexpected"
    if found is None:
        return "missing"
    if found.shape != wanted:
        hint = ""
        if name == _STEM and (*found.shape[:1], *found.shape[2:]) == (*wanted[:1], *wanted[2:]):
            hint = f" (channels='sum' makes {wanted[1]} of the file's {found.shape[1]} channels)"
        return f"got {list(found.shape)}, wanted {list(wanted)}{hint}"
    with np.errstate(over="ignore"):
        finite = np.all(np.isfinite(found.astype(np.float32)))
    return None if finite else "holds values that are not finite in float32"


def _shared_out(kernel: np.ndarray, in_channels: int) -> np.ndarray:
    if kernel.ndim != 4 or kernel.shape[1] == in_channels:
        return kernel
    shared = kernel.astype(np.float64).sum(axis=1, keepdims=True) / in_channels
    return np.repeat(shared, in_channels, axis=1)


def _torch_name(place: tuple[str, ...]) -> str:
    """Returns torchvision's name of a variable: ``("params", "stem_conv", "kernel")`` …"""
    *modules, leaf = place[1:]
    blocks = [_BLOCK.sub(lambda m: f"layer{m[1]}.{int(m[2]) - 1}", name) for name in modules]
    return ".".join([*(_MODULES.get(name, name) for name in blocks), _LEAVES.get(leaf, leaf)])


def _torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else tuple(shape)


def _from_torch(array: np.ndarray) -> np.ndarray:
    array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
    return np.ascontiguousarray(array, np.float32)
