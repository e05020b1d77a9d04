"""``jaxatr.onnx`` without the package ``onnx``."""

import subprocess
import sys

import pytest


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_operators_do_not_need_onnx_and_reading_names_the_missing_package():
    script = """
import sys, jaxatr.onnx, jaxatr.onnx.ops
print("onnx" in sys.modules)
sys.modules["onnx"] = None
for name in ("load", "layers", "generate", "export", "replace_weights"):
    try:
        getattr(jaxatr.onnx, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    missing = "reading and writing ONNX needs the package onnx: pip install 'jaxatr[onnx]'"
    assert run(script).splitlines() == ["False"] + 5 * [missing]


@pytest.mark.slow
def test_a_function_is_a_function_after_any_import():
    script = """
import jaxatr.onnx.reader.inspection, jaxatr.onnx.codegen.generator, jaxatr.runs.export
import jaxatr.onnx
print([callable(getattr(jaxatr.onnx, name)) for name in jaxatr.onnx.__all__ if name != "ops"])
"""
    assert "False" not in run(script)
