"""Engines that run an ONNX file."""

import subprocess
import sys

import numpy as np
import pytest

from jaxatr.onnx import sessions

onnx = pytest.importorskip("onnx")

_SCRIPT = """
import faulthandler, pathlib, signal, sys
from jaxatr.onnx.sessions import OpenVino

faulthandler.enable()  # as absl's commands do: signal handlers run on a stack of their own
first, second = OpenVino(pathlib.Path(sys.argv[1])), OpenVino(pathlib.Path(sys.argv[1]))
del first
del second
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
signal.raise_signal(signal.SIGTERM)
assert heard == [True]
"""


def saved(folder, **operators):
    """Writes a model of one input, which applies an operator for each output."""
    vectors = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3])
        for name in ("x", *operators)
    ]
    nodes = [onnx.helper.make_node(kind, ["x"], [name]) for name, kind in operators.items()]
    graph = onnx.helper.make_graph(nodes, "graph", vectors[:1], vectors[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("engine", [sessions.OnnxRuntime, sessions.OpenVino])
def test_results_are_by_name(tmp_path, engine):
    pytest.importorskip(engine.package, reason=f"{engine.package} is not installed")
    x = np.array([[-1, 0, 2]], np.float32)
    found = engine(saved(tmp_path, a="Relu", b="Neg"))(x)
    np.testing.assert_array_equal(found["a"], np.maximum(x, 0))
    np.testing.assert_array_equal(found["b"], -x)


def test_signals_are_handled_after_models_in_openvino_are_freed(tmp_path):
    pytest.importorskip("openvino", reason="openvino is not installed: it is an extra of its own")
    command = [sys.executable, "-c", _SCRIPT, str(saved(tmp_path, y="Relu"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given", [None, "0"])
def test_onnxruntime_reports_nothing_to_its_maker(tmp_path, monkeypatch, given):
    """It reads the variable when it is imported; a user's own value is kept."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if given is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", given)
    script = f"""
import os, sys
from jaxatr.onnx import sessions
assert "onnxruntime" not in sys.modules
sessions.OnnxRuntime({str(saved(tmp_path, y="Relu"))!r})
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [given or "1"], done.stderr
