"""Fixed shares of ONNX's test suite, selected by the hash of a test's name.

The reader runs all of them, and generated source those of single nodes. They are in one file since
single-node tests take longer to build than to run. The few that always run are tests whose models
are stored on disk. The minimum numbers of passed tests may only be raised.
"""

import hashlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("onnx")
# Of 196. Two draw random numbers. One more fails as conftest.py compiles, in the least time:
# XLA's earlier emitters make NaN of -1e-7 as a float8_e5m2fnuz, which has no negative zero.
FLOOR = 194 - ("--xla_cpu_use_fusion_emitters=false" in os.environ.get("XLA_FLAGS", ""))
GENERATED_FLOOR = 97  # of a hundred tests of the tenth
ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")
FOLDER = Path(__file__).parents[2] / "experiments" / "onnx"


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", FOLDER / "generated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def conformance(generated):
    return generated.conformance


def failures(conformance, share: int, kinds, prepare) -> tuple[int, list[str]]:
    """Returns the number of tests in a share, and the reasons of failures."""
    found = [
        test
        for _, test in conformance.cases(kinds)
        if int(hashlib.sha256(test.name.encode()).hexdigest(), 16) % share == 0
    ]
    reasons = [(test.name, conformance.run(test, prepare=prepare)) for test in found]
    return len(found), [f"{name}: {reason}" for name, reason in reasons if reason]


def test_a_few(conformance):
    count, failed = failures(conformance, 20, ON_DISK, conformance.backend.prepare)
    assert count >= 5
    assert not failed


# Generated source runs without type checks: NumPy returns scalars where the annotations of
# operators are arrays, which only `apply` converts back.
def test_a_few_as_source(generated, unchecked):
    count, failed = failures(generated.conformance, 20, ON_DISK, generated.prepare)
    assert count >= 5
    assert not failed


@pytest.mark.slow
def test_a_tenth(conformance):
    count, failed = failures(conformance, 10, conformance.KINDS, conformance.backend.prepare)
    assert count - len(failed) >= FLOOR, failed


@pytest.mark.slow
def test_a_tenth_as_source(generated, unchecked):
    count, failed = failures(generated.conformance, 10, ("node",), generated.prepare)
    assert 100 * (count - len(failed)) >= GENERATED_FLOOR * count, failed


def test_a_kind_that_runs_again_leaves_the_others(conformance, tmp_path, monkeypatch):
    old = {"operator": "Add", "reason": "old"}
    entries = [{"kind": "node", "name": "test_a", **old}, {"kind": "real", "name": "test_b", **old}]
    path = tmp_path / "conformance.json"
    path.write_text(json.dumps(entries))
    found = [("node", types.SimpleNamespace(name="test_a"))]
    monkeypatch.setattr(conformance, "cases", lambda kinds: found)
    monkeypatch.setattr(conformance, "operators", lambda _: {("node", "test_a"): "Add"})
    monkeypatch.setattr(conformance, "run", lambda test, **_: "new")

    def recorded(*flags):
        monkeypatch.setattr(sys, "argv", ["conformance", f"--out={tmp_path}", *flags])
        conformance.main("", "conformance", "Tests", ("node", "real"))
        return [(one["kind"], one["reason"]) for one in json.loads(path.read_text())]

    assert recorded("--only=test_a") == [("node", "old"), ("real", "old")]
    assert recorded("--resume") == [("node", "old"), ("real", "old")]
    assert recorded("--kind=node") == [("node", "new"), ("real", "old")]
    assert recorded() == [("node", "new")]


def test_the_table(conformance):
    entries = [
        {"kind": "node", "name": "test_a", "operator": "Add", "reason": ""},
        {"kind": "node", "name": "test_b", "operator": "Add", "reason": "bad | worse"},
    ]
    text = conformance.table(entries, "Tests")
    assert "| node | 1 | 2 |" in text and "| Add | 1 | 2 |" in text
    assert "| node | test_b | bad ¦ worse |" in text
