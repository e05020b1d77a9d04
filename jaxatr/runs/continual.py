"""Continues the training of a finished run in a new one that includes its enrolled classes."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data, training
from jaxatr.recognition import enrolment_file, enrolment_measures
from jaxatr.recognition.choice import made_for
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.enrolment import check_kind
from jaxatr.recognition.enrolment_file import Enrolment
from jaxatr.runs.evaluation import evaluate_run
from jaxatr.runs.training import train_run
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Checkpoint, TrainedRun
from jaxatr.training.folder import write_file
from jaxatr.typing import Config

CHIPS = "enrolled_chips.npz"
"""The file with the enrolled chips in the new run's folder."""

SHARE = 0.25
"""Epochs (or steps) of the new training, as a fraction of the original run's."""

SLOWER = 0.1
"""Initial learning rate of the new training, as a fraction of the original run's."""


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
    """Trains a new run from a run's weights, on its data and its enrolled chips, and evaluates it.

    Each enrolled class gets an output in both heads. The training uses all of the original training
    data again (rehearsal; Robins 1995, "Catastrophic forgetting, rehearsal and pseudorehearsal"),
    and samples an enrolled class as often as an original class. The result is an ordinary run, in
    which more can be enrolled and trained in turn. If the training is interrupted, calling the
    function again continues it.

    Args:
      workdir: the original run's folder; it is not changed.
      out: the new run's folder.
      epochs: epochs of the new training; by default :data:`SHARE` of the original run's.
      learning_rate: initial learning rate; by default :data:`SLOWER` times the original run's.
      checkpoint: must be ``"latest"``, because only the latest checkpoint can be continued.
      where: fields of ``config.data`` to change if the training data has moved.
      progress: show a progress bar.

    Returns:
      ``workdir``, the new run's folder; ``classes``, the enrolled classes; and ``rows``, three
      measurements on the same test examples. The ``run`` of a row is ``before`` (the original run),
      ``enrolled`` (the original network with the enrolled chips in its gallery) or ``trained`` (the
      new run). A row has the figures of
      :func:`jaxatr.recognition.enrolment_measures.figures_of`; its ``classes`` are, for each
      enrolled class, the share of examples that are named correctly and accepted.

    Raises:
      ValueError: no class is enrolled in the run, its data is missing, or ``out`` holds another
        run.
    """
    check_kind(workdir)
    if checkpoint != "latest":
        raise ValueError("a run is continued from its latest checkpoint: omit --checkpoint")
    if Path(out).resolve() == Path(workdir).resolve():
        raise ValueError(f"{out} is the run's own folder: the new run needs another one")
    enrolment = enrolment_file.read(workdir)
    if enrolment is None:
        raise ValueError(
            f"{workdir}: no class is enrolled in it; enrol one first: jaxatr enrol "
            f"--workdir={workdir} --chips=FOLDER/NAME"
        )
    run = training.load_run(workdir)
    try:
        open_task(run, where or {})
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{workdir}: the training repeats the run's training data, which cannot be read: "
            f"{error}"
        ) from error
    config = configuration(run, enrolment, Path(out), where or {})
    if epochs is not None:
        config.train.epochs, config.train.steps = epochs, 0
    if learning_rate is not None:
        config.optimizer.learning_rate = learning_rate
    arrays = _chips(run, enrolment)
    training.check_config(out, config, free=run.task.free_fields)
    with training.training_alone(out):
        write_file(Path(out) / CHIPS, lambda file: np.savez_compressed(file, **arrays))
        train_run(config, out, progress=progress)
    evaluate_run(out)
    rows = _compared(run, enrolment, out, where or {})
    classes = list(enrolment.further(run.classes))
    training.update_record(out, forgotten=rows)
    return {"workdir": str(out), "classes": classes, "rows": rows}


def _chips(run: TrainedRun, enrolment: Enrolment) -> dict[str, Any]:
    """Returns the arrays of :data:`CHIPS`: those with which the run was trained come first."""
    chips = enrolment_file.chips(run.workdir, enrolment, run.classes)
    names = np.array([*run.classes, *enrolment.further(run.classes)])[chips.labels]
    images, rounds = chips.images, np.zeros(len(names), np.int32)
    if path := run.config.open_set.get("enrolled"):
        before, _ = data.read_images(path)
        named = data.read_names(path, len(before))
        earlier = data.read_rounds(path, len(before))
        had = {*zip(named, map(enrolment_file.checksum, before), strict=True)}
        own = zip(names.tolist(), map(enrolment_file.checksum, images), strict=True)
        new = np.array([one not in had for one in own])
        images = np.concatenate([before, images[new]])
        names = np.concatenate([named, names[new]])
        rounds = np.concatenate([earlier, np.full(new.sum(), earlier.max() + 1, np.int32)])
    return {"images": images, "names": names, "rounds": rounds}


def configuration(
    run: TrainedRun, enrolment: Enrolment, out: Path, where: Mapping[str, str]
) -> Config:
    """Makes the configuration of the new run."""
    config = begun(copy.deepcopy(run.config))
    config.data.update(where)
    config.open_set.continues = str(run.workdir.absolute())
    config.open_set.enrolled = str(out.absolute() / CHIPS)
    config.open_set.score = enrolment.score
    config.open_set.trials = 0  # the score is given, so no search is needed
    config.train.epochs = max(1, round(SHARE * config.train.epochs))
    config.train.steps = round(SHARE * config.train.steps)
    config.optimizer.learning_rate = SLOWER * config.optimizer.learning_rate
    config.optimizer.boundaries = tuple(SHARE * epoch for epoch in config.optimizer.boundaries)
    return config


def _compared(
    run: TrainedRun, enrolment: Enrolment, out: str | os.PathLike, where: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Evaluates the run without and with its enrolment, and the new run, on the same test data."""
    task, score = open_task(run, where), enrolment.score
    made = made_for(task, run.variables, run.workdir, run.step, score=score)
    assert made.decision is not None
    needs = made.decision.score.all_needs
    joined = enrolment_measures.join(
        task, run.variables, run.workdir, run.step, made, enrolment, needs
    )
    test = task.outputs_of(run.variables, joined.parts_of(task.parts, task)["test"], needs)
    new = training.load_run(out)
    new_task = open_task(new, {})
    new_made = made_for(new_task, new.variables, new.workdir, new.step)
    new_test = new_task.outputs(new.variables, "test", needs)
    classes, original = [*joined.known, *joined.further], len(joined.known)
    rows = []
    for name, decision, outputs in (
        ("before", joined.before, test),
        ("enrolled", joined.made.decision, test),
        ("trained", new_made.decision, new_test),
    ):
        assert decision is not None
        figures = enrolment_measures.figures_of(decision, outputs, classes, original)
        of = {n: row["accuracy"] for n, row in figures["classes"].items() if "accuracy" in row}
        rows.append({"run": name, **figures, "classes": of})
    return rows
