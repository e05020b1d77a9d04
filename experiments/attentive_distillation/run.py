"""Trains the named runs behind the attentive-distillation paper's tables; what is done is kept.

    python -m experiments.attentive_distillation.run [--only=tune,mstar] [--jobs=2] [--list]

First a target network for each data set; then the ways to train its surrogate (``tune-…``), one of
which is chosen on validation images; then the runs of the tables. Those that build on others are
there once the others are recorded, so the command is given three times, with ``rivals.py`` before
the last. How runs are carried out is in :mod:`experiments.named_runs`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.named_runs import Run, main
from experiments.records import recorded

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)
METHODS = ("grad_cam", "rise", "lime")
NEAR_RISE = 0.03  # how far behind RISE a surrogate may stay

_WIDTH = {"model.width": 16}  # of target and student: more than 60 runs are to end on two cores
_PLAIN = {"loss.open": "none", "loss.entropy_weight": 0.0, **_WIDTH}
# Far away the sensor has few pixels on a vehicle, and a map of what matters shows little there.
_NEAR = {
    "data.options.ranges": (1000,),
    "data.options.aspects": 648,
    "data.options.turns": 1,
    "data.options.crop": "box",
}
TARGETS: Mapping[str, Run] = {
    "simulated": Run("target-simulated", "cbc.py:default", {**_PLAIN, **_NEAR, "train.epochs": 20}),
    "mstar": Run("target-mstar", "cbc.py:mstar", _PLAIN, "mstar10.tar.gz"),
    "cifar100": Run(
        "target-cifar100",
        "cbc.py:folder",
        {
            **_PLAIN,
            "open_set.split": "first-20",
            "model.stem": "3x3",
            "train.epochs": 30,
        },
        "cifar100_subset.tar.gz",
    ),
}
"""The data sets to the networks that are explained: plain classifiers of a ResNet-18."""

_CONFIGS = {
    "simulated": "distill.py:paper",
    "mstar": "distill.py:paper_mstar",
    "cifar100": "distill.py:paper_cifar100",
}
_OWN: Mapping[str, Mapping[str, Any]] = {"simulated": _NEAR}
EPOCHS: Mapping[str, tuple[int, int]] = {"simulated": (2, 8), "mstar": (3, 6), "cifar100": (2, 4)}
"""The data sets to the epochs of the student, and then of the explanation network."""
# The student begins with the target's weights, as the paper's does with ImageNet's: what it has to
# learn is the attention. So a run takes minutes without an accelerator.
_COMMON: Mapping[str, Any] = {
    **_WIDTH,
    "train.evaluate_every": 100.0,  # at the end alone
    "distillation.rise_samples": 1000,
    "distillation.lime_samples": 500,
}

_FEATURES = {"surrogate.deltas": "features"}
_CURVES = {"distillation.l1_weight": 0.0, "distillation.objective": "curves"}
_INSERTION = {**_CURVES, "distillation.insertion_weight": 20.0}
_MASKS = {**_INSERTION, "distillation.masks": 4, "distillation.masks_weight": 1.0}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"distillation.l1_weight": 1e-5},
    "paper-1e-4": {"distillation.l1_weight": 1e-4},
    "student-scores": {"distillation.l1_weight": 1e-5, "distillation.scorer": "student"},
    "end-to-end": {"distillation.l1_weight": 1e-5, "distillation.end_to_end": True},
    # The paper's λ weighs a sum over 224 × 224 pixels, so that it weighs their mean by 1e-5 · 224²
    # = 0.50176; over 64 × 64 pixels the same λ weighs the mean by a twelfth of that. Here the mean
    # has the paper's weight, whatever the chip's size.
    "per-pixel": {"distillation.l1_weight": 0.50176, "distillation.l1": "mean"},
    "sum-of-deltas": {"distillation.l1_weight": 1e-5, "surrogate.deltas": "sum"},
    "area": {
        "distillation.l1_weight": 0.0,
        "distillation.area": 0.15,
        "distillation.area_weight": 1.0,
    },
    "features": {"distillation.l1_weight": 1e-5, **_FEATURES},
    "curves": _CURVES,
    "curves-features": {**_CURVES, **_FEATURES},
    "curves-insertion": _INSERTION,
    "curves-insertion-features": {**_INSERTION, **_FEATURES},
    "masks": _MASKS,
    "masks-features": {**_MASKS, **_FEATURES},
}
"""Ways to train a surrogate; the first two are the paper's."""

