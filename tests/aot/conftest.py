"""Compilation for accelerators that are not present; skipped without the extra ``aot``."""

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
    """Skips the test if the compiler of a platform in its module's ``PLATFORMS`` is missing."""
    for platform in request.module.PLATFORMS:
        if message := described.missing(platform):
            pytest.skip(message)


@pytest.fixture(autouse=True)
def all_optimizations():
    """Enables all compiler optimizations, as for users; the other tests disable most."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
