"""The facts of a run's training chips, which are kept with the run to notice a change later."""

import zipfile
from pathlib import Path

import numpy as np

from jaxatr import data
from jaxatr.files import load_arrays
from jaxatr.tasks.parts import Part
from jaxatr.training.folder import write_file
from jaxatr.typing import Float

FILE = "image_facts.npz"
MOST = 2000
"""Largest number of training chips whose facts are kept."""

_BLOCK = 64


def of_part(part: Part, seed: int) -> dict[str, Float[np.ndarray, " n"]]:
    """Computes the facts of a part's chips, by name; of a random sample of a large part."""
    if len(part.indices) > MOST:
        part = part.sample(MOST, seed)
    rows = np.arange(len(part.labels))
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    return by_name([facts for block in blocks for facts in data.image_facts(part.chips(block))])


def by_name(facts: list[Float[np.ndarray, " f"]]) -> dict[str, Float[np.ndarray, " n"]]:
    """Puts the facts of n images together, by the names of :data:`jaxatr.data.FACTS`."""
    return dict(zip(data.FACTS, np.reshape(facts, (-1, len(data.FACTS))).T, strict=True))


def save(workdir: Path, facts: dict[str, Float[np.ndarray, " n"]]) -> None:
    """Writes the facts to a run's folder, atomically."""
    write_file(workdir / FILE, lambda file: np.savez(file, allow_pickle=False, **facts))


def load(workdir: Path) -> dict[str, Float[np.ndarray, " n"]] | None:
    """Reads the facts of a run's training chips; None if an earlier version trained it.

    Raises:
      ValueError: the file is damaged.
    """
    path = workdir / FILE
    if not path.is_file():
        return None
    try:
        arrays = load_arrays(path)
        return {name: arrays[name] for name in data.FACTS}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not readable ({error}): remove it to do without") from error
