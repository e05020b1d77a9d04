"""Searches values of configuration fields by successive halving on the validation data.

Optuna proposes the values (Bergstra et al. 2011, "Algorithms for hyper-parameter optimization") and
says which trials to end early (Li et al. 2020, "A system for massively parallel hyperparameter
tuning": of those evaluated as often, the best third goes on). The test data plays no part.
"""

import copy
import csv
import io
import json
import math
import os
import pprint
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxatr import bundled, files, forms, resolve, training
from jaxatr import config as configuration
from jaxatr.data.row_tables import without_formula
from jaxatr.extras import extra
from jaxatr.runs.search_space import CHOICE, LOG, Budget, Searched, Value, parse_fields
from jaxatr.runs.training import lasting, train_configured, with_fields
from jaxatr.training.task import silent
from jaxatr.typing import Config

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

SEARCH = "search.json"
TRIALS = "trials.csv"
WINNER = "winner.py"
_JOURNAL = "trials.journal"
_FOLDERS = "trials"
_REDUCTION = 3
_RUNGS = 3  # evaluations before the first comparison: 1 of 27, the reduction to this power
_FOLDER, _SECONDS, _LOSS, _WHY = "folder", "seconds", "loss", "why"


class Searches(NamedTuple):
    """The result of a search.

    Attributes:
      folder: the folder of the search.
      winner: the folder of the best trial's run.
      config: the file with its configuration, which ``train`` takes.
      value: its validation metric.
      values: the values of the searched fields, by name.
      table: a row for each trial: its number, state, metric and values; the header first.
    """

    folder: Path
    winner: Path
    config: Path
    value: float
    values: Mapping[str, Value]
    table: Sequence[Sequence[str]]


class _Ended(Exception):
    """A trial was ended early; the message is the reason, for the table."""


def search_fields(
    config: Config | str | None,
    workdir: str | os.PathLike,
    fields: Sequence[str] | None,
    budget: str,
    *,
    progress: bool = True,
    say: Callable[[str], None] = silent,
) -> Searches:
    """Searches values of configuration fields, or continues a search, within a budget.

    A trial is a run in the folder ``trials/NUMBER``, whose loss and metric on the validation data
    are compared with those of the others after 1/27, 1/9 and 1/3 of the evaluations; those that are
    not among the best third end there. All have the validation examples of the first. A search that
    is stopped or killed continues with the trial that it was at, from its checkpoint.

    Args:
      config: a full configuration, or the name of a bundled one; None to continue the search in
        ``workdir`` by its own.
      workdir: the folder of the search; it is created if missing.
      fields: what to vary: ``"optimizer.learning_rate=log(1e-3,1e-1)"``, ``"loss.open_weight=
        linear(0,1)"`` or ``"optimizer.name=choice(sgd,adamw)"``. None to continue.
      budget: time of all trials together, such as ``"2h"`` or ``"90m"``, or their number. A trial
        that is running as the time is up ends at its next evaluation, unless no other has finished.
      progress: show a progress bar for each trial.
      say: called with the values of each trial and, at its end, its result.

    Returns:
      The best of the trials that were trained to their end: the one with the highest metric, and of
      equal ones that with the lowest loss.

    Raises:
      ValueError: the folder has another search or a run, a field or the budget is wrong, there is
        no validation data, or no trial finished.
      ImportError: Optuna is not installed.
      training.Preempted: the process was asked to stop.
    """
    optuna = extra("optuna", "search", "jaxatr search")
    limit, folder = Budget.parse(budget), Path(workdir)
    full, searched = _described(config, folder, fields)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with training.training_alone(folder):
        recorded = {"config": json.loads(full.to_json()), "fields": [str(one) for one in searched]}
        files.write_fields(folder / SEARCH, recorded)
        if seen := sorted(folder.glob(f"{_FOLDERS}/*/{training.EVALUATION}")):
            warnings.warn(
                f"{folder}: the test data was seen at an earlier end of this search "
                f"({seen[0].parent.name}): the figures of another winner are not of unseen data",
                stacklevel=2,
            )
        study = _study(folder, full)
        while (left := _left(study, limit)) is not None:
            _try(study, folder, full, searched, left, progress=progress, say=say)
        return _result(study, folder, full, searched)


