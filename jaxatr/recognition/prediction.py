"""The prediction of an open-set recogniser: a known class or "unknown"."""

import math
from typing import NamedTuple

from jaxatr.reporting import notebook, score_record
from jaxatr.reporting.tables import guarantee_in_words
from jaxatr.tasks.neighbour import Neighbour, describe

UNKNOWN = "unknown"


class Prediction(NamedTuple):
    """A recogniser's prediction for one image.

    Attributes:
      label: a known class, or :data:`UNKNOWN`.
      nearest: the most likely known class, even if the image is rejected.
      score: value of the score that decides; higher for known images.
      known_probability: probability of being known, of the kind ``probability_is``; None if the
        score has none.
      gamma: γ, if CBC decides, otherwise None.
      probabilities: the closed-set classifier's probability of each trained class, given that the
        image is known. Enrolled classes have none.
      decides: name of the score that decides.
      threshold: threshold of the score; scores of at least this are accepted. Minus infinity
        accepts everything.
      p_value: fraction of known examples with a score that is not higher; None without examples.
      probability_is: ``"calibrated"`` (at even odds of known and unknown), ``"p-value"`` (equal to
        ``p_value``, which is not a probability of being known), ``"score"`` (the score itself is a
        probability, as in CBC), or empty.
      neighbours: the nearest training chips by the network's features, nearest first; empty unless
        the recogniser searches for them. Chips of enrolled classes are not among them.
      guarantee: the smallest probability with which the threshold accepts a known image that is
        like the validation examples; None without a guarantee, as for a given threshold.
    """

    label: str
    nearest: str
    score: float
    known_probability: float | None
    gamma: float | None
    probabilities: dict[str, float]
    decides: str = "cbc"
    threshold: float = math.nan
    p_value: float | None = None
    probability_is: str = ""
    neighbours: tuple[Neighbour, ...] = ()
    guarantee: float | None = None

    def card(self) -> notebook.Card:
        """Describes the prediction for a notebook: verdict, score, threshold and probabilities."""
        accepted = self.label != UNKNOWN
        bars, rest = notebook.probability_bars(self.probabilities)
        verdict = self.label if accepted else f"{UNKNOWN}, most like {self.nearest}"
        return notebook.Card(verdict, accepted, self._facts(), bars, rest)

    def _facts(self) -> list[str]:
        shown = score_record.shown(self.decides)
        far, sign = shown.scale == "distance", -1 if shown.scale == "distance" else 1
        score = f"{'distance' if far else 'score'} {sign * self.score:.4g}"
        limit = f"{'unknown beyond' if far else 'known from'} {sign * self.threshold:.4g}"
        if math.isinf(self.threshold):
            limit = f"{'everything' if self.threshold < 0 else 'nothing'} is accepted"
        elif math.isnan(self.threshold):
            limit = "no threshold"
        elif self.gamma is not None:
            limit += f" (γ {self.gamma:.4g})"
        facts = [f"{shown.title}: {score}, {limit}", guarantee_in_words(self.guarantee)]
        if self.known_probability is not None and self.probability_is != "p-value":
            facts.append(f"known with probability {self.known_probability:.3f}")
        if self.p_value is not None:
            facts.append(f"p-value among known examples {self.p_value:.3f}")
        if self.neighbours:
            facts.append(f"nearest training chip: {describe(self.neighbours[:1])}")
        return facts

    def _repr_html_(self) -> str:
        return notebook.render_cards([self.card()])
