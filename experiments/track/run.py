"""Trains the named runs that compare tracks with single chips.

    python -m experiments.track.run [--only=lstm-0] [--jobs=2] [--list]

There are three splits of the simulated vehicles, cropped by their boxes, with 192 tracks of each
vehicle. For each split, one network is trained on shuffled single chips, and one with an LSTM on
tracks. The convolutional network of the latter starts from the weights of the former, so the runs
on chips come first. The networks have a quarter of the usual width, so that all six can be trained
without an accelerator. See :mod:`experiments.named_runs` for how runs are carried out.
"""

import sys
from pathlib import Path

from experiments.named_runs import Run, main

RESULTS = Path(__file__).parent / "results"
SPLITS = range(3)
CHIPS = {"train.epochs": 20}
LSTM = {"train.epochs": 10, "optimizer.learning_rate": 1e-2}


def all_runs() -> list[Run]:
    """Lists all runs, in the order of training."""
    common = {"model.width": 16, "data.options.tracks": 192, "data.options.crop": "box"}
    chips, lstm = [], []
    for split in SPLITS:
        own = common | {"open_set.split_seed": split}
        chips.append(Run(f"chips-{split}", "track.py:chips", own | CHIPS))
        begun = {"model.pretrained": f"{{runs}}/chips-{split}"}
        lstm.append(Run(f"lstm-{split}", "track.py:default", own | LSTM | begun))
    return chips + lstm


if __name__ == "__main__":
    description = "Trains the named runs that compare tracks with single chips."
    sys.exit(main(description, all_runs(), RESULTS, "runs/track"))
