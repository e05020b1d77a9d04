"""A fixed tenth of ONNX's own suite, by the hash of a test's name; the floor only rises."""

import hashlib
import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("onnx")
FLOOR = 194  # of 196; the two others draw random numbers
SCRIPT = Path(__file__).parents[3] / "experiments" / "onnx" / "conformance.py"


@pytest.fixture(scope="module")
def conformance():
    spec = importlib.util.spec_from_file_location("conformance", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen(name: str, share: int) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % share == 0


def failures(conformance, share: int) -> tuple[int, list[str]]:
    found = [t for _, t in conformance.cases() if chosen(t.name, share)]
    reasons = [(test.name, conformance.run(test)) for test in found]
    return len(found), [f"{name}: {reason}" for name, reason in reasons if reason]


def test_a_few(conformance):
    count, failed = failures(conformance, 400)
    assert count >= 3
    assert not failed


@pytest.mark.slow
def test_a_tenth(conformance):
    count, failed = failures(conformance, 10)
    assert count - len(failed) >= FLOOR, failed


def test_the_table(conformance):
    entries = [
        {"kind": "node", "name": "test_a", "operator": "Add", "reason": ""},
        {"kind": "node", "name": "test_b", "operator": "Add", "reason": "bad | worse"},
    ]
    text = conformance.table(entries, "Tests")
    assert "| node | 1 | 2 |" in text and "| Add | 1 | 2 |" in text
    assert "| node | test_b | bad ¦ worse |" in text
