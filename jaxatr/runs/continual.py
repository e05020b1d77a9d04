"""Trains on from a finished run, with the classes that were enrolled in it."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import training
from jaxatr.runs.enrolment import check_kind
from jaxatr.runs.evaluation import evaluate_run
from jaxatr.runs.training import train_run
from jaxatr.tasks.open_set import enrolled, measured_enrolment
from jaxatr.tasks.open_set.deciding import made_for
from jaxatr.tasks.open_set.enrolled import Enrolment
from jaxatr.tasks.open_set.loading import open_task
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Checkpoint, TrainedRun
from jaxatr.training.folder import write_file
from jaxatr.typing import Config

CHIPS = "enrolled_chips.npz"
"""The file in the new run's folder that has the enrolled chips."""

SHARE = 0.25
"""Of the run's epochs, or steps, that the new training takes."""

SLOWER = 0.1
"""Of the run's learning rate, at which it begins."""


def train_enrolled(
    workdir: str | os.PathLike,
    out: str | os.PathLike,
    *,
    epochs: int | None = None,
    learning_rate: float | None = None,
    checkpoint: Checkpoint = "latest",
    where: Mapping[str, str] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains a new run from a run's weights, on its data and its enrolled chips, and measures it.

    The classes that were enrolled get outputs of their own in both heads. All of the run's training
    data is seen again (rehearsal; Robins 1995, "Catastrophic forgetting, rehearsal and
    pseudorehearsal"), and each enrolled class as often as one of its classes. The new run is a run
    as any other. Cut off, it goes on when it is called again.

    Args:
      workdir: the run's folder, which stays as it is.
      out: the new run's folder.
      epochs: by default :data:`SHARE` of the run's.
      learning_rate: by default :data:`SLOWER` times the run's.
      checkpoint: ``"latest"``, the only one that can be continued.
      where: fields of ``config.data`` to change, where the training data has moved.
      progress: show a bar.

    Returns:
      ``workdir``, of the new run; ``classes``, that were enrolled; and ``rows``, which ``run`` they
      are of (``before``; ``enrolled``, the same network with the classes' chips to compare with;
      ``trained``), with the figures of
      :func:`jaxatr.tasks.open_set.measured_enrolment.figures_of`, all on the same test examples,
      and ``classes``, name of an enrolled class to the share of its examples that is named right
      and accepted.

    Raises:
      ValueError: nothing is enrolled in the run, its data is missing, or ``out`` holds another run.
    """
    check_kind(workdir)
    if checkpoint != "latest":
        raise ValueError("a run is continued from its newest checkpoint: leave --checkpoint out")
    if Path(out).resolve() == Path(workdir).resolve():
        raise ValueError(f"{out}: wanted another folder than the run's, which stays as it is")
    enrolment = enrolled.read(workdir)
    if enrolment is None:
        raise ValueError(
            f"{workdir}: nothing is enrolled in it: jaxatr enrol --workdir={workdir} "
            "--source=FOLDER/NAME"
        )
    run = training.load_run(workdir)
    try:
        open_task(run, where or {})
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{workdir}: its training data is seen again, so that it is not forgotten, and cannot "
            f"be read ({error}); --data_source=FOLDER says where it is now"
        ) from error
    config = configuration(run, enrolment, Path(out), where or {})
    if epochs is not None:
        config.train.epochs, config.train.steps = epochs, 0
    if learning_rate is not None:
        config.optimizer.learning_rate = learning_rate
    found = enrolled.chips(run.workdir, enrolment, run.classes)
    names = np.array([*run.classes, *enrolment.further(run.classes)])[found.labels]
    training.check_config(out, config, free=(*run.task.free_fields, "data.source"))
    Path(out).mkdir(parents=True, exist_ok=True)
    write_file(
        Path(out) / CHIPS, lambda file: np.savez_compressed(file, images=found.images, names=names)
    )
    train_run(config, out, progress=progress)
    evaluate_run(out)
    rows = _compared(run, enrolment, out, where or {})
    classes = list(enrolment.further(run.classes))
    training.update_record(out, forgotten=rows)
    return {"workdir": str(out), "classes": classes, "rows": rows}


def configuration(
    run: TrainedRun, enrolment: Enrolment, out: Path, where: Mapping[str, str]
) -> Config:
    """Makes the configuration of the new run.

    Args:
      run: that is continued.
      enrolment: what is enrolled in it.
      out: the new run's folder.
      where: fields of ``config.data`` to change.
    """
    config = begun(copy.deepcopy(run.config))
    config.data.update(where)
    config.open_set.continues = str(run.workdir.absolute())
    config.open_set.enrolled = str(out.absolute() / CHIPS)
    config.open_set.score = enrolment.score
    config.open_set.trials = 0  # the score is named
    config.train.epochs = max(1, round(SHARE * config.train.epochs))
    config.train.steps = round(SHARE * config.train.steps)
    config.optimizer.learning_rate = SLOWER * config.optimizer.learning_rate
    return config


def _compared(
    run: TrainedRun, enrolment: Enrolment, out: str | os.PathLike, where: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Measures the run before and after, and the new one, on the same test examples."""
    task, score = open_task(run, where), enrolment.score
    made = made_for(task, run.variables, run.workdir, run.step, score=score)
    assert made.decision is not None
    needs = made.decision.score.all_needs
    joined = measured_enrolment.join(
        task, run.variables, run.workdir, run.step, made, enrolment, needs
    )
    test = task.outputs(run.variables, "test", needs)
    new = training.load_run(out)
    new_task = open_task(new, {})
    new_made = made_for(new_task, new.variables, new.workdir, new.step)
    new_test = new_task.outputs(new.variables, "test", needs)
    classes, own = [*joined.known, *joined.further], len(joined.known)
    rows = []
    for name, decision, outputs in (
        ("before", joined.before, test),
        ("enrolled", joined.made.decision, test),
        ("trained", new_made.decision, new_test),
    ):
        assert decision is not None
        found = measured_enrolment.figures_of(decision, outputs, classes, own)
        of = {n: row["accuracy"] for n, row in found["classes"].items() if "accuracy" in row}
        rows.append({"run": name, **found, "classes": of})
    return rows
