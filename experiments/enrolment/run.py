"""Trains the named runs behind the tables of enrolment; what is done is kept.

    python -m experiments.enrolment.run --only=base        # first
    python -m experiments.enrolment.enrol                  # then this: measures enrolments
    python -m experiments.enrolment.run                    # then what enrolment is compared with

``base-…`` know some classes of a data set. :mod:`experiments.enrolment.enrol` enrols each of the
others by few chips, and writes the chips of the first draw for the runs that train on them:
``continual-…`` from the weights of the base, as ``jaxatr enrol --train`` does it, and
``scratch-…`` from random weights, as the base. How runs are carried out is in
:mod:`experiments.named_runs`.
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
"""Chips of a class that is enrolled."""


class Base(NamedTuple):
    """A run whose unknown classes are enrolled.

    Attributes:
      name: of the data set, and of the run after ``base-``.
      config: file and variant, below ``configs/``.
      overrides: field to value.
      archive: what it reads from the data folder, if anything.
      unknown: names of the classes that are enrolled, each by itself.
      epochs: of its training.
      rate: learning rate of its training.
    """

    name: str
    config: str
    overrides: Mapping[str, Any]
    archive: str | None
    unknown: tuple[str, ...]
    epochs: int
    rate: float


# Among the scores that take classes, the best on known classes that are left out decides: all are
# compared, on the finished network's outputs.
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
    ),
    Base("simulated", "cbc.py:default", _AUTO, None, ("BTR70", "BRDM2", "ZSU23"), 16, 3e-2),
    Base(
        "smoke",  # to see that everything works; no table has it
        "cbc.py:smoke",
        {**_AUTO, "data.options.aspects": 24},
        None,
        ("BTR70", "BRDM2", "ZSU23"),
        2,
        3e-2,
    ),
)


def chips(base: Base, name: str, shots: int) -> str:
    """Returns the file of the chips that trainings add, below the folder of all runs."""
    return f"chips/{base.name}-{name}-{shots}.npz"


def bases() -> list[Run]:
    """Returns the runs whose unknown classes are enrolled."""
    return [Run(f"base-{b.name}", b.config, b.overrides, b.archive) for b in BASES]


def compared(base: Base) -> list[Run]:
    """Returns the runs that a base's enrolments are compared with."""
    found = []
    for name in base.unknown:
        for shots in SHOTS:
            own = {**base.overrides, "open_set.enrolled": f"{{runs}}/{chips(base, name, shots)}"}
            continued = {
                **own,
                "open_set.continues": f"{{runs}}/base-{base.name}",
                "train.epochs": max(1, round(SHARE * base.epochs)),
                "optimizer.learning_rate": SLOWER * base.rate,
            }
            of = f"{base.name}-{name}-{shots}"
            found.append(Run(f"continual-{of}", base.config, continued, base.archive))
            found.append(Run(f"scratch-{of}", base.config, own, base.archive))
    return found


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [*bases(), *(run for base in BASES for run in compared(base))]


if __name__ == "__main__":
    description = "Trains the named runs behind the tables of enrolment."
    sys.exit(main(description, all_runs(), RESULTS, WORKDIR))
