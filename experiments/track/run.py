"""Trains the named runs of tracks against single chips; what is done is kept.

    python -m experiments.track.run [--only=lstm-0] [--jobs=2] [--list]

Three splits of the simulated vehicles, cut by their boxes, 192 tracks of each, two networks for
each split: one trained on shuffled single chips, and one with an LSTM on tracks, whose
convolutional network begins with the weights of the first. So the chips come first. A small network
(a quarter of the usual width), so that all six fit a machine without an accelerator. How runs are
carried out is in :mod:`experiments.named_runs`.
"""

import sys
from pathlib import Path

from experiments.named_runs import Run, main

RESULTS = Path(__file__).parent / "results"
SPLITS = range(3)
CHIPS = {"train.epochs": 20}
LSTM = {"train.epochs": 10, "optimizer.learning_rate": 1e-2}


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    common = {"model.width": 16, "data.options.tracks": 192, "data.options.crop": "box"}
    chips, lstm = [], []
    for split in SPLITS:
        own = common | {"open_set.split_seed": split}
        chips.append(Run(f"chips-{split}", "track.py:chips", own | CHIPS))
        begun = {"model.pretrained": f"{{runs}}/chips-{split}"}
        lstm.append(Run(f"lstm-{split}", "track.py:default", own | LSTM | begun))
    return chips + lstm


if __name__ == "__main__":
    description = "Trains the named runs of tracks against single chips."
    sys.exit(main(description, all_runs(), RESULTS, "runs/track"))
