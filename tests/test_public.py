"""The public names of ``import jaxatr``, in a separate process: other tests import much of it."""

import subprocess
import sys

import pytest

import jaxatr

PROGRAM = """
import sys
import jaxatr

assert not {"jax", "numpy", "absl"} & set(sys.modules), "importing the package is fast"
assert set(jaxatr.__all__) <= set(dir(jaxatr))
import jaxatr.train
from jaxatr import Detector, Explainer, Recogniser, Retriever, evaluate, load, runs, train
import jaxatr.train as again

assert train is again is jaxatr.train is runs.train_run
assert evaluate is jaxatr.evaluate is runs.evaluate_run
assert load is jaxatr.load is runs.load_predictor
print(*(one.__name__ for one in (Detector, Explainer, Recogniser, Retriever)))
"""


def test_the_names_are_there_and_lazy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Detector Explainer Recogniser Retriever\n"


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        jaxatr.tran  # noqa: B018
