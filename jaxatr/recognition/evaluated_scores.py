"""The scores of an evaluation: those that the run can compute, and where their models are."""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import openset
from jaxatr.recognition.baselines import trained_scores
from jaxatr.recognition.choice import RunDecision
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.task import OpenSet


class EvaluatedScores(NamedTuple):
    """The scores of an evaluation.

    Attributes:
      scores: scores computed from the run's network.
      trained: models of those scores that were trained separately, by name.
      networks: folders of the networks of further scores, by name.
      leave_out: skip scores that cannot be fitted, with a warning.
      ready: models of the score that decides and of its members, by name.
    """

    scores: tuple[openset.Score, ...]
    trained: dict[str, Any]
    networks: dict[str, Path]
    leave_out: bool
    ready: Mapping[str, Any] = {}

    @property
    def needs(self) -> frozenset[str]:
        """Inputs of all scores, other than logits."""
        return frozenset().union(*(score.all_needs for score in self.scores))

    @property
    def needs_of_fit(self) -> frozenset[str] | None:
        """Inputs of the scores to fit to training examples; None if there are none."""
        fitted = [s.all_needs for s in self.scores if s.fitted and s.name not in self.ready]
        return frozenset().union(*fitted) if fitted else None

    def adapted(self, validation: openset.Outputs | None) -> dict[str, Any]:
        """Adapts separately trained models to the run's network.

        Raises:
          ValueError: a model needs validation examples, and there are none.
        """
        models = dict(self.trained)
        for score in self.scores:
            if score.name in models and score.training and score.training.adapt:
                if validation is None:
                    raise ValueError(f"{score.name}: adapting it needs validation examples")
                models[score.name] = score.training.adapt(models[score.name], validation)
        return models


def choose(
    task: OpenSet,
    scores: str | Collection[str] | None,
    workdir: Path | None = None,
    default: Collection[str] = openset.DEFAULT,
    made: RunDecision | None = None,
) -> EvaluatedScores:
    """Chooses the scores of an evaluation.

    Args:
      task: the run's task.
      scores: names of scores, ``"all"``, or None for the default. In the last two cases, scores
        that the task cannot compute are skipped (``"all"`` warns of each), and trained baselines
        are added.
      workdir: the run's folder, to find trained baselines.
      default: names of the default scores.
      made: the decision of the run; its score is added unless scores are named.

    Raises:
      ValueError: a named score does not exist, or cannot be computed; the message says why.
    """
    listed = openset.choose_scores(default if scores is None else scores)
    if made is not None and made.decision is not None:  # it may have the form of an earlier version
        decides = made.decision.score
        listed = tuple(decides if one.name == decides.name else one for one in listed)
    considered = {**openset.SCORES, **{score.name: score for score in listed}}
    found = {} if workdir is None else trained_scores(workdir, considered.values())
    if scores in (None, "all"):
        listed += tuple(considered[name] for name in found if considered[name] not in listed)
        if made is not None and made.decision is not None and made.decision.score not in listed:
            listed += (made.decision.score,)
    chosen, trained, networks = [], {}, {}
    for score in listed:
        reason = refusal(score, task.given)
        if score.training and workdir is not None and (score.fit is None or reason):
            left = found.get(score.name)
            if left is None:
                own = score.name in openset.SCORES
                baseline = score.training.baseline if own else f"MODULE:{score.name.upper()}"
                raise ValueError(
                    f"scores: {score.name} has not been trained in {workdir}: "
                    f"jaxatr train --workdir={workdir} --baselines={baseline}"
                )
            if score.training.model is None:
                networks[score.name] = left
                continue
            trained[score.name] = left
        if reason:
            if scores not in (None, "all"):
                raise ValueError(f"scores: {score.name} {reason}")
            if scores == "all":
                warnings.warn(f"{score.name} is left out: it {reason}", stacklevel=3)
            continue
        chosen.append(score)
    ready = made.decision.models if made is not None and made.decision is not None else {}
    return EvaluatedScores(tuple(chosen), trained, networks, scores == "all", ready)
