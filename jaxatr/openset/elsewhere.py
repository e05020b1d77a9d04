"""A gallery whose examples are held in pieces by other processes."""

from collections.abc import Callable, Iterable

import numpy as np

from jaxatr.typing import Float

Ask = Callable[[np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]]
"""``(queries [b, s, d], classes k, estimated forms) -> proximities [b, k]`` of each piece."""


class Elsewhere:
    """Searches a gallery's examples in the processes that hold them."""

    def __init__(self, ask: Ask):
        """Creates the search.

        Args:
          ask: sends queries to every piece, and yields the answer of each.
        """
        self._ask = ask

    def proximities(
        self, queries: Float[np.ndarray, "b s d"], classes: int, estimated: tuple[int, ...]
    ) -> Float[np.ndarray, "b k"]:
        """Computes the proximity to the nearest example of each class, over all pieces."""
        return np.maximum.reduce(list(self._ask(queries, classes, estimated)))