# The student's features learn from the masks as well, and for longer.
_TOGETHER = {**_MASKS, **_FEATURES, "distillation.end_to_end": True, "train.epochs": 15}
_MOSTLY = {"distillation.masks": 6, "distillation.masks_weight": 50.0}
FURTHER: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cifar100": {
        "masks-end-to-end": _TOGETHER,
        "mostly-masks-end-to-end": {**_TOGETHER, **_MOSTLY},
    }
}
"""More ways, of more steps, on the set on which none of those met all aims."""


def targets() -> list[Run]:
    """Returns the runs whose networks are explained."""
    return list(TARGETS.values())


def tuning() -> list[Run]:
    """Returns one run of each way for each target that is trained."""
    return [_run(f"tune-{name}-{way}", name, way, 0) for name in _trained() for way in ways(name)]


def final() -> list[Run]:
    """Returns the runs of the tables: the paper's two, and the chosen way where it is another.

    The other methods explain the same target on the same images whatever the seed of the surrogate,
    so one run of each set has them.
    """
    found = []
    for name in _trained():
        chosen = chosen_way(name)
        if chosen is None:
            continue
        for way in dict.fromkeys(["paper", "paper-1e-4", chosen]):
            for seed in SEEDS:
                methods = METHODS if (way, seed) == ("paper", 0) else ()
                found.append(_run(f"{name}-{way}-{seed}", name, way, seed, methods))
    return found


def ways(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the ways that are tried on a data set, and the fields that each sets."""
    return {**WAYS, **FURTHER.get(name, {})}


def chosen_way(name: str) -> str | None:
    """Returns the way that meets the most aims on validation images.

    Among those which meet as many it is the one with the largest margin: by how much it meets the
    aim that it meets least.

    Args:
      name: of the data set.

    Returns:
      ``None`` until all ways are tried, and Grad-CAM and RISE measured (``rivals.py``).
    """
    rivals = _validation(f"rivals-{name}")
    found = {way: _validation(f"tune-{name}-{way}") for way in ways(name)}
    if rivals is None or None in found.values():
        return None
    met = {way: margins(own or {}, rivals) for way, own in found.items()}
    return max(met, key=lambda way: (sum(each >= 0 for each in met[way]), min(met[way])))


def margins(
    own: Mapping[str, float], rivals: Mapping[str, Mapping[str, float]]
) -> tuple[float, ...]:
    """Returns by how much each of the four aims is met; below 0 it is missed.

    They are that insertion and deletion are no worse than Grad-CAM's, and within 0.03 of RISE's.

    Args:
      own: measures of a surrogate.
      rivals: of ``grad_cam`` and ``rise``, on the same images.
    """
    return tuple(
        sign * (own[measure] - other[measure]) + slack
        for other, slack in ((rivals["grad_cam"], 0.0), (rivals["rise"], NEAR_RISE))
        for measure, sign in (("insertion", 1), ("deletion", -1))
    )


def _validation(label: str) -> dict[str, Any] | None:
    found = recorded(RESULTS, label)
    return found and found["validation"]


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [*targets(), *tuning(), *final()]


def _trained() -> list[str]:
    return [name for name, run in TARGETS.items() if run.done(RESULTS)]


def _run(label: str, name: str, way: str, seed: int, methods: tuple[str, ...] = ()) -> Run:
    target, fields = f"{{runs}}/{TARGETS[name].name}", ways(name)[way]
    student, explainer = EPOCHS[name]
    if fields.get("distillation.end_to_end"):  # in one phase as many steps as in the two others
        student, explainer = student + explainer, 0
    overrides = {
        "distillation.target": target,
        "model.pretrained": target,
        "train.epochs": student,
        "explanation.epochs": float(explainer or 1),
        **_OWN.get(name, {}),
        **_COMMON,
        **fields,
        "seed": seed,
    }
    return Run(label, _CONFIGS[name], overrides, TARGETS[name].archive, methods=methods)


if __name__ == "__main__":
    description = "Trains the named runs behind the attentive-distillation paper's tables."
    sys.exit(main(description, all_runs(), RESULTS, "runs/attentive_distillation"))
