"""Retrieval metrics of an embedding, and the searches that the report shows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxatr import metrics, openset
from jaxatr.extras import extra
from jaxatr.tasks.parts import Part
from jaxatr.typing import Bool, Float, Int, Shaped

_KS = (1, 2, 4, 8)
_ON_MAP = 400  # examples on the map
_QUERIES = 8  # queries of each sheet
_NEIGHBOURS = 6


def first_of_equal(chips: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Returns a mask of the chips that do not duplicate an earlier one, ``[n]``.

    Duplicates would find each other at distance 0 and inflate all retrieval metrics.

    Args:
      chips: ``[n]``, values that are equal if and only if the chips are identical.

    >>> first_of_equal(np.array(["a", "b", "a"])).tolist()
    [True, True, False]
    """
    first = np.zeros(len(chips), bool)
    first[np.unique(chips, return_index=True)[1]] = True
    return first


def retrieval(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]
) -> dict[str, Any]:
    """Computes Recall@K, MAP@R and NMI of retrieval among the examples.

    Returns:
      ``examples``, ``classes``, ``recall_at_1`` … ``recall_at_8``, ``map_at_r`` (absent if no
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
    """Returns the negative distances to the nearest training chip of each class, as logits.

    Args:
      index: ``[n, d]``, embeddings of the training examples.
      train: the training examples.
      embeddings: ``[m, d]``, embeddings of the examples to classify.
      part: the examples to classify.
    """
    distances = openset.nearest_neighbour.class_distances(
        index, train.labels, embeddings, int(train.labels.max()) + 1
    )
    logits = -np.asarray(distances)
    return openset.Outputs(logits, logits, part.labels)


def index_arrays(index: Float[np.ndarray, "n d"], train: Part) -> dict[str, np.ndarray]:
    """Returns the arrays needed to search the training examples, named ``index_…``."""
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
    """Computes the report's map of the embedding and the neighbours of some queries.

    Args:
      embeddings: ``[n, d]``, embeddings of the test examples.
      labels: ``[n]``.
      kinds: masks of the examples that are searched together, by name.

    Returns:
      ``map_row`` ``[m]``, evenly spaced rows of the test part, and ``map_xy`` ``[m, 2]``, their
      first two principal components; ``sheet_row`` ``[q]``, the rows of queries, of which up to
      half have a nearest neighbour of the wrong class; and ``sheet_neighbour`` ``[q, 6]`` and
      ``sheet_distance`` ``[q, 6]``, the nearest others of the same kind.
    """
    # Slow to import, and not needed for training.
    decomposition = extra("sklearn.decomposition", "report", "the evaluation of an embedding")

    shown = np.linspace(0, len(labels) - 1, min(len(labels), _ON_MAP)).astype(np.int32)
    sheets = [_sheet(embeddings, labels, np.flatnonzero(rows)) for rows in kinds.values()]
    rows, neighbours, distances = (np.concatenate(column) for column in zip(*sheets, strict=True))
    # A plane needs two examples and two dimensions.
    embeddings = np.pad(embeddings, [(0, max(0, 2 - size)) for size in embeddings.shape])
    plane = decomposition.PCA(n_components=2, svd_solver="full").fit(embeddings)
    return {
        "map_row": shown,
        "map_xy": plane.transform(embeddings[shown]).astype(np.float32),
        "sheet_row": rows,
        "sheet_neighbour": neighbours,
        "sheet_distance": distances,
    }


def _sheet(embeddings: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> Any:
    """Returns queries among some rows, their neighbours and distances; empty for too few rows."""
    if len(rows) <= _NEIGHBOURS:
        nothing = np.zeros((0, _NEIGHBOURS))
        return np.zeros(0, np.int32), nothing.astype(np.int32), nothing.astype(np.float32)
    vectors = embeddings[rows]
    queries = np.linspace(0, len(rows) - 1, min(len(rows), 256)).astype(int)
    # The nearest one is the query itself, or an equal one before it.
    near, nearest = map(
        np.asarray,
        openset.nearest_neighbour.neighbours(vectors, vectors[queries], _NEIGHBOURS + 1),
    )
    itself = nearest == queries[:, None]
    itself[:, -1] |= ~itself.any(axis=1)  # among more equal ones than are wanted
    shape = len(queries), _NEIGHBOURS
    nearest, distances = nearest[~itself].reshape(shape), near[~itself].reshape(shape)
    wrong = labels[rows[nearest[:, 0]]] != labels[rows[queries]]
    taken = [_spread(np.flatnonzero(kind), _QUERIES // 2) for kind in (wrong, ~wrong)]
    chosen = np.sort(np.concatenate(taken))
    return (
        rows[queries[chosen]].astype(np.int32),
        rows[nearest[chosen]].astype(np.int32),
        distances[chosen].astype(np.float32),
    )


def _spread(values: np.ndarray, count: int) -> np.ndarray:
    """Returns at most ``count`` of the values, evenly spaced."""
    places = np.linspace(0, len(values) - 1, min(len(values), count)).astype(int)
    return values[places]
