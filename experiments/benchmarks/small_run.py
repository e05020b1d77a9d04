"""A briefly trained run and its test chips; shared by the benchmarks."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import jaxatr
from jaxatr import bundled, data


def trained(folder: Path, width: int | None = None) -> None:
    """Trains ``cbc:smoke``: two epochs on very little data.

    Args:
      folder: the run's folder.
      width: features of the network's first stage; None for the variant's.
    """
    config = bundled.load("cbc:smoke")
    if width is not None:
        config.model.width = width
    jaxatr.train(config, folder, progress=False)


def sample_chips(run: Path, most: int) -> Iterator[Image.Image]:
    """Yields the first test chips of a run's data set, at most a number of them."""
    fields = json.loads((run / "config.json").read_text())["data"]
    options = {"data_dir": fields["data_dir"] or None, "options": fields["options"]}
    split = data.open_dataset(fields["name"], **options).splits["test"]
    for number in itertools.islice(range(len(split)), most):
        yield Image.fromarray(np.squeeze(split.image(number), axis=2))
