"""Decisions of a recogniser about the targets that a detector found."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr import data, openset, training
from jaxatr.data.annotations.results import CORNERS, SCORE, map_place
from jaxatr.data.scene_image import SceneImage
from jaxatr.data.sources import SOURCES
from jaxatr.data.sources.scenes import PART, Framing
from jaxatr.typing import Float, Int

Row = dict[str, data.Cell]


@runtime_checkable
class Decision(Protocol):
    """A recogniser's answer about a chip."""

    @property
    def label(self) -> str:
        """A known class, or "unknown"."""
        ...


@runtime_checkable
class Decider(Protocol):
    """A recogniser, as :class:`jaxatr.recognition.predictor.OpenSetPredictor` is one."""

    takes: str
    classes: tuple[str, ...]
    workdir: str | os.PathLike

    def prepare(self, item: Any) -> np.ndarray:
        """Converts an image, or the images of a track, to the network's input."""
        ...

    def outputs(self, chips: Iterable[np.ndarray]) -> Iterator[openset.Outputs]:
        """Yields the network's outputs for batches of prepared inputs."""
        ...

    def decide(self, outputs: openset.Outputs) -> Iterator[Any]:
        """Yields the prediction for each example of the network's outputs."""
        ...

    def to_row(self, prediction: Any) -> Row:
        """Converts a prediction to cells."""
        ...

    def columns(self) -> dict[str, type]:
        """Returns the columns of a row."""
        ...


def check_decider(recogniser: object) -> Decider:
    """Checks that a predictor decides about chips.

    Raises:
      ValueError: it is of another kind.
    """
    if not isinstance(recogniser, Decider):
        raise ValueError(
            f"recogniser: got a {type(recogniser).__name__}, wanted a recogniser of chips or tracks"
        )
    return recogniser


def framing_of(workdir: str | os.PathLike) -> Framing:
    """Returns how a run's chips are cut out of scenes.

    A run of the data set ``scenes`` has its options. Of any other, ``data.box_margin`` says how
    much larger its chips are than their boxes; they are squares, of one size if the data source
    resizes what it cuts out.
    """
    fields = training.load_config(workdir).data
    options = dict(fields.options)
    if fields.name == PART.name:
        return Framing.of_options(options)
    source = SOURCES.get(fields.name)
    return Framing(float(fields.box_margin), size=source.box_side(options) if source else 0)


def place_of(box: Sequence[float] | np.ndarray, score: float | np.floating) -> Row:
    """Returns the first cells of a target's row: corners and detection score."""
    return {**dict(zip(CORNERS, map(float, box), strict=True)), SCORE: float(score)}


class RecognisedTargets(NamedTuple):
    """The targets of a scene, by descending detection score, with a recogniser's decisions.

    Attributes:
      boxes: ``[n, 4]``, x0, y0, x1, y1 in pixels of the scene, with continuous edges.
      scores: ``[n]``, the detector's probability of a target.
      labels: the class of each, or ``"unknown"``.
      predictions: the recogniser's predictions.
      cells: the recogniser's part of each row.
    """

    boxes: Float[np.ndarray, "n 4"]
    scores: Float[np.ndarray, " n"]
    labels: tuple[str, ...]
    predictions: tuple[Decision, ...]
    cells: tuple[Row, ...]

    def rows(self) -> list[Row]:
        """Returns the rows of a table, one for each target, with the columns of ``predict``."""
        places = map(place_of, self.boxes, self.scores)
        return [place | own for place, own in zip(places, self.cells, strict=True)]


class Chips:
    """Cuts chips as in a recogniser's training, and lets it decide about them.

    Attributes:
      recogniser: the recogniser.
      framing: how its chips are cut.
    """

    def __init__(self, recogniser: object):
        """Takes a recogniser of chips or of tracks.

        Raises:
          ValueError: it is a predictor of another kind.
        """
        self.recogniser = check_decider(recogniser)
        self.framing = framing_of(self.recogniser.workdir)
        self.of_tracks = self.recogniser.takes == "FOLDER"

    def cut(
        self, scene: SceneImage, boxes: Float[np.ndarray, "n 4"]
    ) -> Iterator[np.ndarray | ValueError]:
        """Yields the chip of each box, prepared, or why there is none."""
        for box in np.asarray(boxes, float):
            try:
                chip = self.framing.chip(scene, box)[0]
                yield self.recogniser.prepare([chip] if self.of_tracks else chip)
            except ValueError as error:
                yield error

    def outputs(
        self, chips: Iterable[np.ndarray | ValueError], refused: dict[int, ValueError]
    ) -> openset.Outputs | None:
        """Computes the network's outputs of all usable chips; None if there are none.

        Args:
          chips: from :meth:`cut`.
          refused: takes the number of each unusable chip, with the reason.
        """

        def usable() -> Iterator[np.ndarray]:
            for number, chip in enumerate(chips):
                if isinstance(chip, ValueError):
                    refused[number] = chip
                else:
                    yield chip

        parts = list(self.recogniser.outputs(usable()))
        return openset.concatenated(parts) if parts else None

    def decided(
        self, scene: SceneImage, boxes: Float[np.ndarray, "n 4"]
    ) -> list[Decision | ValueError]:
        """Returns the prediction for each box, or why there is none."""
        refused: dict[int, ValueError] = {}
        outputs = self.outputs(self.cut(scene, boxes), refused)
        found = iter(() if outputs is None else self.recogniser.decide(outputs))
        return [refused[n] if n in refused else next(found) for n in range(len(boxes))]


