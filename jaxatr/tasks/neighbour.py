"""Training chips that are near to an image, as predictions list them."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Neighbour(NamedTuple):
    """A training chip that is near to an image.

    Attributes:
      label: class of the chip.
      distance: distance between the embeddings, or between the features of unit length.
      id: id of the chip in the data set.
      path: path of its file, if the data set has files.
    """

    label: str
    distance: float
    id: int
    path: str | None

    @property
    def name(self) -> str:
        """The chip's path, or its id if it has none."""
        return self.path or f"#{self.id}"


def describe(neighbours: Iterable[Neighbour]) -> str:
    """Formats class, distance and name of some chips."""
    return "; ".join(f"{one.label} {one.distance:.4f} {one.name}" for one in neighbours)


def listed(neighbours: Iterable[Neighbour]) -> list[dict[str, Any]]:
    """Converts neighbours to dictionaries of their fields."""
    return [one._asdict() for one in neighbours]


def blank(count: int) -> tuple[Neighbour, ...]:
    """Creates empty neighbours, which show the columns of a table."""
    return (Neighbour("", 0.0, 0, ""),) * count
