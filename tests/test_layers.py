"""The import rules between the package's folders hold (pyproject.toml, importlinter)."""

import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports


def test_contracts_hold(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert lint_imports(no_cache=True) == 0


def test_a_training_loads_nothing_that_it_does_not_need():
    others = ("jaxatr.tasks", "tensorflow_datasets", "grain", "jaxatr.data.sources.s")
    # Each of these takes half a second to import, and torch much memory besides.
    spared = ("scipy.stats", "scipy.ndimage", "scipy.fft", "sklearn", "tensorflow", "torch")
    script = f"""
import sys, jaxatr.training
print([name for name in sys.modules if name.startswith({others})])
import jaxatr.runs, jaxatr.cli.predictions
print([name for name in {spared} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[]", "[]"]  # of the loop, and of all of a training
