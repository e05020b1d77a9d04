"""Reading the folder of an evaluated embedding, for a report."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import training
from jaxatr.reporting import recorded_run
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.typing import Float, Int


class EmbeddingMap(NamedTuple):
    """A two-dimensional map of some test examples.

    Attributes:
      rows: ``[m]``, rows of the test part.
      points: ``[m, 2]``, their first two principal components.
    """

    rows: Int[np.ndarray, " m"]
    points: Float[np.ndarray, "m 2"]


class Searches(NamedTuple):
    """The nearest neighbours of some test examples, nearest first.

    Attributes:
      rows: ``[q]``, rows of the queries in the test part.
      neighbours: ``[q, k]``, rows of the neighbours in the test part.
      distances: ``[q, k]``.
    """

    rows: Int[np.ndarray, " q"]
    neighbours: Int[np.ndarray, "q k"]
    distances: Float[np.ndarray, "q k"]


@dataclasses.dataclass(frozen=True)
class RecordedEmbedding(recorded_run.RecordedRun):
    """A trained and evaluated embedding.

    Attributes:
      map: map of the test chips; ``None`` if there are no thumbnails for it.
      searches: example searches; ``None`` if there are no thumbnails for them.
    """

    map: EmbeddingMap | None
    searches: Searches | None

    @property
    def retrieval(self) -> dict[str, Any]:
        """Retrieval metrics among ``"new"`` and among ``"trained"`` classes."""
        return self.evaluation["retrieval"]


def read_embedding(
    folder: Path, name: str | None = None, place: Path | None = None
) -> RecordedEmbedding:
    """Reads the records of an embedding.

    Args:
      folder: the run's folder.
      name: name in the report; by default, the folder's name.
      place: folder of its evaluation on another set, instead of that on its own test.

    Raises:
      ValueError: the folder is not an evaluated run, or its files cannot be read or do not belong
        together.
    """
    run = recorded_run.read_run(folder, name=name, place=place)
    measured = folder if place is None else place
    arrays = recorded_run.read_arrays(measured / training.SCORES)
    laid_out, searches = _pictures(measured, arrays, run.thumbnails)
    return RecordedEmbedding(**vars(run), map=laid_out, searches=searches)


def _pictures(
    folder: Path, arrays: dict[str, np.ndarray], thumbnails: dict[int, Thumbnail]
) -> tuple[EmbeddingMap | None, Searches | None]:
    """Returns an embedding's map and searches, if there are thumbnails for them."""
    if "map_row" not in arrays or not thumbnails:
        return None, None
    drawn = EmbeddingMap(arrays["map_row"], arrays["map_xy"])
    searches = Searches(*(arrays[f"sheet_{name}"] for name in ("row", "neighbour", "distance")))
    shown = np.concatenate([drawn.rows, searches.rows, searches.neighbours.ravel()])
    if not thumbnails.keys() >= set(shown.tolist()):
        raise recorded_run.different(folder, training.SCORES, training.THUMBNAILS)
    return drawn, searches
