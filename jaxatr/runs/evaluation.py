"""Evaluates runs on their test data and records the results in their folders."""

import contextlib
import inspect
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import files, kernels, openset, reporting, resolve, training
from jaxatr.recognition import drift, enrolment_file, ensemble, labelled_set
from jaxatr.recognition.decision import of_field
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.reporting import recorded_sets
from jaxatr.runs.merge import Evaluated, merged
from jaxatr.runs.options import check_options
from jaxatr.runs.training import Labelled, make_task
from jaxatr.tasks.embedding.task import Embedding
from jaxatr.tasks.open_set.deciders import score_of
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.tasks.track.of_tracks import OfTracks
from jaxatr.training import EVALUATION, SCORES, THUMBNAILS, Checkpoint, Task, write_file
from jaxatr.training.folder import write_files
from jaxatr.typing import Config


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
      The figures, as written to ``evaluation.json``. Of a folder of several runs
      (``train(repeats=…)``), each of which is evaluated, their mean and spread
      (:func:`evaluate_repeats`).

    Raises:
      ValueError: there is no such run or checkpoint, the data differs from that of the training,
        the explained network has changed, the kind of run does not have an option, another set
        cannot be measured, or its name is that of a recorded one with another source.
    """
    if (several := training.read_repeats(workdir)) is not None:
        return evaluate_repeats(
            several,
            checkpoint=checkpoint,
            data=data,
            name=name,
            where=where,
            fresh=fresh,
            progress=progress,
            **options,
        )
    own = data is None or isinstance(data, Mapping)
    place = dict((data if isinstance(data, Mapping) else where) or {})
    resolve.trust_names_in([place, options])  # the user's own
    config = training.load_config(workdir)
    folder: Path | None = Path(workdir)
    if not own:
        folder = _folder_of_set(workdir, data, name, fresh=fresh)
    elif name is not None:
        raise ValueError(f"name: got {name!r} without another set to measure")
    config.data.update(place)
    task = make_task(config, workdir)
    record = training.read_record(workdir)
    task.check_continues(workdir, record)
    facts = {} if own else _measured_on(task, data, workdir)
    check_options(workdir, task.kind(), task.test, options)
    takes = inspect.signature(task.test).parameters
    if not own and "outside" in takes:
        options = {"outside": "", **options}
    snapshot = training.load_snapshot(workdir, checkpoint)
    if checkpoint == "latest":
        training.warn_unfinished(workdir, record, snapshot.step)
    given = {"workdir": Path(workdir), "step": snapshot.step, "progress": progress}
    options |= {name: value for name, value in given.items() if name in takes}
    phase = task.phases[-1].name if task.phases else ""
    with kernels.choices(training.recorded_choices(workdir, phase)):
        measured, recorded = task.test(training.variables_of(snapshot), **options)
    result = {"checkpoint": {"which": checkpoint, "step": snapshot.step}, **measured}
    if not own:
        labelled_set.describe(result, facts, folder.name if folder else "")
        if (found := _drift(workdir, checkpoint, task, recorded)) is not None:
            result["drift"] = found.to_json()
    if folder is None:
        _warn_of_field(workdir, config, result, snapshot.step)
        return reporting.shown(workdir, result)
    further = task.files(recorded, snapshot.step)
    with _alone(folder):
        if not fresh:
            (result, recorded), notes = merged(
                folder, Evaluated(result, recorded), task.kept, task.evaluation_form
            )
            for note in notes:
                warnings.warn(f"{workdir}: {note}", stacklevel=2)
        thumbnails = task.thumbnails(result, recorded)
        text = json.dumps(result, indent=2) + "\n"
        writes: dict[Path, Callable[[Any], object]] = {
            folder / EVALUATION: lambda file: file.write(text.encode()),
            folder / THUMBNAILS: partial(np.savez_compressed, **thumbnails),
            folder / SCORES: partial(np.savez_compressed, **recorded),
        }
        if own:  # an index is of the training chips
            writes |= {folder / name: partial(np.savez, **one) for name, one in further.items()}
        write_files(writes)
        if own:
            training.update_record(workdir, **task.evaluated(result, snapshot.step))
    _warn_of_field(workdir, config, result, snapshot.step)
    return reporting.shown(workdir, result)


def _warn_of_field(
    workdir: str | os.PathLike, config: Config, result: Mapping[str, Any], step: int
) -> None:
    """Warns if predictions use a calibration to field chips, which an evaluation does not."""
    if not (decides := result.get("decides")):
        return
    enrolment = enrolment_file.read(workdir)
    asked = enrolment.score if enrolment else config.open_set.score  # the path of one's own
    score = score_of(decides if decides in openset.SCORES else asked)
    further: tuple[str, ...] = ()
    if enrolment and score.takes_classes:
        further = enrolment.further(result["split"]["known"])
    kept = kept_as(decides, config)
    if of_field(workdir, step, kept, score, further, enrolment)[0] is not None:
        warnings.warn(
            f"{workdir}: {decides} is calibrated to field chips, by which predict decides; these "
            "figures are of its threshold before that (jaxatr calibrate --undo returns to it)",
            stacklevel=3,
        )


def _alone(folder: Path) -> contextlib.AbstractContextManager[object]:
    """Keeps other commands from recording in the folder, whose figures would be lost."""
    folder.mkdir(parents=True, exist_ok=True)
    if jax.process_index():
        return contextlib.nullcontext()  # only process 0 writes
    return files.locked(folder / f".{EVALUATION}.lock")


def _drift(
    workdir: str | os.PathLike, checkpoint: Checkpoint, task: Task, arrays: Mapping[str, Any]
) -> drift.Drift | None:
    """Compares the known chips of a set with the training; None without a decision about them."""
    if not isinstance(task, OpenSet) or "decided_score" not in arrays:
        return None
    part, labels = task.parts["test"], arrays["decided_label"]
    rows = np.flatnonzero((labels >= 0) & (labels < len(task.split.known)))
    recogniser = training.predictor_class(type(task)).load(workdir, checkpoint=checkpoint)
    if not isinstance(recogniser, OpenSetPredictor):
        return None
    reference = drift.reference_of(recogniser)
    chips = (part.chips(rows[i : i + 1])[0] for i in range(len(rows)))
    of_tracks = isinstance(task, OfTracks)
    return drift.of_known(reference, arrays["decided_score"][rows], None if of_tracks else chips)


def evaluate_repeats(
    several: training.RecordedRepeats,
    *,
    only_missing: bool = False,
    checkpoint: Checkpoint = "latest",
    data: Mapping[str, Any] | Labelled | str | os.PathLike | None = None,
    name: str | None = None,
    where: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates each of the runs of a folder, and records the mean and the spread of their figures.

    Recognisers of single images are also measured together, as ``jaxatr.load`` of the folder
    decides.

    Args:
      several: the runs of the folder.
      only_missing: keep the evaluations of runs that have one of their last step.
      checkpoint: ``"latest"``, ``"best"`` or a step, of every run.
      data: see :func:`evaluate_run`.
      name: see :func:`evaluate_run`.
      where: see :func:`evaluate_run`.
      **options: further arguments of :func:`evaluate_run`.

    Returns:
      The content of ``summary.json`` (:func:`jaxatr.reporting.summary_of`); for another set, that
      in the folder of the set.

    Raises:
      ValueError: a run is not finished, or cannot be evaluated.
    """
    found = {}
    for folder in several.runs:
        if not (only_missing and _is_evaluated(folder)):
            found[folder.name] = evaluate_run(
                folder, checkpoint=checkpoint, data=data, name=name, where=where, **options
            )
        else:
            found[folder.name] = training.load_evaluation(folder)
    together, note = _together(several, checkpoint, data, where)
    summary = reporting.summary_of(reporting.report_of(several.runs[0]), found, together)
    summary |= {"repeats": str(several.repeats), "decision": note}
    place = several.folder
    if data is not None and not isinstance(data, Mapping):
        facts = next(iter(found.values()))["set"]
        if not facts["name"]:  # images in memory without a name are not recorded
            return reporting.shown(place, summary)
        place, summary["set"] = training.set_folder(place, facts["name"]), facts
    place.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    write_file(place / training.SUMMARY, lambda file: file.write(text.encode()))
    return reporting.shown(several.folder, summary)


