"""Training examples scored as if they had not been seen, where validation examples are few.

Each training example is scored by a fit without it (in folds, as in cross-conformal prediction,
Vovk 2015, and CV+, Barber et al. 2021, "Predictive inference with the jackknife+"). That removes
the example from galleries and statistics, but not from the network, which was trained on it, so
that its score is still too high. The remedy is a shift: the training examples' scores are moved by
the median of all differences between a validation example's score and theirs (Hodges and Lehmann
1963, "Estimates of location based on rank tests"). The validation examples thus say where the
scores of unseen examples lie, and the more numerous training examples how they spread.

The result is an estimate without the guarantee of CV+, because it does not train the network in
folds. The guarantee of :class:`~jaxatr.openset.calibration.Calibration` rests on the validation
examples alone.
"""

import numpy as np
from numpy.typing import ArrayLike

from jaxatr.openset.calibration import Calibration
from jaxatr.openset.conformal import conformal_rank
from jaxatr.openset.decision import Decision
from jaxatr.openset.fit import fit_scores
from jaxatr.openset.head import Head
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Scale
from jaxatr.typing import Float, Int

FOLDS = 5
FEW = 3
"""Rank of the conformal threshold below which the validation examples are few: 59 at 95 %."""
_LEAST = 1e-12


def are_few(examples: int, *, tpr: float) -> bool:
    """Returns whether validation examples are too few for a threshold of their own.

    >>> are_few(58, tpr=0.95), are_few(59, tpr=0.95), are_few(0, tpr=1.0)
    (True, False, False)
    """
    return tpr < 1 and conformal_rank(examples, tpr=tpr) < FEW


def folds_of(labels: Int[np.ndarray, " n"], count: int = FOLDS) -> Int[np.ndarray, " n"]:
    """Divides examples into folds with equal shares of every class, always in the same way.

    Args:
      labels: ``[n]``.
      count: number of folds.

    Returns:
      ``[n]``, from 0; -1 for the only example of a class, which is in the fit of every fold.
    """
    fold = np.full(len(labels), -1)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        if len(own) > 1:
            order = np.random.default_rng(int(label)).permutation(own)
            fold[order] = np.arange(len(own)) % count
    return fold


def out_of_fold(
    decision: Decision,
    training: Outputs,
    head: Head | None,
    validation: Outputs,
    fold: Int[np.ndarray, " n"] | None = None,
) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """Scores training examples by fits without their fold.

    Args:
      decision: the decision, whose score is fitted again for each fold.
      training: outputs on n training examples of known classes.
      head: the closed-set classifier's last layer.
      validation: outputs on the validation examples, for scores that are calibrated.
      fold: ``[n]``, from :func:`folds_of`, which is the default. Examples of fold -1 are in every
        fit and get no score.

    Returns:
      ``(scores, nearest)``, ``[m]`` each, in the order of the training examples.

    Raises:
      ValueError: a fit rejects the examples that are left.
    """
    score = decision.score
    if not score.fitted:  # there is nothing from which an example could be left out
        return decision.score_of(training)
    fold = folds_of(training.labels) if fold is None else fold
    scores, nearest = np.full(len(fold), np.nan), np.zeros(len(fold), int)
    for number in range(fold.max(initial=-1) + 1):
        out = fold == number
        fitted = fit_scores(
            [score],
            training.select(~out),
            head,
            validation=validation,
            trained=decision.models,
            weighted=decision.models,
        )
        without = Decision(score, fitted.models, decision.gallery)
        scores[out], nearest[out] = without.score_of(training.select(out))
    scored = fold >= 0
    return scores[scored], nearest[scored]


def sees_images_only(decision: Decision) -> bool:
    """Returns whether a score depends on the images alone, and not on what the network learned."""
    return decision.score.all_needs == {"image"}