def _described(
    config: Config | str | None, folder: Path, texts: Sequence[str] | None
) -> tuple[Config, tuple[Searched, ...]]:
    """Returns the configuration and the fields of a search, of which the folder may have both."""
    path = folder / SEARCH
    recorded = files.read_fields(path) if path.is_file() else None
    forms.check(recorded or {}, {"config": {}, "fields": forms.TEXTS}, path)
    if recorded is None and (folder / "config.json").exists() or training.read_repeats(folder):
        raise ValueError(f"workdir: {folder} has a run, wanted a new folder, or one of a search")
    if config is None:
        if recorded is None:
            raise ValueError(f"config: got none, and {folder} has no search to continue")
        full = configuration.completed(recorded["config"])
    else:
        full = bundled.load(config) if isinstance(config, str) else copy.deepcopy(config)
        resolve.trust_names_in(full.to_dict())
    if not (full.data.validation or full.data.fold):
        raise ValueError("data.validation: got 0, wanted validation data, by which trials compare")
    if full.data.validation_seed is None:
        full.data.validation_seed = full.seed
    full = lasting(full)
    if texts is not None:
        resolve.trust_names_in([list(one.values) for one in parse_fields(texts, full)])
    searched = parse_fields(texts or (recorded["fields"] if recorded else ()), full)
    if recorded is not None:
        before = parse_fields(recorded["fields"], full)
        if set(before) != set(searched):
            listed = ", ".join(map(str, before))
            raise ValueError(f"fields: {folder} has a search of {listed}: use another workdir")
        free = training.task_class(full.task).free_fields
        training.check_same(folder, recorded["config"], full, free=free)
    return full, searched


def _study(folder: Path, config: Config) -> "Study":
    """Opens the journal of a search's trials, or begins it."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    path = folder / _JOURNAL
    if path.exists():  # a full disk may have cut off its last line, which the next would go on
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    backend = JournalFileBackend(str(path))
    evaluations = config.train.epochs / config.train.evaluate_every
    first = 1 if config.train.steps else max(1, round(evaluations / _REDUCTION**_RUNGS))
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="search",
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(
            min_resource=first, reduction_factor=_REDUCTION
        ),
        load_if_exists=True,
    )


def _next(study: "Study", config: Config, searched: Sequence[Searched]) -> "Trial":
    """Returns the trial at which an earlier process ended, with its reports, or a new one."""
    import optuna
    from optuna.trial import TrialState

    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        if _FOLDER in trial.user_attrs:
            return optuna.Trial(study, trial._trial_id)
        study.tell(trial.number, state=TrialState.FAIL)  # it had no values yet
    # A search that was interrupted draws the same values as one that was not.
    seed = 10_007 * config.seed + len(study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    return study.ask({one.name: _distribution(one) for one in searched})


def _left(study: "Study", budget: Budget) -> float | None:
    """Returns the seconds that are left for trials, infinite without a limit; None at the end."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    done = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    if budget.trials is not None:
        return float("inf") if done < budget.trials else None
    assert budget.seconds is not None
    left = budget.seconds - sum(trial.user_attrs.get(_SECONDS, 0.0) for trial in trials)
    return left if left > 0 or not done else None


