"""The engines of networks: jax, and others that run an ONNX file.

The others are onnxruntime, and OpenVINO on processors. They are asked for by name, and never taken
in the place of another. Each is a package of its own, imported when it is first used.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

import numpy as np

from jaxatr.data.extras import extra
from jaxatr.kernels import onednn

JAX = "jax"
"""The engine that needs no file: jax itself."""
ONEDNN = "onednn"
"""jax itself, with oneDNN's kernels where they are faster (:mod:`jaxatr.kernels.onednn`)."""
OWN = (JAX, ONEDNN)


@runtime_checkable
class Session(Protocol):
    """A model in an engine, ready to run.

    Attributes:
      about: name of the engine and its version.
    """

    about: str

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Computes the outputs, by name; inputs are of the types that the model declares."""
        ...


class OnnxRuntime:
    """A model in onnxruntime, on the processor, with its default settings."""

    package = "onnxruntime"

    def __init__(self, path: Path):
        """Reads a model."""
        package = _imported(self.package)
        self.about = f"{self.package} {package.__version__}"
        self._session = package.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Computes the outputs by name."""
        results = self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))
        return dict(zip(self._outputs, results, strict=True))


class OpenVino:
    """A model in OpenVINO, on the processor.

    Its arithmetic is float32: by itself OpenVINO would take bfloat16 where a processor has that.
    """

    package = "openvino"

    def __init__(self, path: Path):
        """Reads and compiles a model."""
        package = _imported(self.package)
        self.about = f"{self.package} {package.__version__.partition('-')[0]}"
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        self._model = package.Core().compile_model(str(path), "CPU", settings)
        self._outputs = [value.get_any_name() for value in self._model.outputs]

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Computes the outputs by name."""
        results = self._model(inputs)
        arrays = (np.array(results[place]) for place in range(len(self._outputs)))
        return dict(zip(self._outputs, arrays, strict=True))


_SESSIONS: dict[str, Callable[[Path], Session]] = {
    one.package: one for one in (OnnxRuntime, OpenVino)
}

RUNTIMES = (*OWN, *_SESSIONS)
"""Names of the engines."""


def check_runtime(name: str) -> None:
    """Checks that an engine can be used here.

    Raises:
      ValueError: there is none of this name, or this jaxlib has no oneDNN.
      ImportError: its package is not installed; the message names the extra.
    """
    if name not in RUNTIMES:
        raise ValueError(f"runtime: got {name!r}, wanted one of {', '.join(RUNTIMES)}")
    if name == ONEDNN:
        onednn.check()
    elif name != JAX:
        _imported(name)


def open_session(name: str, path: Path) -> Session:
    """Opens a model in an engine.

    Args:
      name: of the engine, but not one of :data:`OWN`.
      path: of an ONNX file.
    """
    return _SESSIONS[name](path)


def _imported(package: str) -> ModuleType:
    return extra(package, package, f"runtime={package}")
