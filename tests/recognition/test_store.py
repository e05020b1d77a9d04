"""The files of fitted decisions."""

import importlib
import sys

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.recognition import store

MLS = openset.SCORES["mls"]  # the largest logit; nothing is fitted but the threshold


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    logits = np.float32(rng.normal(size=(40, 2)) + 3 * np.eye(2)[labels])
    outputs = openset.Outputs(logits, logits, labels)
    decision = openset.calibrate(openset.Decision(MLS, {}), outputs, tpr=0.9)
    return store.save(tmp_path, 7, "mls", decision)


def rewritten(path, changed):
    arrays = dict(np.load(path)) | changed
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


def test_a_fit_that_was_changed_is_refused(path, tmp_path):
    rewritten(path, {})
    assert store.load(tmp_path, 7, "mls", MLS) is not None
    arrays = dict(np.load(path))
    name = max(arrays, key=lambda name: arrays[name].size)
    assert arrays[name].dtype.kind == "f"
    rewritten(path, {name: arrays[name] + 1})
    with pytest.raises(ValueError, match="mls.npz: not a readable fit .it was changed since"):
        store.load(tmp_path, 7, "mls", MLS)


def test_a_fit_of_an_earlier_version_has_no_digest(path, tmp_path):
    rewritten(path, {"digest": None})
    assert store.load(tmp_path, 7, "mls", MLS) is not None


def test_a_fit_belongs_to_the_code_of_a_score_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def written(module, factor):
        code = "from jaxatr import openset\n"
        code += f"def score(logits):\n    return {factor} * logits[:, 0]\n"
        code += "PART = openset.Score.of_arrays('mine', 'mine', score)\n"
        (tmp_path / f"{module}.py").write_text(code)
        importlib.invalidate_caches()
        sys.modules.pop(module, None)
        return importlib.import_module(module).PART

    first = written("own_first", 1)
    store.save(tmp_path, 7, "mine", openset.Decision(first, {}, threshold=0.5))
    assert store.load(tmp_path, 7, "mine", first).threshold == 0.5
    assert store.load(tmp_path, 7, "mine", written("own_first", 1)).threshold == 0.5
    assert store.load(tmp_path, 7, "mine", written("own_second", 2)) is None
    assert store.load(tmp_path, 7, "mine", written("own_first", -100)) is None
    rewritten(store.path_of(tmp_path, 7, "mine"), {"code": None, "digest": None})
    assert store.load(tmp_path, 7, "mine", first).threshold == 0.5  # of an earlier version
