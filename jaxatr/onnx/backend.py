"""ONNX's backend interface, through which its test suite and other tools run models."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxatr.onnx.ops.precision import wide
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.model import OnnxModel, load

__all__ = ["Prepared", "prepare", "run_model", "run_node", "supports_device"]


class Prepared:
    """A model that is ready to run."""

    def __init__(self, model: OnnxModel, device: Any):
        self.model, self.device = model, device

    def run(self, inputs: Any, **_: Any) -> list[Any]:
        """Returns the outputs as NumPy arrays (lists of them for sequences).

        Args:
          inputs: one value for each input in order, or a dictionary by name.
          **_: options of other backends, ignored.
        """
        if isinstance(inputs, dict):
            inputs = [inputs.get(wanted.name) for wanted in self.model.inputs]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        # Without `wide`, jax would narrow 64-bit inputs.
        with wide(), jax.default_device(self.device):
            outputs = self.model.apply(self.model.variables, *inputs)
            outputs = outputs if len(self.model.outputs) != 1 else (outputs,)
            return [_plain(output) for output in outputs]


def prepare(model: Any, device: str = "CPU", **_: Any) -> Prepared:
    """Returns a model that is ready to run on a device.

    Args:
      model: path of a file, its bytes, or a ``ModelProto``.
      device: ``CPU`` or ``CUDA``, optionally with a number: ``CUDA:1``.
      **_: options of other backends, ignored.

    Raises:
      ValueError: there is no such device, or the model cannot be loaded.
    """
    chosen = _device(device)
    if chosen is None:
        raise ValueError(f"device: got {device!r}, wanted one that jax finds here")
    with jax.default_device(chosen):
        return Prepared(load(model), chosen)


def run_model(model: Any, inputs: Any, device: str = "CPU", **settings: Any) -> list[Any]:
    """Loads a model and returns its outputs, as :meth:`Prepared.run` does."""
    return prepare(model, device, **settings).run(inputs)


def run_node(
    node: Any,
    inputs: Sequence[Any],
    device: str = "CPU",
    outputs_info: Any = None,
    *,
    opset_version: int | None = None,
    **_: Any,
) -> list[Any]:
    """Returns the outputs of one ``NodeProto``.

    Args:
      node: the proto.
      inputs: an array for each input that is present, in order.
      device: ``CPU`` or ``CUDA``, optionally with a number: ``CUDA:1``.
      outputs_info: types and shapes of the outputs, which other backends need; ignored.
      opset_version: version of the node's domain; None for the newest in the package ``onnx``.
      **_: options of other backends, ignored.
    """
    names = [name for name in node.input if name]
    unknown = onnx.TypeProto()
    infos = [onnx.helper.make_value_info(name, unknown) for name in dict.fromkeys(names)]
    results = [onnx.helper.make_value_info(name, unknown) for name in node.output if name]
    graph = onnx.helper.make_graph([node], node.op_type, infos, results)
    versions = {"": onnx.defs.onnx_opset_version()}
    versions[node.domain] = opset_version or versions.get(node.domain, 1)
    imports = [onnx.helper.make_opsetid(*version) for version in versions.items()]
    return run_model(onnx.helper.make_model(graph, opset_imports=imports), inputs, device)


def supports_device(device: str) -> bool:
    """Returns whether jax has a device of this name.

    Args:
      device: ``CPU`` or ``CUDA``, optionally with a number: ``CUDA:1``.
    """
    return _device(device) is not None


def _device(device: str) -> Any:
    """Returns the device of this name, or None."""
    name, _, number = device.lower().partition(":")
    if name not in ("cpu", "cuda") or not (number or "0").isdecimal():
        return None
    try:
        devices = jax.local_devices(backend="cpu" if name == "cpu" else "gpu")
    except RuntimeError:  # jax lacks the platform
        return None
    at = int(number or 0)
    return devices[at] if at < len(devices) else None


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)
