"""Loading the decision of a finished run, with an optional threshold from the user."""

import dataclasses
import math
import os
import warnings
from collections.abc import Mapping
from typing import cast

from jaxatr import openset
from jaxatr.onnx.sessions import divided
from jaxatr.recognition import enrolment_file, extension, precision, store
from jaxatr.recognition.choice import RunDecision, made_for, read
from jaxatr.recognition.session import Session
from jaxatr.tasks.open_set import reframing
from jaxatr.tasks.open_set.deciders import AUTO, DEFAULT, RULE, score_of
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.tasks.parts import Part
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Checkpoint, Task, TrainedRun


def load_decision(
    run: TrainedRun,
    score: str | None,
    gamma: float | str | None,
    where: Mapping[str, str],
    checkpoint: Checkpoint,
    *,
    field: bool = True,
    enrolment: enrolment_file.Enrolment | bool = True,
    session: Session | None = None,
    runtime: str = "jax",
) -> RunDecision:
    """Loads the decision of a run, fitting and saving it in the run's folder if necessary.

    Args:
      run: the run.
      score: name of a score, or ``"auto"``; None for the score with which classes were enrolled, or
        else the configured one.
      gamma: the threshold, ``"fitted"``, or None for the decision's own.
      where: fields of ``config.data`` to change, if the data has moved.
      checkpoint: the checkpoint of the run, for messages.
      field: use the calibration to field chips, if there is one.
      enrolment: whether to include the run's enrolled classes, or the enrolments to use instead.
      session: the run's network, compiled for an earlier enrolment; None for a new one.
      runtime: the engine that will run the network; with a precision, the threshold is fitted to
        its outputs.

    Raises:
      ValueError: there is no such score or threshold, or no data to fit it to.
    """
    if isinstance(enrolment, bool):
        joined = enrolment_file.read(run.workdir) if enrolment else None
    else:
        joined = enrolment
    reframing.check_present(run.variables, run.config, run.workdir, run.step)
    name = score or (joined.score if joined else run.config.open_set.score)
    threshold = as_number(gamma)
    made = _made(run, name, where, needs_threshold=threshold is None)
    decision = made.rule
    further, notes = (), ["", "", ""]
    if divided(runtime)[1]:
        reduced = precision.fitted_in(
            run, decision, runtime, lambda: open_task(run, where), session=session
        )
        decision, session, notes[2] = reduced.decision, reduced.session, reduced.note
        made = made._replace(record=made.record | {"precision": reduced.facts})
    if joined is not None:
        decision, further, notes[0] = _with_enrolled(
            run, decision, joined, where, session or Session(run)
        )
    if field:
        before = decision
        decision, notes[1] = _in_the_field(run, decision, further, joined)
        if decision is not before and divided(runtime)[1]:
            raise ValueError(
                f"precision: {run.workdir} is calibrated to field chips in float32: use it or "
                "remove the calibration with jaxatr calibrate --undo"
            )
    if threshold is not None:
        decision, given = _at(decision, threshold)
    elif gamma == "fitted" and decision.calibration is None:
        given = _recorded_gamma(run, decision, checkpoint)
        decision, further = openset.gamma_rule(given), ()
    elif decision.threshold is None and decision.calibration is None:
        raise ValueError(
            f"{run.workdir}: there are no validation examples to fit the threshold of "
            f"{decision.score.name}: set it with --gamma=NUMBER"
        )
    else:
        fixed = name == RULE and decision.calibration is None
        given = run.config.open_set.gamma if fixed else None
    return made._replace(
        decision=decision, gamma=given, note="; ".join(filter(None, notes)), further=further
    )


def _made(
    run: TrainedRun, name: str, where: Mapping[str, str], *, needs_threshold: bool
) -> RunDecision:
    """Returns the decision of a score as it was fitted, fitting it now if necessary.

    Raises:
      ValueError: the run has no such decision, or no data to fit it to.
    """
    if run.config.open_set.negatives:
        raise ValueError(
            f"{run.workdir} was trained with open_set.negatives: it is a plain classifier, without "
            "a decision"
        )
    if name == RULE and run.config.loss.open == "none":
        raise ValueError(f"{run.workdir} is a plain classifier (loss.open=none): it has no γ")
    made = None if needs_threshold else _unfitted(run, name)
    made = made or read(run.workdir, run.step, run.config, score=name)
    made = made or _fit_now(run, name, where)
    if made.decision is None:
        raise ValueError(f"{run.workdir} has no score that decides: {made.record['by']}")
    return made


