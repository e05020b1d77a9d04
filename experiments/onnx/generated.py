"""Runs ONNX's node tests as generated source and writes what passes.

    python experiments/onnx/generated.py                  # all, into results/
    python experiments/onnx/generated.py --only=resize    # prints, writes nothing
    python experiments/onnx/generated.py --resume         # what is not recorded yet

Each test's model is written as a module, which is then imported from its file in a fresh namespace
and applied to the weights of its file. Every test counts: what the importer lacks has failed.
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
    """A model as a module that was read from its file."""

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
        """Returns the outputs as NumPy arrays."""
        with wide():  # 64-bit inputs are not to be narrowed on the way
            outputs = self.model.apply(self.variables, *inputs)
            outputs = outputs if type(outputs) is tuple else (outputs,)
            return [plain(output) for output in outputs]


def plain(value):
    """Returns an output as the suite compares it."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)


def prepare(model):
    """Returns a model, written into a file and read from it."""
    with tempfile.TemporaryDirectory() as folder:
        generate(model, folder)
        return Written(Path(folder))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    np.seterr(all="ignore")
    title = "ONNX's node tests as generated source"
    conformance.main(__doc__, "generated", title, ("node",), prepare=prepare, limit=60)
