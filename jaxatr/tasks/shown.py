"""Predictions together with the pixels that they are about, for a notebook."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from jaxatr.reporting import notebook
from jaxatr.training.predictor import Answer, Item, One, Predictor
from jaxatr.typing import Float, Shaped

FRAMES = 4
"""Chips of a track that are drawn at most, the last ones."""


@runtime_checkable
class Carded(Protocol):
    """A prediction that a notebook can show."""

    def card(self) -> notebook.Card:
        """Describes the prediction."""
        ...


class HeatMap(NamedTuple):
    """Pixels that speak for a class.

    Attributes:
      title: says of which class, and by which method.
      saliency: ``[h, w]`` in [0, 1].
    """

    title: str
    saliency: Float[np.ndarray, "h w"]


@dataclasses.dataclass(frozen=True)
class Seen(Generic[Answer]):
    """A prediction and what the network saw.

    Attributes:
      prediction: the answer.
      chips: ``[t, h, w, c]``; of an image one.
      heat_map: of the image's chip; None without one.
    """

    prediction: Answer
    chips: Shaped[np.ndarray, "t h w c"]
    heat_map: HeatMap | None = None

    def card(self) -> notebook.Card:
        """Describes the prediction, with its pictures."""
        count = len(self.chips)
        pictures = {
            "chip" if count == 1 else f"chip {number + 1} of {count}": notebook.picture(chip)
            for number, chip in list(enumerate(self.chips))[-FRAMES:]
        }
        if self.heat_map is not None:
            over = notebook.picture(self.chips[-1], self.heat_map.saliency)
            pictures[self.heat_map.title] = over
        return cast(Carded, self.prediction).card()._replace(pictures=pictures)


class Shown(Sequence[Seen[Answer]]):
    """Predictions with their pixels, one or several; a notebook draws them."""

    def __init__(self, seen: Iterable[Seen[Answer]]):
        """Takes what is to be drawn."""
        self._seen = tuple(seen)

    def __getitem__(self, place: Any) -> Any:
        """Picks one, or with a slice some."""
        found = self._seen[place]
        return Shown(found) if isinstance(place, slice) else found

    def __len__(self) -> int:
        """Counts them."""
        return len(self._seen)

    def _repr_html_(self) -> str:
        return notebook.render_cards([one.card() for one in self._seen])


class Showing(Predictor[Item, Answer]):
    """A predictor whose predictions a notebook shows with their pixels."""

    def show(self, inputs: One | Iterable[Any], *, heat_map: bool | str = False) -> Shown[Answer]:
        """Predicts one input or a few, and keeps their chips, for a notebook to draw.

        A prediction itself has no pixels, so that many of them are small: :meth:`predict`.

        Args:
          inputs: as :meth:`predict` has them.
          heat_map: draw the pixels that speak for the class that the network finds, by Grad-CAM;
            or the name of another method (:data:`jaxatr.explain.METHODS`).

        Raises:
          ValueError: an input cannot be used, there is no such method, or nothing can be explained.
        """
        items = list(self._items(inputs))
        method = "grad_cam" if heat_map is True else heat_map
        maps: Sequence[HeatMap | None] = [None] * len(items)
        if method:
            maps = self._heat_maps(items, method)
        chips = [np.asarray(self.check(item)) for item in items]
        stacked = [chip[None] if chip.ndim == 3 else chip for chip in chips]
        return Shown(map(Seen, self(items), stacked, maps))

    def _heat_maps(self, items: Sequence[Item], method: str) -> Sequence[HeatMap]:
        """Draws a map for each input; a kind without a classifier of images has none."""
        raise ValueError("heat_map: only a recogniser of single images, of one run, has any")
