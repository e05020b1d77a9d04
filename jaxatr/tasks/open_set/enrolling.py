"""The decision of a run with the classes that were enrolled in it, derived from its own.

It is kept beside that as ``fitted/STEP/NAME.enrolled.npz``, and made again wherever what is
enrolled has changed.
"""

import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.tasks.open_set import fitted
from jaxatr.tasks.open_set.enrolled import Chips, Enrolment, chips
from jaxatr.tasks.open_set.views import kept_as, outputs_of, views_of
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, Config, Network, PyTree

KEPT = ".enrolled"
"""Of the files' names, after the score's."""

_BATCH = 32


class Seeing(NamedTuple):
    """A run's network at a checkpoint, as it sees chips.

    Attributes:
      workdir: the run's folder.
      step: of the checkpoint.
      config: the run's.
      known: its own classes.
      module: the network.
      normalize: from raw chips to the network's scale.
      variables: of the checkpoint, for one device.
    """

    workdir: Path
    step: int
    config: Config
    known: tuple[str, ...]
    module: Network
    normalize: Callable[[ArrayLike], jax.Array]
    variables: PyTree

    @classmethod
    def of_run(cls, run: TrainedRun) -> "Seeing":
        """Takes a run that was loaded."""
        return cls(
            run.workdir, run.step, run.config, run.classes, run.module, run.normalize, run.variables
        )

    def outputs(self, found: Chips, needs: Collection[str]) -> openset.Outputs:
        """Computes the network's outputs on chips.

        Args:
          found: the chips.
          needs: of scores.
        """
        views = views_of(self.config)

        @jax.jit
        def infer(variables: PyTree, images: ArrayLike) -> dict[str, jax.Array]:
            return outputs_of(self.module, variables, self.normalize(images), needs, views)

        rows: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(found.images), _BATCH):
            batch = found.images[start : start + _BATCH]
            beyond = [(0, _BATCH - len(batch)), *[(0, 0)] * (batch.ndim - 1)]
            out = infer(self.variables, np.pad(batch, beyond, mode="edge"))
            for name, values in {**out, "image": batch}.items():
                rows.setdefault(name, []).append(np.asarray(values)[: len(batch)])
        columns = {name: np.concatenate(parts) for name, parts in rows.items()}
        logits, open_logits = columns.pop("logits"), columns.pop("open_logits")
        return openset.Outputs(logits, open_logits, found.labels, columns)


def extend(
    seeing: Seeing,
    decision: openset.Decision,
    enrolment: Enrolment,
    validation: Callable[[], openset.Outputs | None],
) -> openset.Decision:
    """Adds what is enrolled to a decision of the run: reads what was derived, or derives it.

    Args:
      seeing: the run's network.
      decision: the run's own, by a score that takes classes.
      enrolment: what is enrolled.
      validation: computes the outputs on the run's validation examples, those that are enrolled
        left out; None where there are none at hand, and then the threshold stays that of the
        decision until they are.

    Raises:
      ValueError: the chips cannot be read, or do not fit.
    """
    kept = kept_as(decision.score.name, seeing.config) + KEPT
    found, origin = _read(seeing, kept, decision.score)
    if found is not None and origin["enrolment"] == enrolment.digest and origin["scored"]:
        return found
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
        warnings.warn(f"what was derived for enrolled classes is not kept: {error}", stacklevel=2)
    return made


def _read(
    seeing: Seeing, kept: str, score: openset.Score
) -> tuple[openset.Decision | None, dict[str, Any]]:
    found = fitted.load(seeing.workdir, seeing.step, kept, score)
    if found is None:
        return None, {}
    return found, fitted.provenance_of(seeing.workdir, seeing.step, kept)


def validation_of(
    task: Any, variables: PyTree, enrolment: Enrolment, needs: Collection[str]
) -> openset.Outputs | None:
    """Computes the outputs on a run's validation examples, but for those that are enrolled.

    Args:
      task: of the run, with its data.
      variables: of the checkpoint.
      enrolment: what is enrolled.
      needs: of the score.

    Returns:
      None where there is no such example.
    """
    if "validation" not in task.parts:
        return None
    outputs = task.decided_outputs(variables, "validation", needs)
    own = ~np.isin(task.examples.fingerprints("validation"), list(enrolment.checksums))
    return outputs.select(own) if own.any() else None


def of_task(
    task: Any, variables: PyTree, workdir: Path, step: int, known: tuple[str, ...]
) -> Seeing:
    """Takes the network of a task, at a checkpoint."""
    return Seeing(
        workdir, step, task.config, known, task.module, task.examples.normalize, variables
    )


def takers(given: Collection[str] | None = None) -> tuple[openset.Score, ...]:
    """Lists the scores that take classes.

    Args:
      given: names of the needs that a run gives; None for all.
    """
    return tuple(
        score
        for score in openset.SCORES.values()
        if score.takes_classes and (given is None or score.all_needs <= set(given))
    )


def best_taker(given: Collection[str], areas: dict[str, float]) -> str | None:
    """Names the score that takes classes and tells known classes best that were left out.

    Args:
      given: names of the needs that the run gives.
      areas: as of :func:`check_takes`.

    Returns:
      None where none of them was compared.
    """
    able = [one.name for one in takers(given) if one.name in areas]
    return max(able, key=lambda name: areas[name]) if able else None


def check_takes(
    workdir: Path, score: openset.Score, given: Collection[str], areas: dict[str, float]
) -> None:
    """Refuses a score to which no class can be added.

    Args:
      workdir: the run's folder, for the message.
      score: that decides.
      given: names of the needs that the run gives.
      areas: name of a score to its AUROC on known classes that were left out, as far as it is
        known; the best comes first in the message.

    Raises:
      ValueError: the score takes no classes; those that do are listed.
    """
    if score.takes_classes:
        return
    able = [one.name for one in takers(given)]
    able.sort(key=lambda name: -areas.get(name, -1.0))
    listed = ", ".join(
        f"{name} ({100 * areas[name]:.1f})" if name in areas else name for name in able
    )
    measured = " (AUROC on known classes left out)" if set(areas) & set(able) else ""
    raise ValueError(
        f"{workdir}: {score.name} decides, which compares with no training examples, so no class "
        f"can be added to it: --score=NAME enrols by another one, which decides from then on: "
        f"{listed}{measured}"
    )
