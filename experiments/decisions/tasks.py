"""The tasks of the benchmark of decisions: data, split, training and size of each."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.decisions.chips import Boxes, Subset


class DecisionTask(NamedTuple):
    """A task: a training, and the further trainings from which a decision may be fitted.

    Attributes:
      name: its name; that of the folder with its recorded outputs.
      kind: what the images are, for the page.
      config: name of the bundled configuration.
      overrides: values by configuration field.
      chips: the folder of chips, or None for simulated ones.
      trials: number of trainings without a third of the known classes; 0 with too few classes.
      trial_share: steps of a trial, as a share of the task's.
      folds: number of trainings without a part of the known chips; 0 for none.
      box_off: whether chips with boxes off by a tenth are recorded too.
    """

    name: str
    kind: str
    config: str
    overrides: Mapping[str, Any]
    chips: Subset | Boxes | None = None
    trials: int = 3
    trial_share: float = 0.35
    folds: int = 0
    box_off: bool = False


# The constants of a network instead of the data's, so that trainings share compiled programs.
_NARROW = {
    "data.normalize_by": "efficientnet_lite0",
    "model.width": 16,
    "model.args.stage_sizes": (1, 1, 1, 1),
    "open_set.score": "cbc",
    "open_set.trials": 0,
    "train.evaluate_every": 1e6,
}
_SMALL_STEM = {"model.stem": "3x3"}
_IMAGENET = {
    "model.pretrained": "efficientnet_lite0",
    "data.size": 64,
    "augment.shift": 8,
    "open_set.score": "cbc",
    "open_set.trials": 0,
    "train.evaluate_every": 1e6,
    "train.end_with_best": False,
}
_MSTAR = "mstar10"


def _mstar(
    name: str, split: int, crop: int, chips: Subset, steps: int, **more: Any
) -> DecisionTask:
    return DecisionTask(
        name,
        f"radar, {crop} px",
        "cbc:mstar",
        _NARROW
        | {
            "open_set.split": f"mstar/reference-{split}",
            "data.center_crop": crop,
            "train.steps": steps,
        },
        chips,
        **more,
    )


def _simulated(
    name: str, band: str, ranges: tuple[int, ...], aspects: int, steps: int, seed: int, **more: Any
) -> DecisionTask:
    overrides = {
        "data.normalize_by": "",
        "data.options.bands": (band,),
        "data.options.ranges": ranges,
        "data.options.aspects": aspects,
        "data.options.turns": 1,
        "data.options.decoys": 0,
        "data.options.seed": seed,
        "open_set.outliers": "",
        "open_set.split_seed": seed,
        "train.steps": steps,
    }
    return DecisionTask(name, f"simulated, {band}", "cbc:default", _NARROW | overrides, **more)


def _photographs(
    name: str,
    kind: str,
    chips: Subset | Boxes,
    known: tuple[str, ...],
    steps: int,
    overrides: Mapping[str, Any],
    config: str = "cbc:folder",
    **more: Any,
) -> DecisionTask:
    own = {"open_set.split": "known:" + ",".join(known), "train.steps": steps}
    return DecisionTask(name, kind, config, {**overrides, **own}, chips, **more)


_CIFAR10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_OSR_0 = tuple(_CIFAR10[i] for i in (0, 6, 4, 9, 1, 7))
_OSR_2 = tuple(_CIFAR10[i] for i in (1, 5, 7, 3, 9, 4))
_CIFAR100 = (
    "apple",
    "bear",
    "bicycle",
    "bottle",
    "castle",
    "chair",
    "clock",
    "cloud",
    "elephant",
    "lion",
    "maple_tree",
    "motorcycle",
    "mushroom",
    "orchid",
    "rocket",
    "shark",
    "snake",
    "tank",
    "telephone",
    "woman",
)
_GROCERY = (
    "Apple",
    "Avocado",
    "Banana",
    "Juice",
    "Kiwi",
    "Lemon",
    "Mango",
    "Melon",
    "Milk",
    "Mushroom",
    "Orange",
    "Pepper",
    "Potato",
    "Sour-Milk",
    "Tomato",
    "Yoghurt",
)
_SIX = ("Apple", "Juice", "Melon", "Milk", "Pepper", "Yoghurt")
_SIX_AND_OTHERS = (*_SIX, "Pear", "Potato", "Sour-Cream", "Tomato", "Orange", "Banana")
_RANDOM_PHOTOGRAPHS = _NARROW | {"data.size": 64, "data.square": True}

FOLDS = 5
_SMALL: dict[str, Any] = {"folds": FOLDS, "trial_share": 1.0}

_SMALL_TASKS = (
    _mstar("small-mstar-60", 1, 64, Subset("mstar-10", _MSTAR, 10, 60), 120, **_SMALL),
    _photographs(
        "small-grocery-120",
        "photographs, ImageNet",
        Subset("grocery-20", "grocery", 20, 40, _SIX_AND_OTHERS, True),
        _SIX,
        60,
        _IMAGENET,
        "cbc:pretrained",
        **_SMALL,
    ),
    _simulated("small-visible-300", "visible", (1000,), 60, 250, 0, trial_share=1.0),
    _photographs(
        "small-thermal-boxes-120",
        "thermal boxes",
        Boxes("hituav-60", 60, 200),
        ("Person", "Car"),
        150,
        _NARROW | _SMALL_STEM,
        trials=0,
        folds=FOLDS,
    ),
    _mstar("small-mstar-300", 0, 64, Subset("mstar-50", _MSTAR, 50, 60), 250, **_SMALL),
    _photographs(
        "small-photographs-60",
        "photographs",
        Subset("grocery-10", "grocery", 10, 40, _SIX_AND_OTHERS, True),
        _SIX,
        120,
        _RANDOM_PHOTOGRAPHS,
        **_SMALL,
    ),
    _photographs(
        "small-cifar10-300",
        "photographs, ImageNet",
        Subset("cifar10-50", "cifar10", 50, 80),
        _OSR_0,
        80,
        _IMAGENET,
        "cbc:pretrained",
        **_SMALL,
    ),
    _simulated("small-thermal-60", "thermal", (1000,), 12, 120, 1, trial_share=1.0),
    _mstar("small-mstar-120", 2, 64, Subset("mstar-20", _MSTAR, 20, 60), 150, **_SMALL),
)
_LARGE_TASKS = (
    _photographs(
        "thermal-boxes",
        "thermal boxes",
        Boxes("hituav-600", 600, 400),
        ("Car", "Bicycle"),
        300,
        _NARROW | _SMALL_STEM,
        trials=0,
    ),
    _mstar("mstar-64-0", 0, 64, Subset("mstar", _MSTAR, 1000, 1000), 300),
    _simulated("thermal", "thermal", (1000, 2000, 3000), 60, 250, 0, box_off=True),
    _photographs(
        "grocery",
        "photographs, ImageNet",
        Subset("grocery-all", "grocery", 80, 50, (), True),
        _GROCERY,
        100,
        _IMAGENET,
        "cbc:pretrained",
    ),
    _photographs(
        "cifar10-random",
        "photographs",
        Subset("cifar10-600", "cifar10", 600, 150),
        _OSR_2,
        250,
        _NARROW | _SMALL_STEM | {"train.batch_size": 64, "optimizer.learning_rate": 0.05},
        "cbc:cifar10_strong",
    ),
    _mstar("mstar-48-1", 1, 48, Subset("mstar", _MSTAR, 1000, 1000), 300),
    _simulated("visible", "visible", (1000, 2000, 3000), 60, 250, 2, box_off=True),
    _photographs(
        "cifar10-imagenet",
        "photographs, ImageNet",
        Subset("cifar10-200", "cifar10", 200, 150),
        _OSR_0,
        100,
        _IMAGENET,
        "cbc:pretrained",
    ),
    _mstar("mstar-80-2", 2, 80, Subset("mstar", _MSTAR, 1000, 1000), 250),
    _photographs(
        "cifar100-20",
        "photographs",
        Subset("cifar100-20", "cifar100_subset", 250, 50, _CIFAR100),
        _CIFAR100[::2] + ("bear", "tank"),
        300,
        _NARROW | _SMALL_STEM | {"train.batch_size": 64},
    ),
    _mstar("mstar-64-1", 1, 64, Subset("mstar", _MSTAR, 1000, 1000), 300),
    _mstar("mstar-64-2", 2, 64, Subset("mstar", _MSTAR, 1000, 1000), 300),
)

TASKS: tuple[DecisionTask, ...] = (
    *_SMALL_TASKS[:5],
    *_LARGE_TASKS[:5],
    *_SMALL_TASKS[5:],
    *_LARGE_TASKS[5:],
)
"""All tasks, in the order in which they are trained: small and unlike ones first."""
