"""Trains the named runs of tracks against single chips; what is done is kept.

    python -m experiments.track.run [--only=lstm-0] [--jobs=2] [--list]

Three splits of the simulated vehicles, two networks for each: one with an LSTM on tracks, and one
without it on shuffled single chips, with the same convolutional network, as many steps and as many
chips in a batch. A small network (a quarter of the usual width), so that all six fit a machine
without an accelerator. How runs are carried out is in :mod:`experiments.named_runs`.
"""

import sys
from pathlib import Path

from experiments.named_runs import Run, main

RESULTS = Path(__file__).parent / "results"
SPLITS = range(3)
KINDS = {"lstm": "track.py:default", "chips": "track.py:chips"}


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [
        Run(f"{kind}-{split}", config, {"model.width": 16, "open_set.split_seed": split})
        for split in SPLITS
        for kind, config in KINDS.items()
    ]


if __name__ == "__main__":
    description = "Trains the named runs of tracks against single chips."
    sys.exit(main(description, all_runs(), RESULTS, "runs/track"))
