"""The decision about an example: its class, whether it is known, and with what confidence."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.calibration import Calibration, Sigmoid, fit_calibration
from jaxatr.openset.conformal import conformal_p_values, conformal_rank
from jaxatr.openset.fit import Fitted
from jaxatr.openset.logistic import sigmoid, softmax
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Bool, Float, Int


class Further(NamedTuple):
    """Classes that were enrolled after training; the network has no output for them.

    The threshold of an enrolled class is the lower of two values: the threshold of all known
    examples, and the ``max(1, k)``-th smallest leave-one-out score of the class's examples that are
    assigned to it, where k is the rank of the conformal test. A new example of the class that is
    assigned to it is accepted with a probability of at least :meth:`promise`. Leaving one example
    out is conservative for scores that further examples of a class can only raise, such as all
    nearest-neighbour scores.

    Attributes:
      first: number of the first enrolled class, which equals the network's number of classes.
      count: number of enrolled classes.
      scores: ``[m]``, leave-one-out scores of their examples.
      nearest: ``[m]``, the class that each is then assigned to.
      labels: ``[m]``, the true class of each.
    """

    first: int
    count: int
    scores: Float[np.ndarray, " m"]
    nearest: Int[np.ndarray, " m"]
    labels: Int[np.ndarray, " m"]

    def own(self, label: int) -> Float[np.ndarray, " n"]:
        """Returns the scores of a class's examples that are assigned to it, in ascending order."""
        return np.sort(self.scores[(self.nearest == label) & (self.labels == label)])

    def thresholds(self, calibration: Calibration) -> Float[np.ndarray, " e"]:
        """Computes the threshold of each enrolled class, which may be minus infinity."""
        overall = calibration.threshold
        thresholds = np.full(self.count, overall)
        for number in range(self.count):
            own = self.own(self.first + number)
            if own.size:
                rank = max(1, conformal_rank(own.size, tpr=calibration.tpr))
                thresholds[number] = min(overall, own[rank - 1])
        return thresholds

    def guarantees(self, calibration: Calibration) -> Float[np.ndarray, " e"]:
        """Computes the guarantee of each enrolled class; NaN for one that has none."""
        promises = (self.promise(self.first + i, calibration.tpr) for i in range(self.count))
        return np.array([np.nan if one is None else one for one in promises])

    def p_values(
        self,
        calibration: Calibration,
        scores: Float[np.ndarray, " n"],
        nearest: Int[np.ndarray, " n"],
        p_values: Float[np.ndarray, " n"],
    ) -> Float[np.ndarray, " n"]:
        """Returns p-values with those of examples that are assigned to an enrolled class replaced.

        They are among the class's own examples, or among all known ones if it has none.
        """
        for label in np.unique(nearest[nearest >= self.first]).tolist():
            own, chosen = self.own(label), nearest == label
            p_values[chosen] = conformal_p_values(
                own if own.size else calibration.reference, scores[chosen]
            )
        return p_values

    def promise(self, label: int, tpr: float) -> float | None:
        """Computes a lower bound on the probability that an example of a class is accepted.

        The bound holds for examples of the class that the score assigns to it.

        Args:
          label: number of the class.
          tpr: share of known examples to accept.

        Returns:
          The bound; None if none of the class's examples is assigned to it.
        """
        count = self.own(label).size
        return 1 - max(1, conformal_rank(count, tpr=tpr)) / (count + 1) if count else None


