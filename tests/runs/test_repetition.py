"""Several runs of one configuration: other seeds, or the folds of the training data."""

import json
import shutil
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import jaxatr
from jaxatr import files, reporting, runs, training
from jaxatr.reporting import recorded_repeats
from jaxatr.runs import evaluation
from jaxatr.runs import training as of_runs
from jaxatr.tasks.examples import Examples
from jaxatr.training import Repeats


@pytest.fixture
def trained(monkeypatch):
    """Replaces the training of a run by one that writes its configuration; returns the calls."""
    calls, stop, likes = [], SimpleNamespace(at=None), {}

    def train(full, workdir, *, more_epochs=None, begun_in=None, like=None, **_):
        training.check_config(workdir, full)
        likes[workdir.name] = like
        workdir.mkdir(parents=True, exist_ok=True)
        files.write_fields(workdir / "config.json", json.loads(full.to_json()))
        calls.append((workdir.name, full.seed, full.data.fold, more_epochs))
        if begun_in is not None:
            begun_in(workdir)
        if more_epochs is not None:
            before = training.read_record(workdir).get("prolonged", [])
            training.update_record(workdir, prolonged=[*before, {"epochs": more_epochs}])
        if stop.at == workdir.name:
            stop.at = None
            raise training.Preempted(3)

    phases = [SimpleNamespace(steps=0)]
    done = MagicMock(training.Task, phases=phases, cycles=1, steps_per_epoch=1)
    done.beside.return_value = {}
    monkeypatch.setattr(of_runs, "train_configured", train)
    monkeypatch.setattr(of_runs, "make_task", lambda *_: done)
    return SimpleNamespace(calls=calls, stop=stop, likes=likes)


def test_runs_differ_in_their_seed_or_their_fold(small_config):
    small_config = small_config.copy_and_resolve_references()
    small_config.seed = 4
    seeds = Repeats.parse("seeds:3").configurations(small_config)
    assert {name: one.seed for name, one in seeds.items()} == {
        "seed-4": 4, "seed-5": 5, "seed-6": 6
    }  # fmt: skip
    assert {one.data.validation_seed for one in seeds.values()} == {4}  # they decide together
    folds = Repeats.parse("folds:2").configurations(small_config)
    assert {name: one.data.fold for name, one in folds.items()} == {
        "fold-1": "1/2", "fold-2": "2/2"
    }  # fmt: skip
    assert {one.seed for one in folds.values()} == {4}
    assert small_config.data.fold == ""


@pytest.mark.parametrize("text", ["seeds", "seeds:1", "folds:0", "folds:101", "fold:5", "folds:-2"])
def test_repeats_that_are_none_are_named(small_config, text, tmp_path):
    with pytest.raises(ValueError, match=f"repeats: got '{text}', wanted seeds:N or folds:N"):
        jaxatr.train(small_config, tmp_path / "runs", repeats=text)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_was_stopped_continues_and_finished_ones_are_not_trained_again(
    small_config, trained, tmp_path
):
    folder, said = tmp_path / "folds", []
    trained.stop.at = "fold-2"
    with pytest.raises(training.Preempted):
        jaxatr.train(small_config, folder, repeats="folds:3", progress=False)
    assert [name for name, *_ in trained.calls] == ["fold-1", "fold-2"]
    with pytest.raises(ValueError, match=r"2 of 3 runs are not finished \(fold-2, fold-3\)"):
        jaxatr.evaluate(folder)
    with pytest.raises(ValueError, match="2 of 3 runs are not finished"):
        jaxatr.train(None, folder, more_epochs=2)
    trained.calls.clear()
    assert jaxatr.train(None, folder, say=said.append) == folder
    assert trained.calls == [("fold-2", 0, "2/3", None), ("fold-3", 0, "3/3", None)]
    assert said[0] == "fold-1 (1 of 3) is finished" and said[-1] == "training fold-3 (3 of 3)"
    trained.calls.clear()
    jaxatr.train(small_config, folder, repeats="folds:3")
    assert trained.calls == []


