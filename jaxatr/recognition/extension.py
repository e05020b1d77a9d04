"""Extending the decision of a run by its enrolled classes.

The extended decision is saved beside that of the run, as ``fitted/STEP/NAME.enrolled.npz``, for
each precision of the network, and computed again if the enrolments have changed, or if another
version of the package has converted the network to the precision.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jaxatr
from jaxatr import openset
from jaxatr.onnx.sessions import divided
from jaxatr.recognition import store
from jaxatr.recognition.enrolment_file import Enrolment, chips
from jaxatr.recognition.session import Session
from jaxatr.training import TrainedRun

KEPT = ".enrolled"
"""Suffix of the file name, after the name of the score."""


def extend(
    session: Session,
    decision: openset.Decision,
    enrolment: Enrolment,
    validation: Callable[[], openset.Outputs | None],
) -> openset.Decision:
    """Extends a decision by the enrolled classes, or reads the saved extended decision.

    Args:
      session: the run's network, with the needs of the score.
      decision: the run's decision, by a score that supports enrolment.
      enrolment: the run's enrolments.
      validation: computes the outputs for the run's validation examples, without enrolled ones;
        returns None if they are not available, in which case the threshold of ``decision`` is used
        until they are.

    Raises:
      ValueError: the chips cannot be read, or do not fit the network.
    """
    run = session.run
    _, precision = divided(session.runtime)
    # Chips and thresholds of another precision would be mixed with those of this one.
    kept = session.key(decision.score.name) + (f".{precision}" if precision else "") + KEPT
    basis = {"enrolment": enrolment.digest} | ({"version": jaxatr.__version__} if precision else {})
    saved, origin = _read(run, kept, decision.score)
    if saved is not None and origin["scored"] and basis.items() <= origin.items():
        return _set_like(saved, decision)
    scored = validation() if decision.calibration is not None else None
    found = chips(run.workdir, enrolment, run.classes)
    outputs = session.outputs(found.images, found.labels)
    classes = len(enrolment.further(run.classes))
    made = openset.enrol(decision, outputs, classes, validation=scored)
    provenance = basis | {"scored": scored is not None or decision.calibration is None}
    try:
        store.save(run.workdir, run.step, kept, made, provenance)
    except OSError as error:
        warnings.warn(
            f"the decision with enrolled classes could not be saved: {error}", stacklevel=2
        )
    return made


def _set_like(found: openset.Decision, decision: openset.Decision) -> openset.Decision:
    """Applies a decision's TPR and kind of threshold, which may have changed since the fit."""
    if found.calibration is None or decision.calibration is None:
        return found
    now = decision.calibration
    calibration = found.calibration._replace(tpr=now.tpr, per_class=now.per_class)
    return dataclasses.replace(found, calibration=calibration)


def _read(
    run: TrainedRun, kept: str, score: openset.Score
) -> tuple[openset.Decision | None, dict[str, Any]]:
    found = store.load(run.workdir, run.step, kept, score)
    if found is None:
        return None, {}
    return found, store.provenance_of(run.workdir, run.step, kept)


def takers(given: Collection[str] | None = None) -> tuple[openset.Score, ...]:
    """Returns the scores that support enrolment.

    Args:
      given: names of the inputs of scores that a run provides; None for all.
    """
    return tuple(
        score
        for score in openset.SCORES.values()
        if score.takes_classes and (given is None or score.all_needs <= set(given))
    )


def best_taker(given: Collection[str], areas: dict[str, float]) -> str | None:
    """Returns the name of the best score that supports enrolment.

    Args:
      given: names of the inputs of scores that the run provides.
      areas: AUROC on held-out known classes, by score, for those that were compared.

    Returns:
      The name, or None if no such score was compared.
    """
    able = [one.name for one in takers(given) if one.name in areas]
    return max(able, key=lambda name: areas[name]) if able else None


def check_takes(
    workdir: Path, score: openset.Score, given: Collection[str], areas: dict[str, float]
) -> None:
    """Checks that a score supports enrolment.

    Args:
      workdir: the run's folder, for the message.
      score: the score that decides.
      given: names of the inputs of scores that the run provides.
      areas: AUROC on held-out known classes, by score, for those that were compared; the message
        lists the best scores first.

    Raises:
      ValueError: the score does not support enrolment; the message lists scores that do.
    """
    if score.takes_classes:
        return
    able = [one.name for one in takers(given)]
    able.sort(key=lambda name: -areas.get(name, -1.0))
    measured = " (best on held-out known classes first)" if set(areas) & set(able) else ""
    raise ValueError(
        f"{workdir}: {score.name} decides, and cannot take new classes. Another score can, and "
        f"decides from then on: --score=auto chooses one, --score=NAME names it: "
        f"{', '.join(able)}{measured}"
    )
