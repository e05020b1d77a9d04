"""Extending the decision of a run by its enrolled classes.

The extended decision is saved beside that of the run, as ``fitted/STEP/NAME.enrolled.npz``, and
computed again if the enrolments have changed.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.tasks.open_set import fitted
from jaxatr.tasks.open_set.enrolled import Chips, Enrolment, chips
from jaxatr.tasks.open_set.scored import Enrollable
from jaxatr.tasks.open_set.views import kept_as, outputs_of, views_of
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, Config, Network, PyTree

KEPT = ".enrolled"
"""Suffix of the file name, after the name of the score."""

_BATCH = 32


class Seeing:
    """A run's network at a checkpoint, for one enrolment or for many.

    The compiled network and the outputs for the validation examples are kept, because they do not
    depend on the enrolled classes: a process that enrols one class after another compiles once.

    Attributes:
      workdir: the run's folder.
      step: step of the checkpoint.
      config: the run's configuration.
      known: the classes on which the run was trained.
      areas: AUROC on held-out known classes, by score, once they are compared for an enrolment.
    """

    def __init__(
        self,
        workdir: Path,
        step: int,
        config: Config,
        known: tuple[str, ...],
        module: Network,
        normalize: Callable[[ArrayLike], jax.Array],
        variables: PyTree,
    ):
        """Takes the network.

        Args:
          workdir: the run's folder.
          step: step of the checkpoint.
          config: the run's configuration.
          known: the classes on which the run was trained.
          module: the network.
          normalize: normalises raw chips.
          variables: variables of the checkpoint, on one device.
        """
        self.workdir, self.step, self.config, self.known = workdir, step, config, known
        self._module, self._normalize, self._variables = module, normalize, variables
        self.areas: dict[str, float] = {}
        self._programs: dict[frozenset[str], Callable[..., dict[str, jax.Array]]] = {}
        self._validated: dict[frozenset[str], _Validated | None] = {}

    @classmethod
    def of_run(cls, run: TrainedRun) -> "Seeing":
        """Returns the network of a loaded run."""
        return cls(
            run.workdir, run.step, run.config, run.classes, run.module, run.normalize, run.variables
        )

    def outputs(self, found: Chips, needs: Collection[str]) -> openset.Outputs:
        """Computes the network's outputs for chips.

        Args:
          found: the chips.
          needs: names of the inputs of scores to compute in addition to the logits.
        """
        infer = self._program(frozenset(needs))
        rows: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(found.images), _BATCH):
            batch = found.images[start : start + _BATCH]
            padding = [(0, _BATCH - len(batch)), *[(0, 0)] * (batch.ndim - 1)]
            out = infer(self._variables, np.pad(batch, padding, mode="edge"))
            for name, values in {**out, "image": batch}.items():
                rows.setdefault(name, []).append(np.asarray(values)[: len(batch)])
        columns = {name: np.concatenate(parts) for name, parts in rows.items()}
        logits, open_logits = columns.pop("logits"), columns.pop("open_logits")
        return openset.Outputs(logits, open_logits, found.labels, columns)

    def _program(self, needs: frozenset[str]) -> Callable[..., dict[str, jax.Array]]:
        if needs not in self._programs:
            module, normalize, views = self._module, self._normalize, views_of(self.config)

            @jax.jit
            def infer(variables: PyTree, images: ArrayLike) -> dict[str, jax.Array]:
                return outputs_of(module, variables, normalize(images), needs, views)

            self._programs[needs] = infer
        return self._programs[needs]

    def validation(
        self, task: Callable[[], Enrollable | None], enrolment: Enrolment, needs: Collection[str]
    ) -> openset.Outputs | None:
        """Computes the outputs for the run's validation examples, without enrolled ones.

        Args:
          task: opens the run's task, with its data; None if they cannot be read. It is called
            until it has opened them once for a set of needs.
          enrolment: the run's enrolments.
          needs: names of the inputs of the score.

        Returns:
          The outputs, or None if there are no such examples.
        """
        key = frozenset(needs)
        if key not in self._validated:
            if (opened := task()) is None:
                return None
            self._validated[key] = _validated(opened, self._variables, needs)
        if (found := self._validated[key]) is None:
            return None
        kept = ~np.isin(found.fingerprints, list(enrolment.checksums))
        return found.outputs.select(kept) if kept.any() else None


class _Validated(NamedTuple):
    """Outputs for validation examples, and the SHA-256 of their chips."""

    outputs: openset.Outputs
    fingerprints: np.ndarray


def _validated(task: Enrollable, variables: PyTree, needs: Collection[str]) -> _Validated | None:
    if "validation" not in task.parts:
        return None
    outputs = task.decided_outputs(variables, "validation", needs)
    return _Validated(outputs, np.asarray(task.examples.fingerprints("validation")))


def extend(
    seeing: Seeing,
    decision: openset.Decision,
    enrolment: Enrolment,
    validation: Callable[[], openset.Outputs | None],
) -> openset.Decision:
    """Extends a decision by the enrolled classes, or reads the saved extended decision.

    Args:
      seeing: the run's network.
      decision: the run's decision, by a score that supports enrolment.
      enrolment: the run's enrolments.
      validation: computes the outputs for the run's validation examples, without enrolled ones;
        returns None if they are not available, in which case the threshold of ``decision`` is used
        until they are.

    Raises:
      ValueError: the chips cannot be read, or do not fit the network.
    """
    kept = kept_as(decision.score.name, seeing.config) + KEPT
    found, origin = _read(seeing, kept, decision.score)
    if found is not None and origin["enrolment"] == enrolment.digest and origin["scored"]:
        return _set_like(found, decision)
    scored = validation() if decision.calibration is not None else None
    outputs = seeing.outputs(
        chips(seeing.workdir, enrolment, seeing.known), decision.score.all_needs
    )
    classes = len(enrolment.further(seeing.known))
    made = openset.enrol(decision, outputs, classes, validation=scored)
    provenance = {
        "enrolment": enrolment.digest,
        "scored": scored is not None or decision.calibration is None,
    }
    try:
        fitted.save(seeing.workdir, seeing.step, kept, made, provenance)
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
    seeing: Seeing, kept: str, score: openset.Score
) -> tuple[openset.Decision | None, dict[str, Any]]:
    found = fitted.load(seeing.workdir, seeing.step, kept, score)
    if found is None:
        return None, {}
    return found, fitted.provenance_of(seeing.workdir, seeing.step, kept)


def of_task(
    task: Enrollable, variables: PyTree, workdir: Path, step: int, known: tuple[str, ...]
) -> Seeing:
    """Returns the network of a task at a checkpoint."""
    return Seeing(
        workdir, step, task.config, known, task.module, task.examples.normalize, variables
    )


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
    listed = ", ".join(
        f"{name} ({100 * areas[name]:.1f})" if name in areas else name for name in able
    )
    measured = " (AUROC on held-out known classes)" if set(areas) & set(able) else ""
    raise ValueError(
        f"{workdir}: {score.name} decides, but does not compare with training examples, so it "
        f"cannot take new classes. --score=NAME enrols with another score, which then decides: "
        f"{listed}{measured}"
    )
