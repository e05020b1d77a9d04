"""Several networks' answers to the same examples as one.

Lakshminarayanan et al. (2017), "Simple and scalable predictive uncertainty estimation using deep
ensembles", section 2.4: the members are a mixture, and their class probabilities are averaged. The
temperature is fitted to the average, and not to each member: an average of calibrated probabilities
is not sure enough (Rahaman and Thiery 2021, "Uncertainty quantification and deep ensembles").

Scores of different networks have different units, so each is averaged by its standing among the
validation examples (:func:`jaxatr.openset.standing_of`), as a fusion of scores sums them. Unlike
p-values, standings still tell examples apart that lie beyond all validation examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.special

from jaxatr.openset.decision import Answers, Decision, calibrate
from jaxatr.openset.fitted_scores import fit_scores
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.probability import standing_of, unit_of
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Float


class Units(NamedTuple):
    """The units of the members' scores.

    Attributes:
      middle: ``[m]``, the median of known validation examples.
      spread: ``[m]``, their spread about it.
    """

    middle: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]


def _units(model: None, outputs: Outputs) -> Units:
    del model
    units = [unit_of(column) for column in outputs.more["member_scores"].T]
    return Units(*map(np.array, zip(*units, strict=True)))


def _answer(model: Units, outputs: Outputs) -> Answer:
    standings = (outputs.more["member_scores"] - model.middle) / model.spread
    return Answer(standings.mean(axis=1), outputs.more["member_votes"].argmax(axis=1))


ENSEMBLE = Score(
    name="ensemble",
    title="Ensemble",
    score=_answer,
    calibrate=_units,
    needs=("member_scores", "member_votes"),
    names_class=True,
    model=Units,
)
"""The mean standing of the members' scores; its needs are those of :func:`pool`."""


@dataclass(frozen=True)
class Pooled(Decision):
    """The decision of an ensemble, on the outputs of :func:`pool`.

    Attributes:
      mixture: whether every member has a calibrated probability of being known, whose mean is the
        ensemble's.
    """

    mixture: bool = False

    @property
    def probability_is(self) -> str:
        """How the probability of being known comes about, as of :class:`Decision`."""
        return "calibrated" if self.mixture else super().probability_is

    def __call__(self, outputs: Outputs) -> Answers:
        """Decides about n examples.

        Raises:
          ValueError: there is no threshold.
        """
        answers = super().__call__(outputs)
        if not self.mixture:
            return answers
        return answers._replace(known_probabilities=outputs.more["member_known"].mean(axis=1))


def pool(decisions: Sequence[Decision], outputs: Sequence[Outputs]) -> Outputs:
    """Pools the outputs of m members on the same n examples.

    Args:
      decisions: of the members.
      outputs: of the members, with what their scores need.

    Returns:
      Outputs whose logits are the logarithms of the mean class probabilities. ``more`` has
      ``member_scores`` ``[n, m]``; ``member_votes`` ``[n, k]``, the mean of the probabilities, of a
      member whose score names the class of that class alone; and ``member_known`` ``[n, m]``, the
      probabilities of being known, where all members have calibrated ones.
    """
    classes = outputs[0].logits.shape[1]
    logs, votes, scores, known = [], [], [], []
    for decision, one in zip(decisions, outputs, strict=True):
        score, nearest = decision.score_of(one)
        log = scipy.special.log_softmax(np.asarray(one.logits, np.float64), axis=1)
        logs.append(log)
        votes.append(np.eye(classes)[nearest] if decision.gallery else np.exp(log))
        scores.append(score)
        if (own := decision.calibration) is not None and own.sigmoid is not None:
            known.append(own.sigmoid(standing_of(score, own.scores)))
    more = {"member_scores": np.stack(scores, axis=1), "member_votes": np.mean(votes, axis=0)}
    if _is_mixture(decisions):
        more["member_known"] = np.stack(known, axis=1)
    return Outputs(
        scipy.special.logsumexp(logs, axis=0) - np.log(len(logs)),
        np.stack([np.asarray(one.open_logits, np.float64) for one in outputs]).mean(axis=0),
        outputs[0].labels,
        more,
    )


def fit_ensemble(
    decisions: Sequence[Decision], validation: Outputs, *, tpr: float, per_class: bool = False
) -> Pooled:
    """Fits units, threshold and temperature of an ensemble.

    Args:
      decisions: of the members.
      validation: what :func:`pool` makes of known examples that no member was trained on.
      tpr: share of known examples that is to be accepted.
      per_class: whether that is to hold for each class that examples are taken for.

    Raises:
      ValueError: as :func:`jaxatr.openset.calibrate`.
    """
    models = fit_scores([ENSEMBLE], None, None, validation=validation).models
    gallery = any(decision.gallery for decision in decisions)
    decision = Pooled(ENSEMBLE, models, gallery, mixture=_is_mixture(decisions))
    fitted = calibrate(decision, validation, tpr=tpr, per_class=per_class)
    assert isinstance(fitted, Pooled)
    return fitted


def as_pooled(decision: Decision, members: Sequence[Decision]) -> Pooled:
    """Makes of a decision that was read from a file that of an ensemble.

    Args:
      decision: by :data:`ENSEMBLE`.
      members: decisions of the members.
    """
    return Pooled(
        decision.score,
        decision.models,
        decision.gallery,
        decision.calibration,
        decision.threshold,
        mixture=_is_mixture(members),
    )


def _is_mixture(decisions: Sequence[Decision]) -> bool:
    return all(decision.probability_is == "calibrated" for decision in decisions)
