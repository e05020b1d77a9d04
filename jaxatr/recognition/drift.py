"""Drift: whether new chips and their scores still look like those that a run was fitted to."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, metrics
from jaxatr.recognition import store
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks import image_facts
from jaxatr.typing import Float

LEVEL = 0.01
"""Probability of a false alarm: of reporting a change of chips that have not changed."""

FEWEST = 20
"""Least number of chips from which a change is looked for."""

SCORE = "score"

_SINGLE = "facts of images are compared for single images only"

WORDS = {  # of lower and higher values
    SCORE: ("score lower", "score higher"),
    "brightness": ("are darker", "are brighter"),
    "contrast": ("have less contrast", "have more contrast"),
    "sharpness": ("are less sharp", "are sharper"),
    "noise": ("have less noise", "have more noise"),
    "offset": ("show targets nearer to the centre", "show targets farther from the centre"),
    "extent": ("show smaller or more cropped targets", "show wider targets or surroundings"),
}
"""Words about chips for lower and for higher values of a statistic."""


class Reference(NamedTuple):
    """The values that new chips are compared with.

    Attributes:
      values: values of each statistic, by name: the score of known validation chips, if the
        decision is calibrated to any, and the facts of training chips, if they were recorded. After
        a calibration to field chips, both are those of the field chips.
      missing: why statistics are missing; empty if none is.
      field: whether the values are those of field chips.
    """

    values: Mapping[str, Float[np.ndarray, " n"]]
    missing: str = ""
    field: bool = False


def reference_of(recogniser: OpenSetPredictor) -> Reference:
    """Returns the values that a recogniser's chips are compared with.

    Raises:
      ValueError: the recorded facts are damaged.
    """
    calibration, field = recogniser.decision.calibration, None
    values, missing = {}, []
    if calibration is None:
        missing.append("the decision is not calibrated to validation chips")
    else:
        values[SCORE] = calibration.scores
    if not isinstance(recogniser, Recogniser):
        missing.append(_SINGLE)
    elif facts := (field := _of_field(recogniser)) or image_facts.load(recogniser.workdir):
        values |= facts
    else:
        missing.append("this run was trained before facts of its training chips were recorded")
    return Reference(values, "; ".join(missing), field is not None)


def _of_field(recogniser: OpenSetPredictor) -> dict[str, Float[np.ndarray, " n"]] | None:
    """Returns the facts of the field chips to which the decision is calibrated, if it is."""
    calibration = recogniser.decision.calibration
    kept = recogniser.kept + store.FIELD
    if calibration is None or not store.path_of(recogniser.workdir, recogniser.step, kept).exists():
        return None
    saved = store.load(recogniser.workdir, recogniser.step, kept, recogniser.decision.score)
    if saved is None or saved.calibration is None:
        return None
    facts = store.provenance_of(recogniser.workdir, recogniser.step, kept).get("image_facts")
    if facts is None or not np.array_equal(saved.calibration.scores, calibration.scores):
        return None
    return {name: np.array(values) for name, values in facts.items()}


class Drift(NamedTuple):
    """The comparison of some chips with a run's reference.

    Attributes:
      chips: number of chips.
      shifts: the comparison of each statistic; empty with too few chips.
      missing: why statistics are missing; empty if none is.
      known: whether all chips are known to be of the classes of the training.
      field: whether the reference is that of field chips.
    """

    chips: int
    shifts: tuple[metrics.Shift, ...]
    missing: str = ""
    known: bool = False
    field: bool = False

    @property
    def found(self) -> tuple[metrics.Shift, ...]:
        """The statistics that have changed, those with the largest distance first."""
        every = [one for one in self.shifts if one.found(LEVEL)]
        return tuple(sorted(every, key=lambda one: -one.distance))

    def sentence(self) -> str:
        """Says in one line whether the chips have changed, and what that means."""
        missing = f" ({self.missing})" if self.missing else ""
        chips = f"{self.chips} {'known ' * self.known}chip{'' if self.chips == 1 else 's'}"
        if not self.shifts:
            need = f": at least {FEWEST} are needed" if self.chips < FEWEST else ""
            return f"drift: cannot be told from {chips}{need}{missing}"
        alarm = f"{LEVEL:.0%} of such tests find one by chance"
        if not self.found:
            return f"drift: none found in {chips}; {alarm}{missing}"
        than = "" if self.field else " than the validation chips"
        words = [WORDS[one.name][one.higher] + than * (one.name == SCORE) for one in self.found]
        listed = ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
        cause = "Chips of unknown classes can be the cause; if they are not, the"
        return (
            f"drift: compared with {'the field chips' if self.field else 'the training'}, these "
            f"{chips} {listed}; {alarm}. "
            f"{'The' if self.known else cause} threshold and the probabilities may not hold: "
            f"jaxatr calibrate fits them to such chips{missing}"
        )

    def lines(self) -> list[str]:
        """Returns the sentence, and the distance and the p-value of each statistic."""
        listed = [f"{one.name} {one.distance:.2f} (p {one.p_value:.2g})" for one in self.shifts]
        return [self.sentence(), *(["drift by statistic: " + ", ".join(listed)] if listed else [])]

    def to_json(self) -> dict[str, Any]:
        """Converts the comparison to JSON values."""
        return {
            "chips": self.chips,
            "found": bool(self.found),
            "sentence": self.sentence(),
            "level": LEVEL,
            "statistics": [one._asdict() | {"found": one.found(LEVEL)} for one in self.shifts],
        }


def of_known(
    reference: Reference, scores: Iterable[float], chips: Iterable[np.ndarray] | None = None
) -> Drift:
    """Compares inputs of classes that the run was trained on with its reference.

    Args:
      reference: what they are compared with.
      scores: the score of each.
      chips: the chips ``[h, w, c]``; None for tracks, of which only the scores are compared.
    """
    if chips is None:
        values = {name: reference.values[name] for name in (SCORE,) if name in reference.values}
        reference = reference._replace(values=values, missing=reference.missing or _SINGLE)
    watch = Watch(reference)
    for _ in watch.passing(chips or ()):
        pass
    for score in scores:
        watch.scored(float(score))
    return watch.drift()._replace(known=True)


class Sources:
    """Watches of all chips and of those of each source."""

    def __init__(self, reference: Reference):
        self._every = Watch(reference)
        self._watches: dict[str, Watch] = {}
        self._unknown: Counter[str] = Counter()

    @classmethod
    def of(cls, predictor: object) -> "Sources | None":
        """Returns the watches of a recogniser's chips; None for predictors of other kinds.

        Raises:
          ValueError: the recorded facts are damaged.
        """
        if not isinstance(predictor, OpenSetPredictor):
            return None
        return cls(reference_of(predictor))

    def add(
        self, source: str, facts: Float[np.ndarray, " f"] | None, score: float, label: str
    ) -> None:
        """Collects a chip: its source, facts, score and class."""
        own = self._watches.setdefault(source, Watch(self._every.reference))
        for watch in (self._every, own):
            watch.measured(facts)
            watch.scored(score)
        self._unknown[source] += label == UNKNOWN

    def lines(self) -> list[str]:
        """Returns the lines about all chips, and one about each source with enough of them."""
        lines = self._every.drift().lines()
        if len(self._watches) > 1:
            lines += [
                f"{source}: {self._unknown[source]} of {len(watch)} unknown; "
                f"{watch.drift().sentence()}"
                for source, watch in self._watches.items()
                if len(watch) >= FEWEST
            ]
        return lines


class Watch:
    """Collects chips and their scores, and compares them with a run's reference.

    Attributes:
      reference: what they are compared with.
    """

    def __init__(self, reference: Reference):
        self.reference = reference
        self._scores: list[float] = []
        self._facts: list[np.ndarray] = []

    @classmethod
    def of(cls, predictor: object) -> "Watch | None":
        """Returns a watch of a recogniser's chips; None for predictors of other kinds.

        Raises:
          ValueError: the recorded facts are damaged.
        """
        return cls(reference_of(predictor)) if isinstance(predictor, OpenSetPredictor) else None

    def __len__(self) -> int:
        """Returns the number of scores."""
        return len(self._scores)

    def passing(self, chips: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yields chips, and collects their facts."""
        for chip in chips:
            self.seen(chip)
            yield chip

    def seen(self, chip: np.ndarray) -> None:
        """Collects the facts of a chip, if there are those of training chips."""
        if self.compares_facts:
            self.measured(data.image_facts(chip))

    @property
    def compares_facts(self) -> bool:
        """Whether the reference has facts of chips."""
        return data.FACTS[0] in self.reference.values

    def measured(self, facts: Float[np.ndarray, " f"] | None) -> None:
        """Collects the facts of a chip that were computed already; None if it has none."""
        if facts is not None and self.compares_facts:
            self._facts.append(facts)

    def scored(self, score: float | None) -> None:
        """Collects a chip's score; one that is not a number counts as the lowest."""
        self._scores.append(-math.inf if score is None or math.isnan(score) else score)

    def drift(self) -> Drift:
        """Compares what was collected."""
        reference, count = self.reference, len(self._scores)
        if count < FEWEST or not reference.values:
            return Drift(count, (), reference.missing, field=reference.field)
        seen = {SCORE: np.array(self._scores)} | image_facts.by_name(self._facts)
        seen = {name: seen[name] for name in reference.values}
        shifts = metrics.shifts(reference.values, seen)
        return Drift(count, shifts, reference.missing, field=reference.field)
