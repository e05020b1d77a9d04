"""Labels chips round by round, those that ``jaxatr suggest`` chooses or random ones, and measures.

    python -m experiments.labelling.run [--only=cifar10] [--workdir=runs/labelling]

A classifier begins with a few labelled chips of each class. In every round, chips of the pool get
their labels, it is fitted again, and its accuracy on the test images is recorded. Of CIFAR and
Grocery, the network is EfficientNet-Lite0 of ImageNet, frozen: its features are computed once, and
only a linear head is fitted in each round (logistic regression). Of MSTAR, a small network is
trained from random weights in every round, and its own features are compared.

Grocery and CIFAR-100 were looked at to choose the default method; CIFAR-10 and MSTAR judge it. All
chips of a pool have a known class here, so that nothing is judged unknown.

``results/NAME.json`` has a row for each method and seed. Recorded rows are not repeated, so an
interrupted run can be resumed. Data is read from ``JAXATR_DATA``, ImageNet's weights from
``JAXATR_WEIGHTS_DIR``.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments.labelling import features, network
from experiments.labelling.features import DataSet, Features
from jaxatr import files
from jaxatr.openset import labelling

RESULTS = Path(__file__).parent / "results"
WORKDIR = "runs/labelling"
SEEDS = (0, 1, 2)
RANDOM = "random"


class Judged(NamedTuple):
    """A classifier's answers about chips.

    Attributes:
      features: ``[n, d]``.
      probabilities: ``[n, k]``.
    """

    features: np.ndarray
    probabilities: np.ndarray


Fit = Callable[[np.ndarray, int], tuple[Callable[[np.ndarray], Judged], float]]
"""Fits a classifier to rows of the pool, by a seed; returns it and its accuracy on the test."""


class Plan(NamedTuple):
    """Rounds of labelling on a data set.

    Attributes:
      data: the data set.
      start: number of labelled chips of each class at the start.
      more: number of chips that a round labels.
      rounds: number of rounds.
      methods: how the chips are chosen.
      trained: whether a network is trained in every round, instead of a head on frozen features.
    """

    data: DataSet
    start: int
    more: int
    rounds: int
    methods: tuple[str, ...] = (RANDOM, *labelling.METHODS)
    trained: bool = False


PLANS = (
    Plan(DataSet("grocery", "grocery", 96, least=40), 5, 50, 8),
    Plan(DataSet("cifar100", "cifar100_subset", 96, classes=20), 10, 100, 8),
    Plan(DataSet("cifar10", "cifar10", 128, most=1000, tested=300), 10, 50, 24),
    Plan(DataSet("cifar10-long", "cifar10", 128, most=1000, tested=300), 10, 100, 24),
    Plan(DataSet("mstar-frozen", "mstar10", 96, crop=64), 10, 50, 14),
    Plan(DataSet("mstar", "mstar10", 64, crop=64), 10, 75, 6, (RANDOM, "mixed"), True),
)
CHOSEN_ON = ("grocery", "cifar100")


def frozen(found: Features) -> Fit:
    """Returns how a head on frozen features is fitted."""
    scale = float(found.pool.std())
    unit = found.pool / np.linalg.norm(found.pool, axis=1, keepdims=True)

    def fit(rows: np.ndarray, seed: int) -> tuple[Callable[[np.ndarray], Judged], float]:
        head = LogisticRegression(C=0.1, max_iter=60, tol=1e-2)
        head.fit(found.pool[rows] / scale, found.labels[rows])
        accuracy = float(np.mean(head.predict(found.test / scale) == found.truth))
        return (
            lambda rest: Judged(unit[rest], head.predict_proba(found.pool[rest] / scale)),
            accuracy,
        )

    return fit


def trained(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> Fit:
    """Returns how a small network is trained."""
    (pool, labels), (test, truth) = parts["train"], parts["test"]
    classes = int(labels.max()) + 1

    def fit(rows: np.ndarray, seed: int) -> tuple[Callable[[np.ndarray], Judged], float]:
        variables = network.train(pool[rows], labels[rows], classes, seed)
        logits, _ = network.outputs(variables, test, classes)

        def judge(rest: np.ndarray) -> Judged:
            logits, found = network.outputs(variables, pool[rest], classes)
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            unit = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
            return Judged(unit, shares / shares.sum(axis=1, keepdims=True))

        return judge, float((logits.argmax(axis=1) == truth).mean())

    return fit


def carry_out(plan: Plan, labels: np.ndarray, fit: Fit, method: str, seed: int) -> dict[str, Any]:
    """Labels chips in rounds; returns the row of the record.

    Args:
      plan: the rounds.
      labels: ``[n]``, the classes of the pool's chips, which are looked up when they are chosen.
      fit: fits the classifier.
      method: how chips are chosen.
      seed: seed of the first chips, of random choice and of the fit.
    """
    rng = np.random.default_rng(seed)
    own = (np.flatnonzero(labels == name) for name in np.unique(labels))
    rows = np.concatenate([rng.permutation(one)[: plan.start] for one in own])
    counts, accuracies = [], []
    for number in range(plan.rounds + 1):
        judge, accuracy = fit(rows, seed)
        counts.append(len(rows))
        accuracies.append(round(accuracy, 5))
        if number == plan.rounds:
            break
        rest = np.setdiff1d(np.arange(len(labels)), rows)
        if method == RANDOM:
            chosen = rng.permutation(len(rest))[: plan.more]
        else:
            said, centres = judge(rest), judge(rows).features
            found = labelling.to_label(*said, plan.more, labelled=centres, method=method, seed=seed)
            chosen = np.array([one.row for one in found])
        rows = np.concatenate([rows, rest[chosen]])
    return {"method": method, "seed": seed, "labels": counts, "accuracy": accuracies}


def measure(plan: Plan, workdir: Path) -> None:
    """Carries out the rounds of a data set that are not recorded yet."""
    path = RESULTS / f"{plan.data.name}.json"
    about = {
        "start": plan.start,
        "more": plan.more,
        "rounds": plan.rounds,
        "network": network.ABOUT if plan.trained else f"{features.NETWORK}, frozen",
        "side": plan.data.side,
    }
    content: dict[str, Any] = {**about, "rows": []}
    if path.exists():
        before = json.loads(path.read_text())
        content["rows"] = before["rows"] if before.items() >= about.items() else []
    done = {(row["method"], row["seed"]) for row in content["rows"]}
    open_ = [(m, s) for s in SEEDS for m in plan.methods if (m, s) not in done]
    if not open_:
        return
    if plan.trained:
        parts = features.chips(plan.data)
        labels, fit = parts["train"][1], trained(parts)
        content["pool"], content["tested"] = len(labels), len(parts["test"][1])
    else:
        found = features.of(plan.data, workdir)
        labels, fit = found.labels, frozen(found)
        content["pool"], content["tested"] = len(labels), len(found.truth)
    for method, seed in open_:
        content["rows"].append(carry_out(plan, labels, fit, method, seed))
        files.write_text(path, json.dumps(content, indent=1) + "\n")
        print(plan.data.name, method, seed, content["rows"][-1]["accuracy"], flush=True)


def main() -> None:
    """Measures all data sets, or some."""
    parser = argparse.ArgumentParser(description="Measures what chosen labels are worth.")
    parser.add_argument("--only", default="", help="comma-separated prefixes of data sets")
    parser.add_argument("--workdir", default=WORKDIR, help="folder of the features")
    flags = parser.parse_args()
    workdir = Path(flags.workdir).absolute()
    workdir.mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        if plan.data.name.startswith(tuple(flags.only.split(","))):
            measure(plan, workdir)


if __name__ == "__main__":
    main()
