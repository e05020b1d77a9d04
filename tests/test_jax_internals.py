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
    "Jaxpr": ("constvars", "debug_info", "eqns", "invars", "outvars"),
    "Primitive": ("bind", "def_impl", "def_abstract_eval", "get_bind_params"),
    "source_info_util": ("summarize",),
}


def unstable(text):
    """Returns the names without a promise of stability that a source text imports or reaches."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and (name := ast.unparse(node)).startswith("jax."):
            found.append(name)
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import jax._src.core", ["jax._src.core"]),
        ("from jax import core, numpy", ["jax.core"]),
        ("import jax\nx = jax.core.Tracer", ["jax.core.Tracer", "jax.core"]),
        ("import jax\nx = jax.lax.exp\ny = jax.experimental.pallas.Slice", ["jax.experimental"]),
        ("from jax.experimental import pallas as pl", []),
    ],
)
def test_an_import_and_an_attribute_are_found(text, names):
    assert unstable(text) == names


def test_they_are_imported_in_one_place():
    files = PACKAGE.rglob("*.py")
    found = {str(path.relative_to(PACKAGE)): unstable(path.read_text()) for path in files}
    assert [path for path, names in found.items() if names] == ["jax_internals.py"]
