"""An evaluated embedding's folder, read for a report."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import training
from jaxatr.reporting import recorded
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.typing import Float, Int


class EmbeddingMap(NamedTuple):
    """Test examples of an embedding, laid out in a plane.

    Attributes:
      rows: ``[m]``, of the test part.
      points: ``[m, 2]``, their two principal components.
    """

    rows: Int[np.ndarray, " m"]
    points: Float[np.ndarray, "m 2"]


class Searches(NamedTuple):
    """The others that some test examples find, the nearest first.

    Attributes:
      rows: ``[q]``, of the test part: the queries.
      neighbours: ``[q, k]``, of the test part.
      distances: ``[q, k]``.
    """

    rows: Int[np.ndarray, " q"]
    neighbours: Int[np.ndarray, "q k"]
    distances: Float[np.ndarray, "q k"]


@dataclasses.dataclass(frozen=True)
class RecordedEmbedding(recorded.RecordedRun):
    """An embedding that was trained and evaluated.

    Attributes:
      map: where the test chips lie; ``None`` if there are no thumbnails to it.
      searches: likewise.
    """

    map: EmbeddingMap | None
    searches: Searches | None

    @property
    def retrieval(self) -> dict[str, Any]:
        """``"new"`` and ``"trained"`` to the figures of a search among such classes."""
        return self.evaluation["retrieval"]


def read_embedding(folder: Path, name: str | None = None) -> RecordedEmbedding:
    """Reads the records of an embedding.

    Args:
      folder: the run's.
      name: in the report; by default, the folder's name.

    Raises:
      ValueError: as :func:`jaxatr.reporting.recorded.read_run` raises.
    """
    run = recorded.read_run(folder, name=name)
    arrays = recorded.read_arrays(folder / training.SCORES)
    laid_out, searches = _pictures(folder, arrays, run.thumbnails)
    return RecordedEmbedding(**vars(run), map=laid_out, searches=searches)


def _pictures(
    folder: Path, arrays: dict[str, np.ndarray], thumbnails: dict[int, Thumbnail]
) -> tuple[EmbeddingMap | None, Searches | None]:
    """Returns an embedding's map and searches; the thumbnails say which class an example is of."""
    if "map_row" not in arrays or not thumbnails:
        return None, None
    drawn = EmbeddingMap(arrays["map_row"], arrays["map_xy"])
    searches = Searches(*(arrays[f"sheet_{name}"] for name in ("row", "neighbour", "distance")))
    shown = np.concatenate([drawn.rows, searches.rows, searches.neighbours.ravel()])
    if not thumbnails.keys() >= set(shown.tolist()):
        raise recorded.different(folder, training.SCORES, training.THUMBNAILS)
    return drawn, searches
