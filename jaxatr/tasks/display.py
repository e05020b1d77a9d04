"""Predictions together with their chips, for display in a notebook."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from jaxatr import data
from jaxatr.reporting import notebook
from jaxatr.training.predictor import Answer, Item, One, Predictor
from jaxatr.typing import Float, Shaped

FRAMES = 4
"""Largest number of chips of a track to draw; they are its last ones."""


@runtime_checkable
class HasCard(Protocol):
    """A prediction that a notebook can show."""

    def card(self) -> notebook.Card:
        """Describes the prediction."""
        ...


class HeatMap(NamedTuple):
    """A saliency map of the evidence for a class.

    Attributes:
      title: names the class and the method.
      saliency: ``[h, w]`` in [0, 1].
    """

    title: str
    saliency: Float[np.ndarray, "h w"]


@dataclasses.dataclass(frozen=True)
class PredictionCard(Generic[Answer]):
    """A prediction and the network's input.

    Attributes:
      prediction: the prediction.
      chips: ``[t, h, w, d]``, as pictures show them; t is 1 for a single image.
      heat_map: heat map of the chip, or None.
    """

    prediction: Answer
    chips: Shaped[np.ndarray, "t h w c"]
    heat_map: HeatMap | None = None

    def card(self) -> notebook.Card:
        """Describes the prediction, including its pictures."""
        count = len(self.chips)
        pictures = {
            "chip" if count == 1 else f"chip {number + 1} of {count}": notebook.picture(chip)
            for number, chip in list(enumerate(self.chips))[-FRAMES:]
        }
        if self.heat_map is not None:
            over = notebook.picture(self.chips[-1], self.heat_map.saliency)
            pictures[self.heat_map.title] = over
        return cast(HasCard, self.prediction).card()._replace(pictures=pictures)


class PredictionCards(Sequence[PredictionCard[Answer]]):
    """One or more predictions with their chips, displayed by notebooks."""

    def __init__(self, seen: Iterable[PredictionCard[Answer]]):
        self._seen = tuple(seen)

    def __getitem__(self, place: Any) -> Any:
        """Returns the prediction at an index, or the predictions of a slice."""
        chosen = self._seen[place]
        return PredictionCards(chosen) if isinstance(place, slice) else chosen

    def __len__(self) -> int:
        """Returns the number of predictions."""
        return len(self._seen)

    def _repr_html_(self) -> str:
        return notebook.render_cards([one.card() for one in self._seen])


class NotebookPredictor(Predictor[Item, Answer]):
    """A predictor whose predictions can be displayed in a notebook with their chips.

    Attributes:
      chip: converts an image to the network's chip.
    """

    chip: data.Intake

    @property
    def bands(self) -> data.Bands:
        """How files become images."""
        return self.chip.bands

    def show(
        self, inputs: One | Iterable[Any], *, heat_map: bool | str = False
    ) -> PredictionCards[Answer]:
        """Predicts one or a few inputs and keeps their chips, for display in a notebook.

        For many inputs use :meth:`predict`, whose predictions contain no images.

        Args:
          inputs: one or more inputs, as accepted by :meth:`predict`.
          heat_map: also draw a Grad-CAM map of the evidence for the predicted class; or the name of
            another method (:data:`jaxatr.explain.METHODS`).

        Raises:
          ValueError: an input is invalid, there is no such method, or the predictor does not
            support heat maps.
        """
        chips = list(self._prepared(inputs))
        method = "grad_cam" if heat_map is True else heat_map
        maps: Sequence[HeatMap | None] = [None] * len(chips)
        if method:
            maps = self._heat_maps(chips, method)
        stacked = [
            np.stack([self.chip.shown(one) for one in (chip[None] if chip.ndim == 3 else chip)])
            for chip in chips
        ]
        return PredictionCards(map(PredictionCard, self.answers(chips), stacked, maps))

    def _heat_maps(self, chips: Sequence[np.ndarray], method: str) -> Sequence[HeatMap]:
        """Computes a map for each chip; supported only by classifiers of single images."""
        raise ValueError("heat_map: supported only by recognisers of single images, of one run")
