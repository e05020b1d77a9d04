"""Rules of decision, and the choice of their constants without the measured task."""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions.combinations import (
    COMBINE,
    EIGHT,
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

SHARPNESS, SHARPNESSES = 6.0, (0.0, 2.0, 4.0, 6.0, 8.0)
"""The sharpness of the weights in the package's default rule, and those that were compared."""

SEEN_MOST = 0.9
"""Largest AUROC on classes that the network has seen that adds to a member's weight."""

Rule = Callable[[int, Sequence[int]], Combination]


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
    t: Standardised,
    names: tuple[str, ...],
    sharpness: float,
    *,
    by_trials: bool = False,
    seen: float = 0.0,
) -> Combination:
    """Returns the package's default rule on a task.

    Args:
      t: the task.
      names: the members.
      sharpness: change of the logarithm of a member's weight with its AUROC.
      by_trials: weight all members by trials where there are some, instead of only those of the
        image by training chips of classes left out.
      seen: the same for the AUROC on classes that are left out after the training, of all members;
        it counts up to :data:`SEEN_MOST`, because the network has seen the classes.
    """
    areas = dict(t.evidence.image_areas)
    if by_trials and t.trials:
        areas = {n: float(np.mean(trial_areas(t, Combination((n,))))) for n in names}
    after = {n: min(area, SEEN_MOST) for n, area in t.evidence.seen_areas.items()}
    raw = np.array(
        [
            np.exp(sharpness * (areas.get(n, 0.5) - 0.5) + seen * (after.get(n, 0.5) - 0.5))
            for n in names
        ]
    )
    return Combination(names, "bent", tuple(float(w) for w in raw / raw.sum()))


def consensus_rules(table: Table) -> dict[str, tuple[str, Rule]]:
    """Returns the package's default rule, with its constants and with those of other data sets.

    Left out are the sharpness of the weights, and one of the nine members.
    """
    sets = [tuple(n for n in NINE if n != out) for out in (*NINE, "")]
    grid = list(itertools.product(sets, SHARPNESSES))

    def rule(by_trials: bool, left_out: bool) -> Rule:
        made = functools.cache(
            lambda t, names, sharpness: consensus_of(
                table.tasks[t], names, sharpness, by_trials=by_trials
            )
        )
        regret = functools.cache(lambda t, constants: _regret(made(t, *constants), t, table))

        def chosen(task: int, others: Sequence[int]) -> Combination:
            if not left_out:
                return made(task, EIGHT, SHARPNESS)
            costs = [cost(np.array([regret(t, one) for t in others])) for one in grid]
            return made(task, *grid[int(np.argmin(costs))])

        return chosen

    found = {}
    for by_trials in (False, True):
        for left_out in (False, True):
            name = "consensus" + ", by trials" * by_trials + ", left out" * left_out
            meaning = "the package's default rule" + ", constants of other data sets" * left_out
            found[name] = (meaning, rule(by_trials, left_out))
    found["consensus, by seen classes"] = (
        "the package's default rule, whose members are all weighted by classes left out after the "
        "training, too",
        lambda task, _: consensus_of(table.tasks[task], EIGHT, SHARPNESS, seen=SHARPNESS),
    )
    constants = list(itertools.product(SHARPNESSES, SHARPNESSES))

    def seen(task: int, others: Sequence[int]) -> Combination:
        costs = [cost(np.array([seen_regret(t, one) for t in others])) for one in constants]
        image, after = constants[int(np.argmin(costs))]
        return consensus_of(table.tasks[task], EIGHT, image, seen=after)

    @functools.cache
    def seen_regret(t: int, one: tuple[float, float]) -> float:
        return _regret(consensus_of(table.tasks[t], EIGHT, one[0], seen=one[1]), t, table)

    found["consensus, by seen classes, left out"] = (
        "the same with both sharpnesses from other data sets",
        seen,
    )
    return found


def _regret(one: Combination, task: int, table: Table) -> float:
    t = table.tasks[task]
    return float(table.best[task] - area(one.on(t.evidence, t.test), t.evidence.test.known))
