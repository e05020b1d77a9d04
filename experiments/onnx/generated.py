"""Runs ONNX's node tests as generated source code, and records the results.

    python experiments/onnx/generated.py                  # all, into results/
    python experiments/onnx/generated.py --only=resize    # prints, writes nothing
    python experiments/onnx/generated.py --resume         # only unrecorded tests

Each test's model is written as a module, which is imported from its file in a fresh namespace and
applied with the weights from its file. Unsupported tests count as failures.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from jaxatr.onnx import generate, load_weights
from jaxatr.onnx.ops.precision import wide

sys.path.insert(0, str(Path(__file__).parent))

import conformance  # noqa: E402


class Written:
    """A model that was written as a module and imported from it."""

    def __init__(self, folder):
        """Imports the module in a fresh namespace."""
        spec = importlib.util.spec_from_file_location("generated_model", folder / "model.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} has no module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.model = module.Model()
        self.variables = load_weights(folder / "weights.safetensors")

    def run(self, inputs):
        """Computes the outputs as NumPy arrays."""
        with wide():  # keeps 64-bit inputs
            outputs = self.model.apply(self.variables, *inputs)
            outputs = outputs if type(outputs) is tuple else (outputs,)
            return [plain(output) for output in outputs]


def plain(value):
    """Converts an output to the form that the suite compares."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)


def prepare(model):
    """Writes a model as a module, and imports it."""
    with tempfile.TemporaryDirectory() as folder:
        generate(model, folder)
        return Written(Path(folder))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    np.seterr(all="ignore")
    title = "ONNX's node tests as generated source"
    conformance.main(__doc__, "generated", title, ("node",), prepare=prepare, limit=60)
