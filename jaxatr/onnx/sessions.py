"""Inference engines: jax, and onnxruntime and OpenVINO, which run an ONNX file on the CPU.

An engine is used only if it is named, never as a fallback. The packages of the latter two are
imported on first use.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxatr.extras import extra

JAX = "jax"
"""Name of jax itself, the engine that needs no ONNX file."""
ONEDNN = "onednn"
"""Name of jax with oneDNN's kernels where they are faster (:mod:`jaxatr.kernels.onednn`)."""
OWN = (JAX, ONEDNN)


@runtime_checkable
class Session(Protocol):
    """A model in an engine, ready to run.

    Attributes:
      about: name of the engine and its version.
    """

    about: str

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs by name; the inputs must have the types that the model declares."""
        ...


class OnnxRuntime:
    """A model in onnxruntime, on the CPU, with default settings."""

    package = "onnxruntime"

    def __init__(self, path: Path):
        """Reads a model."""
        # From 1.29 on, onnxruntime for Linux reports its sessions to its maker unless told not to
        # before its import.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        package = _imported(self.package)
        self.about = f"{self.package} {package.__version__}"
        self._session = package.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs by name."""
        results = self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))
        return dict(zip(self._outputs, results, strict=True))


class OpenVino:
    """A model in OpenVINO, on the CPU.

    It computes in float32; by default OpenVINO would use bfloat16 if the CPU supports it.
    """

    package = "openvino"

    def __init__(self, path: Path):
        """Reads and compiles a model."""
        package = _imported(self.package)
        self.about = f"{self.package} {package.__version__.partition('-')[0]}"
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        self._model = _openvino_core().compile_model(str(path), "CPU", settings)
        self._outputs = [value.get_any_name() for value in self._model.outputs]

    def __call__(self, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs by name."""
        results = self._model(inputs)
        arrays = (np.array(results[place]) for place in range(len(self._outputs)))
        return dict(zip(self._outputs, arrays, strict=True))


@functools.cache
def _openvino_core() -> Any:
    """Returns the only OpenVINO core of this process.

    Each core sets a stack for signal handlers. If one of several cores is freed, the process may
    keep the freed stack and crash on the next signal.
    """
    return _imported(OpenVino.package).Core()


_SESSIONS: dict[str, Callable[[Path], Session]] = {
    one.package: one for one in (OnnxRuntime, OpenVino)
}

RUNTIMES = (*OWN, *_SESSIONS)
"""Names of the engines."""
PRECISIONS = {"bfloat16": OWN, "int8": tuple(_SESSIONS), "float16": tuple(_SESSIONS)}
"""Names of the precisions below float32, and of the engines that can run a network in them."""


def divided(runtime: str) -> tuple[str, str]:
    """Divides an engine such as ``"onnxruntime:int8"`` into its name and its precision.

    Returns:
      ``(name, precision)``; the precision is empty for float32.
    """
    name, _, precision = runtime.partition(":")
    return name, precision


def check_runtime(runtime: str) -> None:
    """Checks that an engine can be used here.

    Args:
      runtime: name of the engine; a precision may follow a colon.

    Raises:
      ValueError: there is no engine or precision of this name, the engine does not have the
        precision, or this jaxlib does not have oneDNN.
      ImportError: the package is not installed; the message names the extra.
    """
    name, precision = divided(runtime)
    if name not in RUNTIMES:
        raise ValueError(f"runtime: got {name!r}, wanted one of {', '.join(RUNTIMES)}")
    if precision and precision not in PRECISIONS:
        raise ValueError(f"precision: got {precision!r}, wanted one of {', '.join(PRECISIONS)}")
    if precision and name not in PRECISIONS[precision]:
        others = " or ".join(PRECISIONS[precision])
        raise ValueError(f"precision: {precision} needs the runtime {others}, got {name}")
    if name == ONEDNN:
        from jaxatr.kernels import onednn  # late, so that --help does not load jax

        onednn.check()
    elif name != JAX:
        _imported(name)


def open_session(runtime: str, path: Path) -> Session:
    """Opens a model in an engine.

    Args:
      runtime: name of the engine, not one of :data:`OWN`; a precision may follow a colon.
      path: path of an ONNX file.
    """
    name, precision = divided(runtime)
    session = _SESSIONS[name](path)
    if precision:
        session.about += f" in {precision}"
    return session


def _imported(package: str) -> ModuleType:
    return extra(package, package, f"runtime={package}")
