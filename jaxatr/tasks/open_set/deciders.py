"""The scores that can decide, by the names that ``open_set.score`` accepts."""

from jaxatr import openset
from jaxatr.typing import Config

AUTO = "auto"
"""Stands for the score that is chosen after the training."""

DEFAULT = "consensus"
"""The rule that decides unless another score is named (:mod:`jaxatr.openset.detectors.consensus`).
It stands for the first of its forms that a run can compute."""

FORMS = (DEFAULT, "consensus_closed")
"""The rule, and the same for a classifier without binary classifiers."""

RULE = "cbc"
"""Score of the paper's rule, which compares a probability with γ."""


NONE = "none"
"""Stands for no decision, in an exported network."""


def score_of(name: str) -> openset.Score:
    """Returns a score that can decide.

    Raises:
      ValueError: there is no such score, or it needs separate training.
    """
    (score,) = openset.choose_scores([name])
    if score.training is not None:
        raise ValueError(f"score: {name} needs separate training, so it cannot decide")
    return score


def decides(config: Config) -> bool:
    """Returns whether a run has a decision; baselines and trials do not."""
    return not config.open_set.negatives and not config.open_set.hold_out