def _is_evaluated(folder: Path) -> bool:
    """Returns whether a run has an evaluation of its last step."""
    if not (folder / EVALUATION).is_file():
        return False
    step = training.load_evaluation(folder).get("checkpoint", {}).get("step")
    return step == max(training.saved_steps(folder), default=None)


def _together(
    several: training.RecordedRepeats,
    checkpoint: Checkpoint,
    data: Mapping[str, Any] | Labelled | str | os.PathLike | None,
    where: Mapping[str, Any] | None,
) -> tuple[dict[str, Any] | None, str]:
    """Measures the common decision of a folder's runs, and describes it in a line."""
    if training.task_of(several.runs[0]).predictor != OpenSet.predictor:
        return None, "a run of this kind decides alone: load one of them"
    try:
        found = evaluate_ensemble(several.runs, checkpoint=checkpoint, data=data, where=where)
    except ValueError as error:
        return None, f"the runs cannot decide together: {error}"
    fitted = found["decision"].get("fitted_to") or "no examples"
    least = reporting.guarantee_lines(found["decision"])
    return found, f"together: the mean of the runs' scores; {least[0] if least else fitted}"


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
    before = recorded_sets.read(workdir, folder)["set"]["source"]
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
    if not isinstance(task, OpenSet | Embedding):
        raise ValueError(
            f"data: {workdir} is a run of {task.kind()}, which is measured on its own data alone: "
            "wanted a recogniser, of images or tracks, or an embedding"
        )
    enrolment = enrolment_file.read(workdir)
    found = labelled_set.of(task, data, enrolment.counts() if enrolment else ())
    task.examples.replace_test(found.part)
    return found.record


def evaluate_ensemble(
    workdirs: Sequence[str | os.PathLike],
    *,
    checkpoint: Checkpoint = "latest",
    data: Mapping[str, Any] | Labelled | str | os.PathLike | None = None,
    where: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates recognisers of single images as an ensemble on their test data.

    Only the ensemble's threshold is recorded, in the first run's folder.

    Args:
      workdirs: the runs' folders.
      checkpoint: ``"latest"``, ``"best"`` or a step, for every run.
      data: fields of ``config.data`` to change if the data has moved; or another set, as for
        :func:`evaluate_run`, whose figures are not recorded.
      where: fields of ``config.data`` to change if the runs' own data has moved, for another set.

    Returns:
      The figures of the score ``ensemble``, in the form of :func:`evaluate_run`.

    Raises:
      ValueError: a run is of another kind, or two runs cannot form an ensemble.
    """
    place = data if isinstance(data, Mapping) else where
    another = None if isinstance(data, Mapping) else data
    return ensemble.evaluate(workdirs, checkpoint=checkpoint, where=place, data=another)
