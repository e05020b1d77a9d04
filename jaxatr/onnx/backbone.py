"""A backbone from an ONNX model, or from the part of one up to a given value.

Set in a configuration: ``--config.model.onnx=PATH --config.model.output=NODE``.
"""

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import parallel
from jaxatr.files import MissingFileError
from jaxatr.onnx.reader.model import OnnxModel, load
from jaxatr.resolve import FROM_FILE, nearest
from jaxatr.typing import Array, ArrayLike, Float

_STATE = "batch_stats"


class OnnxBackbone(nn.Module):
    """Maps images to features with the network of an ONNX file, initialised with its weights.

    The weights are ordinary parameters and running statistics: they are trained, saved and
    restored. The file is needed whenever the run is used, since it defines the network. A feature
    map is averaged over its pixels (global average pooling).

    Attributes:
      file: path of the ONNX file.
      output: name of the node or value that gives the features; empty for the model's only output.
      layout: layout of the images that the model takes.
    """

    file: str
    output: str = ""
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @nn.compact
    def __call__(
        self, images: Float[ArrayLike, "b h w c"], train: bool = False
    ) -> Float[Array, "b d"]:
        """Returns the features.

        Raises:
          ValueError: the file cannot be read, the model has more than one input or lacks the
            output, or the images or the output have the wrong shape or type.
        """
        if not Path(self.file).is_file():
            raise MissingFileError(f"model.onnx: there is no file {self.file!r}")
        changed = Path(self.file).stat().st_mtime_ns
        model = _part(self.file, self.output, changed)
        if earlier := self._trained_before(model):
            model = _part(self.file, self.output, changed, earlier)
        variables = self._variables(model)
        images = jnp.asarray(images, jnp.float32)
        if self.layout == "NCHW":
            images = jnp.transpose(images, (0, 3, 1, 2))
        rngs = self.make_rng("dropout") if train and self.has_rng("dropout") else None
        # The training step is jitted outside `wide`, where 64-bit types cannot be lowered.
        out = model.apply(variables, images, training=train, rngs=rngs, keep_64_bit=False)
        if train:
            out, new = out
            self._keep(new[_STATE])
        if out.ndim == 4:
            out = jnp.mean(out, axis=(2, 3) if self.layout == "NCHW" else (1, 2))
        if out.ndim != 2:
            raise ValueError(
                f"model.output: {self.output or 'the output'} of {self.file} has shape "
                f"{out.shape}, wanted [b, d] or a map of four dimensions"
            )
        return out.astype(jnp.float32)

    def _trained_before(self, model: OnnxModel) -> tuple[str, ...]:
        """Names the constants of formulas that a checkpoint of version 0.2 holds as parameters."""
        names = map(_name_in_file, self.variables.get("params", {}))
        return tuple(sorted(name for name in names if name not in model.variables["params"]))

    def _variables(self, model: OnnxModel) -> dict[str, dict[str, Any]]:
        params = {
            name: self.param(_checkpoint_name(name), lambda _, value=value: value)
            for name, value in model.variables["params"].items()
        }
        state = {
            name: self.variable(_STATE, _checkpoint_name(name), lambda value=value: value).value
            for name, value in model.variables[_STATE].items()
        }
        return {**model.variables, "params": params, _STATE: state}

    def _keep(self, state: dict[str, Array]) -> None:
        """Stores the new running statistics, averaged over the devices."""
        if self.is_initializing():
            return
        for name, value in state.items():
            shared = parallel.psum(value) / jax.lax.axis_size(parallel.AXIS)
            self.put_variable(_STATE, _checkpoint_name(name), shared)


def until(model: OnnxModel, name: str) -> OnnxModel:
    """Returns the part of a model that computes one value; its ``proto`` is None.

    Args:
      model: the loaded model.
      name: name of a value, or of a node, which stands for its first output.

    Raises:
      ValueError: the model has no node or value of this name.
    """
    calls = model.program.calls
    values = {call.name: call.outputs[0] for call in calls}
    values |= {value: value for call in calls for value in call.outputs if value}
    if name not in values:
        raise ValueError(f"output: the model has no {name!r}{nearest(name, values)}")
    needed, kept = {values[name]}, []
    for call in reversed(calls):
        if needed.intersection(call.outputs):
            kept.append(call)
            needed |= call.reads()
    program = replace(model.program, calls=tuple(kept[::-1]), outputs=(values[name],))
    variables = {
        group: {key: value for key, value in arrays.items() if key in needed}
        for group, arrays in model.variables.items()
    }
    info = replace(model.outputs[0], name=values[name], shape=None, dtype=None)
    return replace(model, program=program, variables=variables, outputs=(info,), proto=None)


@functools.lru_cache(maxsize=4)
def _part(path: str, output: str, changed: int, trainable: tuple[str, ...] = ()) -> OnnxModel:
    """Returns the model from a cache whose key includes ``changed``, the file's time stamp."""
    del changed
    model = load(path, trainable=trainable)
    if len(model.inputs) != 1:
        names = ", ".join(value.name for value in model.inputs)
        raise ValueError(f"model.onnx: {path} takes {names}, wanted images as its only input")
    check_images(path, model)
    if output:
        return until(model, output)
    if len(model.outputs) != 1:
        names = ", ".join(value.name for value in model.outputs)
        raise ValueError(f"model.output: {path} has several outputs, choose one: {names}")
    return model


def check_images(path: str | os.PathLike, model: OnnxModel) -> None:
    """Rejects a model that takes integer images, since they have no gradient.

    Args:
      path: path of the model's file, for the message.
      model: a model whose only input is images.

    Raises:
      ValueError: the images are integers.
    """
    dtype = model.inputs[0].dtype
    if dtype is not None and not np.issubdtype(np.dtype(dtype), np.floating):
        raise ValueError(
            f"{path} takes images of {dtype}, wanted floats: jaxatr convert export --takes=chips "
            "writes such a file"
        )


def _checkpoint_name(name: str) -> str:
    """Returns a weight's name without slashes, and with a prefix so that it shadows no method."""
    return FROM_FILE + name.replace("/", "|")


def _name_in_file(name: str) -> str:
    """Returns a weight's name in its file, from that in a checkpoint."""
    return name.removeprefix(FROM_FILE).replace("|", "/")