class Answers(NamedTuple):
    """Decisions about n examples.

    Attributes:
      nearest: ``[n]``, the known class that each most resembles.
      accepted: ``[n]``, whether each is accepted as known.
      scores: ``[n]``, higher is more known.
      thresholds: ``[n]``, the threshold that each score was compared with.
      probabilities: ``[n, k]``, the closed-set classifier's class probabilities, given that the
        example is known.
      known_probabilities: ``[n]``, probability of being known; None if the score provides none.
      p_values: ``[n]``, conformal p-values; None without a calibration.
      guarantees: ``[n]``, the smallest probability with which a known example of the assigned class
        is accepted; NaN without a guarantee.
    """

    nearest: Int[np.ndarray, " n"]
    accepted: Bool[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"]
    thresholds: Float[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n k"]
    known_probabilities: Float[np.ndarray, " n"] | None
    p_values: Float[np.ndarray, " n"] | None
    guarantees: Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Decision:
    """An open-set decision rule: a score with its fitted models and its thresholds.

    Attributes:
      score: the score that is compared with the threshold.
      models: fitted models of the score and of its members, by name.
      gallery: whether the score names the class, instead of the closed-set classifier.
      calibration: calibration on known examples, or None.
      threshold: a given threshold; None to use those of the calibration.
      further: classes that were enrolled after training, or None.
    """

    score: Score
    models: dict[str, Any]
    gallery: bool = False
    calibration: Calibration | None = None
    threshold: float | None = None
    further: Further | None = None

    @property
    def probability_is(self) -> str:
        """The kind of ``known_probabilities``; empty if there are none.

        ``"calibrated"``: fitted at even odds, with held-out known classes in place of unknown ones.
        ``"p-value"``: the share of known examples that look at least as unusual, which is not a
        probability of being known. ``"score"``: the probability that the score itself expresses as
        a logarithm or logit, uncalibrated.
        """
        if self.calibration is not None:
            return "p-value" if self.calibration.sigmoid is None else "calibrated"
        return "score" if self.score.scale in ("log", "logit") else ""

    def ready(self) -> "Decision":
        """Returns the decision with its galleries on the device, for use on many batches."""
        room = self.further is not None  # a console enrols one class after the other
        models = {name: gallery.ready(model, room=room) for name, model in self.models.items()}
        return replace(self, models=models)

    def at(self, threshold: float | None) -> "Decision":
        """Returns the decision with another threshold; None restores the calibrated ones."""
        return replace(self, threshold=threshold)

    def score_of(self, outputs: Outputs) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Computes the score and the class of n examples.

        The class is that of the closed-set classifier, unless the score names the class
        (``gallery``) or assigns the example to an enrolled class.
        """
        known = outputs.logits.shape[1]
        wide = outputs.widened(0 if self.further is None else self.further.count)
        answer = Fitted((self.score,), self.models).answers(wide)[self.score.name]
        label = np.asarray(answer.label)
        if not self.gallery:
            label = np.where(label >= known, label, outputs.predicted)
        return np.asarray(answer.score, np.float64), label

    def thresholds(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Computes the threshold of each class.

        Args:
          num_classes: number of classes of the network; enrolled classes follow them.

        Raises:
          ValueError: the decision has neither a threshold nor a calibration.
        """
        further = 0 if self.further is None else self.further.count
        if self.threshold is not None:
            return np.full(num_classes + further, float(self.threshold))
        if self.calibration is None:
            raise ValueError(f"{self.score.name}: there is no threshold")
        thresholds = self.calibration.thresholds(num_classes)
        if self.further is None:
            return thresholds
        return np.concatenate([thresholds, self.further.thresholds(self.calibration)])

    def guarantees(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Computes the guarantee of each class's threshold (:meth:`Calibration.guarantees`).

        Args:
          num_classes: number of classes of the network; enrolled classes follow them.

        Returns:
          ``[k]``; NaN for a class without a guarantee. A given threshold has none.
        """
        further = 0 if self.further is None else self.further.count
        if self.threshold is not None or self.calibration is None:
            return np.full(num_classes + further, np.nan)
        guarantees = self.calibration.guarantees(num_classes)
        if self.further is None:
            return guarantees
        return np.concatenate([guarantees, self.further.guarantees(self.calibration)])

    def __call__(self, outputs: Outputs) -> Answers:
        """Decides about n examples.

        An example whose score is NaN, because the network overflowed, is rejected; its probability
        of being known and its p-value are those of the lowest score.

        Raises:
          ValueError: there is no threshold.
        """
        scores, nearest = self.score_of(outputs)
        known_classes = outputs.logits.shape[1]
        thresholds = self.thresholds(known_classes)[nearest]
        calibration = self.calibration
        temperature = 1.0 if calibration is None else calibration.temperature
        logits = np.asarray(outputs.logits, np.float64) / temperature
        ranked = np.where(np.isnan(scores), -np.inf, scores)
        p_values = known = None
        if calibration is not None:
            p_values = calibration.p_values(ranked, nearest)
            if self.further is not None:
                p_values = self.further.p_values(calibration, ranked, nearest, p_values)
            known = calibration.known_probabilities(ranked, p_values)
        elif self.probability_is == "score":
            known = np.exp(ranked) if self.score.scale == "log" else sigmoid(ranked)
        return Answers(
            nearest,
            scores >= thresholds,
            scores,
            thresholds,
            softmax(logits),
            known,
            p_values,
            self.guarantees(known_classes)[nearest],
        )


def calibrate(
    decision: Decision,
    outputs: Outputs,
    *,
    tpr: float,
    per_class: bool = False,
    sigmoid: Sigmoid | None = None,
    seen: tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"]] | None = None,
) -> Decision:
    """Fits thresholds and probabilities to known examples; the score's models are unchanged.

    Args:
      decision: the decision to calibrate; its given threshold, if any, is dropped. If it is already
        calibrated, the examples are taken as those of another place: its temperature is the start
        of the new one (:func:`jaxatr.openset.calibration.fit_temperature`).
      outputs: outputs on n known examples that took no part in training. Examples of enrolled
        classes do not contribute to the temperature.
      tpr: share of known examples to accept.
      per_class: fit a threshold for each assigned class instead of a common one.
      sigmoid: maps a standardised score to the probability of being known.
      seen: scores and classes of other examples as if not seen (:mod:`jaxatr.openset.unseen`), to
        which the thresholds are also fitted; none by default.

    Raises:
      ValueError: there is no example, an example is unknown, a score is not finite, or ``tpr`` is
        out of range.
    """
    if not len(outputs.labels) or outputs.labels.min() < 0:
        raise ValueError("calibration: wanted known examples only, and at least one")
    scores, nearest = decision.score_of(outputs)
    before = None if decision.calibration is None else decision.calibration.temperature
    own = outputs.labels < outputs.logits.shape[1]
    try:
        fitted = fit_calibration(
            scores,
            nearest,
            tpr=tpr,
            per_class=per_class,
            sigmoid=sigmoid,
            logits=outputs.logits[own] if own.any() else None,
            labels=outputs.labels[own],
            before=before,
        )
    except ValueError as error:
        raise ValueError(f"{decision.score.name}: {error}") from error
    if not own.any():
        fitted = fitted._replace(temperature=1.0 if before is None else before)
    if seen is not None:
        more = (np.concatenate(pair) for pair in zip((scores, nearest), seen, strict=True))
        fitted = fitted._replace(**dict(zip(("scores", "nearest"), more, strict=True)))
    return replace(decision, calibration=fitted, threshold=None)
