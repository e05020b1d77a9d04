"""Evaluates runs on their test data and records the results in their folders."""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import kernels, resolve, training
from jaxatr.data.sources import arrays
from jaxatr.recognition import enrolment_file, ensemble, labelled_set
from jaxatr.reporting import recorded_sets
from jaxatr.runs.merge import Evaluated, merged
from jaxatr.runs.training import Labelled, make_task
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.track.of_tracks import OfTracks
from jaxatr.training import EVALUATION, SCORES, THUMBNAILS, Checkpoint, Task, write_file


def evaluate_run(
    workdir: str | os.PathLike,
    *,
    checkpoint: Checkpoint = "latest",
    data: Mapping[str, Any] | Labelled | str | os.PathLike | None = None,
    name: str | None = None,
    where: Mapping[str, Any] | None = None,
    fresh: bool = False,
    progress: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates a run on its test data or another set, and records the result in its folder.

    Results of earlier evaluations (scores, groups of other images, explanations) are kept if they
    were measured at the same checkpoint and on the same examples. A warning names the others, which
    are replaced.

    The function writes ``evaluation.json`` (the returned figures), ``scores.npz`` (the arrays from
    which every figure can be recomputed), ``thumbnails.npz`` (pictures of the most confident
    mistakes) and the files of the kind of run (``index.npz`` for an embedding), and records the
    fitted γ.

    Of another set, all this is in the folder ``sets/NAME`` of the run's, and nothing is fitted to
    it: the run's decision and thresholds are measured as they are. Classes that the run does not
    know are unknown.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation part) or a step.
      data: fields of ``config.data`` to change if the data has moved; or another set to measure:
        the path of class folders, a table or an archive, or images and the names of their classes.
      name: name under which another set is recorded. By default that of its folder or file; images
        in memory are recorded only if they are given a name.
      where: fields of ``config.data`` to change if the run's own data has moved, for another set.
      fresh: discard the results of earlier evaluations.
      progress: show progress bars for the slow parts.
      **options: options of the kind of run, such as ``scores`` (names of open-set scores, or
        ``"all"``) and ``methods`` (explanations to compare a surrogate with).

    Returns:
      The figures, as written to ``evaluation.json``.

    Raises:
      ValueError: there is no such run or checkpoint, the data differs from that of the training,
        the explained network has changed, the kind of run does not have an option, another set
        cannot be measured, or its name is that of a recorded one with another source.
    """
    own = data is None or isinstance(data, Mapping)
    place = dict((data if isinstance(data, Mapping) else where) or {})
    resolve.trust_names_in([place, options])  # the user's own
    config = training.load_config(workdir)
    folder: Path | None = Path(workdir)
    if not own:
        folder = _folder_of_set(workdir, data, name, fresh=fresh)
        options = {"outside": "", **options}
    elif name is not None:
        raise ValueError(f"name: got {name!r} without another set to measure")
    config.data.update(place)
    task = make_task(config, workdir)
    task.check_continues(workdir, training.read_record(workdir))
    facts: dict[str, Any] = {}
    if not own:
        facts = {
            "set": {"name": folder.name if folder else "", **_measured_on(task, data, workdir)}
        }
    check_options(workdir, task.kind(), task.test, options)
    takes = inspect.signature(task.test).parameters
    snapshot = training.load_snapshot(workdir, checkpoint)
    given = {"workdir": Path(workdir), "step": snapshot.step, "progress": progress}
    options |= {name: value for name, value in given.items() if name in takes}
    phase = task.phases[-1].name if task.phases else ""
    with kernels.choices(training.recorded_choices(workdir, phase)):
        measured, recorded = task.test(training.variables_of(snapshot), **options)
    result = {"checkpoint": {"which": checkpoint, "step": snapshot.step}, **measured, **facts}
    if not own:
        known = set(result["known"])
        result["unknown"] = [one for one in facts["set"]["classes"] if one not in known]
    if folder is None:
        return result
    further = task.files(recorded, snapshot.step)
    if not fresh:
        (result, recorded), notes = merged(folder, Evaluated(result, recorded), task.kept)
        for note in notes:
            warnings.warn(f"{workdir}: {note}", stacklevel=2)
    thumbnails = task.thumbnails(result, recorded)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in further.items():
        _write(folder / file, content, np.savez)
    _write(folder / SCORES, recorded, np.savez_compressed)
    _write(folder / THUMBNAILS, thumbnails, np.savez_compressed)
    text = json.dumps(result, indent=2) + "\n"
    write_file(folder / EVALUATION, lambda file: file.write(text.encode()))
    if own:
        training.update_record(workdir, **task.evaluated(result, snapshot.step))
    return result


def _folder_of_set(
    workdir: str | os.PathLike, data: Any, name: str | None, *, fresh: bool
) -> Path | None:
    """Returns the folder in which another set is recorded; None for images without a name.

    Raises:
      ValueError: the name is not one of a folder, or is taken by a set with another source.
    """
    source = labelled_set.source_of(data)
    if name is None and isinstance(data, tuple):
        return None
    folder = training.set_folder(workdir, labelled_set.name_of(source) if name is None else name)
    path = folder / EVALUATION
    if fresh or not path.is_file():
        return folder
    before = recorded_sets.read(folder)["set"]["source"]
    if before != source:
        raise ValueError(
            f"name: {folder.name!r} is already the name of the set of {before}: give {source} "
            "another --name, or replace it by --fresh"
        )
    return folder


def _measured_on(task: Task, data: Any, workdir: str | os.PathLike) -> dict[str, Any]:
    """Replaces the test part of a task by another set, and returns the facts about that.

    Raises:
      ValueError: the kind of run has no test of labelled images, or the images do not fit it.
    """
    if not isinstance(task, OpenSet) or isinstance(task, OfTracks):
        raise ValueError(
            f"data: a run of {type(task).__name__} is measured on its own data, wanted one of "
            "open-set recognition of single images"
        )
    if isinstance(data, tuple):
        found = labelled_set.of_arrays(task, *arrays.checked(*data))
    else:
        enrolment = enrolment_file.read(workdir)
        found = labelled_set.read(task, data, enrolment.counts() if enrolment else ())
    task.examples.replace_test(found.part)
    return found.record


def evaluate_ensemble(
    workdirs: Sequence[str | os.PathLike],
    *,
    checkpoint: Checkpoint = "latest",
    data: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates recognisers of single images as an ensemble on their test data.

    Only the ensemble's threshold is recorded, in the first run's folder.

    Args:
      workdirs: the runs' folders.
      checkpoint: ``"latest"``, ``"best"`` or a step, for every run.
      data: fields of ``config.data`` to change if the data has moved.

    Returns:
      The figures of the score ``ensemble``, in the form of :func:`evaluate_run`.

    Raises:
      ValueError: a run is of another kind, or two runs cannot form an ensemble.
    """
    return ensemble.evaluate(workdirs, checkpoint=checkpoint, where=data)


_OF_PYTHON = ("field", "enrolled")  # options that no command offers


def check_options(
    workdir: str | os.PathLike, kind: str, function: Callable, options: Mapping[str, Any]
) -> None:
    """Checks that a kind of run has the given options.

    Args:
      workdir: the run's folder, for the message.
      kind: name of the kind of run, for the message.
      function: a function whose keyword-only arguments are the kind's options.
      options: the options to check.

    Raises:
      ValueError: the kind does not have an option; the message lists those that it has.
    """
    parameters = inspect.signature(function).parameters.values()
    valid = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    valid = [name for name in valid if name not in ("workdir", "step", "progress")]
    for name in options:
        if name not in valid:
            shown = [one for one in valid if one not in _OF_PYTHON]
            listed = ", ".join(shown) or "no option"
            raise ValueError(f"{name}: {workdir} is a run of {kind}, which takes {listed}")


def _write(path: Path, arrays: Mapping[str, np.ndarray], save: Callable[..., None]) -> None:
    write_file(path, lambda file: save(file, **arrays))
