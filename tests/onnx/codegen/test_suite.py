"""A fixed share of ONNX's node tests as generated source; the floor only rises.

Without the type checks: NumPy gives scalars where operators say arrays, which only `apply` undoes.
"""

import hashlib
import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("onnx")
SCRIPT = Path(__file__).parents[3] / "experiments" / "onnx" / "generated.py"
FLOOR = 97
"""Of a hundred tests of the tenth."""


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failures(generated, share: int) -> tuple[int, list[str]]:
    """Returns how many tests a share has, by the hash of their names, and why some fail."""
    conformance = generated.conformance
    found = [
        test
        for _, test in conformance.cases(("node",))
        if int(hashlib.sha256(test.name.encode()).hexdigest(), 16) % share == 0
    ]
    reasons = [(t.name, conformance.run(t, prepare=generated.prepare)) for t in found]
    return len(found), [f"{name}: {reason}" for name, reason in reasons if reason]


def test_a_few(generated, unchecked):
    count, failed = failures(generated, 200)
    assert count >= 5
    assert not failed


@pytest.mark.slow
def test_a_tenth(generated, unchecked):
    count, failed = failures(generated, 10)
    assert 100 * (count - len(failed)) >= FLOOR * count, failed
