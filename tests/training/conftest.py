"""The toy task as a module and as a program, and an uninterrupted run of it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxatr import training

TOY = Path(__file__).parent / "toy.py"
CACHE_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture(scope="session")
def toy():
    """The module ``toy``, loaded by its path because the tests' folder is not a package."""
    spec = importlib.util.spec_from_file_location("jaxatr_test_toy", TOY)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def unbroken(toy, tmp_path_factory):
    """A run of 20 steps in this process."""
    workdir = tmp_path_factory.mktemp("unbroken")
    result = toy.run(workdir)
    return SimpleNamespace(workdir=workdir, result=result, records=records(workdir))


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """A compilation cache shared by the tests of this folder."""
    folder = tmp_path_factory.mktemp("xla")
    before = {name: jax.config.values[name] for name in CACHE_SETTINGS}
    training.enable_compilation_cache(folder)
    yield folder
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def start(compiled):
    """A function that starts the toy in a subprocess; ``environment`` adds variables."""

    def start(workdir, environment=None, **options):
        command = [sys.executable, str(TOY), str(workdir)]
        command += [f"{name}={value}" for name, value in options.items()]
        base = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        base |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}  # as users compile it
        variables = base | {"JAXATR_COMPILATION_CACHE": str(compiled)} | (environment or {})
        return subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return start


@pytest.fixture(scope="session")
def finish():
    """A function that waits for a started program and returns its output."""

    def finish(process, code=0):
        output, _ = process.communicate(timeout=240)
        assert process.returncode == code, output
        return output

    return finish


@pytest.fixture(scope="session")
def unbroken_program(start, finish, tmp_path_factory):
    """A run of 20 steps in a subprocess, on one device, without a compilation cache."""
    workdir = tmp_path_factory.mktemp("unbroken_program")
    finish(start(workdir, {"JAXATR_COMPILATION_CACHE": "off"}))
    return SimpleNamespace(
        workdir=workdir, final=dict(np.load(workdir / "final.npz")), records=records(workdir)
    )


def records(workdir):
    """Returns the records without times."""
    return [
        {name: value for name, value in record.items() if name != "images_per_second"}
        for record in training.read_metrics(workdir)
    ]


@pytest.fixture(scope="session", name="records")
def records_fixture():
    """A function that reads a run's records without times."""
    return records
