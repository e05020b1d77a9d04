"""Trains several runs of one configuration: other seeds, or the folds of the training data."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxatr import training
from jaxatr.training import RecordedRepeats, Repeats
from jaxatr.typing import Config


@runtime_checkable  # the tests check annotations at run time
class Train(Protocol):
    """Trains a run, such as :func:`jaxatr.runs.training.train_configured`."""

    def __call__(
        self,
        full: Config,
        workdir: Path,
        *,
        more_epochs: int | None = None,
        begun_in: Callable[[Path], None] | None = None,
        like: Path | None = None,
    ) -> None:
        """Trains a run of a complete configuration, or continues it."""
        ...


def wanted(
    workdir: str | os.PathLike | None,
    recorded: RecordedRepeats | None,
    repeats: str | None,
    *,
    is_new: bool,
) -> Repeats | None:
    """Returns how the runs of a folder are to differ; None for a single run.

    Args:
      workdir: the folder.
      recorded: the several runs of the folder, if it has any.
      repeats: what the user asks for.
      is_new: whether the user gives a configuration.

    Raises:
      ValueError: the folder has a single run, no run to continue, or other repeats than asked for.
    """
    asked = None if repeats is None else Repeats.parse(repeats)
    if recorded is None:
        if asked is None or workdir is None:
            return asked
        if Path(workdir, "config.json").exists():
            raise ValueError(
                f"repeats: {workdir} is a single run: wanted a new folder, or one of several runs"
            )
        if not is_new:
            raise ValueError(f"repeats: {workdir} has no runs to continue: give a configuration")
        return asked
    if asked != recorded.repeats and (is_new or asked is not None):
        got = "a single run" if asked is None else asked
        raise ValueError(
            f"repeats: {workdir} has the runs of {recorded.repeats}, got {got}: continue them with "
            f"--repeats={recorded.repeats}, or use another workdir"
        )
    return recorded.repeats


def train(
    config: Config,
    workdir: Path,
    repeats: Repeats,
    train_one: Train,
    *,
    more_epochs: int | None = None,
    begun_in: Callable[[Path], None] | None = None,
    say: Callable[[str], None],
) -> None:
    """Trains the runs of a folder one after the other, except those that are finished.

    Args:
      config: the configuration to repeat.
      workdir: the folder.
      repeats: what the runs differ in.
      train_one: trains one of them.
      more_epochs: further epochs of every run; all are finished, and can have them.
      begun_in: called with the folder once the first of the runs has begun.
      say: called with the name of each run.

    Raises:
      ValueError: a run cannot be trained.
    """
    state = training.read_repeats(workdir) or RecordedRepeats(workdir, repeats, config, {})
    free = training.task_class(config.task).free_fields
    training.check_same(workdir, state.config.to_dict(), config, free=free)
    state = state._replace(config=config)
    if more_epochs is not None:
        state = state._replace(further=state.further + more_epochs)
        state.write()

    def begun(folder: Path) -> None:
        if not (workdir / training.REPEATS).exists():
            state.write()
        if begun_in is not None and folder.name == first:
            begun_in(workdir)

    members = repeats.configurations(config)
    first = next(iter(members))
    for number, (name, one) in enumerate(members.items(), 1):
        title, folder = f"{name} ({number} of {repeats.count})", workdir / name
        if state.finished.get(name, -1) >= state.further:
            say(f"{title} is finished")
            continue
        say(f"training {title}")
        if name not in state.finished:
            train_one(one, folder, begun_in=begun, like=workdir / first)
            state = _finished(state, name, 0)
        _prolong(state, folder, train_one)
        state = _finished(state, name, state.further)


def _prolong(state: RecordedRepeats, folder: Path, train_one: Train) -> None:
    """Trains a run for the further epochs that it lacks, or ends those that it has begun."""
    further = training.read_record(folder).get("prolonged", [])
    begun = sum(one["epochs"] for one in further)
    if begun > state.finished[folder.name]:
        train_one(training.load_config(folder), folder)
    if begun < state.further:
        train_one(training.load_config(folder), folder, more_epochs=state.further - begun)


def _finished(state: RecordedRepeats, name: str, further: int) -> RecordedRepeats:
    state = state._replace(finished={**state.finished, name: further})
    state.write()
    return state
