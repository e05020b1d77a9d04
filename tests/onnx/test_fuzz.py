"""Mutants of small models: refused or loaded, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("onnx")
SCRIPT = Path(__file__).parents[2] / "experiments" / "onnx" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_models_that_are_mutated_load(fuzz):
    for proto in fuzz.small_models():
        assert fuzz.outcome(proto.SerializeToString()) == "loaded"


def test_mutants(fuzz):
    results = {seed: fuzz.outcome(fuzz.mutant(seed)) for seed in range(120)}
    assert not {s: r for s, r in results.items() if r not in ("loaded", "refused")}
    assert {"loaded", "refused"} == set(results.values())
