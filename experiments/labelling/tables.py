"""Formats the tables of docs/results/labelling.md from ``results/*.json``, which it only reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.labelling.run import PLANS, RANDOM, RESULTS
from experiments.records import NOT_RUN, cell, recorded, table
from jaxatr.openset.labelling import METHODS

TITLES = {
    "grocery": "Grocery, 24 classes",
    "cifar100": "CIFAR-100, 20 classes",
    "cifar10": "CIFAR-10, 50 a round",
    "cifar10-long": "CIFAR-10, 100 a round",
    "mstar-frozen": "MSTAR, frozen",
    "mstar": "MSTAR, trained",
}


def curves(content: Mapping[str, Any], method: str) -> np.ndarray:
    """Returns the accuracies ``[seeds, rounds + 1]`` of a method."""
    return np.array([row["accuracy"] for row in content["rows"] if row["method"] == method])


def needed(content: Mapping[str, Any], method: str, number: int) -> float | None:
    """Returns the labels with which a method is as accurate as random choice after a round.

    Both curves are means over the seeds. Between two rounds, accuracy is taken to grow evenly, and
    a later round that is less accurate does not count.

    Args:
      content: the record of a data set.
      method: how chips are chosen.
      number: the round of random choice; 0 is the start.

    Returns:
      The number of labels; None if the method is never as accurate, or is not recorded.
    """
    own, random = (curves(content, name) for name in (method, RANDOM))
    if not len(own) or not len(random):
        return None
    labels = content["rows"][0]["labels"]
    target = float(random.mean(axis=0)[number])
    reached = np.maximum.accumulate(own.mean(axis=0))
    if reached[-1] < target:
        return None
    later = int(np.argmax(reached >= target))
    if not later:
        return float(labels[0])
    low, high = reached[later - 1], reached[later]
    return labels[later - 1] + (labels[later] - labels[later - 1]) * (target - low) / (high - low)


def shares() -> str:
    """The labels that each method needs for the accuracy of random choice, as shares of its."""
    rows = []
    for plan in PLANS:
        content = recorded(RESULTS, plan.data.name)
        for number in (plan.rounds // 2, plan.rounds):
            rows.append([TITLES[plan.data.name], *_row(content, number)])
    header = ["pool", "random labels", "accuracy with these", *METHODS]
    return "\n".join(table(header, rows))


def _row(content: Mapping[str, Any] | None, number: int) -> list[str]:
    if content is None:
        return [NOT_RUN] * (2 + len(METHODS))
    count = content["rows"][0]["labels"][number]
    cells = [str(count), cell((100 * curves(content, RANDOM)[:, number]).tolist())]
    for method in METHODS:
        labels = needed(content, method, number)
        recorded_ = len(curves(content, method)) > 0
        cells.append(
            NOT_RUN if not recorded_ else "more" if labels is None else f"{labels / count:.0%}"
        )
    return cells


def accuracies() -> str:
    """The accuracy of each method by the number of labels."""
    rows = []
    for plan in PLANS:
        content = recorded(RESULTS, plan.data.name)
        for method in (RANDOM, *METHODS):
            found = curves(content, method) if content else np.zeros((0, 0))
            if not len(found):
                continue
            places = np.linspace(0, plan.rounds, 5).round().astype(int)
            labels = content["rows"][0]["labels"] if content else []
            each = [f"{labels[i]}: {cell((100 * found[:, i]).tolist())}" for i in places]
            rows.append([TITLES[plan.data.name], method, *each])
    header = ["pool", "chosen by", "start", "", "half", "", "end"]
    return "\n".join(table(header, rows))
