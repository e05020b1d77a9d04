"""Tasks of a frozen network, whose heads are fitted in seconds by logistic regression.

    python -m experiments.decisions.frozen --workdir=FOLDER [--only=mstar]

A data set's features, maps and chips are computed once (``FOLDER/frozen/NAME.npz``). A task then
takes a split and a number of chips. Because the network has not been trained on any of the classes,
trials and folds only fit the heads again, so all of them are exact and cheap.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments.decisions import package
from experiments.decisions.chips import Boxes, Subset

Arrays = dict[str, np.ndarray]

_COMMON = {
    "model.pretrained": "efficientnet_lite0",
    "data.size": 64,
    "data.channels": 3,
    "open_set.score": "cbc",
    "open_set.trials": 0,
    "open_set.split": "closed",
    "data.validation": 0.0,
}
_VEHICLES = {
    "data.box_error": 0.0,
    "data.options.ranges": (1000, 2000, 3000),
    "data.options.aspects": 30,
    "data.options.turns": 1,
    "data.options.decoys": 0,
    "open_set.outliers": "",
}
_MANY = (
    "apple", "bear", "bicycle", "bottle", "castle", "chair", "clock", "cloud", "elephant", "lion",
    "maple_tree", "motorcycle", "mushroom", "orchid", "rocket", "shark", "snake", "tank",
    "telephone", "woman",
)  # fmt: skip


class DataSet(NamedTuple):
    """A data set, whose outputs are recorded once.

    Attributes:
      name: name of its file.
      kind: what the images are.
      config: name of the bundled configuration.
      overrides: values by configuration field.
      chips: the folder of chips, or None for simulated ones.
    """

    name: str
    kind: str
    config: str
    overrides: Mapping[str, Any]
    chips: Subset | Boxes | None = None


DATA_SETS = (
    DataSet(
        "grocery",
        "photographs",
        "cbc:pretrained",
        _COMMON,
        Subset("grocery-60", "grocery", 60, 30, (), True),
    ),
    DataSet(
        "mstar",
        "radar",
        "cbc:pretrained",
        _COMMON | {"data.center_crop": 64},
        Subset("mstar-120", "mstar10", 120, 80),
    ),
    DataSet("hituav", "thermal boxes", "cbc:pretrained", _COMMON, Boxes("hituav-300", 300, 200)),
    DataSet(
        "cifar10",
        "photographs",
        "cbc:pretrained",
        _COMMON,
        Subset("cifar10-100", "cifar10", 100, 80),
    ),
    DataSet(
        "visible",
        "simulated, visible",
        "cbc:default",
        _COMMON | _VEHICLES | {"data.options.bands": ("visible",)},
    ),
    DataSet(
        "cifar100",
        "photographs",
        "cbc:pretrained",
        _COMMON,
        Subset("cifar100-80", "cifar100_subset", 80, 40, _MANY),
    ),
    DataSet(
        "thermal",
        "simulated, thermal",
        "cbc:default",
        _COMMON | _VEHICLES | {"data.options.bands": ("thermal",)},
    ),
)


def record(one: DataSet, workdir: Path, data: Path) -> None:
    """Records a data set's outputs, unless they exist."""
    path = workdir / "frozen" / f"{one.name}.npz"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    started, source = time.monotonic(), {}
    if one.chips is not None:
        source = {"data.source": str(one.chips.write(data, workdir / "chips"))}
    config = package.configured(one.config, {**one.overrides, **source})
    with tempfile.TemporaryDirectory() as empty:
        arrays = package.record_frozen(config, Path(empty), ("train", "test"))
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(unfinished, allow_pickle=False, **arrays)
    unfinished.rename(path)
    print(
        f"{time.strftime('%H:%M:%S')} {one.name} {round(time.monotonic() - started)} s", flush=True
    )


class FrozenTask(NamedTuple):
    """A task of a frozen network.

    Attributes:
      name: its name.
      kind: what the images are.
      data_set: name of the recorded data set.
      known: number of known classes, or the names of a split's.
      per_class: number of known chips of a class, training and validation; None for all.
      seed: seed of the classes and chips that are drawn.
      trials: number of fits without a third of the known classes.
      folds: number of folds of the known chips, or 0.
    """

    name: str
    kind: str
    data_set: str
    known: int | tuple[str, ...]
    per_class: int | None = None
    seed: int = 0
    trials: int = 3
    folds: int = 0


_REFERENCE = (
    ("BMP2", "BRDM_2", "BTR70", "T62", "ZIL131", "ZSU_23_4"),
    ("2S1", "BRDM_2", "BTR60", "BTR70", "T62", "ZSU_23_4"),
    ("2S1", "BMP2", "BRDM_2", "BTR70", "D7", "T72"),
)
FOLDS = 5
MOST_TESTED = 600

FROZEN = (
    FrozenTask("frozen-grocery", "photographs", "grocery", 25),
    FrozenTask("frozen-small-grocery-120", "photographs", "grocery", 6, 20, 1, folds=FOLDS),
    FrozenTask("frozen-mstar-0", "radar", "mstar", _REFERENCE[0]),
    FrozenTask("frozen-mstar-1", "radar", "mstar", _REFERENCE[1]),
    FrozenTask("frozen-mstar-2", "radar", "mstar", _REFERENCE[2]),
    FrozenTask("frozen-small-mstar-60", "radar", "mstar", _REFERENCE[1], 10, folds=FOLDS),
    FrozenTask("frozen-small-mstar-300", "radar", "mstar", _REFERENCE[2], 50, 1, folds=FOLDS),
    FrozenTask("frozen-boxes", "thermal boxes", "hituav", ("Car", "Bicycle"), trials=0),
    FrozenTask(
        "frozen-small-boxes-120",
        "thermal boxes",
        "hituav",
        ("Person", "Car"),
        60,
        trials=0,
        folds=FOLDS,
    ),
    FrozenTask("frozen-cifar10", "photographs", "cifar10", 6),
    FrozenTask("frozen-small-cifar10-300", "photographs", "cifar10", 6, 50, 1, folds=FOLDS),
    FrozenTask("frozen-visible", "simulated, visible", "visible", 5),
    FrozenTask("frozen-small-visible-60", "simulated, visible", "visible", 5, 12, 1, folds=FOLDS),
    FrozenTask("frozen-cifar100", "photographs", "cifar100", 12),
    FrozenTask("frozen-thermal", "simulated, thermal", "thermal", 5),
    FrozenTask("frozen-small-thermal-300", "simulated, thermal", "thermal", 5, 60, 1, folds=FOLDS),
)


