"""Evaluating enrolled classes, and their effect on the classes a run was trained on."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import metrics, openset
from jaxatr.recognition import extension
from jaxatr.recognition.choice import RunDecision
from jaxatr.recognition.enrolment_file import Enrolment, chips
from jaxatr.recognition.session import Session
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import BOX_OFF, Part
from jaxatr.training import TrainedRun
from jaxatr.typing import PyTree


class Joined(NamedTuple):
    """Enrolled classes in an evaluation.

    Attributes:
      made: the decision with the enrolled classes.
      before: the run's decision without them, by the same score.
      enrolment: the run's enrolments.
      known: the classes on which the run was trained.
      further: names of the enrolled classes that are not in ``known``.
      outputs: outputs for the enrolled chips, with the inputs of the evaluation's scores.
      unknown: names of the data's classes that are in neither.
    """

    made: RunDecision
    before: openset.Decision
    enrolment: Enrolment
    known: tuple[str, ...]
    further: tuple[str, ...]
    outputs: openset.Outputs
    unknown: list[str]

    def parts_of(self, parts: Mapping[str, Part], task: OpenSet) -> dict[str, Part]:
        """Returns an evaluation's parts, with the enrolled classes known in the test examples.

        Enrolled chips are removed from the test.
        """
        numbers = {name: len(self.known) + place for place, name in enumerate(self.further)}
        enrolled = np.isin(task.examples.fingerprints("test"), list(self.enrolment.checksums))
        both = ("test", BOX_OFF)  # which have the same examples
        return {
            name: part.with_classes(numbers, ~enrolled) if name in both else part
            for name, part in parts.items()
        }

    def figures(self, test: openset.Outputs) -> dict[str, Any]:
        """Computes the metrics of the enrolled classes, for ``evaluation.json``.

        Args:
          test: outputs for the test examples, where enrolled classes are known.

        Returns:
          ``known`` and ``unknown``, the classes after the enrolment, and ``enrolled``. Its
          ``classes`` are those of :func:`figures_of`, with the number of enrolled ``chips``; its
          ``own`` has the other metrics, ``before`` and ``after`` the enrolment.
        """
        decision = self.made.decision
        assert decision is not None
        every = [*self.known, *self.further]
        before, after = (
            figures_of(one, test, every, len(self.known)) for one in (self.before, decision)
        )
        before.pop("classes")
        rows, counts = after.pop("classes"), self.enrolment.counts()
        rows = {name: {"chips": counts[name], **row} for name, row in rows.items()}
        own = {"before": before, "after": after}
        return {"known": every, "unknown": self.unknown, "enrolled": {"classes": rows, "own": own}}


def join(
    task: OpenSet,
    variables: PyTree,
    workdir: Path | None,
    step: int | None,
    made: RunDecision,
    enrolment: Enrolment,
    needs: Collection[str],
) -> Joined:
    """Adds enrolled classes to the decision of an evaluation.

    Args:
      task: the run's task.
      variables: variables of the checkpoint.
      workdir: the run's folder.
      step: step of the checkpoint.
      made: the run's decision.
      enrolment: the run's enrolments.
      needs: names of the inputs of the evaluation's scores.

    Raises:
      ValueError: the enrolled chips cannot be read, or do not fit the network.
    """
    assert workdir is not None and step is not None and made.decision is not None
    known = tuple(task.record["split"]["known"])
    further = enrolment.further(known)
    run = TrainedRun(workdir, type(task), task.config, task.record, step, variables)
    session = Session(run, {*needs, *made.decision.score.all_needs})
    decision = before = made.decision
    if before.score.takes_classes:

        def validation() -> openset.Outputs | None:
            return session.validation(lambda: task, enrolment.checksums)

        decision = extension.extend(session, before, enrolment, validation)
    found = chips(workdir, enrolment, known)
    outputs = session.outputs(found.images, found.labels)
    record = {**made.record, "enrolled": enrolment.counts()}
    unknown = [name for name in task.record["split"]["unknown"] if name not in further]
    return Joined(
        RunDecision(decision, record), before, enrolment, known, further, outputs, unknown
    )


def figures_of(
    decision: openset.Decision, test: openset.Outputs, classes: Sequence[str], own: int
) -> dict[str, Any]:
    """Computes metrics of a decision on the trained classes, and on each enrolled class.

    Args:
      decision: the run's decision.
      test: outputs for test examples, labelled by ``classes``.
      classes: names of the known classes.
      own: number of trained classes, which come first; the others are enrolled.

    Returns:
      For test examples of the trained classes, the fractions that are ``named`` correctly,
      ``accepted``, and both (``accuracy``). With unknown examples also ``unknown_accepted``, the
      fraction of these that is accepted, and ``auroc``. ``classes`` has for each enrolled class the
      number of ``test`` examples and, if there are any, their ``named``, ``accepted`` and
      ``accuracy``. Without a threshold, there is only ``classes``.
    """
    rows: dict[str, dict[str, Any]] = {
        name: {"test": int(np.sum(test.labels == number))}
        for number, name in enumerate(classes)
        if number >= own
    }
    if not has_threshold(decision):
        return {"classes": rows}
    answers = decision(test)
    right = answers.nearest == test.labels
    unknown, known = test.labels == openset.UNKNOWN, (0 <= test.labels) & (test.labels < own)
    figures: dict[str, Any] = {"classes": rows}
    if known.any():
        figures |= _three(right[known], answers.accepted[known])
    if unknown.any():
        figures["unknown_accepted"] = float(answers.accepted[unknown].mean())
    if known.any() and unknown.any():
        figures["auroc"] = metrics.auroc(answers.scores[known], answers.scores[unknown])
    for number, name in enumerate(classes[own:], own):
        if (chosen := test.labels == number).any():
            rows[name] |= _three(right[chosen], answers.accepted[chosen])
    return figures


def of_trained(
    record: Mapping[str, Any], decision: openset.Decision, test: openset.Outputs
) -> dict[str, Any]:
    """Computes metrics of classes that were enrolled in another run and then trained in this one.

    Returns:
      ``enrolled`` in the form of :meth:`Joined.figures`, with only ``after`` in ``own``; empty if
      the run has no such classes.
    """
    counts = record["dataset"].get("enrolled", {}).get("classes", {})
    if not counts:
        return {}
    known = record["split"]["known"]
    own = figures_of(decision, test, known, len(known) - len(counts))
    rows = {name: {"chips": counts[name], **row} for name, row in own.pop("classes").items()}
    return {"enrolled": {"classes": rows, "own": {"after": own}}}


def has_threshold(decision: openset.Decision) -> bool:
    """Returns whether a decision has a threshold, from a calibration or from the user."""
    return decision.threshold is not None or decision.calibration is not None


def _three(named: np.ndarray, accepted: np.ndarray) -> dict[str, float]:
    return {
        "named": float(named.mean()),
        "accepted": float(accepted.mean()),
        "accuracy": float((named & accepted).mean()),
    }
