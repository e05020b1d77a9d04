"""How well a run knows its enrolled classes, and what its own classes lose by them."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import metrics, openset
from jaxatr.tasks.open_set import enrolling
from jaxatr.tasks.open_set.deciding import Made
from jaxatr.tasks.open_set.enrolled import Enrolment, chips
from jaxatr.tasks.parts import BOX_OFF
from jaxatr.typing import PyTree


class Joined(NamedTuple):
    """Enrolled classes, in an evaluation.

    Attributes:
      made: the decision that knows them.
      before: the run's own, by the same score.
      enrolment: what is enrolled.
      known: the run's own classes.
      further: names of those that are enrolled and not among them.
      outputs: on the enrolled chips, with what the evaluation's scores need.
      unknown: names of the data's classes that are neither, and are in the test.
    """

    made: Made
    before: openset.Decision
    enrolment: Enrolment
    known: tuple[str, ...]
    further: tuple[str, ...]
    outputs: openset.Outputs
    unknown: list[str]

    def figures(self, test: openset.Outputs) -> dict[str, Any]:
        """Measures the enrolled classes, for ``evaluation.json``.

        Args:
          test: outputs on the test examples, of which those of enrolled classes count as known.

        Returns:
          ``known`` and ``unknown``, the classes as they are now, and ``enrolled``: ``classes``, as
          of :func:`figures_of` and with the number of enrolled ``chips``, and ``own``, the other
          figures ``before`` and ``after``.
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
    task: Any,
    variables: PyTree,
    workdir: Path | None,
    step: int | None,
    made: Made,
    enrolment: Enrolment,
    needs: Collection[str],
) -> Joined:
    """Brings enrolled classes into an evaluation: into the decision, and into the test parts.

    Test examples of an enrolled class, by its name, are known ones from here on; those that are
    enrolled themselves are no test.

    Args:
      task: of the run; its test parts are changed.
      variables: of the checkpoint.
      workdir: the run's folder.
      step: of the checkpoint.
      made: the run's own decision.
      enrolment: what is enrolled.
      needs: of the evaluation's scores.

    Raises:
      ValueError: as :func:`jaxatr.tasks.open_set.enrolling.extend`.
    """
    assert workdir is not None and step is not None and made.decision is not None
    known = tuple(task.record["split"]["known"])
    further = enrolment.further(known)
    seeing = enrolling.of_task(task, variables, workdir, step, known)
    decision = before = made.decision
    if before.score.takes_classes:

        def validation() -> openset.Outputs | None:
            return enrolling.validation_of(task, variables, enrolment, before.score.all_needs)

        decision = enrolling.extend(seeing, before, enrolment, validation)
    numbers = {name: len(known) + place for place, name in enumerate(further)}
    own = np.isin(task.examples.fingerprints("test"), list(enrolment.checksums))
    for name in ("test", BOX_OFF):  # which are the same examples
        if name in task.parts:
            classes = task.examples.dataset.classes
            task.parts[name] = task.parts[name].with_classes(classes, numbers, ~own)
    outputs = seeing.outputs(chips(workdir, enrolment, known), needs)
    record = {**made.record, "enrolled": enrolment.counts()}
    unknown = [name for name in task.record["split"]["unknown"] if name not in further]
    return Joined(Made(decision, record), before, enrolment, known, further, outputs, unknown)


def figures_of(
    decision: openset.Decision, test: openset.Outputs, classes: Sequence[str], own: int
) -> dict[str, Any]:
    """Measures a decision on a run's own classes, and on further ones by themselves.

    Args:
      decision: of the run.
      test: outputs on test examples, labelled by ``classes``.
      classes: names of the known ones.
      own: how many of them, the first ones, are the run's own; the others are the further ones.

    Returns:
      Of the test examples of the run's own classes which share is ``named`` right, which is
      ``accepted``, and which is both, ``accuracy``; where there are unknown ones too, which share
      of those is taken for known, ``unknown_accepted``, and ``auroc`` of the two. ``classes`` has
      for each further class the number of its ``test`` examples and, where there are some, their
      ``named``, ``accepted`` and ``accuracy``. Nothing but ``classes`` without a threshold.
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
    found: dict[str, Any] = {"classes": rows}
    if known.any():
        found |= _three(right[known], answers.accepted[known])
    if unknown.any():
        found["unknown_accepted"] = float(answers.accepted[unknown].mean())
    if known.any() and unknown.any():
        found["auroc"] = metrics.auroc(answers.scores[known], answers.scores[unknown])
    for number, name in enumerate(classes[own:], own):
        if (chosen := test.labels == number).any():
            rows[name] |= _three(right[chosen], answers.accepted[chosen])
    return found


def of_trained(
    record: Mapping[str, Any], decision: openset.Decision, test: openset.Outputs
) -> dict[str, Any]:
    """Measures classes that were enrolled in another run, and that this one was trained on.

    Args:
      record: of the task.
      decision: of the run.
      test: outputs on the test examples.

    Returns:
      ``enrolled`` as of :meth:`Joined.figures`, with ``own`` figures ``after`` alone; nothing where
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
    """Says whether a decision can accept or reject."""
    return decision.threshold is not None or decision.calibration is not None


def _three(named: np.ndarray, accepted: np.ndarray) -> dict[str, float]:
    return {
        "named": float(named.mean()),
        "accepted": float(accepted.mean()),
        "accuracy": float((named & accepted).mean()),
    }
