"""The recorded scores of a task, as the arrays that rules and thresholds take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.decisions import frozen, members, scores
from experiments.decisions.rules import Trial
from experiments.decisions.tasks import TASKS, DecisionTask
from jaxatr import metrics
from jaxatr.typing import Float, Int

UNKNOWN = -1


class Part(NamedTuple):
    """Members of some chips.

    Attributes:
      values: ``[n, m]``, in the order of :attr:`Evidence.names`; NaN where not computed.
      labels: ``[n]``, known classes or -1.
      named: by member that names a class, and ``"head"``: ``[n]``.
    """

    values: Float[np.ndarray, "n m"]
    labels: Int[np.ndarray, " n"]
    named: Mapping[str, Int[np.ndarray, " n"]]

    @property
    def known(self) -> np.ndarray:
        """``[n]``, whether each chip is of a known class."""
        return self.labels != UNKNOWN


class Evidence(NamedTuple):
    """The record of a task.

    Attributes:
      name: its name.
      kind: what the images are.
      names: names of the members, m.
      singles: AUROC on the test of every single score, also of those that are no members.
      validation: known chips that took no part in training.
      test: known and unknown chips; only measured.
      trials: members of networks that have not seen some known classes.
      folds: known chips, each scored by a network and a fit without its fold; may be empty.
      queries: the test chips by each fold's fit; empty if not recorded.
      refitted: known chips, each scored by a fit without its fold, but by a network that has seen
        them; None if not computed.
      box_off: the test chips with boxes that are off; None if not recorded.
      training: number of training chips.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    singles: Mapping[str, float]
    validation: Part
    test: Part
    trials: tuple[Trial, ...]
    folds: tuple[Part, ...]
    queries: tuple[Part, ...]
    refitted: Part | None
    box_off: Part | None
    training: int

    @property
    def small(self) -> bool:
        """Whether the task has few chips."""
        return "small" in self.name

    def columns(self, names: Sequence[str]) -> list[int]:
        """Returns the columns of some members."""
        return [self.names.index(name) for name in names]


def every(workdir: Path) -> Iterator[Evidence]:
    """Loads all tasks whose outputs are recorded; scores are computed if they were not before."""
    for task in TASKS:
        if (found := _of_trained(task, workdir)) is not None:
            yield found
    for task in frozen.FROZEN:
        if (found := _of_frozen(task, workdir)) is not None:
            yield found


def _of_trained(task: DecisionTask, workdir: Path) -> Evidence | None:
    """Loads a trained task; trials and folds only if all of its trainings were carried out."""
    place, kept = workdir / "outputs" / task.name, workdir / "members" / task.name
    if not (place / "main.npz").exists():
        return None
    names = ["main"]
    for kind, count in (("trial", task.trials), ("fold", task.folds)):
        group = [f"{kind}-{i}" for i in range(count)]
        if all((place / f"{name}.npz").exists() for name in group):
            names += group
    refit = task.name.startswith("small")
    found = {
        name: members.members_of(
            partial(_read, place / f"{name}.npz"),
            kept / f"{name}.npz",
            refit=refit and name == "main",
        )
        for name in names
    }
    return _evidence(task.name, task.kind, found)


def _of_frozen(task: frozen.FrozenTask, workdir: Path) -> Evidence | None:
    path, kept = workdir / "frozen" / f"{task.data_set}.npz", workdir / "members" / task.name
    if not path.exists():
        return None
    names = ["main", *(f"trial-{i}" for i in range(task.trials))]
    names += [f"fold-{i}" for i in range(task.folds)]
    found: dict[str, members.Arrays] = {}
    recorded = {} if all((kept / f"{name}.npz").exists() for name in names) else _read(path)
    fits = frozen.fits(task, recorded) if recorded else iter(())
    made = dict(fits)
    for name in names:
        outputs: Callable[[], members.Arrays] = partial(made.__getitem__, name)
        refit = name == "main" and task.folds > 0
        found[name] = members.members_of(outputs, kept / f"{name}.npz", refit=refit)
    return _evidence(task.name, f"{task.kind}, frozen network", found)


def _read(path: Path) -> members.Arrays:
    with np.load(path) as arrays:
        return dict(arrays)


def _evidence(name: str, kind: str, found: Mapping[str, members.Arrays]) -> Evidence:
    main = found["main"]
    labels = main["test/labels"]
    singles = {
        key.removeprefix("test/score_"): metrics.auroc(values[labels >= 0], values[labels < 0])
        for key, values in main.items()
        if key.startswith("test/score_")
    }
    names = [
        one
        for one in scores.SCORES
        if all(any(key.endswith(f"/score_{one}") for key in arrays) for arrays in found.values())
    ]
    trials = [one for training, one in found.items() if training.startswith("trial")]
    folds = [one for training, one in found.items() if training.startswith("fold")]
    return Evidence(
        name,
        kind,
        tuple(names),
        singles,
        _part(main, "validation", names),
        _part(main, "test", names),
        tuple(
            Trial(_part(one, "validation", names).values, _part(one, "held_out", names).values)
            for one in trials
        ),
        tuple(_part(one, "test", names) for one in folds),
        tuple(_part(one, "query", names) for one in folds if "query/labels" in one),
        _part(main, "refit", names) if "refit/labels" in main else None,
        _part(main, "box_off", names) if "box_off/labels" in main else None,
        int(main["training"]),
    )


def _part(arrays: members.Arrays, part: str, names: Sequence[str]) -> Part:
    labels = arrays[f"{part}/labels"]
    absent = np.full(len(labels), np.nan)  # of scores that are not refitted
    values = np.stack([arrays.get(f"{part}/score_{name}", absent) for name in names], axis=1)
    named = {
        key.removeprefix(f"{part}/label_"): values
        for key, values in arrays.items()
        if key.startswith(f"{part}/label_")
    }
    return Part(values, labels, {**named, "head": arrays[f"{part}/predicted"]})
