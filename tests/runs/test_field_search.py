"""The search of configuration fields; the training of a run is replaced by a formula."""

import csv
import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest

from jaxatr import bundled, files, runs, training
from jaxatr.runs import field_search
from jaxatr.runs.search_space import Budget, Searched, parse_fields

HAS_OPTUNA = importlib.util.find_spec("optuna") is not None
needs_optuna = pytest.mark.skipif(not HAS_OPTUNA, reason="the extra 'search' is not installed")
RATE = "optimizer.learning_rate=log(1e-4,1)"
STEPS = 9


@pytest.fixture
def config(small_config):
    made = small_config.copy_and_resolve_references()
    made.train.epochs = STEPS
    made.train.evaluate_every = 1.0
    return made


@pytest.fixture
def trained(monkeypatch):
    """A training of nine evaluations, whose metric is best at a learning rate of 0.01."""
    log = SimpleNamespace(begun=[], steps={}, stop=None, lost=False, seconds=0.0, likes=[])
    log.undefined = lambda rate: False

    def train(full, workdir, *, evaluated, like, **_):
        log.likes.append(like)
        workdir.mkdir(parents=True, exist_ok=True)
        files.write_fields(workdir / "config.json", json.loads(full.to_json()))
        training.update_record(workdir, steps=STEPS)
        rate = full.optimizer.learning_rate
        log.begun.append((workdir.name, rate))
        done = sum(1 for _ in training.read_metrics(workdir))
        for step in range(done + 1, STEPS + 1):
            if rate > 0.5:
                raise training.NonFiniteLoss("the loss is not finite")
            log.seconds += 10
            value = 1 / (1 + abs(rate - 0.01) * 100) * step / STEPS
            value = float("nan") if log.undefined(rate) else value
            row = {"step": step, "phase": "evaluate", "loss": 1 - value if value == value else None}
            with open(workdir / "metrics.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
            log.steps[workdir.name] = step
            log.latest = SimpleNamespace(step=step, score=value, metrics={"loss": 1 - value})
            if stopped := log.stop == (workdir.name, step):
                log.stop = None
            if stopped and log.lost:  # killed before the evaluation was reported
                raise training.Preempted(step)
            try:
                evaluated(step, value, {"loss": 1 - value})
            except Exception as error:
                if stopped:
                    raise training.Preempted(step) from error
                raise
            if stopped:
                raise training.Preempted(step)

    monkeypatch.setattr(training, "saved_steps", lambda folder: [*training.read_metrics(folder)])
    monkeypatch.setattr(training, "load_snapshot", lambda folder, which: log.latest)
    monkeypatch.setattr(field_search, "train_configured", train)
    monkeypatch.setattr(field_search.time, "monotonic", lambda: log.seconds)
    return log


@needs_optuna
def test_the_best_third_goes_on_and_the_best_of_all_wins(config, trained, tmp_path):
    found = runs.search_fields(config, tmp_path / "search", [RATE], "12", progress=False)
    rates = dict(trained.begun)
    assert len(rates) == 12
    ended = {name: rate for name, rate in rates.items() if trained.steps.get(name) == STEPS}
    assert 1 <= len(ended) < 12 and sum(trained.steps.values()) < 0.8 * 12 * STEPS
    assert set(trained.steps.values()) <= {1, 3, STEPS}  # where trials are compared
    best = min(ended.values(), key=lambda rate: abs(rate - 0.01))
    assert found.values == {"optimizer.learning_rate": best}
    assert rates[found.winner.name] == best and found.value == pytest.approx(
        1 / (1 + abs(best - 0.01) * 100)
    )
    # No figure of the test was made, and train takes the file of the winner.
    assert not list((tmp_path / "search").rglob("evaluation.json"))
    chosen = bundled.load(str(found.config))
    assert chosen.optimizer.learning_rate == best and chosen.train.epochs == STEPS
    assert chosen.data.validation_seed == config.seed
    with open(tmp_path / "search/trials.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and rows[0]["result"] == "finished"
    assert {row["result"] for row in rows} <= {
        "finished",
        "after 1 evaluations others were better",
        "after 3 evaluations others were better",
        "not finite",
    }
    assert trained.likes == [None] + 11 * [tmp_path / "search/trials/000"]  # all of its data
    # A larger budget continues the search, and an equal one only shows it.
    runs.search_fields(None, tmp_path / "search", None, "12")
    assert len(trained.begun) == 12
    runs.search_fields(None, tmp_path / "search", None, "13")
    assert len(trained.begun) == 13


@needs_optuna
@pytest.mark.parametrize("stop", [("000", 4), ("001", 1), ("002", 1)])
def test_a_search_that_was_stopped_continues_its_trial_and_ends_as_one_that_was_not(
    config, trained, tmp_path, stop
):
    whole = runs.search_fields(config, tmp_path / "whole", [RATE], "12")
    trained.begun.clear()
    trained.stop = stop
    with pytest.raises(training.Preempted):
        runs.search_fields(config, tmp_path / "search", [RATE], "12")
    begun = len(trained.begun)
    found = runs.search_fields(None, tmp_path / "search", None, "12")
    assert trained.begun[begun] == trained.begun[begun - 1]  # in its folder, from its checkpoint
    assert trained.begun[begun][0] == stop[0] and len(trained.begun) == 13
    # The same values were tried, compared in the same way, in the same time.
    assert found.table == whole.table and found.values == whole.values


@needs_optuna
@pytest.mark.parametrize("lost", [False, True], ids=["told_to_stop", "killed_before_the_report"])
def test_a_search_that_ends_at_an_evaluation_goes_on_as_one_that_does_not(
    config, trained, tmp_path, lost
):
    whole = runs.search_fields(config, tmp_path / "whole", [RATE], "4")
    ends, trained.lost = dict(trained.steps), lost
    assert {1, STEPS} <= {*ends.values()} and len(ends) == 4
    for stop in ends.items():  # where trials are compared, or finished
        trained.stop, folder = stop, tmp_path / stop[0]
        with pytest.raises(training.Preempted):
            runs.search_fields(config, folder, [RATE], "4")
        found = runs.search_fields(None, folder, None, "4")
        # Of a killed process, only the seconds since its last report are lost.
        without = [[row[:4] + row[5:] for row in one.table] for one in (found, whole)]
        assert without[0] == without[1] and (lost or found.table == whole.table)
        assert (found.winner.name, found.value) == (whole.winner.name, whole.value)


@needs_optuna
def test_a_search_goes_on_after_a_full_disk_which_cut_off_a_line_of_its_journal(
    config, trained, tmp_path
):
    whole = runs.search_fields(config, tmp_path / "whole", [RATE], "3")
    trained.stop = ("000", 4)
    with pytest.raises(training.Preempted):
        runs.search_fields(config, tmp_path / "search", [RATE], "3")
    journal = tmp_path / "search/trials.journal"
    journal.write_bytes(journal.read_bytes()[:-20])
    assert runs.search_fields(None, tmp_path / "search", None, "3").table == whole.table
    assert len(runs.search_fields(None, tmp_path / "search", None, "4").table) == 5


@needs_optuna
def test_a_measure_that_is_not_a_number_takes_its_part_of_the_budget(config, trained, tmp_path):
    trained.undefined = lambda rate: len(trained.begun) > 1
    found = runs.search_fields(config, tmp_path, [RATE], "3", progress=False)
    assert len(trained.begun) == 3 and found.winner.name == trained.begun[0][0]


@needs_optuna
def test_a_trial_ends_with_the_time_unless_no_other_has_finished(config, trained, tmp_path):
    found = runs.search_fields(config, tmp_path / "search", [RATE], "50s")
    assert len(trained.begun) == 1 and trained.steps[found.winner.name] == STEPS
    found = runs.search_fields(None, tmp_path / "search", None, "95s")
    assert [row[1] for row in found.table[1:]][1:] in (
        [["the time was up"]],
        ["the time was up"],
        ["after 1 evaluations others were better"],
    )


@needs_optuna
def test_a_later_end_of_a_search_whose_test_was_seen_warns(config, trained, tmp_path):
    found = runs.search_fields(config, tmp_path / "search", [RATE], "1")
    (found.winner / "evaluation.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"the test data was seen .*\(000\)"):
        runs.search_fields(None, tmp_path / "search", None, "2")


@needs_optuna
@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ({}, ["optimizer.momentum=linear(0,0.9)"], "has a search of optimizer.learning_rate=log"),
        ({"train.batch_size": 8}, [RATE], "train.batch_size: recorded 16, now 8"),
    ],
)
def test_another_search_in_its_folder_is_refused(
    config, trained, tmp_path, change, fields, message
):
    runs.search_fields(config, tmp_path / "search", [RATE], "1")
    config.update_from_flattened_dict(change)
    with pytest.raises(ValueError, match=message):
        runs.search_fields(config, tmp_path / "search", fields, "1")


@needs_optuna
def test_a_search_goes_on_as_it_began(config, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("split.json", '["cross", "disc"]'), ("more.csv", "path,label\n")):
        (tmp_path / name).write_text(content)
    config.open_set.split, config.data.added = "split.json", "more.csv"
    found = runs.search_fields(config, tmp_path / "search", [RATE], "1")
    chosen = bundled.load(str(found.config))
    assert "disc" in chosen.open_set.split and chosen.data.added == str(tmp_path / "more.csv")


@needs_optuna
def test_a_run_or_nothing_is_no_search(config, trained, trained_run, tmp_path):
    for folder, given, message in (
        (trained_run, config, "has a run, wanted a new folder, or one of a search"),
        (tmp_path / "new", None, "config: got none, and .*new has no search to continue"),
    ):
        with pytest.raises(ValueError, match=message):
            runs.search_fields(given, folder, [RATE], "1")
    config.data.validation = 0.0
    with pytest.raises(ValueError, match="data.validation: got 0, wanted validation data"):
        runs.search_fields(config, tmp_path / "new", [RATE], "1")
    assert not (tmp_path / "new").exists()


def test_what_a_search_needs_is_named(config, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    message = r"jaxatr search needs the package optuna: pip install 'jaxatr\[search\]'"
    with pytest.raises(ImportError, match=message):
        runs.search_fields(config, tmp_path / "search", [RATE], "1")


def test_fields_have_the_types_of_the_configuration(config):
    texts = [
        RATE,
        "train.batch_size=log(8, 64)",
        "optimizer.nesterov=choice(true,false)",
        "optimizer.name=choice(sgd, adamw)",
        "optimizer.decay=choice(all,kernels)",
        'model.pretrained=choice("a,b", "c,d")',
        "train.ema=linear(0,0.99)",
    ]
    assert parse_fields(texts, config) == (
        Searched("optimizer.learning_rate", "log", (1e-4, 1.0)),
        Searched("train.batch_size", "log", (8, 64)),
        Searched("optimizer.nesterov", "choice", (True, False)),
        Searched("optimizer.name", "choice", ("sgd", "adamw")),
        Searched("optimizer.decay", "choice", ("all", "kernels")),
        Searched("model.pretrained", "choice", ("a,b", "c,d")),
        Searched("train.ema", "linear", (0.0, 0.99)),
    )
    for one in parse_fields(texts, config):
        assert parse_fields([str(one)], config) == (one,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.learning_rat=log(1,2)", "no field 'optimizer.learning_rat'; did you mean 'opt"),
        ("optimizer.learning_rate=log(0.1,0.01)", r"got log\(0.1,0.01\), wanted the lower end fir"),
        ("optimizer.learning_rate=log(0,1)", r"got log\(0.0,1.0\), wanted a lower end above 0"),
        ("optimizer.learning_rate=log(1,inf)", "got 'inf', wanted finite float values"),
        ("optimizer.learning_rate=choice(nan,1)", "got 'nan', wanted finite float values"),
        ("optimizer.learning_rate=log(1)", r"wanted log\(LOW,HIGH\) of numbers"),
        ("optimizer.learning_rate=log(a,b)", "got 'a', wanted finite float values"),
        ("optimizer.learning_rate=0.1", "wanted FIELD=log"),
        ("optimizer.learning_rate", "wanted FIELD=log"),
        ("optimizer.name=choice(sgd)", r"got choice\(sgd\), wanted 2 or more values"),
        ("optimizer.name=choice(sgd,sgd)", "wanted 2 or more values"),
        ("optimizer.name=log(sgd,adam)", r"wanted log\(LOW,HIGH\) of numbers, or choice"),
        ("optimizer.nesterov=choice(yes,no)", "got 'yes', wanted bool values"),
        ("train.batch_size=linear(1.5,3)", "got '1.5', wanted int values"),
        ("data.validation=linear(0.1,0.2)", "data.validation changes the data"),
        ("data.select.band=choice(a,b)", "data.select.band changes the data"),
        ("optimizer.boundaries=choice(1,2)", "wanted a field with a single value"),
        ("optimizer=choice(1,2)", "there is no field 'optimizer'"),
    ],
)
def test_a_field_that_cannot_be_searched_is_named(config, text, message):
    with pytest.raises(ValueError, match=f"fields: .*{message}"):
        parse_fields([text], config)


def test_fields_are_given_once(config):
    with pytest.raises(ValueError, match="fields: optimizer.learning_rate is given twice"):
        parse_fields([RATE, RATE], config)
    with pytest.raises(ValueError, match="fields: got none, wanted FIELD=log"):
        parse_fields([], config)


@pytest.mark.parametrize(
    "text", ["0", "0h", "", "2x", "h", "-1", "1.5", "two", "9" * 400, "9" * 400 + "h"]
)
def test_a_budget_is_a_time_or_a_number_of_trials(text):
    assert Budget.parse("20") == (20, None)
    assert Budget.parse("1.5h") == (None, 5400.0) and Budget.parse("90m") == (None, 5400.0)
    with pytest.raises(ValueError, match=f"budget: got '{text}', wanted a time .* at least 1"):
        Budget.parse(text)


def test_the_table_of_trials_holds_no_formulas():
    params = {"data.name": "=cmd()", "data.size": -3, "model.name": "@at"}
    trial = SimpleNamespace(
        user_attrs={"loss": 0.25, "seconds": 7.0},
        intermediate_values={1: 0.5},
        number=2,
        params=params,
    )
    row = field_search._row(trial, [*params, "absent"])
    assert row == ["2", "finished", "0.5000", "0.2500", "7", "'=cmd()", "-3", "'@at", ""]
