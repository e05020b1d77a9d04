"""Decisions of an ensemble of networks.

Lakshminarayanan et al. (2017), "Simple and scalable predictive uncertainty estimation using deep
ensembles", section 2.4: the members are a mixture, and their class probabilities are averaged. The
temperature is fitted to the average, not to each member, because an average of calibrated
probabilities is underconfident (Rahaman and Thiery 2021, "Uncertainty quantification and deep
ensembles").

Scores of different networks have different units, so each is standardised on the validation
examples (:func:`jaxatr.openset.standing_of`) before they are averaged. Unlike p-values,
standardised scores still rank examples beyond all validation examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxatr.openset.calibration import Calibration, standing_of, unit_of
from jaxatr.openset.decision import Answers, Decision, calibrate
from jaxatr.openset.fit import fit_scores
from jaxatr.openset.logistic import log_softmax, logsumexp
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Float, Int


class Units(NamedTuple):
    """The units of the members' scores.

    Attributes:
      middle: ``[m]``, median score of known validation examples.
      spread: ``[m]``, spread of their scores about it.
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
"""The mean of the members' standardised scores, of the outputs of :func:`pool`."""


@dataclass(frozen=True)
class Pooled(Decision):
    """The decision of an ensemble, on the outputs of :func:`pool`.

    Attributes:
      mixture: whether every member has a calibrated probability of being known. The ensemble's
        probability is then their mean.
    """

    mixture: bool = False

    @property
    def probability_is(self) -> str:
        """The kind of ``known_probabilities`` (:attr:`Decision.probability_is`)."""
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
      decisions: the members' decisions.
      outputs: the members' outputs, with the arrays that their scores need.

    Returns:
      Outputs whose logits are the logarithms of the mean class probabilities. ``more`` has
      ``member_scores`` ``[n, m]`` and ``member_votes`` ``[n, k]``, the mean class probabilities, to
      which a member whose score names the class contributes a one-hot vector. If all members have
      calibrated probabilities of being known, these are ``member_known`` ``[n, m]``.
    """
    classes = outputs[0].logits.shape[1]
    logs, votes, scores, known = [], [], [], []
    for decision, one in zip(decisions, outputs, strict=True):
        score, nearest = decision.score_of(one)
        log = log_softmax(one.logits)
        logs.append(log)
        votes.append(np.eye(classes)[nearest] if decision.gallery else np.exp(log))
        scores.append(score)
        if (own := decision.calibration) is not None and own.sigmoid is not None:
            ranked = np.where(np.isnan(score), -np.inf, score)  # as in Decision.__call__
            known.append(own.sigmoid(standing_of(ranked, own.scores)))
    more = {"member_scores": np.stack(scores, axis=1), "member_votes": np.mean(votes, axis=0)}
    if _is_mixture(decisions):
        more["member_known"] = np.stack(known, axis=1)
    return Outputs(
        logsumexp(np.stack(logs), axis=0) - np.log(len(logs)),
        np.stack([np.asarray(one.open_logits, np.float64) for one in outputs]).mean(axis=0),
        outputs[0].labels,
        more,
    )


def fit_ensemble(
    decisions: Sequence[Decision],
    validation: Outputs,
    *,
    tpr: float,
    per_class: bool = False,
    same_training: bool = False,
) -> Pooled:
    """Fits an ensemble's score units, threshold and temperature.

    Args:
      decisions: the members' decisions.
      validation: pooled outputs (:func:`pool`) on known examples that no member was trained on.
      tpr: share of known examples to accept.
      per_class: fit a threshold for each assigned class instead of a common one.
      same_training: whether the members were trained on the same examples in the same order. If
        the members' thresholds are fitted to these as if not seen, so is the ensemble's.

    Raises:
      ValueError: there is no example, an example is unknown, a score is not finite, or ``tpr`` is
        out of range.
    """
    models = fit_scores([ENSEMBLE], None, None, validation=validation).models
    gallery = any(decision.gallery for decision in decisions)
    decision = Pooled(ENSEMBLE, models, gallery, mixture=_is_mixture(decisions))
    seen = _seen(decisions, models[ENSEMBLE.name]) if same_training else None
    fitted = calibrate(decision, validation, tpr=tpr, per_class=per_class, seen=seen)
    assert isinstance(fitted, Pooled)
    return fitted


def fit_out_of_fold(
    decisions: Sequence[Decision], *, tpr: float, per_class: bool = False
) -> Pooled:
    """Fits an ensemble of networks that were each trained without another part of the examples.

    Every example has a score of the one network that has not seen it, standardised among those of
    its fold. The threshold is fitted to all of these, as in CV+ (Barber et al. 2021, "Predictive
    inference with the jackknife+"). The ensemble compares the mean of the members' standardised
    scores with it. That mean spreads less than a single score, so that more known examples are
    accepted than asked for rather than fewer. The result is an estimate without a guarantee.

    The temperature is the median of the members', whose average may be underconfident.

    Args:
      decisions: the members' decisions, each calibrated to the examples of its own fold.
      tpr: share of known examples to accept.
      per_class: fit a threshold for each assigned class instead of a common one.

    Raises:
      ValueError: a decision is not calibrated.
    """
    units, scores, nearest = [], [], []
    for decision in decisions:
        own = decision.calibration
        if own is None or not own.held_out:
            raise ValueError(
                f"{decision.score.name}: its threshold is not fitted to the examples of its fold: "
                "decide by another score (--score), or use one of the runs"
            )
        unseen = own.scores[: own.held_out]
        units.append(unit_of(unseen))
        scores.append(standing_of(unseen, unseen))
        nearest.append(own.nearest[: own.held_out])
    every = np.concatenate(scores)
    temperatures = [one.calibration.temperature for one in decisions if one.calibration]
    return Pooled(
        ENSEMBLE,
        {ENSEMBLE.name: Units(*map(np.array, zip(*units, strict=True)))},
        any(decision.gallery for decision in decisions),
        Calibration(
            every,
            np.concatenate(nearest),
            float(np.median(temperatures)),
            tpr,
            per_class,
            unseen=len(every),
            folds=len(decisions),
        ),
        mixture=_is_mixture(decisions),
    )


def _seen(
    decisions: Sequence[Decision], units: Units
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]] | None:
    """Returns the ensemble's scores of training examples as if not seen; None without them."""
    own = [one.calibration for one in decisions if one.calibration and one.calibration.pooled]
    parts = [(one.scores[one.unseen :], one.nearest[one.unseen :]) for one in own]
    if len(own) < len(decisions) or len({len(scores) for scores, _ in parts}) > 1:
        return None
    columns = np.stack([scores for scores, _ in parts], axis=1)
    return ((columns - units.middle) / units.spread).mean(axis=1), parts[0][1]


def as_pooled(decision: Decision, members: Sequence[Decision]) -> Pooled:
    """Converts a decision that was read from a file to the decision of an ensemble.

    Args:
      decision: a decision by :data:`ENSEMBLE`.
      members: the members' decisions.
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
