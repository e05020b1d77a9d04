"""The interface by which ONNX's own suite (and other tools) run a model."""

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
        """Keeps the model, and the device that it runs on."""
        self.model, self.device = model, device

    def run(self, inputs: Any, **_: Any) -> list[Any]:
        """Returns the outputs as NumPy arrays (lists of them for sequences).

        Args:
          inputs: one value for each input, in order, or a mapping by name.
          **_: settings of other backends.
        """
        if isinstance(inputs, dict):
            inputs = [inputs.get(wanted.name) for wanted in self.model.inputs]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        # 64-bit inputs are not to be narrowed on the way.
        with wide(), jax.default_device(self.device):
            outputs = self.model.apply(self.model.variables, *inputs)
            outputs = outputs if len(self.model.outputs) != 1 else (outputs,)
            return [_plain(output) for output in outputs]


def prepare(model: Any, device: str = "CPU", **_: Any) -> Prepared:
    """Returns a model that is ready to run on a device.

    Args:
      model: path, bytes or ``ModelProto``.
      device: as :func:`supports_device` takes it.
      **_: settings of other backends.

    Raises:
      ValueError: there is no such device, or the model cannot be loaded.
    """
    found = _device(device)
    if found is None:
        raise ValueError(f"device: got {device!r}, wanted one that jax has here")
    with jax.default_device(found):
        return Prepared(load(model), found)


def run_model(model: Any, inputs: Any, device: str = "CPU", **settings: Any) -> list[Any]:
    """Returns the outputs of a model, as :meth:`Prepared.run` does."""
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
      inputs: an array for each input that is not absent, in order.
      device: as :func:`supports_device` takes it.
      outputs_info: types and shapes that other backends ask for; here the node itself says them.
      opset_version: of the node's domain; None for the newest that the package ``onnx`` has.
      **_: settings of other backends.
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
    """Returns whether jax has such a device here.

    Args:
      device: ``CPU`` or ``CUDA``, with a number after a colon if wanted.
    """
    return _device(device) is not None


def _device(device: str) -> Any:
    """Returns the device of a name, or None."""
    name, _, number = device.lower().partition(":")
    if name not in ("cpu", "cuda") or not (number or "0").isdecimal():
        return None
    try:
        found = jax.local_devices(backend="cpu" if name == "cpu" else "gpu")
    except RuntimeError:  # jax has no such platform here
        return None
    at = int(number or 0)
    return found[at] if at < len(found) else None


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)