def as_unseen(
    seen: ArrayLike,
    validation: ArrayLike,
    *,
    scale: Scale = "plain",
) -> Float[np.ndarray, " n"]:
    """Moves the scores of training examples to where those of unseen examples lie.

    Args:
      seen: ``[n]``, scores of training examples by fits without them.
      validation: ``[v]``, scores of known examples that took no part in training.
      scale: unit of the score. Logarithms of probabilities, which nearly coincide for examples that
        the network was trained on, are moved as minus the logarithm of their absolute value.

    Raises:
      ValueError: there is no validation example.

    >>> as_unseen([4.0, 5.0, 6.0], [1.0, 3.0]).tolist()  # the differences' median is -3
    [1.0, 2.0, 3.0]
    """
    held_out, known = np.asarray(validation, np.float64), np.asarray(seen, np.float64)
    if not held_out.size:
        raise ValueError("validation: got no scores, wanted at least one")
    if not known.size:
        return known
    there, here = (_unbounded(one, scale) for one in (held_out, known))
    return _bounded(here + np.median(there[:, None] - here), scale)


def with_training(
    decision: Decision, training: Outputs, head: Head | None, validation: Outputs
) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """Scores training examples as if not seen, for :func:`jaxatr.openset.calibrate`.

    Args:
      decision: a decision, without a calibration.
      training: outputs on n training examples of known classes.
      head: the closed-set classifier's last layer.
      validation: outputs on the validation examples.

    Returns:
      ``(scores, nearest)``, ``[m]`` each.

    Raises:
      ValueError: a fit rejects the examples that are left, or there is no validation example.
    """
    seen, nearest = out_of_fold(decision, training, head, validation)
    if not sees_images_only(decision):
        seen = as_unseen(seen, decision.score_of(validation)[0], scale=decision.score.scale)
    return seen, nearest


def with_field(
    decision: Decision, scores: Float[np.ndarray, " v"], *, tpr: float
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]] | None:
    """Moves a calibration's examples to where those of another place lie, if these are few.

    The examples of the training's place then say how the scores spread elsewhere. All scores are
    moved, those of images too, because it is the images that differ. That they are not stretched as
    well was chosen on simulated chips and thermal boxes (docs/results/decisions.md).

    Args:
      decision: the decision before it is calibrated to examples of the other place.
      scores: ``[v]``, scores of known examples of the other place.
      tpr: share of known examples to accept.

    Returns:
      ``(scores, nearest)``, ``[n]`` each, for :func:`jaxatr.openset.calibrate`; None if the
      examples are enough for a threshold of their own, or if the decision has no calibration.
    """
    old = decision.calibration
    if old is None or not are_few(len(scores), tpr=tpr):
        return None
    return as_unseen(old.scores, scores, scale=decision.score.scale), old.nearest


def with_validation(
    decision: Decision, scores: Float[np.ndarray, " v"], nearest: Int[np.ndarray, " v"]
) -> Calibration:
    """Returns a decision's calibration with new scores of the validation examples.

    Any training examples are moved with them.

    Args:
      decision: a calibrated decision.
      scores: ``[v]``.
      nearest: ``[v]``, the class that each is assigned to.
    """
    old = decision.calibration
    assert old is not None
    if not old.pooled:
        count = None if old.unseen is None else len(scores)
        return old._replace(scores=scores, nearest=nearest, unseen=count)
    seen = old.scores[old.unseen :]
    if not sees_images_only(decision):
        seen = as_unseen(seen, scores, scale=decision.score.scale)
    return old._replace(
        scores=np.concatenate([scores, seen]),
        nearest=np.concatenate([nearest, old.nearest[old.unseen :]]),
        unseen=len(scores),
    )


def _unbounded(scores: Float[np.ndarray, " n"], scale: Scale) -> Float[np.ndarray, " n"]:
    return -np.log(np.maximum(-scores, _LEAST)) if scale == "log" else scores


def _bounded(scores: Float[np.ndarray, " n"], scale: Scale) -> Float[np.ndarray, " n"]:
    return -np.exp(-scores) if scale == "log" else scores