def test_all_runs_are_of_the_data_of_the_first(small_config, trained, tmp_path):
    first = jaxatr.train(small_config, tmp_path / "folds", repeats="folds:2") / "fold-1"
    assert trained.likes == {"fold-1": first, "fold-2": first}


def test_a_run_of_other_data_than_it_should_have_is_refused(small_config, tmp_path):
    training.update_record(tmp_path, dataset={"fingerprint": "another"})
    with pytest.raises(ValueError, match="a run on other data: fingerprint was another, is"):
        of_runs.train_configured(small_config, tmp_path / "new", like=tmp_path)
    assert not (tmp_path / "new/config.json").exists()


def test_further_epochs_are_trained_once_in_each_run(small_config, trained, tmp_path):
    folder = tmp_path / "seeds"
    jaxatr.train(small_config, folder, repeats="seeds:2")
    trained.calls.clear()
    trained.stop.at = "seed-1"
    with pytest.raises(training.Preempted):
        jaxatr.train(None, folder, more_epochs=2)
    assert [(name, more) for name, *_, more in trained.calls] == [("seed-0", 2), ("seed-1", 2)]
    trained.calls.clear()
    jaxatr.train(None, folder)  # which ends the epochs that seed-1 has begun
    assert [(name, more) for name, *_, more in trained.calls] == [("seed-1", None)]
    trained.calls.clear()
    jaxatr.train(None, folder, more_epochs=1)
    assert [(name, more) for name, *_, more in trained.calls] == [("seed-0", 1), ("seed-1", 1)]
    with pytest.raises(ValueError, match="more_epochs: got 0, wanted at least 1"):
        jaxatr.train(None, folder, more_epochs=0)


def test_further_epochs_that_one_run_cannot_have_change_none(small_config, trained, tmp_path):
    folder = jaxatr.train(small_config, tmp_path / "seeds", repeats="seeds:2")
    training.update_record(folder / "seed-1", kept_step=3)
    before = (folder / "repeats.json").read_bytes()
    trained.calls.clear()
    with pytest.raises(ValueError, match="seed-1 ended with the parameters of step 3"):
        jaxatr.train(None, folder, more_epochs=2)
    assert trained.calls == [] and (folder / "repeats.json").read_bytes() == before


@pytest.mark.parametrize("again", [None, 3])
def test_further_epochs_that_were_cut_off_between_two_files_are_begun_once(
    trained_run, tmp_path, monkeypatch, again
):
    run = shutil.copytree(trained_run, tmp_path / "run")

    def stopped(*_, **__):
        raise training.Preempted(0)

    with monkeypatch.context() as patched, pytest.raises(training.Preempted):
        patched.setattr(training, "record_config", stopped)
        jaxatr.train(None, run, more_epochs=2, progress=False)
    monkeypatch.setattr(training, "train", stopped)
    for more in (again, None):  # the second one only continues
        with pytest.raises(training.Preempted):
            jaxatr.train(None, run, more_epochs=more, progress=False)
        assert training.load_config(run).train.epochs == 12 + (again or 2)
        (further,) = training.read_record(run)["prolonged"]
        assert further["epochs"] == (again or 2)


