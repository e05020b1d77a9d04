"""Compiling for accelerators that are not here; skipped without the extra ``aot``."""

import importlib
import sys
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "experiments" / "kernels"))
described = importlib.import_module("described")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.aot)


@pytest.fixture(autouse=True)
def needed(request):
    """Skips where nothing here compiles for the platform that a test's module names."""
    for platform in request.module.PLATFORMS:
        if message := described.missing(platform):
            pytest.skip(message)


@pytest.fixture(autouse=True)
def all_optimizations():
    """Asks the compilers for what users get; other tests ask for little."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
