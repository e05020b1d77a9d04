"""Features of the data sets by a published network, computed once and kept in a folder."""

import os
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxatr import data, files, models
from jaxatr.inference import stacked_batches

NETWORK = "efficientnet_lite0"
_BATCH = 64


class DataSet(NamedTuple):
    """A data set of chips.

    Attributes:
      name: its name in the records.
      folder: its folder below that of the data.
      side: side in pixels to which chips are scaled.
      classes: number of its classes that are used, the first of a shuffled order; None for all.
      most: most training chips of a class; None for all.
      tested: most test chips of a class; None for all.
      least: fewest training chips of a class that is used.
      crop: side of the middle that is cut out first; 0 for whole images.
    """

    name: str
    folder: str
    side: int
    classes: int | None = None
    most: int | None = None
    tested: int | None = None
    least: int = 1
    crop: int = 0


class Features(NamedTuple):
    """Features and labels of a data set, pool and test.

    Attributes:
      pool: ``[n, d]``, features of the training images.
      labels: ``[n]``, their classes.
      test: ``[m, d]``, features of the test images.
      truth: ``[m]``, their classes.
    """

    pool: np.ndarray
    labels: np.ndarray
    test: np.ndarray
    truth: np.ndarray


def data_folder() -> Path:
    """Returns the folder of the data, ``JAXATR_DATA``."""
    return Path(os.environ.get("JAXATR_DATA", "../shared/data")).absolute()


def chips(one: DataSet) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Reads the chips ``[n, h, w, c]`` and labels of both parts of a data set, in a fixed order."""
    dataset = data.open_dataset("image_folder", source=str(data_folder() / one.folder))
    train = dataset.splits["train"].columns["label"]
    counts = np.bincount(train, minlength=len(dataset.classes))
    order = np.random.default_rng(0).permutation(len(dataset.classes))
    chosen = np.sort([c for c in order if counts[c] >= one.least][: one.classes])
    cut = data.Chip(center_crop=one.crop, size=one.side, square=True)
    found = {}
    for part, most in (("train", one.most), ("test", one.tested)):
        split, rng = dataset.splits[part], np.random.default_rng(1)
        labels = split.columns["label"]
        rows = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:most] for c in chosen])
        images = np.stack([cut(split.image(int(row))) for row in tqdm(rows, disable=None)])
        found[part] = images, np.searchsorted(chosen, labels[rows])
    return found


def of(one: DataSet, workdir: Path) -> Features:
    """Returns a data set's features, from a file in ``workdir`` if they have been computed."""
    path = workdir / f"{one.name}-{NETWORK}-{one.side}.npz"
    if not path.exists():
        parts = chips(one)
        with files.replacing(path) as file:
            np.savez(
                file,
                pool=_computed(parts["train"][0]),
                labels=parts["train"][1],
                test=_computed(parts["test"][0]),
                truth=parts["test"][1],
            )
    with np.load(path) as arrays:
        return Features(**{name: arrays[name] for name in Features._fields})


def _computed(images: np.ndarray) -> np.ndarray:
    module, variables = models.create(NETWORK, pretrained=True, in_channels=images.shape[-1])
    published = models.published.named(NETWORK)
    assert published is not None
    mean, std = published.normalization(images.shape[-1])

    @jax.jit
    def features(batch: jax.Array) -> jax.Array:
        return jnp.asarray(module.apply(variables, (batch - mean) / std))

    rows = [
        np.asarray(features(np.float32(batch)))
        for batch, _ in stacked_batches(tqdm(images, disable=None), _BATCH, full=True)
    ]
    return np.concatenate(rows)[: len(images)]
