"""A run's evaluation on its test data, recorded in its folder."""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import kernels, training
from jaxatr.runs.merging import Evaluated, merged
from jaxatr.runs.training import make_task
from jaxatr.tasks.open_set import ensemble
from jaxatr.training import EVALUATION, SCORES, THUMBNAILS, Checkpoint, write_file


def evaluate_run(
    workdir: str | os.PathLike,
    *,
    checkpoint: Checkpoint = "latest",
    data: dict[str, Any] | None = None,
    fresh: bool = False,
    progress: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates a run on its test data, and records the result in its folder.

    Scores, groups and explanations that were measured before, at the same checkpoint and on the
    same examples, stay beside what is measured now; a warning says where they cannot.

    Writes ``evaluation.json`` (the returned figures), ``scores.npz`` (the arrays from which every
    figure can be computed again), ``thumbnails.npz`` (pictures of the most confident mistakes), the
    files of the run's kind (``index.npz`` of an embedding), and its fitted γ into the record.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation part) or a step.
      data: fields of ``config.data`` to change, where the data has moved.
      fresh: keep nothing that was measured before.
      progress: show bars of what takes long.
      **options: of the kind's ``test``: ``scores`` (names of open-set scores, or ``"all"``),
        ``methods`` (explanations to compare a surrogate with).

    Raises:
      ValueError: no run, no such checkpoint, other data than the run was trained on, another
        network than the one that it explains, or an option that the kind does not have.
    """
    config = training.load_config(workdir)
    config.data.update(data or {})
    task = make_task(config, workdir)
    task.check_continues(workdir, training.read_record(workdir))
    check_options(workdir, type(task).__name__, task.test, options)
    takes = inspect.signature(task.test).parameters
    snapshot = training.load_snapshot(workdir, checkpoint)
    given = {"workdir": Path(workdir), "step": snapshot.step, "progress": progress}
    options |= {name: value for name, value in given.items() if name in takes}
    with kernels.choices(training.recorded_choices(workdir, task.phases[-1].name)):
        measured, arrays = task.test(training.variables_of(snapshot), **options)
    result = {"checkpoint": {"which": checkpoint, "step": snapshot.step}, **measured}
    folder = Path(workdir)
    further = task.files(arrays, snapshot.step)
    if not fresh:
        (result, arrays), notes = merged(folder, Evaluated(result, arrays), task.kept)
        for note in notes:
            warnings.warn(f"{workdir}: {note}", stacklevel=2)
    thumbnails = task.thumbnails(result, arrays)
    for name, content in further.items():
        _write(folder / name, content, np.savez)
    _write(folder / SCORES, arrays, np.savez_compressed)
    _write(folder / THUMBNAILS, thumbnails, np.savez_compressed)
    text = json.dumps(result, indent=2) + "\n"
    write_file(folder / EVALUATION, lambda file: file.write(text.encode()))
    training.update_record(workdir, **task.evaluated(result, snapshot.step))
    return result


def evaluate_ensemble(
    workdirs: Sequence[str | os.PathLike],
    *,
    checkpoint: Checkpoint = "latest",
    data: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates recognisers of single images as an ensemble on their test data.

    Nothing is recorded but the ensemble's threshold, in the first run's folder.

    Args:
      workdirs: the runs' folders.
      checkpoint: ``"latest"``, ``"best"`` or a step, of every run.
      data: fields of ``config.data`` to change, where the data has moved.

    Returns:
      Figures as of :func:`evaluate_run`, of the score ``ensemble``.

    Raises:
      ValueError: a run is of another kind, or two make no ensemble.
    """
    return ensemble.evaluate(workdirs, checkpoint=checkpoint, where=data)


def check_options(
    workdir: str | os.PathLike, kind: str, function: Callable, options: Mapping[str, Any]
) -> None:
    """Refuses options that a kind of run does not have.

    Args:
      workdir: the run's folder, for the message.
      kind: of the run, for the message.
      function: takes the kind's options as keyword arguments.
      options: to be given to it.

    Raises:
      ValueError: an option is not among them; those that are are listed.
    """
    parameters = inspect.signature(function).parameters.values()
    own = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    own = [name for name in own if name not in ("workdir", "step", "progress")]
    for name in options:
        if name not in own:
            raise ValueError(
                f"{name}: {workdir} is a run of {kind}, which takes {', '.join(own) or 'no option'}"
            )


def _write(path: Path, arrays: Mapping[str, np.ndarray], save: Callable[..., None]) -> None:
    write_file(path, lambda file: save(file, **arrays))
