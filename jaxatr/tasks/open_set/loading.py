"""The decision of a finished run, with the threshold that a user asks for."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxatr import openset
from jaxatr.tasks.open_set import enrolled, enrolling, fitted
from jaxatr.tasks.open_set.deciding import AUTO, RULE, Made, made_for, read, score_of
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Checkpoint, TrainedRun


class Loaded(NamedTuple):
    """A decision that is ready to use.

    Attributes:
      decision: it has a threshold.
      gamma: the γ that was given or recorded; None where there was none.
      note: what a user should know of it; empty for nothing.
      further: names of the enrolled classes that it knows beside the run's own.
    """

    decision: openset.Decision
    gamma: float | None
    note: str
    further: tuple[str, ...] = ()


def load_decision(
    run: TrainedRun,
    score: str | None,
    gamma: float | str | None,
    where: Mapping[str, str],
    checkpoint: Checkpoint,
    *,
    field: bool = True,
    enrolment: enrolled.Enrolment | bool = True,
) -> Loaded:
    """Loads what decides; what was not fitted yet is fitted, and kept in the run's folder.

    Args:
      run: the run.
      score: a name, or ``"auto"``; None for the one by which classes were enrolled, or else the
        configured one.
      gamma: the threshold, ``"fitted"``, or None for the decision's own.
      where: fields of ``config.data`` to change, where the data has moved.
      checkpoint: which the run was loaded at, for messages.
      field: take the calibration to chips of the field, if there is one.
      enrolment: know the classes that are enrolled, if there are some; or what is enrolled, in
        place of what the run's folder says.

    Raises:
      ValueError: there is no such score or threshold, or no data to fit it to; it is said why.
    """
    if run.config.open_set.negatives:
        raise ValueError(f"{run.workdir} is a plain classifier of known targets and others")
    if isinstance(enrolment, bool):
        joined = enrolled.read(run.workdir) if enrolment else None
    else:
        joined = enrolment
    name = score or (joined.score if joined else run.config.open_set.score)
    threshold = as_number(gamma)
    if name == RULE and run.config.loss.open == "none":
        raise ValueError(f"{run.workdir} is a plain classifier (loss.open=none): it has no γ")
    made = _unfitted(run, name) if threshold is not None else None
    made = made or read(run.workdir, run.step, run.config, score=name)
    made = made or _fit_now(run, name, where)
    if (decision := made.decision) is None:
        raise ValueError(f"{run.workdir} has no score that decides: {made.record['by']}")
    further, notes = (), []
    if joined is not None:
        decision, further, said = _with_enrolled(run, decision, joined, where)
        notes.append(said)
    if field:
        decision, said = _in_the_field(run, decision)
        notes.append(said)
    note = "; ".join(filter(None, notes))
    if threshold is not None:
        rules = decision.score.name == RULE
        at = openset.gamma_rule(threshold).threshold if rules else threshold
        return Loaded(decision.at(at), threshold if rules else None, note, further)
    if gamma == "fitted" and decision.calibration is None:
        fixed = _recorded_gamma(run, decision, checkpoint)
        return Loaded(openset.gamma_rule(fixed), fixed, note)
    if decision.threshold is None and decision.calibration is None:
        raise ValueError(
            f"{run.workdir}: there are no validation examples to fit a threshold of "
            f"{decision.score.name} to: give one, --gamma=NUMBER"
        )
    given = name == RULE and decision.calibration is None
    return Loaded(decision, run.config.open_set.gamma if given else None, note, further)


def open_task(run: TrainedRun, where: Mapping[str, str]) -> Any:
    """Opens a finished run's task with its data.

    Raises:
      ValueError: the data is missing, or is other data than the run was trained on.
    """
    config = begun(run.config)
    config.data.update(where)
    task = run.task(config)
    task.check_continues(run.workdir, run.record)
    return task


def as_number(gamma: float | str | None) -> float | None:
    """Parses a threshold that a user gives; None for a fitted one.

    Raises:
      ValueError: it is neither a number nor ``"fitted"``.
    """
    if gamma is None or gamma == "fitted":
        return None
    try:
        return float(gamma)
    except ValueError:
        raise ValueError(f"gamma: got {gamma!r}, wanted a number or 'fitted'") from None


def _unfitted(run: TrainedRun, name: str) -> Made | None:
    """Returns the decision by a score that needs no data if its threshold is given."""
    if name == AUTO or (found := score_of(name)).fitted or found.calibrated:
        return None
    saved = fitted.load(run.workdir, run.step, kept_as(found.name, run.config), found)
    return Made(saved or openset.Decision(found, {}), {"decides": found.name, "by": "name"})


def _fit_now(run: TrainedRun, name: str, where: Mapping[str, str]) -> Made:
    try:
        task = open_task(run, where)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{run.workdir}: nothing is fitted for score={name} at step {run.step}, and the data "
            f"to fit it to cannot be read ({error}); --source=FOLDER says where it is now"
        ) from error
    if name != AUTO and (reason := refusal(score_of(name), task.given)):
        raise ValueError(f"score: {name} {reason}")
    warnings.warn(
        f"{run.workdir}: score={name} is not fitted yet: it is fitted to the training data now",
        stacklevel=5,
    )
    return made_for(task, run.variables, run.workdir, run.step, score=name)


def _with_enrolled(
    run: TrainedRun,
    decision: openset.Decision,
    enrolment: enrolled.Enrolment,
    where: Mapping[str, str],
) -> tuple[openset.Decision, tuple[str, ...], str]:
    """Adds the enrolled classes to a decision, and names them; none to a score that takes none."""
    further = enrolment.further(run.classes)
    if not decision.score.takes_classes:
        listed = ", ".join(further)
        note = f"{decision.score.name} takes no classes: it does not know {listed}, enrolled"
        return decision, (), note if further else ""

    def validation() -> openset.Outputs | None:
        try:
            task = open_task(run, where)
        except (ValueError, OSError) as error:
            warnings.warn(
                f"{run.workdir}: the validation examples cannot be scored again with the enrolled "
                f"classes ({error}), so the threshold is the one from before; --source=FOLDER says "
                "where the data is now",
                stacklevel=2,
            )
            return None
        needs = decision.score.all_needs
        return enrolling.validation_of(task, run.variables, enrolment, needs)

    made = enrolling.extend(enrolling.Seeing.of_run(run), decision, enrolment, validation)
    return made, further, enrolled.describe(enrolment)


def _in_the_field(run: TrainedRun, decision: openset.Decision) -> tuple[openset.Decision, str]:
    """Takes the calibration to chips of the field, if there is one."""
    name = decision.score.name
    kept = kept_as(name, run.config) + fitted.FIELD
    found = fitted.load(run.workdir, run.step, kept, decision.score)
    if found is None or found.calibration is None:
        return decision, ""
    origin = fitted.provenance_of(run.workdir, run.step, kept)
    note = (
        f"{name} is calibrated to {len(found.calibration.scores)} chips of the field, "
        f"{origin.get('source')}, {origin.get('made')} (jaxatr calibrate --undo removes that)"
    )
    # What it compares with is not the calibration's affair: classes may have been enrolled since.
    return dataclasses.replace(decision, calibration=found.calibration, threshold=None), note


def _recorded_gamma(run: TrainedRun, decision: openset.Decision, checkpoint: Checkpoint) -> float:
    """Finds the γ that an evaluation fitted; it holds for the checkpoint it was fitted on."""
    if decision.score.name != RULE or run.record.get("fitted_gamma") is None:
        raise ValueError(f"{run.workdir} has no fitted γ: evaluate it, with a validation part")
    if (step := run.record["fitted_gamma_step"]) != run.step:
        raise ValueError(
            f"{run.workdir}: γ was fitted on the checkpoint of step {step}, not of step "
            f"{run.step}: evaluate it with --checkpoint={checkpoint}"
        )
    if run.record.get("fitted_gamma_of", RULE) != kept_as(RULE, run.config):
        raise ValueError(f"{run.workdir}: γ was fitted to outputs over other views: evaluate it")
    return run.record["fitted_gamma"]
