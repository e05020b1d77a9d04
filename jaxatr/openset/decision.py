"""The decision about an example: its class, whether it is known, and how sure that is."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from jaxatr.openset import gallery
from jaxatr.openset.conformal import (
    class_thresholds,
    conformal_p_values,
    conformal_rank,
    conformal_threshold,
)
from jaxatr.openset.fitted_scores import Fitted
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.probability import Sigmoid, fit_temperature, standing_of
from jaxatr.openset.score import Score
from jaxatr.openset.scores.cbc import SCORE as CBC
from jaxatr.typing import Bool, Float, Int


class Calibration(NamedTuple):
    """Known examples that took no part in training, and what follows from them.

    Attributes:
      scores: ``[n]``, of the examples.
      nearest: ``[n]``, the class that each is taken for.
      temperature: of the class probabilities.
      tpr: share of known examples that is to be accepted.
      per_class: whether that holds for each class that examples are taken for.
      sigmoid: from a score's standing among these to the probability of being known; None where
        nothing could stand in for the unknown.
    """

    scores: Float[np.ndarray, " n"]
    nearest: Int[np.ndarray, " n"]
    temperature: float
    tpr: float
    per_class: bool
    sigmoid: Sigmoid | None

    def thresholds(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Finds the threshold of each class, perhaps minus infinity."""
        if self.per_class:
            return class_thresholds(self.scores, self.nearest, num_classes, tpr=self.tpr)
        return np.full(num_classes, conformal_threshold(self.scores, tpr=self.tpr))


class Further(NamedTuple):
    """Classes that were added to what a score compares with; the network has no output for them.

    Their threshold is that of all known examples, or a lower one by their own examples, each
    compared with the others: the ``max(1, k)``-th smallest of those scores, k being that of the
    conformal test. So n examples that are taken for a class promise that a further one that is
    taken for it is accepted with a probability of :meth:`promise` at least. For scores that more
    examples can only raise for their class, as for all that go by the nearest one, comparing with
    one example less errs on the safe side.

    Attributes:
      first: the first one's number; the network has so many classes.
      count: how many they are.
      scores: ``[m]``, of their examples, each compared with the others of its class.
      nearest: ``[m]``, the class that each is taken for then.
      labels: ``[m]``, the class of each.
    """

    first: int
    count: int
    scores: Float[np.ndarray, " m"]
    nearest: Int[np.ndarray, " m"]
    labels: Int[np.ndarray, " m"]

    def own(self, label: int) -> Float[np.ndarray, " n"]:
        """Lists the scores of the examples that are taken for a class, in rising order."""
        return np.sort(self.scores[self.nearest == label])

    def thresholds(self, calibration: Calibration) -> Float[np.ndarray, " e"]:
        """Finds the threshold of each of these classes, perhaps minus infinity."""
        of_all = conformal_threshold(calibration.scores, tpr=calibration.tpr)
        found = np.full(self.count, of_all)
        for number in range(self.count):
            own = self.own(self.first + number)
            if own.size:
                rank = max(1, conformal_rank(own.size, tpr=calibration.tpr))
                found[number] = min(of_all, own[rank - 1])
        return found

    def promise(self, label: int, tpr: float) -> float | None:
        """Computes the least probability that an example taken for a class is accepted by it.

        Args:
          label: of the class.
          tpr: wanted for it.

        Returns:
          None where no example says it.
        """
        count = self.own(label).size
        return 1 - max(1, conformal_rank(count, tpr=tpr)) / (count + 1) if count else None


