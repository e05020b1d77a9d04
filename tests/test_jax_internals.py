"""The names of jax without a promise of stability: all in one module, and all there."""

import ast
from pathlib import Path

import pytest

from jaxatr import jax_internals

PACKAGE = Path(jax_internals.__file__).parent
UNSTABLE = ("jax._src", "jax.core", "jax.experimental", "jax.extend", "jax.interpreters", "jaxlib")
EXPECTED = {
    "ad": ("defbilinear", "deflinear2", "instantiate_zeros"),
    "batching": ("primitive_batchers",),
    "compilation_cache": ("reset_cache",),
    "mlir": ("register_lowering", "lower_fun"),
    "multihost_utils": ("process_allgather", "sync_global_devices"),
    "JaxprEqn": ("primitive", "params", "invars", "outvars", "ctx"),
    "Primitive": ("bind", "def_impl", "def_abstract_eval", "get_bind_params"),
}


def unstable(path):
    """Returns the modules without a promise of stability that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [
        name
        for name in found
        if any(f"{name}.".startswith(f"{one}.") for one in UNSTABLE)
        and not name.startswith("jax.experimental.pallas")
    ]


@pytest.mark.parametrize("name", jax_internals.__all__)
def test_each_name_is_what_the_package_uses(name):
    found = getattr(jax_internals, name)
    lacking = [part for part in EXPECTED.get(name, ()) if not hasattr(found, part)]
    assert not lacking


def test_they_are_imported_in_one_place():
    # What jaxatr.onnx imports is still to be moved.
    files = [path for path in PACKAGE.rglob("*.py") if "onnx" not in path.parts]
    found = {str(path.relative_to(PACKAGE)): unstable(path) for path in files}
    assert [path for path, names in found.items() if names] == ["jax_internals.py"]
