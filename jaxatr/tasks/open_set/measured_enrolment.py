"""How well a run knows its enrolled classes, and what its own classes lose by them."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import metrics, openset
from jaxatr.tasks.open_set import enrolling
from jaxatr.tasks.open_set.deciding import Made
from jaxatr.tasks.open_set.enrolled import Enrolment, chips
from jaxatr.tasks.parts import BOX_OFF, Part
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
    """

    made: Made
    before: openset.Decision
    enrolment: Enrolment
    known: tuple[str, ...]
    further: tuple[str, ...]
    outputs: openset.Outputs

    def figures(self, test: openset.Outputs, classes: Sequence[str]) -> dict[str, Any]:
        """Measures the enrolled classes, for ``evaluation.json``.

        Args:
          test: outputs on the test examples, of which those of enrolled classes count as known.
          classes: of the data set.

        Returns:
          ``known`` and ``unknown``, the classes as they are now, and ``enrolled``, of
          :func:`compare`.
        """
        decision = self.made.decision
        assert decision is not None
        every = [*self.known, *self.further]
        unknown = [name for name in classes if name not in every]
        found = compare(self.before, decision, test, every)
        counts = self.enrolment.counts()
        for name, row in found["classes"].items():
            row["chips"] = counts[name]
        return {"known": every, "unknown": unknown, "enrolled": found}


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
            task.parts[name] = _with_classes(task, task.parts[name], numbers, ~own)
    outputs = seeing.outputs(chips(workdir, enrolment, known), needs)
    record = {**made.record, "enrolled": enrolment.counts()}
    return Joined(Made(decision, record), before, enrolment, known, further, outputs)


def compare(
    before: openset.Decision,
    after: openset.Decision,
    test: openset.Outputs,
    classes: Sequence[str],
) -> dict[str, Any]:
    """Measures further classes, and a run's own ones before and after they were added.

    Args:
      before: without them.
      after: with them.
      test: outputs on test examples; a label from the network's number of classes on is of one of
        them.
      classes: names of all known classes, theirs last.

    Returns:
      ``classes``: for each further class the number of its ``test`` examples and, where there are
      some, which share is ``named`` so, which is ``accepted``, and which is both, ``accuracy``.
      ``own``: for ``before`` and ``after``, of the test examples of the run's own classes which
      share is ``named`` right, ``accepted``, and both, ``accuracy``; where there are unknown ones
      too, which share of them is taken for known, ``unknown_accepted``, and ``auroc``.
    """
    known = test.logits.shape[1]
    figures = {}
    others = test.select(test.labels < known)
    for name, decision in (("before", before), ("after", after)):
        figures[name] = _shares(decision, others)
    answers = None if not has_threshold(after) else after(test)
    rows: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(classes[known:], known):
        chosen = test.labels == number
        rows[name] = {"test": int(chosen.sum())}
        if chosen.any() and answers is not None:
            named, accepted = answers.nearest[chosen] == number, answers.accepted[chosen]
            rows[name] |= _three(named, accepted)
    return {"classes": rows, "own": figures}


def has_threshold(decision: openset.Decision) -> bool:
    """Says whether a decision can accept or reject."""
    return decision.threshold is not None or decision.calibration is not None


def _three(named: np.ndarray, accepted: np.ndarray) -> dict[str, float]:
    return {
        "named": float(named.mean()),
        "accepted": float(accepted.mean()),
        "accuracy": float((named & accepted).mean()),
    }


def _shares(decision: openset.Decision, outputs: openset.Outputs) -> dict[str, float]:
    if not has_threshold(decision):
        return {}
    answers, known = decision(outputs), outputs.labels != openset.UNKNOWN
    found = {}
    if known.any():
        found |= _three((answers.nearest == outputs.labels)[known], answers.accepted[known])
    if not known.all():
        found["unknown_accepted"] = float(answers.accepted[~known].mean())
    if known.any() and not known.all():
        found["auroc"] = metrics.auroc(answers.scores[known], answers.scores[~known])
    return found


def _with_classes(task: Any, part: Part, numbers: dict[str, int], kept: np.ndarray) -> Part:
    """Returns some examples of a part, with labels of further classes by their names."""
    labels = part.labels.copy()
    for place, name in enumerate(task.examples.dataset.classes):
        if name in numbers:
            labels[part.classes == place] = numbers[name]
    return Part(part.split, part.indices[kept], labels[kept], part.chip)
