"""The rooms of the package, and what none of them may import (pyproject.toml, importlinter)."""

from pathlib import Path

from importlinter.cli import lint_imports


def test_contracts_hold(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert lint_imports(no_cache=True) == 0
