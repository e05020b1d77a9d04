"""The decision of a run whose network runs in a precision below float32."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import jaxatr
from jaxatr import openset
from jaxatr.onnx.sessions import divided
from jaxatr.recognition import store
from jaxatr.recognition.session import Session
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.training import TrainedRun, digest


class Reduced(NamedTuple):
    """A decision for a network in a precision below float32.

    Attributes:
      decision: the decision with thresholds for the network.
      session: the network, with the outputs that the decision needs.
      note: a notice for the user about what the precision costs.
      facts: the same as JSON values: ``precision``; with validation examples also their number, the
        share of equal decisions, and ``accuracy`` and ``accepted`` in float32 and in the precision.
    """

    decision: openset.Decision
    session: Session
    note: str
    facts: dict[str, Any]


def fitted_in(
    run: TrainedRun,
    decision: openset.Decision,
    runtime: str,
    task: Callable[[], OpenSet],
    *,
    session: Session | None = None,
) -> Reduced:
    """Fits a run's decision to its network in a precision, or reads an earlier fit.

    Args:
      run: the run.
      decision: the decision, fitted to the network in float32.
      runtime: the engine with its precision, such as ``"onnxruntime:int8"``.
      task: opens the run's task with its data.
      session: the network in the precision, if there is one; None for a new one.

    Raises:
      ValueError: the data cannot be read, or the network cannot be converted.
      ImportError: the package of the engine is not installed; the message names the extra.
    """
    _, precision = divided(runtime)
    session = session or Session(run, runtime=runtime, task=task)
    session = session.wider(decision.score.all_needs)
    before = decision.calibration
    if before is None:
        return Reduced(
            decision, session, f"{precision}: γ is that of float32", {"precision": precision}
        )
    kept = f"{kept_as(decision.score.name, run.config)}.{precision}"
    # The next version may convert the network in another way.
    basis = digest([before.scores, before.nearest, jaxatr.__version__])
    saved = store.load(run.workdir, run.step, kept, decision.score)
    facts = {} if saved is None else store.provenance_of(run.workdir, run.step, kept)
    if saved is None or saved.calibration is None or facts.pop("basis", None) != basis:
        made, facts = refitted(session, decision, task())
        try:
            store.save(run.workdir, run.step, kept, made, {**facts, "basis": basis})
        except OSError as error:
            warnings.warn(f"the thresholds in {precision} cannot be saved: {error}", stacklevel=3)
    else:
        fitted = saved.calibration._replace(tpr=before.tpr, per_class=before.per_class)
        made = dataclasses.replace(decision, calibration=fitted)
    return Reduced(made, session, _described(facts), facts)


def _described(facts: dict[str, Any]) -> str:
    if "equal_decisions" not in facts:
        return (
            f"{facts['precision']}: the threshold is that of float32, without validation examples"
        )
    full, reduced = facts["accuracy"]
    return (
        f"{facts['precision']}: {facts['equal_decisions']:.1%} of {facts['validation_examples']} "
        f"validation examples are decided as in float32, with an accuracy of {reduced:.3f} instead "
        f"of {full:.3f}"
    )


def refitted(
    session: Session, decision: openset.Decision, task: OpenSet
) -> tuple[openset.Decision, dict[str, Any]]:
    """Fits the thresholds of a decision anew, to the outputs of the network in its precision.

    The score's models stay as they are, and so does the map from standardised scores to the
    probability of being known. Training examples to which the threshold was fitted as if not seen
    keep their scores.

    Args:
      session: the network in its precision, with the outputs that the decision needs.
      decision: the decision, fitted to the network in float32.
      task: the run's task, with its data.

    Returns:
      The decision, unchanged without a calibration; and the facts of the loss on the validation
      examples, each value in float32 and in the precision.

    Raises:
      ValueError: a score is not finite.
    """
    _, precision = divided(session.runtime)
    before = decision.calibration
    if before is None or "validation" not in task.parts:
        return decision, {"precision": precision}
    needs = decision.score.all_needs
    plain = task.decided_outputs(session.run.variables, "validation", needs)
    reduced = session.of_validation(task)
    made = openset.calibrate(
        dataclasses.replace(decision, calibration=None),
        reduced,
        tpr=before.tpr,
        per_class=before.per_class,
        sigmoid=before.sigmoid,
        seen=(before.scores[before.held_out :], before.nearest[before.held_out :])
        if before.pooled
        else None,
    )
    answers = decision(plain), made(reduced)
    decided = [np.where(one.accepted, one.nearest, openset.UNKNOWN) for one in answers]
    return made, {
        "precision": precision,
        "validation_examples": len(plain.labels),
        "equal_decisions": float(np.mean(decided[0] == decided[1])),
        "accuracy": [float(np.mean(one.nearest == plain.labels)) for one in answers],
        "accepted": [float(np.mean(one.accepted)) for one in answers],
    }
