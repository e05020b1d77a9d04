"""Galleries cut by examples: each piece says how near its nearest example of a class is.

The nearest of a class is the nearest of all pieces. Where a piece is small enough to be compared as
a whole, the answers are those of the whole gallery; else each piece is searched in two stages, and
no fewer examples are compared in full.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.decision import Decision
from jaxatr.openset.elsewhere import Elsewhere
from jaxatr.openset.gallery import Gallery
from jaxatr.typing import Float, Shaped


def galleries_of(decision: Decision) -> dict[str, Any]:
    """Finds the fitted models that are galleries, by the name of their score."""
    return {name: model for name, model in decision.models.items() if gallery.is_gallery(model)}


def piece_of(decision: Decision, number: int, of: int) -> dict[str, Any]:
    """Cuts a piece out of every gallery, ready to be searched.

    Only the examples of the piece are read where the decision's are mapped from a file.

    Args:
      decision: with galleries.
      number: of the piece, from 0.
      of: how many pieces there are.

    Raises:
      ValueError: a gallery has fewer examples than there are pieces.
    """
    return {name: _cut(name, model, number, of) for name, model in galleries_of(decision).items()}


def _cut(name: str, model: Any, number: int, of: int) -> Any:
    count = len(model.labels)
    if count < of:
        raise ValueError(f"{name}: its gallery of {count} examples makes no {of} pieces")
    rows = slice(number * count // of, (number + 1) * count // of)
    kept = {name: np.array(getattr(model, name)[rows]) for name in _EXAMPLES}
    return gallery.ready(model._replace(**kept, index=None))


_EXAMPLES = ("examples", "half_squares", "labels")


def search(
    piece: Any, queries: Shaped[np.ndarray, "b s d"], classes: int, estimated: tuple[int, ...]
) -> Float[np.ndarray, "b k"]:
    """Searches a piece for queries in their forms, as :class:`Elsewhere` asks it."""
    searched = Gallery(piece.examples, piece.half_squares, piece.labels, piece.index)
    return gallery.proximities(searched, queries, classes, estimated, max(1, len(queries)))


def without(
    decision: Decision,
    ask: Callable[[str, np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]],
) -> Decision:
    """Returns the decision without the examples of its galleries.

    Args:
      decision: with galleries.
      ask: takes a gallery's name and the arguments of :func:`search`, and gives the answers of all
        pieces.

    Raises:
      ValueError: it searches no gallery.
    """
    found = galleries_of(decision)
    if not found:
        raise ValueError(f"{decision.score.name} searches no gallery that could be cut")
    models = dict(decision.models)
    for name, model in found.items():
        # Copies: a view would keep the file mapped.
        kept = {field: np.array(getattr(model, field)[:0]) for field in _EXAMPLES}
        models[name] = model._replace(**kept, index=Elsewhere(partial(ask, name)))
    return replace(decision, models=models)