def _at(decision: openset.Decision, threshold: float) -> tuple[openset.Decision, float | None]:
    """Applies a given threshold; returns it as γ too, if it is a probability.

    Raises:
      ValueError: a probability was given for a score that is a logarithm.
    """
    if decision.score.name == RULE:
        return decision.at(openset.gamma_rule(threshold).threshold), threshold
    if decision.score.scale == "log" and threshold > 0:
        example = min(threshold, 1.0)
        raise ValueError(
            f"gamma: got {threshold:g}, but {decision.score.name} is the logarithm of a "
            f"probability: for {example:g} it is {math.log(example):.4g}"
        )
    return decision.at(threshold), None


def open_task(run: TrainedRun, where: Mapping[str, str]) -> OpenSet:
    """Opens the task of a finished run of open-set recognition, with its data.

    Args:
      run: the run.
      where: fields of ``config.data`` to change, if the data has moved.

    Raises:
      ValueError: the data is missing, or differs from that of the training.
    """
    return cast(OpenSet, _opened(run, where))


def open_part(run: TrainedRun, where: Mapping[str, str], name: str) -> Part:
    """Opens a part of the data of a finished run of open-set recognition or of an embedding.

    Args:
      run: the run.
      where: fields of ``config.data`` to change, if the data has moved.
      name: the part, such as ``"train"``.

    Raises:
      ValueError: the data is missing, or differs from that of the training.
    """
    return cast(OpenSet, _opened(run, where)).parts[name]  # an embedding divides it likewise


def _opened(run: TrainedRun, where: Mapping[str, str]) -> Task:
    config = begun(run.config)
    config.data.update(where)
    task = run.task(config)
    task.check_continues(run.workdir, run.record)
    return task


def as_number(gamma: float | str | None) -> float | None:
    """Parses a threshold from the user; None for a fitted one.

    Raises:
      ValueError: the threshold is neither a number nor ``"fitted"``.
    """
    if gamma is None or gamma == "fitted":
        return None
    try:
        threshold = float(gamma)
    except ValueError:
        threshold = math.nan
    if math.isnan(threshold):
        raise ValueError(f"gamma: got {gamma!r}, wanted a number or 'fitted'")
    return threshold


def _unfitted(run: TrainedRun, name: str) -> RunDecision | None:
    """Returns the decision of a score that needs no data for a given threshold, else None."""
    if name == AUTO or (score := score_of(name)).fitted or score.calibrated:
        return None
    saved = store.load(run.workdir, run.step, kept_as(score.name, run.config), score)
    return RunDecision(saved or openset.Decision(score, {}), {"decides": score.name, "by": "name"})


def _fit_now(run: TrainedRun, name: str, where: Mapping[str, str]) -> RunDecision:
    try:
        task = open_task(run, where)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{run.workdir}: score={name} is not fitted at step {run.step}, and the data for a fit "
            f"cannot be read: {error}"
        ) from error
    if name not in (AUTO, DEFAULT) and (reason := refusal(score_of(name), task.given)):
        raise ValueError(f"score: {name} {reason}")
    warnings.warn(
        f"{run.workdir}: score={name} is not fitted yet: fitting it to the training data",
        stacklevel=5,
    )
    return made_for(task, run.variables, run.workdir, run.step, score=name)