def recognised(
    scene: SceneImage,
    boxes: Float[np.ndarray, "n 4"],
    scores: Float[np.ndarray, " n"],
    recogniser: object,
) -> RecognisedTargets:
    """Decides about the targets in a scene.

    Raises:
      ValueError: the recogniser is of another kind, or cannot use a chip.
    """
    predictions = []
    for number, one in enumerate(Chips(recogniser).decided(scene, boxes)):
        if isinstance(one, ValueError):
            raise ValueError(f"{scene.name}: target {number}: {one}") from one
        predictions.append(one)
    cells = tuple(check_decider(recogniser).to_row(one) for one in predictions)
    labels = tuple(one.label for one in predictions)
    return RecognisedTargets(boxes, scores, labels, tuple(predictions), cells)


class TrackChips:
    """Decides about tracks: once for each, by all of its chips.

    A recogniser of tracks gets the last chips of each track. One of single images decides by the
    means of its outputs over a track.
    """

    def __init__(self, chips: Chips):
        """Starts without a track."""
        self._chips = chips
        self._lasting: dict[int, deque[np.ndarray]] = {}
        self._ids: list[int] = []
        self._parts: list[openset.Outputs] = []
        self._refused: dict[int, ValueError] = {}

    def add(
        self, scene: SceneImage, boxes: Float[np.ndarray, "n 4"], ids: Int[np.ndarray, " n"]
    ) -> None:
        """Takes the targets of the next frame, and the track of each."""
        refused: dict[int, ValueError] = {}
        cut = self._chips.cut(scene, boxes)
        if self._chips.of_tracks:
            for number, (one, chip) in enumerate(zip(ids.tolist(), cut, strict=True)):
                if isinstance(chip, ValueError):
                    refused[number] = chip
                    continue
                most = int(getattr(self._chips.recogniser, "frames", 1))
                self._lasting.setdefault(one, deque(maxlen=most)).append(chip[0])
        elif (outputs := self._chips.outputs(cut, refused)) is not None:
            self._parts.append(outputs)
            self._ids += [one for n, one in enumerate(ids.tolist()) if n not in refused]
        self._refused |= {int(ids[number]): why for number, why in refused.items()}

    def decided(self) -> dict[int, Decision | ValueError]:
        """Returns the prediction for each track, or why there is none."""
        ids, outputs = self._pooled()
        decide = self._chips.recogniser.decide
        found: Mapping[int, Decision] = (
            {} if outputs is None else dict(zip(ids, decide(outputs), strict=True))
        )
        return {**self._refused, **found}

    def _pooled(self) -> tuple[list[int], openset.Outputs | None]:
        """Returns the tracks, and the outputs of each."""
        if self._lasting:
            tracks = [np.stack(list(chips)) for chips in self._lasting.values()]
            return list(self._lasting), self._chips.outputs(tracks, {})
        if not self._parts:
            return [], None
        ids, every = np.array(self._ids), openset.concatenated(self._parts)
        grouped = every.select(np.argsort(ids, kind="stable"))
        tracks, lengths = np.unique(ids, return_counts=True)
        more = {name: openset.mean_over(each, lengths) for name, each in grouped.more.items()}
        return tracks.tolist(), openset.mean_outputs(grouped, lengths)._replace(more=more)


def cells_of(
    scene: SceneImage, box: Sequence[float] | np.ndarray, score: float | np.floating
) -> Row:
    """Returns the first cells of a target's row, with the map's coordinates where there are any."""
    return place_of(box, score) | map_place(scene.transform, box)
