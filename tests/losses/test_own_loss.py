"""User-defined losses, given by their dotted paths: docs/examples/losses.py."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxatr import runs, training

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_losses")
    shutil.copy(EXAMPLES / "losses.py", folder / "own_losses.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("own_losses", None)


def recorded(workdir, name):
    return [step[name] for step in training.read_metrics(workdir) if name in step]


@pytest.mark.slow
def test_a_loss_of_the_binary_classifiers(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.loss.open, config.train.steps = "own_losses:focal", 4
    config.open_set.score = "cbc"  # a single score; its fit is not tested here
    runs.train_run(config, tmp_path / "run", progress=False)
    found = recorded(tmp_path / "run", "own_losses:focal")
    assert found and np.isfinite(found).all() and min(found) > 0


@pytest.mark.slow
def test_a_loss_of_an_embedding_and_its_margin(embedding_config, tmp_path):
    config = embedding_config.copy_and_resolve_references()
    config.embedding.loss, config.train.steps = "own_losses:compact", 2
    config.embedding.class_weights = (0.0, 0.0)
    config.embedding.margin = 100.0  # larger than any distance
    runs.train_run(config, tmp_path / "run", progress=False)
    assert set(recorded(tmp_path / "run", "own_losses:compact")) == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss.open", "cbs", "loss.open: got 'cbs', wanted one of .* did you mean 'cbc'"),
        ("loss.open", "own_losses:focus", "no 'focus' in own_losses; did you mean 'focal'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(small_config, tmp_path, field, value, message):
    config = small_config.copy_and_resolve_references()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=message):
        runs.train_run(config, tmp_path / "run", progress=False)
