"""Galleries split by examples into pieces that are searched separately.

The nearest example of a class is the nearest over all pieces. If the pieces are small enough for an
exhaustive search, the results are exact. Otherwise each piece is searched in two stages, which
together compare at least as many examples in full as a search of the undivided gallery.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.decision import Decision
from jaxatr.typing import Float, Shaped

_EXAMPLES = ("examples", "half_squares", "labels")


def galleries_of(decision: Decision) -> dict[str, Any]:
    """Returns the fitted models that are galleries, by score name."""
    return {name: model for name, model in decision.models.items() if gallery.is_gallery(model)}


def piece_of(decision: Decision, number: int, of: int) -> dict[str, Any]:
    """Extracts one piece of every gallery, ready to search.

    If the decision's examples are memory-mapped, only those of the piece are read.

    Args:
      decision: a decision with galleries.
      number: index of the piece, from 0.
      of: number of pieces.

    Raises:
      ValueError: a gallery has fewer examples than there are pieces.
    """
    return {name: _cut(name, model, number, of) for name, model in galleries_of(decision).items()}


def _cut(name: str, model: Any, number: int, of: int) -> Any:
    count = len(model.labels)
    if count < of:
        raise ValueError(f"{name}: cannot split its gallery of {count} examples into {of} pieces")
    rows = slice(number * count // of, (number + 1) * count // of)
    kept = {field: np.array(getattr(model, field)[rows]) for field in _EXAMPLES}
    return gallery.ready(model._replace(**kept, index=None))


def search(
    piece: Any, queries: Shaped[np.ndarray, "b s d"], classes: int, estimated: tuple[int, ...]
) -> Float[np.ndarray, "b k"]:
    """Computes the proximities ``[b, k]`` of a piece to queries.

    Args:
      piece: from :func:`piece_of`.
      queries: ``[b, s, d]``, each in s forms.
      classes: k.
      estimated: indices of the forms that the first stage of a search in two stages compares.
    """
    return gallery.proximities(gallery.of(piece), queries, classes, estimated, max(1, len(queries)))


def without(
    decision: Decision,
    ask: Callable[[str, np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]],
) -> Decision:
    """Returns a decision without the examples of its galleries, which are searched in pieces.

    Args:
      decision: a decision with galleries.
      ask: takes a gallery's name and the arguments of :func:`search` after ``piece``, and yields
        the result of each piece.

    Raises:
      ValueError: the decision has no gallery.
    """
    galleries = galleries_of(decision)
    if not galleries:
        raise ValueError(f"{decision.score.name} has no gallery to split")
    models = dict(decision.models)
    for name, model in galleries.items():
        # Copied, because a view would keep the file mapped.
        kept = {field: np.array(getattr(model, field)[:0]) for field in _EXAMPLES}
        models[name] = model._replace(**kept, index=partial(_over_all, partial(ask, name)))
    return replace(decision, models=models)


def _over_all(
    ask: Callable[[np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]],
    queries: Float[np.ndarray, "b s d"],
    classes: int,
    estimated: tuple[int, ...],
) -> Float[np.ndarray, "b k"]:
    """Computes the proximity to the nearest example of each class, over all pieces."""
    return np.maximum.reduce(list(ask(queries, classes, estimated)))
