"""A detector with the recogniser that decides about what it finds, and rows of a table."""

from typing import Any

from jaxatr.data.annotations.results import CORNERS, SCORE
from jaxatr.data.scene_image import SceneImage
from jaxatr.tasks.detection.decoding import WHOLE, Strip
from jaxatr.tasks.detection.predictor import Detections, Detector
from jaxatr.tasks.detection.recognised import Chips, Row, cells_of

TRACK = "track"
"""The column of a target's track."""


class Finder:
    """A detector, and the recogniser that decides about its targets, if there is one.

    Attributes:
      detector: finds targets.
      chips: cuts their chips and decides about them; None if the detector decides.
      classes: the known classes of whichever decides.
    """

    def __init__(self, detector: Detector, recogniser: object | None = None):
        """Takes the predictors.

        Raises:
          ValueError: the recogniser is a predictor of another kind.
        """
        self.detector = detector
        self.chips = None if recogniser is None else Chips(recogniser)
        self.classes = detector.classes if self.chips is None else self.chips.recogniser.classes

    def columns(self, *, tracks: bool = False) -> dict[str, type]:
        """Returns the types of a table's columns."""
        first: dict[str, type] = {"path": str, "error": str}
        first |= dict.fromkeys((*CORNERS, SCORE), float)
        first |= {TRACK: int} if tracks else {}
        if self.chips is not None:
            return first | self.chips.recogniser.columns()
        own: dict[str, type] = {"label": str, "nearest": str, "known_probability": float}
        return first | own | {f"probability_{name}": float for name in self.classes}

    def cells(self, prediction: Any) -> Row:
        """Returns the recogniser's part of a row; the reason if it could not decide."""
        if self.chips is None or isinstance(prediction, ValueError):
            return {"error": str(prediction)}
        return self.chips.recogniser.to_row(prediction)

    def rows(self, scene: SceneImage, strip: Strip = WHOLE) -> list[Row]:
        """Returns a row for each target of a scene or a strip of it, without the scene's path.

        Raises:
          ValueError: the scene is damaged, or does not fit the detector.
        """
        found = self.detector.detect_in(scene, strip=strip)
        if self.chips is None:
            own = found.rows()
        else:
            own = [self.cells(one) for one in self.chips.decided(scene, found.boxes)]
        return [place | cells for place, cells in zip(places_of(scene, found), own, strict=True)]


def places_of(scene: SceneImage, found: Detections) -> list[Row]:
    """Returns the first cells of each target's row."""
    return [
        cells_of(scene, box, score) for box, score in zip(found.boxes, found.scores, strict=True)
    ]
