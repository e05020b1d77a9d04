"""A run's evaluation on its test data, recorded in its folder."""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxatr import kernels, openset, training
from jaxatr.runs.training import make_task
from jaxatr.tasks.open_set.compared import BASELINES, add_recorded, trained_scores
from jaxatr.training.folder import (
    EVALUATION,
    INDEX,
    SCORES,
    THUMBNAILS,
    load_config,
    refuse_changed_data,
    refuse_other_target,
    variables_of,
    write_file,
)
from jaxatr.typing import PyTree


def evaluate_run(
    workdir: str | os.PathLike,
    *,
    checkpoint: Literal["best", "latest"] | int = "latest",
    data: dict[str, Any] | None = None,
    scores: str | Collection[str] | None = None,
    methods: str | Collection[str] = (),
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluates a run on its test data, and records the result in its folder.

    Writes ``evaluation.json`` (what is returned), ``scores.npz`` (the network's outputs, from which
    every figure can be computed again), ``thumbnails.npz`` (the most confident mistakes, to look
    at), of an embedding ``index.npz`` (the training chips' embeddings, which a search goes
    through), and the fitted γ into the run's record.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation part) or a step.
      data: fields of ``config.data`` to change, where the data has moved.
      scores: names of open-set scores, or ``"all"``; by default, the task's. With ``"all"`` and by
        default those join for which something was trained besides (:func:`train_baseline`).
      methods: of a surrogate's run: methods of explanation to compare it with, or ``"all"``.
      progress: show a bar of those methods that try masked copies.

    Raises:
      ValueError: no run, no such checkpoint, other data than the run was trained on, another
        network than the one that it explains, a score that is named and for which nothing was
        trained, or methods for a run that explains nothing.
    """
    config = load_config(workdir)
    config.data.update(data or {})
    task = make_task(config, workdir)
    refuse_changed_data(workdir, task.record)
    refuse_other_target(workdir, task.record)
    snapshot = training.load_snapshot(workdir, checkpoint)
    given = {"methods": methods, "progress": progress} if methods else {}
    if given and "target" not in task.record:
        raise ValueError(f"methods: {workdir} is not the run of a surrogate (configs/distill.py)")
    with kernels.choices(training.recorded_choices(workdir, task.phases[-1].name)):
        measured, arrays = _tested(task, variables_of(snapshot), workdir, scores, given)
    result = {"checkpoint": {"which": checkpoint, "step": snapshot.step}, **measured}
    folder = Path(workdir)
    thumbnails = task.thumbnails(measured, arrays)
    index = {name: arrays.pop(name) for name in list(arrays) if name.startswith("index_")}
    write_file(folder / SCORES, lambda file: np.savez_compressed(file, **arrays))
    write_file(folder / THUMBNAILS, lambda file: np.savez_compressed(file, **thumbnails))
    if index:
        index["index_step"] = np.asarray(snapshot.step)
        write_file(folder / INDEX, lambda file: np.savez(file, **index))
    text = json.dumps(result, indent=2) + "\n"
    write_file(folder / EVALUATION, lambda file: file.write(text.encode()))
    training.update_record(
        workdir, fitted_gamma=measured.get("fitted_gamma"), fitted_gamma_step=snapshot.step
    )
    return result


def _tested(
    task: Any,
    variables: PyTree,
    workdir: str | os.PathLike,
    scores: str | Collection[str] | None,
    given: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what the task's test does, the scores that were trained besides among it."""
    found = trained_scores(workdir)
    if scores is not None and scores != "all":
        listed = openset.names(scores) if isinstance(scores, str) else tuple(scores)
        own = [name for name in listed if name in openset.OWN_TRAINING]
        if missing := [name for name in own if name not in found]:
            baseline = next(name for name, score in BASELINES.items() if score == missing[0])
            raise ValueError(
                f"scores: nothing was trained for {missing[0]} in {workdir}: "
                f"python -m jaxatr.train --workdir={workdir} --baselines={baseline}"
            )
        found = {name: found[name] for name in own}
        scores = tuple(name for name in listed if name not in own)
    networks = {name: folder for name, folder in found.items() if isinstance(folder, Path)}
    detectors = {name: model for name, model in found.items() if name not in networks}
    given |= {"scores": scores} if scores is not None else {}
    if detectors:
        given["trained"] = detectors
    measured, arrays = task.test(variables, **given)
    for name, folder in networks.items():
        add_recorded(name, folder, measured, arrays)
    return measured, arrays