def fits(task: FrozenTask, recorded: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Arrays]]:
    """Fits the heads of a task, of its trials and of its folds.

    Args:
      task: the task.
      recorded: the outputs of its data set.

    Yields:
      ``(name, arrays)``, as :func:`experiments.decisions.package.record` returns them.
    """
    classes, rng = recorded["classes"].tolist(), np.random.default_rng(task.seed)
    if isinstance(task.known, int):
        known = sorted(rng.choice(len(classes), task.known, replace=False).tolist())
    else:
        known = [classes.index(name) for name in task.known]
    rows = _rows(recorded["train_labels"], known, task.per_class, rng)
    held = np.concatenate([own[: max(1, round(0.1 * len(own)))] for own in rows])
    kept = np.concatenate([own[max(1, round(0.1 * len(own))) :] for own in rows])
    tested = rng.permutation(len(recorded["test_labels"]))[:MOST_TESTED]
    parts = {"validation": ("train", held), "test": ("test", tested)}
    yield "main", _fitted(recorded, known, kept, parts)
    out = max(1, round(len(known) / 3))
    order = rng.permutation(len(known))
    for turn in range(task.trials):
        gone = {known[order[(turn * out + i) % len(known)]] for i in range(out)}
        rest = [c for c in known if c not in gone]
        own = [one for c, one in zip(known, rows, strict=True) if c in rest]
        cut = [max(1, round((0.25 if task.folds else 0.15) * len(one))) for one in own]
        parts = {
            "validation": ("train", np.concatenate([o[:n] for o, n in zip(own, cut, strict=True)])),
            "held_out": (
                "train",
                np.concatenate([o for c, o in zip(known, rows, strict=True) if c in gone]),
            ),
        }
        fit_to = np.concatenate([o[n:] for o, n in zip(own, cut, strict=True)])
        yield f"trial-{turn}", _fitted(recorded, rest, fit_to, parts)
    for fold in range(task.folds):
        inside = np.concatenate([own[fold :: task.folds] for own in rows])
        outside = np.setdiff1d(np.concatenate(rows), inside)
        yield (
            f"fold-{fold}",
            _fitted(
                recorded, known, outside, {"test": ("train", inside), "query": ("test", tested)}
            ),
        )


def _rows(
    labels: np.ndarray, known: list[int], per_class: int | None, rng: np.random.Generator
) -> list[np.ndarray]:
    return [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in known]


def _fitted(
    recorded: Mapping[str, np.ndarray],
    known: list[int],
    rows: np.ndarray,
    parts: Mapping[str, tuple[str, np.ndarray]],
) -> Arrays:
    """Fits both heads to some training rows, and gathers the outputs on them and on other parts."""
    number = np.full(len(recorded["classes"]), -1)
    number[known] = np.arange(len(known))
    features = recorded["train_features"][rows]
    scale = max(float(features.std()), 1e-6)
    labels = number[recorded["train_labels"][rows]]
    closed = LogisticRegression(C=0.1, max_iter=40, tol=1e-2).fit(features / scale, labels)
    kernel, bias = closed.coef_.T / scale, closed.intercept_
    if len(known) == 2:  # one column of differences
        kernel, bias = np.hstack([-kernel / 2, kernel / 2]), np.repeat(bias / 2, 2) * [-1, 1]
    each = [
        LogisticRegression(C=0.1, max_iter=40, tol=1e-2).fit(features / scale, labels == c)
        for c in range(len(known))
    ]
    open_kernel = np.stack([one.coef_[0] / scale for one in each], axis=1)
    open_bias = np.array([one.intercept_[0] for one in each])
    arrays: Arrays = {
        "head_kernel": kernel.astype(np.float32),
        "head_bias": bias.astype(np.float32),
    }
    for part, (source, chosen) in {"train": ("train", rows), **parts}.items():
        own = {
            name.removeprefix(f"{source}_"): values[chosen]
            for name, values in recorded.items()
            if name.startswith(f"{source}_")
        }
        own["labels"] = number[own["labels"]]
        own["image"] = own["image"].mean(axis=-1, keepdims=True).astype(np.uint8)  # in gray
        own["logits"] = (own["features"] @ kernel + bias).astype(np.float32)
        own["open_logits"] = (own["features"] @ open_kernel + open_bias).astype(np.float32)
        arrays |= {f"{part}_{name}": values for name, values in own.items()}
    return arrays


def main() -> None:
    """Records the data sets."""
    parser = argparse.ArgumentParser(description="Records frozen networks' outputs.")
    parser.add_argument("--workdir", required=True, help="folder of chips and outputs")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--only", default="", help="comma-separated prefixes of data sets")
    flags = parser.parse_args()
    for one in DATA_SETS:
        if one.name.startswith(tuple(flags.only.split(","))):
            record(one, Path(flags.workdir).absolute(), Path(flags.data).absolute())


if __name__ == "__main__":
    main()
