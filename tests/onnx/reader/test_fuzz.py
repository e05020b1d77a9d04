"""Mutants of small models are either loaded or refused with a clear error."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
SCRIPT = Path(__file__).parents[3] / "experiments" / "onnx" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Imports at this point would count as memory of the mutants.
    assert all(found == "loaded" or found.startswith("memory") for found in module.warm())
    return module


def test_the_models_that_are_mutated_load(fuzz):
    for proto in fuzz.small_models():
        assert fuzz.outcome(proto.SerializeToString(), apply=False) == "loaded"


def test_mutants(fuzz):
    """Also measures memory, as described in the fixture's module."""
    results = {s: fuzz.outcome(fuzz.mutant(s), apply=s % 10 == 0) for s in range(30)}
    assert not {s: r for s, r in results.items() if r not in ("loaded", "refused")}
    assert {"loaded", "refused"} == set(results.values())


def test_memory_that_a_file_does_not_ask_for_is_seen(fuzz, monkeypatch):
    def greedy(*_):
        np.ones(200 << 17)  # 200 MB, freed at once
        return "loaded"

    monkeypatch.setattr(fuzz, "tried", greedy)
    assert fuzz.outcome(b"").startswith("memory: 2")
