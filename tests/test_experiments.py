"""What the experiments set must exist: nothing else runs them before they are needed."""

import importlib.util
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


def test_the_end_to_end_benchmark_sets_fields_that_exist():
    check(
        "cbc.py:default",
        load(EXPERIMENTS / "benchmarks" / "end_to_end.py").overrides(5, 32, "folder"),
    )


def test_a_misspelt_field_would_be_found():
    with pytest.raises(AssertionError, match=r"train\.stepz"):
        check("cbc.py:default", {"train.stepz": 5})
