"""What the experiments set must exist: nothing else runs them before they are needed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CONFIGS = EXPERIMENTS.parent / "configs"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    added = [str(path.parent), str(EXPERIMENTS.parent)]
    sys.path[:0] = added
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[: len(added)]
    return module


def check(named, overrides):
    file, variant = named.split(":")
    config = load(CONFIGS / file).get_config(variant)
    for field, value in overrides.items():
        *groups, name = field.split(".")
        part = config
        for group in groups:
            part = part[group]
        assert name in part, field
        if not isinstance(value, str):
            part[name] = value  # raises where the type differs


def test_the_named_runs_set_fields_that_exist():
    runs = load(EXPERIMENTS / "open_set_atr" / "run.py").all_runs()
    assert len({run.name for run in runs}) == 1 + 18 + 1 + 8 + 72 + 36
    for run in runs:
        check(run.config, run.overrides)


def test_the_rows_of_the_quadruplet_table_set_fields_that_exist():
    experiment = load(EXPERIMENTS / "quadruplet_selection" / "run.py")
    runs = experiment.tuning()
    assert len({run.name for run in runs}) == 2 * 8 * 3
    for run in runs:
        check(run.config, run.overrides)
    tables = load(EXPERIMENTS / "quadruplet_selection" / "tables.py")
    assert set(tables.NAMES) == set(tables.PAPER) == set(experiment.ROWS)
    for run in experiment.final():
        check(run.config, run.overrides)


def test_the_runs_of_the_distillation_tables_set_fields_that_exist(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "attentive_distillation" / "run.py")
    assert [run.name for run in experiment.targets()] == [
        "target-simulated",
        "target-mstar",
        "target-cifar100",
    ]
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    assert experiment.tuning() == [] and experiment.final() == []
    empty = {"groups": {}}
    for run in experiment.targets():
        (tmp_path / f"{run.name}.json").write_text(json.dumps({"evaluation": empty}))
    tuning = experiment.tuning()
    assert len({run.name for run in tuning}) == 3 * len(experiment.WAYS)
    for number, run in enumerate(tuning):
        result = {"evaluation": empty, "validation": {"fidelity": float(number)}}
        (tmp_path / f"{run.name}.json").write_text(json.dumps(result))
    last = list(experiment.WAYS)[-1]
    assert experiment.chosen_way("mstar") == last
    final = experiment.final()
    assert len({run.name for run in final}) == 3 * 3 * 3  # the paper's two λ and the chosen way
    assert [run.name for run in final if run.methods] == [
        f"{name}-paper-0" for name in experiment.TARGETS
    ]
    for run in (*experiment.targets(), *tuning, *final):
        check(run.config, run.overrides)
    (command, *_) = final[0].commands(tmp_path / final[0].name, tmp_path)
    assert f"--config.distillation.target={tmp_path}/target-simulated" in command


def test_the_runs_of_the_onnx_transfer_set_fields_that_exist(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "onnx" / "transfer.py")
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    (base,) = experiment.all_runs()
    *_, convert = base.commands(tmp_path / "base", tmp_path)
    assert f"--out={tmp_path}/base.onnx" in convert
    (tmp_path / "base.json").write_text(json.dumps({"evaluation": {"groups": {}}}))
    runs = experiment.all_runs()
    assert len({run.name for run in runs}) == 1 + 3 * 3 * 2
    for run in runs:
        check(run.config, run.overrides)
    (tmp_path / "base.json").unlink()
    assert experiment.page().count("not run") == 6


def test_the_runs_of_tracks_set_fields_that_exist(tmp_path, monkeypatch):
    runs = load(EXPERIMENTS / "track" / "run.py").all_runs()
    assert len({run.name for run in runs}) == 3 * 2
    for run in runs:
        check(run.config, run.overrides)
    tables = load(EXPERIMENTS / "track" / "tables.py")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.page().count("not run") == 4 * 7 + 6 * 3
    figures = {"auroc": 0.75, "oscr": 0.5}
    own = {"closed_accuracy": 0.9, "scores": dict.fromkeys(("softmax", "mls", "cbc"), figures)}
    groups = dict.fromkeys(("all", "mean over chips", "single chips"), own)
    result = {"evaluation": {"groups": groups}, "record": {}}
    (tmp_path / "lstm-1.json").write_text(json.dumps(result))
    page = tables.page()
    assert page.count("75.0") == 6 and page.count("not run") == 2 * 7 + 6 * 3 - 3
    assert page.count("+0.0") == 3


def test_the_end_to_end_benchmark_sets_fields_that_exist():
    check(
        "cbc.py:default",
        load(EXPERIMENTS / "benchmarks" / "end_to_end.py").overrides(5, 32, "folder"),
    )


def test_a_misspelt_field_would_be_found():
    with pytest.raises(AssertionError, match=r"train\.stepz"):
        check("cbc.py:default", {"train.stepz": 5})