def _try(
    study: "Study",
    folder: Path,
    config: Config,
    searched: Sequence[Searched],
    left: float,
    *,
    progress: bool,
    say: Callable[[str], None],
) -> None:
    """Trains one trial, to its end or until it is ended early.

    Args:
      study: the trials so far.
      folder: the folder of the search.
      config: the configuration whose fields are varied.
      searched: the fields.
      left: seconds that are left.
      progress: show a progress bar.
      say: called with the values of the trial, and its result.
    """
    from optuna.trial import TrialState

    trial = _next(study, config, searched)
    name = trial.user_attrs.get(_FOLDER, f"{_FOLDERS}/{trial.number:03}")
    trial.set_user_attr(_FOLDER, name)
    title = f"trial {_number(name)}: {_listing(trial.params)}"
    say(title)
    finished = bool(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    records = sorted(folder.glob(f"{_FOLDERS}/*/record.json"))
    like = records[0].parent if records else None  # all trials are of the same data
    watch = _Watch(trial, folder / name, left if finished else float("inf"))
    try:
        watch.catch_up()
        one = with_fields(config, trial.params)
        train_configured(
            one, folder / name, progress=progress, say=silent, evaluated=watch, like=like
        )
        if watch.value is None:
            raise ValueError("data.validation: there was no validation data, by which to compare")
        if math.isnan(watch.value):  # which would leave the budget as it was
            raise _Ended("its measure is not a number")
    except (_Ended, training.NonFiniteLoss, training.Preempted) as error:
        ended = error.__cause__ if isinstance(error, training.Preempted) else error
        if ended is None:
            raise
        why = str(ended) if isinstance(ended, _Ended) else "not finite"
        trial.set_user_attr(_WHY, why)
        study.tell(trial, state=TrialState.PRUNED)
        shutil.rmtree(folder / name / "checkpoints", ignore_errors=True)
        say(f"trial {_number(name)}: ended early, {why}")
        if ended is not error:  # the process was also asked to stop
            raise
    except ValueError as error:
        trial.set_user_attr(_WHY, str(error))
        study.tell(trial, state=TrialState.FAIL)
        raise ValueError(f"{title}: {error}") from error
    else:
        study.tell(trial, watch.value)
        say(f"trial {_number(name)}: {watch.value:.4f} on the validation data")


class _Watch:
    """Reports the evaluations of a trial, and ends it if others are better or the time is up."""

    def __init__(self, trial: "Trial", folder: Path, left: float):
        self._trial, self._folder, self._left = trial, folder, left
        self._begun = time.monotonic()
        self._before = trial.user_attrs.get(_SECONDS, 0.0)  # of an earlier process
        self.value: float | None = None

    def __call__(self, step: int, value: float, metrics: Mapping[str, float]) -> None:
        """Takes an evaluation.

        Raises:
          _Ended: the trial is not worth its time.
        """
        seconds = time.monotonic() - self._begun
        self._trial.set_user_attr(_SECONDS, self._before + seconds)
        self._take(value, metrics)
        count = self._evaluations(step)
        self._trial.report(value, count)
        if step >= training.read_record(self._folder)["steps"]:
            return
        if self._trial.should_prune():
            raise _Ended(f"after {count} evaluations others were better")
        if seconds > self._left:
            raise _Ended("the time was up")

    def catch_up(self) -> None:
        """Takes the evaluation of the latest checkpoint, which a killed process did not report."""
        if not training.saved_steps(self._folder):
            return
        latest = training.load_snapshot(self._folder, "latest")
        if latest.score is None:
            return
        self._take(latest.score, latest.metrics)
        own = self._trial.study.get_trials(deepcopy=False)[self._trial.number]
        if self._evaluations(latest.step) not in own.intermediate_values:
            self(latest.step, latest.score, latest.metrics)

    def _evaluations(self, step: int) -> int:
        """Counts the evaluations up to a step."""
        rows = training.read_metrics(self._folder)
        return sum(one["phase"] == "evaluate" and one["step"] <= step for one in rows)

    def _take(self, value: float, metrics: Mapping[str, float]) -> None:
        self.value = value
        if "loss" in metrics:
            self._trial.set_user_attr(_LOSS, metrics["loss"])


def _distribution(field: Searched) -> "BaseDistribution":
    from optuna import distributions

    if field.form == CHOICE:
        return distributions.CategoricalDistribution(field.values)
    low, high = field.values
    if isinstance(low, int) and isinstance(high, int):
        return distributions.IntDistribution(low, high, log=field.form == LOG)
    return distributions.FloatDistribution(float(low), float(high), log=field.form == LOG)


def _listing(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in params.items())


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _result(study: "Study", folder: Path, config: Config, searched: Sequence[Searched]) -> Searches:
    """Finds the best trial, and writes the table of all and its configuration."""
    from optuna.trial import TrialState

    names = [one.name for one in searched]
    trials = [one for one in study.get_trials() if one.state != TrialState.WAITING]
    rows = [["trial", "result", "metric", "loss", "seconds", *names]]
    rows += [_row(one, names) for one in trials if one.state != TrialState.FAIL]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    files.write_text(folder / TRIALS, text.getvalue())
    ended = [one for one in trials if one.state == TrialState.COMPLETE]
    if not ended:
        raise ValueError(f"{folder}: no trial was trained to its end: give a larger budget")
    best = max(ended, key=lambda one: (one.value, -one.user_attrs.get(_LOSS, 0.0)))
    assert best.value is not None
    full = with_fields(config, best.params)
    note = f"trial {_number(best.user_attrs[_FOLDER])} of {len(rows) - 1}, {_listing(best.params)}"
    files.write_text(folder / WINNER, _source(full, note))
    path = folder / best.user_attrs[_FOLDER]
    return Searches(folder, path, folder / WINNER, best.value, best.params, rows)


def _number(folder: str) -> int:
    """Returns the number of a trial by its folder, which a continued trial keeps."""
    return int(Path(folder).name)


def _row(trial: "FrozenTrial", names: Sequence[str]) -> list[str]:
    known, last = trial.user_attrs, max(trial.intermediate_values, default=None)
    value = trial.value if last is None else trial.intermediate_values[last]
    loss, seconds = known.get(_LOSS), known.get(_SECONDS)
    return [
        str(_number(known.get(_FOLDER, f"{trial.number}"))),
        known.get(_WHY, "finished"),
        "" if value is None else f"{value:.4f}",
        "" if loss is None else f"{loss:.4f}",
        "" if seconds is None else f"{seconds:.0f}",
        *(_shown(without_formula(trial.params.get(name, ""))) for name in names),
    ]


def _source(config: Config, note: str) -> str:
    """Returns a configuration file."""
    fields = pprint.pformat(config.to_dict(), width=96, sort_dicts=True)
    return "\n".join(
        [
            f'"""The best of a search: {note}."""',
            "",
            "from jaxatr import config as configuration",
            "from jaxatr.typing import Config",
            "",
            f"FIELDS = {fields}",
            "",
            "",
            "def get_config() -> Config:",
            '    """Returns the configuration."""',
            "    return configuration.completed(FIELDS)",
            "",
        ]
    )