def _with_enrolled(
    run: TrainedRun,
    decision: openset.Decision,
    enrolment: enrolment_file.Enrolment,
    where: Mapping[str, str],
    session: Session,
) -> tuple[openset.Decision, tuple[str, ...], str]:
    """Extends a decision by the enrolled classes, if its score supports enrolment.

    Returns:
      ``(decision, further, note)``: the decision, the enrolled classes, and a notice for the user.
    """
    further = enrolment.further(run.classes)
    if not decision.score.takes_classes:
        listed = ", ".join(further)
        note = f"{decision.score.name} does not support the enrolled classes {listed}"
        return decision, (), note if further else ""

    def opened() -> OpenSet | None:
        try:
            return open_task(run, where)
        except (ValueError, OSError) as error:
            warnings.warn(
                f"{run.workdir}: the validation examples cannot be scored with the enrolled "
                f"classes, so the previous threshold is used: {error}",
                stacklevel=2,
            )
            return None

    session = session.wider(decision.score.all_needs)

    def validation() -> openset.Outputs | None:
        return session.validation(opened, enrolment.checksums)

    made = extension.extend(session, decision, enrolment, validation)
    return made, further, enrolment_file.describe(enrolment)


def _in_the_field(
    run: TrainedRun,
    decision: openset.Decision,
    further: tuple[str, ...],
    enrolment: enrolment_file.Enrolment | None,
) -> tuple[openset.Decision, str]:
    """Applies the calibration to field chips, if there is one, and returns a notice about it."""
    kept = kept_as(decision.score.name, run.config)
    found, note = of_field(run.workdir, run.step, kept, decision.score, further, enrolment)
    if found is None:
        return decision, note
    # Only the calibration is used: classes may have been enrolled since it was saved.
    return dataclasses.replace(decision, calibration=found, threshold=None), note


def of_field(
    workdir: str | os.PathLike,
    step: int,
    kept: str,
    score: openset.Score,
    further: tuple[str, ...] = (),
    enrolment: enrolment_file.Enrolment | None = None,
) -> tuple[openset.Calibration | None, str]:
    """Reads the calibration to field chips by which a score decides, with a notice about it.

    One of a time with enrolled chips that have been taken out since is not used.

    Args:
      workdir: the run's folder.
      step: step of the checkpoint.
      kept: name of the score's fit (:func:`jaxatr.tasks.open_set.views.kept_as`).
      score: the score.
      further: the enrolled classes that the decision includes.
      enrolment: the enrolments that it includes.

    Returns:
      The calibration, and the notice; None if there is none, or it is no longer used.
    """
    name = score.name
    if not store.has_field(workdir, step, kept):
        return None, ""
    kept += store.FIELD
    saved = store.load(workdir, step, kept, score)
    if saved is None:
        return None, f"{name} is no longer calibrated to field chips, as its code has changed"
    if saved.calibration is None:
        return None, ""
    origin = store.provenance_of(workdir, step, kept)
    then, compared = tuple(origin.get("enrolled", ())), {*origin.get("enrolled_chips", ())}
    gone = compared - (enrolment.checksums if enrolment else frozenset())
    if gone or then != further[: len(then)]:
        which = f"chips of {', '.join(then)}" if then else "chips"
        return None, (
            f"{name} is no longer calibrated to field chips, because {which} were enrolled then: "
            "run jaxatr calibrate again (jaxatr calibrate --undo removes this)"
        )
    chips = origin.get("unlabelled")
    what = f"calibrated to {saved.calibration.held_out} field chips"
    if chips:
        what = f"shifted to {chips} field chips without labels, an estimate without a guarantee"
    return saved.calibration, (
        f"{name} is {what}, {origin.get('source')}, {origin.get('made')} "
        "(jaxatr calibrate --undo removes this)"
    )


def _recorded_gamma(run: TrainedRun, decision: openset.Decision, checkpoint: Checkpoint) -> float:
    """Returns the γ that an evaluation of the same checkpoint fitted."""
    if decision.score.name != RULE or run.record.get("fitted_gamma") is None:
        raise ValueError(f"{run.workdir} has no fitted γ: evaluate it, with validation data")
    if (step := run.record["fitted_gamma_step"]) != run.step:
        raise ValueError(
            f"{run.workdir}: γ was fitted on the checkpoint of step {step}, not of step "
            f"{run.step}: evaluate it with --checkpoint={checkpoint}"
        )
    if run.record.get("fitted_gamma_of", RULE) != kept_as(RULE, run.config):
        raise ValueError(
            f"{run.workdir}: γ was fitted to outputs averaged over other views: evaluate it"
        )
    return run.record["fitted_gamma"]
