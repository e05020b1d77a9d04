"""Packages that no training needs belong to an extra, which a command that lacks one names."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jaxatr import extras

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
OPTIONAL = ("beartype", "jinja2", "scikit-image", "scikit-learn")
WITHOUT = "import sys\nfor name in ('beartype', 'jinja2', 'skimage', 'sklearn'):\n    "
WITHOUT += "sys.modules[name] = None\n"


def test_what_no_training_imports_is_not_required():
    required = {line.split(">")[0] for line in PROJECT["dependencies"]}
    assert not required & set(OPTIONAL)
    kept = "jax flax optax orbax-checkpoint tensorflow-datasets numpy ml-collections chex".split()
    assert set(kept) <= required


def test_the_package_and_its_commands_are_imported_without_the_extras():
    names = "train evaluate predict explain calibrate enrol cluster suggest serve check prepare"
    modules = ", ".join(
        f"jaxatr.cli.{name}" for name in f"{names} report search convert tune".split()
    )
    script = f"{WITHOUT}import jaxatr, jaxatr.runs, jaxatr.reporting, jaxatr.explain, {modules}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["sklearn", "sklearn.cluster"])
def test_a_missing_extra_is_named(monkeypatch, package):
    message = r"grouping needs the package sklearn: pip install 'jaxatr\[report\]'"
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=message):
        extras.extra(package, "report", "grouping")
    with pytest.raises(ImportError, match=message):
        extras.require("sklearn", extra="report", what="grouping")


def test_a_command_says_at_once_which_extra_it_needs():
    script = (
        f"{WITHOUT}from jaxatr.cli.main import main\nsys.argv = ['jaxatr', 'report', '--workdir=x']"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nmain()"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    wanted = "jaxatr report needs the package jinja2: pip install 'jaxatr[report]'"
    assert wanted in done.stderr + done.stdout
