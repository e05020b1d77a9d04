"""Measures an embedding's searches, and picks those that the report shows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxatr import metrics, openset
from jaxatr.tasks.parts import Part
from jaxatr.typing import Bool, Float, Int, Shaped

_KS = (1, 2, 4, 8)
_ON_MAP = 400  # examples
_QUERIES = 8  # of each sheet
_NEIGHBOURS = 6


def first_of_equal(chips: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Returns which chips are no copy of one before them.

    A copy would find the other at distance 0, and flatter every figure of a search.

    Args:
      chips: ``[n]``, equal where the chips are equal pixel by pixel.

    >>> first_of_equal(np.array(["a", "b", "a"])).tolist()
    [True, True, False]
    """
    first = np.zeros(len(chips), bool)
    first[np.unique(chips, return_index=True)[1]] = True
    return first


def retrieval(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]
) -> dict[str, Any]:
    """Returns Recall@K, MAP@R and NMI of a search among the examples.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``.

    Returns:
      ``examples``, ``classes``, ``recall_at_1`` … ``recall_at_8``, ``map_at_r`` (absent where no
      class has two members), ``nmi``.
    """
    _, counts = np.unique(labels, return_counts=True)
    recall = metrics.recall_at_k(embeddings, labels, _KS)
    return {
        "examples": len(labels),
        "classes": len(counts),
        **{f"recall_at_{k}": value for k, value in recall.items()},
        **({"map_at_r": metrics.map_at_r(embeddings, labels)} if counts.max() > 1 else {}),
        "nmi": metrics.nmi(embeddings, labels),
    }


def nearest_outputs(
    index: Float[np.ndarray, "n d"],
    train: Part,
    embeddings: Float[np.ndarray, "m d"],
    part: Part,
) -> openset.Outputs:
    """Returns minus the distances to the nearest training chip of each class, as logits.

    Args:
      index: ``[n, d]``, embeddings of the training examples.
      train: these examples.
      embeddings: ``[m, d]``, of others.
      part: those.
    """
    distances = openset.nearest_neighbour.class_distances(
        index, train.labels, embeddings, int(train.labels.max()) + 1
    )
    logits = -np.asarray(distances)
    return openset.Outputs(logits, logits, part.labels)


def index_arrays(index: Float[np.ndarray, "n d"], train: Part) -> dict[str, np.ndarray]:
    """Lists the arrays of a search among the training examples, by names that begin with index."""
    arrays = {
        "index_embeddings": index,
        "index_labels": train.labels,
        "index_id": train.split.columns["id"][train.indices],
    }
    if (paths := train.column("path")) is not None:
        arrays["index_path"] = paths
    return arrays


def retrieval_pictures(
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    kinds: Mapping[str, Bool[np.ndarray, " n"]],
) -> dict[str, np.ndarray]:
    """Makes the report's pictures: a map of the embedding, and the finds of some queries.

    Args:
      embeddings: ``[n, d]``, of the test examples.
      labels: ``[n]``.
      kinds: which of them are searched together.

    Returns:
      Rows of the test part: ``map_row`` ``[m]``, evenly spaced, with ``map_xy`` ``[m, 2]``, their
      two principal components; ``sheet_row`` ``[q]``, queries of which half find the wrong class
      first, where there are such, with ``sheet_neighbour`` ``[q, 6]`` and ``sheet_distance``
      ``[q, 6]``, the nearest others of the same kind.
    """
    from sklearn.decomposition import PCA  # takes a second, and a training needs it not

    shown = np.linspace(0, len(labels) - 1, min(len(labels), _ON_MAP)).astype(np.int32)
    sheets = [_sheet(embeddings, labels, np.flatnonzero(rows)) for rows in kinds.values()]
    rows, neighbours, distances = (np.concatenate(column) for column in zip(*sheets, strict=True))
    plane = PCA(n_components=2, svd_solver="full").fit(embeddings)
    return {
        "map_row": shown,
        "map_xy": plane.transform(embeddings[shown]).astype(np.float32),
        "sheet_row": rows,
        "sheet_neighbour": neighbours,
        "sheet_distance": distances,
    }


def _sheet(embeddings: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> Any:
    """Returns queries among these rows, their neighbours and the distances; none for too few."""
    if len(rows) <= _NEIGHBOURS:
        nothing = np.zeros((0, _NEIGHBOURS))
        return np.zeros(0, np.int32), nothing.astype(np.int32), nothing.astype(np.float32)
    vectors = embeddings[rows]
    queries = np.linspace(0, len(rows) - 1, min(len(rows), 256)).astype(int)
    exact = vectors.astype(np.float64)
    squares = np.sum(np.square(exact), axis=1)
    squared = squares[queries][:, None] + squares - 2 * exact[queries] @ exact.T
    distances = np.sqrt(np.maximum(squared, 0))
    distances[np.arange(len(queries)), queries] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBOURS]
    wrong = labels[rows[nearest[:, 0]]] != labels[rows[queries]]
    half = [np.flatnonzero(kind) for kind in (wrong, ~wrong)]
    taken = [_spread(kind, _QUERIES // 2) for kind in half]
    chosen = np.sort(np.concatenate(taken))
    nearest = nearest[chosen]
    found = np.take_along_axis(distances[chosen], nearest, axis=1)
    return (
        rows[queries[chosen]].astype(np.int32),
        rows[nearest].astype(np.int32),
        found.astype(np.float32),
    )


def _spread(values: np.ndarray, count: int) -> np.ndarray:
    """Returns that many of the values, evenly spaced."""
    places = np.linspace(0, len(values) - 1, min(len(values), count)).astype(int)
    return values[places]