def test_a_folder_of_other_runs_is_refused(small_config, trained, tmp_path):
    folder = tmp_path / "seeds"
    jaxatr.train(small_config, folder, repeats="seeds:2")
    kept = (folder / "repeats.json").read_bytes()
    for config, repeats, message in (
        (small_config, None, "has the runs of seeds:2, got a single run: .* --repeats=seeds:2"),
        (small_config, "folds:2", "has the runs of seeds:2, got folds:2"),
        (None, "seeds:3", "has the runs of seeds:2, got seeds:3"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxatr.train(config, folder, repeats=repeats)
    with pytest.raises(training.ConfigMismatch, match="train.epochs: recorded 12, now 13"):
        jaxatr.train(small_config, folder, repeats="seeds:2", **{"train.epochs": 13})
    with pytest.raises(ValueError, match="seed-0 is a single run: wanted a new folder"):
        jaxatr.train(small_config, folder / "seed-0", repeats="seeds:2")
    with pytest.raises(ValueError, match="nothing has no runs to continue"):
        jaxatr.train(None, tmp_path / "nothing", repeats="seeds:2")
    with pytest.raises(ValueError, match="has several runs: wanted one of them, seed-0, seed-1"):
        training.load_config(folder)
    assert (folder / "repeats.json").read_bytes() == kept


def test_resuming_by_the_folders_own_configuration_trusts_no_code(
    small_config, trained, tmp_path, monkeypatch
):
    jaxatr.train(small_config, tmp_path / "seeds", repeats="seeds:2")
    given = []
    monkeypatch.setattr(of_runs.resolve, "trust_names_in", given.append)
    jaxatr.train(None, tmp_path / "seeds")
    assert given == [{}]


def test_folds_hold_out_every_training_example_once(small_config):
    ids, held = [], {}
    for number in (1, 2, 3):
        config = small_config.copy_and_resolve_references()
        config.data.fold = f"{number}/3"
        parts = Examples(config).parts
        own = parts["validation"].column("id")
        assert not set(own) & set(parts["train"].column("id"))
        assert len(own) + len(parts["train"].labels) == 72
        assert np.bincount(parts["validation"].labels).tolist() == [8, 8, 8]
        ids += own.tolist()
        held[number] = set(own)
        config.open_set.hold_out = 1  # as in a trial, which has fewer known classes
        assert set(Examples(config).parts["validation"].column("id")) <= held[number]
    assert len(set(ids)) == len(ids) == 72


def test_what_stays_together_does_so_in_validation(small_config):
    config = small_config.copy_and_resolve_references()
    config.data.group_by, config.data.validation = "id", 0.25  # every chip is a group
    parts = Examples(config).parts
    assert np.bincount(parts["validation"].labels).tolist() == [6, 6, 6]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data.fold": "1/30"}, "got 30 folds, but cross has 24 training chips"),
        ({"data.group_by": "folder"}, "all 24 training chips of cross are in one fold"),
        ({"data.group_by": "serial"}, "data.group_by: .* no column 'serial'"),
        ({"data.fold": "0/3"}, "data.fold: got '0/3'"),
        ({"data.fold": "", "data.group_by": "folder"}, "data.validation: all 24 .* in one fold"),
    ],
)
def test_folds_that_cannot_be_are_named(small_config, fields, message):
    config = small_config.copy_and_resolve_references()
    config.open_set.split = "known:cross,disc,ring"
    config.update_from_flattened_dict({"data.fold": "1/3"} | fields)
    with pytest.raises(ValueError, match=message):
        Examples(config)


@pytest.fixture
def evaluated(small_config, trained, monkeypatch, tmp_path):
    """A folder of two runs, whose evaluations are those of a table; returns it and the calls."""
    folder, calls = tmp_path / "seeds", []
    jaxatr.train(small_config, folder, repeats="seeds:2")
    figures = {"seed-0": 0.9, "seed-1": 0.8}

    def result(auroc):
        scores = {"mls": {"auroc": auroc}}
        every = {"num_known": 9, "num_unknown": 3, "closed_accuracy": 1.0, "scores": scores}
        return {"decides": "mls", "known": ["a"], "groups": {"all": every}}

    def one(workdir, **options):
        if training.read_repeats(workdir) is not None:
            return whole(workdir, **options)
        calls.append((workdir.name, options["data"]))
        made = result(figures[workdir.name]) | {"checkpoint": {"step": 7}}
        (workdir / "evaluation.json").write_text(json.dumps(made))
        return made | ({"set": {"name": options["name"]}} if options["name"] else {})

    def together(workdirs, **_):
        assert [path.name for path in workdirs] == ["seed-0", "seed-1"]
        return result(0.95) | {"decision": {"fitted_to": "9 examples", "guarantees": [None]}}

    whole = evaluation.evaluate_run
    monkeypatch.setattr(evaluation, "evaluate_run", one)
    monkeypatch.setattr(evaluation.training, "saved_steps", lambda folder: [7])
    monkeypatch.setattr(evaluation.ensemble, "evaluate", together)
    return folder, calls