class Answers(NamedTuple):
    """Decisions about n examples.

    Attributes:
      nearest: ``[n]``, the known class that each is most like.
      accepted: ``[n]``, whether it is taken for known.
      scores: ``[n]``.
      thresholds: ``[n]``, that the scores were compared with.
      probabilities: ``[n, k]``, of the network's classes if it is known, by the closed-set
        classifier.
      known_probabilities: ``[n]``, of being known; None where nothing says it.
      p_values: ``[n]``, share of known examples that are no more usual; None without any.
    """

    nearest: Int[np.ndarray, " n"]
    accepted: Bool[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"]
    thresholds: Float[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n k"]
    known_probabilities: Float[np.ndarray, " n"] | None
    p_values: Float[np.ndarray, " n"] | None


@dataclass(frozen=True)
class Decision:
    """A score that decides, with everything that it needs.

    Attributes:
      score: by which is decided.
      models: name of it, and of what it is made of, to fitted models.
      gallery: whether the score names the class, and not the closed-set classifier.
      calibration: by known examples; None without any.
      threshold: of the score, given from outside; None for the calibration's.
      further: classes that the network does not have; None without any.
    """

    score: Score
    models: dict[str, Any]
    gallery: bool = False
    calibration: Calibration | None = None
    threshold: float | None = None
    further: Further | None = None

    @property
    def probability_is(self) -> str:
        """How the probability of being known comes about, in a word; empty where there is none.

        ``"calibrated"``: at even odds, with known classes in the place of unknown ones.
        ``"p-value"``: the share of known examples that look at least as unusual, which is no
        probability of being known. ``"score"``: the score itself, as the network has it.
        """
        if self.calibration is not None:
            return "p-value" if self.calibration.sigmoid is None else "calibrated"
        return "score" if self.score.scale in ("log", "logit") else ""

    def ready(self) -> "Decision":
        """Returns the decision with its galleries on the device, to decide about many batches."""
        models = {name: gallery.ready(model) for name, model in self.models.items()}
        return replace(self, models=models)

    def at(self, threshold: float | None) -> "Decision":
        """Returns the decision at another threshold of its score."""
        return replace(self, threshold=threshold)

    def score_of(self, outputs: Outputs) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Computes score and class of n examples.

        The class is the score's where it names one of the further ones, or names all; else it is
        the closed-set classifier's.
        """
        known = outputs.logits.shape[1]
        wide = outputs.widened(0 if self.further is None else self.further.count)
        answer = Fitted((self.score,), self.models).answers(wide)[self.score.name]
        label = np.asarray(answer.label)
        if not self.gallery:
            label = np.where(label >= known, label, outputs.predicted)
        return np.asarray(answer.score, np.float64), label

    def thresholds(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Finds the threshold of each class.

        Args:
          num_classes: k, of the network; further classes come after them.

        Raises:
          ValueError: there is none: it is neither given nor is there anything to fit it to.
        """
        further = 0 if self.further is None else self.further.count
        if self.threshold is not None:
            return np.full(num_classes + further, float(self.threshold))
        if self.calibration is None:
            raise ValueError(f"{self.score.name}: there is no threshold")
        found = self.calibration.thresholds(num_classes)
        if self.further is None:
            return found
        return np.concatenate([found, self.further.thresholds(self.calibration)])

    def __call__(self, outputs: Outputs) -> Answers:
        """Decides about n examples.

        Raises:
          ValueError: there is no threshold.
        """
        scores, nearest = self.score_of(outputs)
        thresholds = self.thresholds(outputs.logits.shape[1])[nearest]
        calibration = self.calibration
        temperature = 1.0 if calibration is None else calibration.temperature
        logits = np.asarray(outputs.logits, np.float64) / temperature
        p_values = None if calibration is None else self._p_values(calibration, scores, nearest)
        known = p_values
        if calibration is not None and calibration.sigmoid is not None:
            known = calibration.sigmoid(standing_of(scores, calibration.scores))
        elif self.probability_is == "score":
            known = np.exp(scores) if self.score.scale == "log" else scipy.special.expit(scores)
        return Answers(
            nearest,
            scores >= thresholds,
            scores,
            thresholds,
            scipy.special.softmax(logits, axis=-1),
            known,
            p_values,
        )

    def _p_values(
        self, calibration: Calibration, scores: np.ndarray, nearest: np.ndarray
    ) -> np.ndarray:
        found = conformal_p_values(calibration.scores, scores)
        for c in np.unique(nearest).tolist():
            own = calibration.scores[calibration.nearest == c] if calibration.per_class else None
            if self.further is not None and c >= self.further.first:
                own = mine if (mine := self.further.own(c)).size else None
            if own is not None:
                found[nearest == c] = conformal_p_values(own, scores[nearest == c])
        return found


def gamma_rule(gamma: float) -> Decision:
    """Returns the rule of Safaei et al. (2023), section 2.3: CBC's probability against γ.

    Raises:
      ValueError: ``gamma`` is no probability.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: got {gamma}, wanted a probability in [0, 1]")
    return Decision(CBC, {}, threshold=float(scipy.special.logit(gamma)))


def calibrate(
    decision: Decision,
    outputs: Outputs,
    *,
    tpr: float,
    per_class: bool = False,
    sigmoid: Sigmoid | None = None,
) -> Decision:
    """Fits thresholds and probabilities to known examples; the score's own fit stays.

    Args:
      decision: to be calibrated; a threshold that it was given no longer counts.
      outputs: on n known examples that took no part in training. Those of classes that the network
        does not have say nothing of the temperature.
      tpr: share of known examples that is to be accepted.
      per_class: whether that is to hold for each class that examples are taken for.
      sigmoid: from standing to the probability of being known.

    Raises:
      ValueError: there is no example, one is of no known class, or ``tpr`` is out of range.
    """
    if not len(outputs.labels) or outputs.labels.min() < 0:
        raise ValueError("calibration: wanted known examples, at least one, and no others")
    scores, nearest = decision.score_of(outputs)
    if not np.isfinite(scores).all():
        raise ValueError(f"{decision.score.name}: {np.sum(~np.isfinite(scores))} are not finite")
    temperature = 1.0 if decision.calibration is None else decision.calibration.temperature
    if (own := outputs.labels < outputs.logits.shape[1]).any():
        temperature = fit_temperature(outputs.logits[own], outputs.labels[own])
    conformal_threshold(scores, tpr=tpr)
    fitted = Calibration(scores, np.asarray(nearest), temperature, tpr, per_class, sigmoid)
    return replace(decision, calibration=fitted, threshold=None)
