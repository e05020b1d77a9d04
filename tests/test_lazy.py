"""Imports that take place late, or not at all."""

import os
import subprocess
import sys

import pytest

from jaxatr.lazy import absent


def test_an_absent_module_is_found_again_afterwards(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with absent("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    with absent("colorsys"):  # it is imported already
        import colorsys as again
    assert again is colorsys


def test_events_are_written_without_pytorch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    program = "import sys, jaxatr.training.events; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
