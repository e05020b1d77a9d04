"""A new evaluation keeps earlier figures of the same network and examples."""

import contextlib
import errno
import json
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxatr import reporting, runs, training
from jaxatr.reporting import score_record
from jaxatr.runs import evaluation
from jaxatr.runs.merge import Evaluated, merged
from jaxatr.tasks import Distillation, OpenSet


@pytest.fixture
def run(trained_run, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


def test_a_further_score_joins_the_ones_before(run):
    before = runs.evaluate_run(run, fresh=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = runs.evaluate_run(run, scores="energy")
    recorded = json.loads((run / "evaluation.json").read_text())
    rows, arrays = recorded["groups"]["all"]["scores"], dict(np.load(run / "scores.npz"))
    earlier = before["groups"]["all"]["scores"]
    assert set(rows) == {*earlier, "energy"} and result["groups"] == recorded["groups"]
    assert {name: rows[name] for name in earlier} == earlier
    assert recorded["decides"] == before["decides"] and "decided_score" in arrays
    assert {f"test_score_{name}" for name in rows} <= arrays.keys()
    # γ is fitted by CBC, which was not measured again.
    assert recorded["fitted_gamma"] == before["fitted_gamma"] is not None
    assert training.read_record(run)["fitted_gamma"] == before["fitted_gamma"]
    table, page = reporting.open_set_table(recorded), reporting.render_report([run])
    assert all(name in table and score_record.label(name) in page for name in rows)
    training.update_record(run, steps=10**6)
    with pytest.warns(UserWarning, match=r"training is not finished: this is step \d+ of 1000000"):
        last = runs.evaluate_run(run, scores="mls", fresh=True)
    assert list(last["groups"]["all"]["scores"]) == ["mls"]


def test_two_evaluations_at_once_keep_each_other_s_scores(run, monkeypatch):
    both = threading.Barrier(2)

    def slowly(*arguments):
        found = merged(*arguments)
        with contextlib.suppress(threading.BrokenBarrierError):  # the other one waits for its turn
            both.wait(timeout=4)
        return found

    monkeypatch.setattr(evaluation, "merged", slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: runs.evaluate_run(run, scores=name), ("energy", "nearest")))
    recorded = json.loads((run / "evaluation.json").read_text())["groups"]["all"]["scores"]
    assert {"energy", "nearest", "mls"} <= recorded.keys()
    assert {f"test_score_{name}" for name in recorded} <= {*np.load(run / "scores.npz")}


def measured(*scores, step=3, near=(), **more):
    groups = {"all": {"num_known": 2, "scores": {name: {"auroc": 0.5} for name in scores}}}
    outside = {}
    if near:
        groups["near"] = {"num_known": 2, "scores": {name: {"auroc": 0.7} for name in near}}
        outside["outside"] = {"near": {"images": 2, "unknown_accepted": 0.3}}
    return {"checkpoint": {"step": step}, "tpr": 0.95, "groups": groups, **outside, **more}


def arrays(*scores, logits=(1.0, 2.0), near=(), of_near=(3.0, 4.0)):
    found = {"test_logits": np.array(logits), "decided_score": np.zeros(2)}
    found |= {f"test_score_{name}": np.arange(2.0) for name in scores}
    found |= {f"outside_near_score_{name}": np.arange(2.0) for name in near}
    return found | ({"outside_near_logits": np.array(of_near)} if near else {})


def record(folder, one, its_arrays):
    (folder / "evaluation.json").write_text(json.dumps(one))
    np.savez(folder / "scores.npz", **its_arrays)


def merge(folder, one, its_arrays, task: type[training.Task] = OpenSet):
    now = Evaluated(one, its_arrays)
    (found, files), notes = merged(folder, now, task.kept, task.evaluation_form)
    return found, files, notes


@pytest.mark.parametrize(
    "now, changed, reason",
    [
        (measured("mls", step=4), {}, "at step 3, the new one at step 4"),
        (measured("mls", tpr=0.9), {}, "its tpr differs from that of the new evaluation"),
        (measured("mls"), {"logits": (1.0, 2.5)}, "test_logits has changed: other examples"),
        (
            measured("mls"),
            {"logits": (1.0, 2.0, 3.0)},
            "test_logits has changed: other examples",
        ),
    ],
)
def test_earlier_figures_of_something_else_are_replaced(tmp_path, now, changed, reason):
    record(tmp_path, measured("cbc", "mls"), arrays("cbc", "mls"))
    found, files, (note,) = merge(tmp_path, now, arrays("mls", **changed))
    assert found == now and "test_score_cbc" not in files
    assert note.startswith("the earlier evaluation of cbc is replaced: ") and reason in note


def test_there_is_no_warning_where_nothing_is_lost(tmp_path):
    record(tmp_path, measured("mls"), arrays("mls"))
    now = measured("mls", "cbc", step=4)
    assert merge(tmp_path, now, arrays("mls", "cbc"))[::2] == (now, [])


def test_rounding_is_not_a_difference_and_the_new_decision_counts(tmp_path):
    before = measured("cbc", near=("cbc",), decides="cbc", decision={"thresholds": [1.0]})
    record(tmp_path, before, arrays("cbc", near=("cbc",)))
    now = measured("mls", decides="mls", decision={"thresholds": [2.0]})
    own = arrays("mls", logits=(1.00001, 2.0))
    found, files, notes = merge(tmp_path, now, own)
    assert not notes and set(found["groups"]["all"]["scores"]) == {"mls", "cbc"}
    assert found["groups"]["near"] == before["groups"]["near"] and found["decides"] == "mls"
    # It was accepted by the decision of before.
    assert found["outside"] == {"near": {"images": 2}}
    assert files["test_logits"] is own["test_logits"] and "outside_near_score_cbc" in files


def test_a_group_of_other_images_is_replaced_alone(tmp_path):
    record(tmp_path, measured("cbc", near=("cbc",)), arrays("cbc", near=("cbc",)))
    own = arrays("mls", near=("mls",), of_near=(5.0, 6.0))
    found, files, (note,) = merge(tmp_path, measured("mls", near=("mls",)), own)
    assert note == "the earlier evaluation of cbc is replaced: near has other images now"
    assert set(found["groups"]["all"]["scores"]) == {"mls", "cbc"}
    assert set(found["groups"]["near"]["scores"]) == {"mls"}
    assert "test_score_cbc" in files and "outside_near_score_cbc" not in files


def test_explanations_of_the_same_chips_stay(tmp_path):
    def explained(*methods, **convention):
        rows = {name: {"insertion": 0.5} for name in methods}
        return {
            "checkpoint": {"step": 3},
            "explanation": {"methods": rows, "convention": [convention]},
        }

    def of(*methods):
        found = {f"{name}_map": np.zeros(2) for name in methods}
        return found | {"test_row": np.arange(2), "sheet_worst": np.arange(2)}

    record(tmp_path, explained("surrogate", "rise"), of("surrogate", "rise"))
    now = explained("surrogate", "lime")
    found, files, notes = merge(tmp_path, now, of("surrogate", "lime"), Distillation)
    assert list(found["explanation"]["methods"]) == ["surrogate", "lime", "rise"] and not notes
    assert {"surrogate_map", "lime_map", "rise_map"} <= files.keys()
    other = explained("surrogate", pixels_per_step=9)
    found, _, (note,) = merge(tmp_path, other, of("surrogate"), Distillation)
    assert "rise" in note and "convention" in note and found == other


def test_an_earlier_evaluation_that_is_damaged_is_replaced(tmp_path):
    record(tmp_path, measured("cbc"), arrays("cbc"))
    (tmp_path / "scores.npz").write_bytes(b"PK damaged")
    found, _, (note,) = merge(tmp_path, measured("mls"), arrays("mls"))
    assert found == measured("mls") and "cannot be read" in note


def test_a_full_disk_leaves_the_earlier_evaluation_whole(run, monkeypatch):
    names = (training.EVALUATION, training.SCORES, training.THUMBNAILS)
    before = {name: (run / name).read_bytes() for name in names}
    save, left = np.savez_compressed, [1]

    def until_full(file, **arrays):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()
        save(file, **arrays)

    monkeypatch.setattr(np, "savez_compressed", until_full)
    with pytest.raises(OSError, match="No space left on device: .*run/.*.npz"):
        runs.evaluate_run(run, checkpoint=training.saved_steps(run)[0])
    assert not left and {name: (run / name).read_bytes() for name in names} == before
    assert not list(run.glob(".*.partial"))