def test_the_figures_of_the_runs_have_a_mean_and_a_spread(evaluated):
    folder, calls = evaluated
    summary = evaluation.evaluate_run(folder)
    assert [name for name, _ in calls] == ["seed-0", "seed-1"]
    row = summary["figures"]["AUROC"]
    assert row["mean"] == pytest.approx(0.85) and row["runs"] == 2
    assert row["deviation"] == pytest.approx(0.1 / np.sqrt(2))
    assert row["values"] == {"seed-0": 0.9, "seed-1": 0.8} and row["together"] == 0.95
    assert json.loads((folder / "summary.json").read_text()) == summary
    text = reporting.results_text(folder, summary)
    assert "AUROC         85.0  7.1      95.0    90.0    80.0" in text
    assert text.endswith("its threshold is fitted to 9 examples: no guarantee")
    assert "<td>85.0</td><td>7.1</td><td>95.0</td>" in summary._repr_html_()
    several = training.read_repeats(folder)
    assert several is not None
    runs.evaluate_repeats(several, only_missing=True)
    assert len(calls) == 2  # they are evaluated at their last step already
    (folder / "seed-1" / "evaluation.json").unlink()
    runs.evaluate_repeats(several, only_missing=True)
    assert [name for name, _ in calls[2:]] == ["seed-1"]


def test_a_summary_of_earlier_evaluations_is_not_shown_beside_the_new_ones(evaluated):
    folder, _ = evaluated
    summary = evaluation.evaluate_run(folder)
    assert recorded_repeats.read(folder) == summary
    path = folder / "seed-1/evaluation.json"
    path.write_text(path.read_text().replace("0.8", "0.7"))
    message = "summary.json has another AUROC of seed-1 than its evaluation.json.* jaxatr evaluate"
    with pytest.raises(ValueError, match=message):
        recorded_repeats.read(folder)


def test_another_set_has_a_summary_of_its_own(evaluated):
    folder, calls = evaluated
    summary = evaluation.evaluate_run(folder, data="flight", name="Dienstag")
    assert calls == [("seed-0", "flight"), ("seed-1", "flight")]
    assert json.loads((folder / "sets/Dienstag/summary.json").read_text()) == summary
    assert not (folder / "summary.json").exists()


def test_a_page_of_runs_that_are_not_evaluated_says_so(evaluated):
    folder, _ = evaluated
    with pytest.raises(ValueError, match="seed-0 is not evaluated yet|its runs are not evaluated"):
        reporting.render_report([folder])


def test_runs_of_a_folder_wait_for_one_another(small_config, trained, tmp_path):
    """The folder has its own lock, so that two processes do not train the same runs."""
    jaxatr.train(small_config, tmp_path / "seeds", repeats="seeds:2")
    assert (tmp_path / "seeds/.training.lock").exists()
    assert not (tmp_path / "seeds/.training.json").exists()


@pytest.mark.slow
def test_three_folds_of_a_small_run_decide_together(small_config, chips, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.train.epochs, config.open_set.score = 12, "mls"
    folder = jaxatr.train(config, tmp_path / "folds", repeats="folds:3", progress=False)
    summary = jaxatr.evaluate(folder)
    assert summary["runs"] == ["fold-1", "fold-2", "fold-3"]
    row = summary["figures"]["closed acc."]
    assert row["mean"] == pytest.approx(np.mean(list(row["values"].values())))
    assert summary["figures"]["known accepted"]["together"] > 0.8
    assert "72 examples, each unseen by one of 3 trainings: no guarantee" in summary["decision"]
    recogniser = jaxatr.load(folder)
    known = training.read_record(folder / "fold-1")["split"]["known"]
    paths = [str(path) for name in known for path in sorted((chips / "test" / name).iterdir())]
    answers = recogniser.predict(paths)
    labels = [name for name in known for _ in range(10)]
    accepted = np.array([one.label != "unknown" for one in answers])
    assert np.mean(accepted) == summary["figures"]["known accepted"]["together"]
    right = [one.nearest == label for one, label in zip(answers, labels, strict=True)]
    assert np.mean(right) == pytest.approx(summary["figures"]["closed acc."]["together"])
    assert answers[0].guarantee is None
    page = reporting.render_report([folder])
    assert '<section id="repeats"' in page and "fold-3" in page
