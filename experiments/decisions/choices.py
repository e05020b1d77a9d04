"""Rules of decision, and the choice of their constants without the measured task."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions.combinations import (
    COMBINE,
    EIGHT,
    MEMBERS,
    NAMED,
    NINE,
    SIX,
    Combination,
    Standardised,
    area,
    listed,
    singles,
    trial_areas,
    unlike,
)
from experiments.decisions.scores import SCORES

WORST = 0.2
"""Weight of the largest regret, beside the mean one, when constants are chosen on other tasks."""

SUM = "sum within 3"
LEAST_GAIN = 2e-3
"""Least fall of the criterion for which a further member is added."""

Rule = Callable[[int, Sequence[int]], Combination]


class Constants(NamedTuple):
    """The constants of the package's default rule.

    Attributes:
      names: the members.
      image: change of the logarithm of an image member's weight with its AUROC on training chips.
      seen: change of that of every member with its AUROC on classes that are left out after the
        training.
      most: the largest of the latter that counts, because the network has seen the classes.
      head: the same for CBC, which was trained on them.
      features: how often k-NN counts.
    """

    names: tuple[str, ...] = MEMBERS
    image: float = 8.0
    seen: float = 8.0
    most: float = 0.75
    head: float = 0.6
    features: float = 2.0


PACKAGE = Constants()
EARLIER = Constants(EIGHT, head=0.75)
"""Those of the default rule until ViM became a member."""
BEFORE = Constants(EIGHT, image=6.0, seen=0.0, features=1.0)
"""Those of the default rule until classes were left out after the training."""

_ALL = (*NINE, "vim")
SETS = (EIGHT, NINE, MEMBERS, *(tuple(n for n in _ALL if n != out) for out in EIGHT), _ALL)
GRID = [
    Constants(MEMBERS, image, seen, most, head or most, features)
    for image in (4.0, 6.0, 8.0, 10.0)
    for seen in (0.0, 4.0, 6.0, 8.0, 10.0)
    for most in ((0.7, 0.75, 0.8, 0.9, 1.0) if seen else (1.0,))
    for head in ((0.6, None) if seen else (None,))
    for features in (1.0, 2.0)
]
"""The constants from which those of other data sets are chosen, with members of one of the sets."""


class Table(NamedTuple):
    """AUROCs of combinations on all tasks.

    Attributes:
      tasks: the tasks.
      combinations: the single members, and systematic combinations.
      areas: ``[c, t]``, on the test.
      best: ``[t]``, of the best single score.
      trials: by combination and task, the AUROC in each trial.
    """

    tasks: list[Standardised]
    combinations: list[Combination]
    areas: np.ndarray
    best: np.ndarray
    trials: list[list[list[float]]]

    def regrets(self) -> np.ndarray:
        """``[c, t]``, how far each combination is below the best single score."""
        return self.best - self.areas


def table_of(tasks: list[Standardised]) -> Table:
    """Computes all combinations on all tasks, and the single members on all trials."""
    combinations = singles() + listed()
    areas = np.array(
        [
            [area(one.on(t.evidence, t.test), t.evidence.test.known) for t in tasks]
            for one in combinations
        ]
    )
    trials = [[trial_areas(t, one) for t in tasks] for one in singles()]
    best = np.array([max(t.evidence.singles.values()) for t in tasks])
    return Table(tasks, combinations, areas, best, trials)


def data_of(name: str) -> str:
    """Returns the data set of a task, from its name: ``frozen-small-mstar-60`` has ``mstar``."""
    kind = re.sub(r"^(frozen-)?(small-)?(thermal-(?=boxes))?", "", name)
    return re.sub(r"-(\d+|random|imagenet)(-\d+)?$", "", kind)


def cost(regrets: np.ndarray) -> Any:
    """Computes the criterion by which constants are chosen, over the last axis."""
    return regrets.mean(axis=-1) + WORST * regrets.max(axis=-1)


def rules_of(table: Table) -> dict[str, tuple[str, Rule]]:
    """Returns the rules by name, with their meanings.

    Each takes a task and the tasks of other data sets, on which its constants are chosen.
    """
    regrets = table.regrets()
    members = list(range(len(SCORES)))
    number = {one.names[0]: i for i, one in enumerate(table.combinations[: len(SCORES)])}

    def fixed(one: Combination) -> Rule:
        return lambda task, others: one

    def left_out(task: int, others: Sequence[int]) -> Combination:
        return table.combinations[int(np.argmin(cost(regrets[:, others])))]

    able = np.array([unlike(one.names) for one in table.combinations])

    def unlike_left_out(task: int, others: Sequence[int]) -> Combination:
        costs = np.where(able, cost(regrets[:, others]), np.inf)
        return table.combinations[int(np.argmin(costs))]

    added: dict[frozenset[str], np.ndarray] = {}

    def sum_of(names: Iterable[str]) -> np.ndarray:
        """Computes the regrets of a sum on all tasks, once."""
        key = frozenset(names)
        if key not in added:
            one = Combination(tuple(sorted(key)), SUM)
            added[key] = np.array([_regret(one, t, table) for t in range(len(table.tasks))])
        return added[key]

    def forward(task: int, others: Sequence[int]) -> Combination:
        chosen: list[str] = []
        least = np.inf
        while True:
            left = [name for name in SCORES if name not in chosen]
            costs = {name: cost(sum_of([*chosen, name])[list(others)]) for name in left}
            best = min(costs, key=lambda name: costs[name])
            if costs[best] >= least - LEAST_GAIN:
                return Combination(tuple(sorted(chosen)), SUM)
            chosen.append(best)
            least = costs[best]

    def by_trials(task: int, others: Sequence[int]) -> Combination:
        if not table.tasks[task].trials:
            return unlike_left_out(task, others)
        return table.combinations[max(members, key=lambda i: np.mean(table.trials[i][task]))]

    def as_auto(task: int, others: Sequence[int]) -> Combination:
        areas = table.tasks[task].evidence.seen_areas
        return Combination((max(areas, key=lambda name: areas[name]) if areas else "cbc",))

    def weighted(names_of: Rule) -> Rule:
        """Weights members by the exponential of their AUROC in trials; sharpness from others."""

        def made(names: tuple[str, ...], t: int, sharpness: float) -> Combination:
            if not table.tasks[t].trials:
                return Combination(names, SUM)
            means = np.array([np.mean(table.trials[number[name]][t]) for name in names])
            raw = np.exp(sharpness * (means - means.max()))
            return Combination(names, SUM, tuple(float(w) for w in raw / raw.sum()))

        def rule(task: int, others: Sequence[int]) -> Combination:
            names = names_of(task, others).names

            def on_others(sharpness: float) -> float:
                found = [_regret(made(names, t, sharpness), t, table) for t in others]
                return cost(np.array(found))

            return made(names, task, min((0.0, 3.0, 6.0, 12.0, 25.0), key=on_others))

        return rule

    found: dict[str, tuple[str, Rule]] = {}
    for name in SCORES:
        found[name] = ("single score", fixed(Combination((name,))))
    for label, names in NAMED.items():
        for name in COMBINE:
            one = Combination(names, name)
            found[f"{label}, {name}"] = (str(one), fixed(one))
    return found | {
        "left out": ("the combination with the least regret on other data sets", left_out),
        "unlike, left out": (
            "the same among combinations of a map, features, the head and the image",
            unlike_left_out,
        ),
        "forward, left out": ("members added while the regret on other data sets falls", forward),
        "best in trials": ("the single score with the highest AUROC in trials", by_trials),
        "auto": ("the single score with the highest AUROC on classes left out afterwards", as_auto),
        "unlike, by trials": ("unlike, weighted by trials", weighted(unlike_left_out)),
        "six, by trials": ("six, weighted by trials", weighted(fixed(Combination(SIX, SUM)))),
        **consensus_rules(table),
    }


def consensus_of(
    t: Standardised, constants: Constants = PACKAGE, *, by_trials: bool = False
) -> Combination:
    """Returns the package's default rule on a task.

    Args:
      t: the task.
      constants: its constants.
      by_trials: weight all members by trials too, where there are some.
    """
    names = constants.names
    return Combination(names, "bent", tuple(_weights(t, [constants], names, by_trials)[0].tolist()))


def _weights(
    t: Standardised, listed: Sequence[Constants], names: tuple[str, ...], by_trials: bool = False
) -> np.ndarray:
    """Computes weights ``[c, m]`` that add up to 1; members that a rule does not have get 0."""
    image, seen = (
        np.array([areas.get(name, 0.5) for name in names]) - 0.5
        for areas in (t.evidence.image_areas, t.evidence.seen_areas)
    )
    trials = np.zeros(len(names))
    if by_trials and t.trials:
        trials = np.array([np.mean(trial_areas(t, Combination((n,)))) for n in names]) - 0.5
    rows = []
    for one in listed:
        most = np.array([one.head if n == "cbc" else one.most for n in names])
        exponent = one.image * (image + trials) + one.seen * np.minimum(seen, most - 0.5)
        counts = [(one.features if n == "knn" else 1.0) * (n in one.names) for n in names]
        rows.append(counts * np.exp(exponent))
    return np.array(rows) / np.sum(rows, axis=1, keepdims=True)


def consensus_rules(table: Table) -> dict[str, tuple[str, Rule]]:
    """Returns the package's default rule, with its constants and with those of other data sets."""

    @functools.cache
    def regrets(listed: tuple[Constants, ...]) -> np.ndarray:
        """Computes the regrets ``[c, t]``."""
        found = []
        for t, best in zip(table.tasks, table.best, strict=True):
            bent = np.arcsinh(t.test[:, t.evidence.columns(_ALL)] / 3)
            scores = _weights(t, listed, _ALL) @ bent.T
            found.append([best - area(one, t.evidence.test.known) for one in scores])
        return np.array(found).T

    def fixed(constants: Constants, by_trials: bool = False) -> Rule:
        return lambda task, _: consensus_of(table.tasks[task], constants, by_trials=by_trials)

    def left_out(listed: tuple[Constants, ...]) -> Rule:
        def rule(task: int, others: Sequence[int]) -> Combination:
            best = int(np.argmin(cost(regrets(listed)[:, others])))
            return consensus_of(table.tasks[task], listed[best])

        return rule

    every = tuple(one._replace(names=names) for names in SETS for one in GRID)
    meaning = "the package's default rule"
    return {
        "consensus": (meaning, fixed(PACKAGE)),
        "consensus, by trials": (f"{meaning}, weighted by trials too", fixed(PACKAGE, True)),
        "consensus, constants left out": (
            f"{meaning}, constants of other data sets",
            left_out(tuple(GRID)),
        ),
        "consensus, left out": (
            f"{meaning}, constants and members of other data sets",
            left_out(every),
        ),
        "consensus, by images": ("the first default rule", fixed(BEFORE)),
        "consensus, without ViM": ("the default rule of before", fixed(EARLIER)),
    }


def _regret(one: Combination, task: int, table: Table) -> float:
    t = table.tasks[task]
    return float(table.best[task] - area(one.on(t.evidence, t.test), t.evidence.test.known))
