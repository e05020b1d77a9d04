"""A gallery's examples where they are too large for one process: in pieces, in others."""

from collections.abc import Callable, Iterable

import numpy as np

from jaxatr.typing import Float

Ask = Callable[[np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]]
"""Takes queries ``[b, s, d]``, k, and the forms that estimate; gives ``[b, k]`` of each piece."""


class Elsewhere:
    """Stands in a gallery for the examples, which are searched where they lie."""

    def __init__(self, ask: Ask):
        """Takes the question, which goes to all pieces."""
        self._ask = ask

    def proximities(
        self, queries: Float[np.ndarray, "b s d"], classes: int, estimated: tuple[int, ...]
    ) -> Float[np.ndarray, "b k"]:
        """Computes how near the nearest example of each class is: the nearest of any piece's."""
        return np.maximum.reduce(list(self._ask(queries, classes, estimated)))
