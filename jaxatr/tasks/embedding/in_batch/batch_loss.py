"""The declaration of a loss that forms its tuples within the batch."""

from collections.abc import Callable
from typing import NamedTuple

from jaxatr.typing import Array


class BatchLoss(NamedTuple):
    """A loss that forms its tuples within the batch.

    Attributes:
      function: maps embeddings ``[b, d]`` and labels ``[b]`` to a scalar.
      margin: name of its margin parameter; None if it has none.
    """

    function: Callable[..., Array]
    margin: str | None = "margin"
