"""Flips a tenth of the labels of real images, and counts those that the ranking puts first.

Grocery (photographs, its classes) and MSTAR (radar, 64 pixels), training images; wrong labels are
drawn evenly from the other classes, with three seeds. The aim is nine tenths of the wrong labels
within the first 15 % of the ranking.

    python experiments/benchmarks/wrong_labels.py

Data is read from ``JAXATR_DATA`` (default ``../shared/data``), ImageNet's weights from
``JAXATR_WEIGHTS_DIR``.
"""

import json
import os
from pathlib import Path

import numpy as np

from jaxatr import data
from jaxatr.cli.suspects import representations
from jaxatr.data import doctor

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "wrong_labels.json"
FLIPPED, FIRST, SEEDS = 0.1, 0.15, (0, 1, 2)
SETS = {"grocery": ("grocery", data.Chip()), "mstar": ("mstar10", data.Chip(center_crop=64))}
NETWORKS = ("", "efficientnet_lite0")


def main() -> None:
    """Measures both sets with and without a published network."""
    folder = Path(os.environ.get("JAXATR_DATA", "../shared/data")).absolute()
    record: dict[str, dict] = {}
    for name, (source, chip) in SETS.items():
        split = data.open_dataset("image_folder", source=str(folder / source)).splits["train"]
        labels = split.columns["label"]
        counts = np.bincount(labels)
        rows = np.flatnonzero(counts[labels] >= 5)
        _, truth = np.unique(labels[rows], return_inverse=True)
        images = [chip(split.image(row)) for row in rows]
        for network in NETWORKS:
            given = representations(images, network)
            found = [measured(given, truth, seed) for seed in SEEDS]
            record[f"{name}, {network or 'pixels'}"] = {
                "images": len(truth),
                "classes": int(truth.max()) + 1,
                "found": [round(one[0], 4) for one in found],
                "agreement": [round(one[1], 4) for one in found],
                "by": [one[2] for one in found],
            }
            print(name, network, record[f"{name}, {network or 'pixels'}"], flush=True)
            OUTPUT.write_text(json.dumps(record, indent=1) + "\n")


def measured(
    given: dict[str, np.ndarray], truth: np.ndarray, seed: int
) -> tuple[float, float, str]:
    """Returns the share found, the share of labels that are predicted, and the representation."""
    rng = np.random.default_rng(seed)
    flipped = np.zeros(len(truth), bool)
    flipped[rng.choice(len(truth), round(FLIPPED * len(truth)), replace=False)] = True
    others = (truth + rng.integers(1, truth.max() + 1, len(truth))) % (truth.max() + 1)
    found = doctor.suspects(given, np.where(flipped, others, truth))
    first = found.order[: round(FIRST * len(truth))]
    return float(flipped[first].sum() / flipped.sum()), found.agreement, found.by


if __name__ == "__main__":
    main()
