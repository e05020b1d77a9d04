"""The recorded scores of a task, as the arrays that rules and thresholds take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.decisions import members
from experiments.decisions.rules import Trial
from experiments.decisions.tasks import DecisionTask
from jaxatr.typing import Float, Int

UNKNOWN = -1


class Part(NamedTuple):
    """Members of some chips.

    Attributes:
      values: ``[n, m]``, in the order of :attr:`Evidence.names`.
      labels: ``[n]``, known classes or -1.
      named: by member that names a class, and ``"head"``: ``[n]``.
    """

    values: Float[np.ndarray, "n m"]
    labels: Int[np.ndarray, " n"]
    named: Mapping[str, Int[np.ndarray, " n"]]


class Evidence(NamedTuple):
    """What is recorded of a task.

    Attributes:
      task: the task.
      names: names of the members, m.
      validation: known chips that took no part in training.
      test: known and unknown chips; only measured.
      trials: members of networks that have not seen some known classes.
      folds: known chips, each scored by a network and a fit without its fold; None if not recorded.
      refitted: known chips, each scored by a fit without its fold, but by a network that has seen it.
      box_off: the test chips with boxes that are off; None if not recorded.
      training: number of training chips.
    """

    task: DecisionTask
    names: tuple[str, ...]
    validation: Part
    test: Part
    trials: tuple[Trial, ...]
    folds: tuple[Part, ...]
    refitted: Part | None
    box_off: Part | None
    training: int

    def columns(self, names: Sequence[str]) -> list[int]:
        """Returns the columns of some members."""
        return [self.names.index(name) for name in names]


def load(task: DecisionTask, workdir: Path) -> Evidence | None:
    """Loads a task's recorded scores, computing them if needed; None if the task is unfinished."""
    place, kept = workdir / "outputs" / task.name, workdir / "members" / task.name
    wanted = ["main", *(f"trial-{i}" for i in range(task.trials))]
    wanted += [f"fold-{i}" for i in range(task.folds)]
    if any(not (place / f"{name}.npz").exists() for name in wanted):
        return None
    small = task.name.startswith("small")
    found = {
        name: members.members_of(
            place / f"{name}.npz", kept / f"{name}.npz", folds=small and name == "main"
        )
        for name in wanted
    }
    main = found["main"]
    names = [k.removeprefix("test/score_") for k in main if k.startswith("test/score_")]
    others = [one for name, one in found.items() if name != "main"]
    for one in others:
        names = [n for n in names if any(k.endswith(f"/score_{n}") for k in one)]
    with np.load(place / "main.npz") as arrays:
        training = len(arrays["train_labels"])
    trials = tuple(
        Trial(
            _part(found[f"trial-{i}"], "validation", names).values,
            _part(found[f"trial-{i}"], "held_out", names).values,
        )
        for i in range(task.trials)
    )
    return Evidence(
        task,
        tuple(names),
        _part(main, "validation", names),
        _part(main, "test", names),
        trials,
        tuple(_part(found[f"fold-{i}"], "test", names) for i in range(task.folds)),
        _part(main, "refit", names) if "refit/labels" in main else None,
        _part(main, "box_off", names) if "box_off/labels" in main else None,
        training,
    )


def _part(arrays: Mapping[str, np.ndarray], part: str, names: Sequence[str]) -> Part:
    values = np.stack([arrays[f"{part}/score_{name}"] for name in names], axis=1)
    named = {
        key.removeprefix(f"{part}/label_"): values
        for key, values in arrays.items()
        if key.startswith(f"{part}/label_")
    }
    return Part(values, arrays[f"{part}/labels"], {**named, "head": arrays[f"{part}/predicted"]})
