"""Enrols classes in a finished run, and takes them out again; the network stays as it is."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data, openset, training
from jaxatr.data import ImagePath
from jaxatr.tasks.open_set import enrolled, enrolling
from jaxatr.tasks.open_set.deciding import AUTO, made_for
from jaxatr.tasks.open_set.enrolled import Enrolment
from jaxatr.tasks.open_set.loading import load_decision, open_task
from jaxatr.tasks.open_set.needs import given_by
from jaxatr.tasks.open_set.predictor import UNKNOWN, Recogniser
from jaxatr.training import Checkpoint, TrainedRun


def enrol_run(
    workdir: str | os.PathLike,
    source: str | os.PathLike,
    *,
    name: str | None = None,
    group: int | None = None,
    score: str | None = None,
    checkpoint: Checkpoint = "latest",
    where: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Adds the chips of a class to what a run's score compares with.

    From then on :func:`jaxatr.load`, ``jaxatr predict`` and ``jaxatr evaluate`` know the class,
    until :func:`remove_class`. Chips of a class that the run knows already are taken too.

    Args:
      workdir: the run's folder.
      source: a folder, an archive or a file with images of one class; or the file that
        :func:`jaxatr.runs.cluster_run` wrote.
      name: of the class; by default that of the folder.
      group: number of the group in such a file.
      score: by which the run decides from then on; by default the one that does so already.
        ``"auto"``: of those that take classes the best as ``open_set.score=auto`` compares them.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      where: fields of ``config.data`` to change, where the training data has moved.

    Returns:
      ``name``, ``chips`` (now, of this class), ``added``, ``left_out`` (there already), ``score``,
      ``path`` and, of a class that is not the network's own, ``named`` (share of its chips that the
      others of it name right; None of one alone), ``threshold``, ``threshold_of_the_run`` and
      ``promise`` (least probability that a further chip that is taken for the class is accepted;
      None where the chips say none).

    Raises:
      ValueError: no run that classes can be added to, a score that takes none, an image that
        cannot be used, or one that is enrolled as another class. Nothing is changed then.
    """
    run = _run(workdir, checkpoint)
    title, paths, scratch = _images(source, name, group)
    with scratch, enrolled.locked(workdir):
        before = enrolled.read(workdir)
        chosen = _chosen(run, score, where or {}) or (before.score if before else None)
        loaded = load_decision(
            run, chosen, None, where or {}, checkpoint, field=False, enrolment=False
        )
        _check_takes(run, loaded.decision.score)
        images, left_out = _new_chips(run, before, title, paths)
        entry = enrolled.keep(workdir, title, str(Path(source).absolute()), images)
        entries = (*(before.entries if before else ()), entry)
        # One that auto chose is named: its choice was made for the run as it was trained.
        enrolment = Enrolment(loaded.decision.score.name, entries)
        try:
            made = load_decision(
                run,
                enrolment.score,
                None,
                where or {},
                checkpoint,
                field=False,
                enrolment=enrolment,
            ).decision
        except BaseException:
            enrolled.discard(workdir, [entry])
            raise
        enrolled.write(workdir, enrolment)
    facts = {
        "name": title,
        "chips": enrolment.counts()[title],
        "added": len(images),
        "left_out": left_out,
        "score": enrolment.score,
        "path": str(Path(workdir) / enrolled.FILE),
    }
    return facts | _promises(run, made, enrolment, title)


def remove_class(workdir: str | os.PathLike, name: str) -> int:
    """Takes all enrolled chips of a class out of a run again, and returns their number.

    Raises:
      ValueError: no chips of such a class are enrolled.
    """
    check_kind(workdir)
    with enrolled.locked(workdir):
        found = enrolled.read(workdir)
        entries = () if found is None else found.entries
        gone = [entry for entry in entries if entry.name == name]
        if found is None or not gone:
            listed = ", ".join(found.counts()) if found else "nothing"
            raise ValueError(f"{workdir}: got {name!r} to remove, enrolled is {listed}")
        left = tuple(entry for entry in entries if entry.name != name)
        enrolled.write(workdir, found._replace(entries=left) if left else None)
        enrolled.discard(workdir, gone)
    return sum(len(entry.sha256) for entry in gone)


def check_kind(workdir: str | os.PathLike) -> None:
    """Refuses a run that is not of open-set recognition of single images.

    Raises:
      ValueError: it is of another kind.
    """
    kind = training.task_of(workdir)
    if not kind.predictor or not issubclass(training.predictor_class(kind), Recogniser):
        raise ValueError(
            f"{workdir}: a run of {kind.__name__}, wanted one of open-set recognition of single "
            "images"
        )


def _run(workdir: str | os.PathLike, checkpoint: Checkpoint) -> TrainedRun:
    check_kind(workdir)
    return training.load_run(workdir, checkpoint)


def _chosen(run: TrainedRun, score: str | None, where: Mapping[str, str]) -> str | None:
    """Finds the score that ``auto`` is, which may have to be compared now; None for none named."""
    if score != AUTO:
        return score
    if not (areas := areas_of(run.record)):
        try:
            task = open_task(run, where)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"score: {run.workdir} has compared no scores, and the data to do it with cannot "
                f"be read ({error}): name one"
            ) from error
        made = made_for(task, run.variables, run.workdir, run.step, score=AUTO)
        areas = areas_of({"decision": made.record})
    found = enrolling.best_taker(_given(run), areas)
    if found is None:
        raise ValueError(
            f"score: {run.workdir} cannot compare those that take classes, as it has too few "
            "validation examples or known classes: name one"
        )
    return found


def _given(run: TrainedRun) -> frozenset[str]:
    """Names what scores may need and the run's network gives."""
    own = {"open_logits"} if run.config.loss.open != "none" else set()
    return given_by(run.module) | own


def areas_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Reads the AUROC of each score on known classes that were left out, as far as it is there.

    Args:
      record: the content of a run's ``record.json``.
    """
    candidates = record.get("decision", {}).get("candidates", {})
    return {name: row["auroc"] for name, row in candidates.items() if "auroc" in row}


def _check_takes(run: TrainedRun, score: openset.Score) -> None:
    enrolling.check_takes(run.workdir, score, _given(run), areas_of(run.record))


def _images(
    source: str | os.PathLike, name: str | None, group: int | None
) -> tuple[str, tuple[ImagePath, ...], Any]:
    """Finds the name of a class and its image files; an archive is unpacked into a folder.

    Returns:
      The name, the files, and the folder, a context that removes it.
    """
    path = Path(source)
    scratch = tempfile.TemporaryDirectory(prefix="jaxatr-")
    try:
        if path.suffix == ".json":
            found = _of_group(path, group, scratch.name)
        elif group is not None:
            raise ValueError(f"group: {source} is no file of groups, which jaxatr cluster writes")
        else:
            if not path.exists():
                raise ValueError(f"source: there is no folder or file {path}")
            found = data.image_paths(str(path), scratch.name).images
            if name is None:
                _check_folder(path, found)
                name = path.resolve().name
        if not name or not name.strip() or name == UNKNOWN:
            raise ValueError(f"name: got {name!r}, wanted a name for the class, --name=NAME")
    except BaseException:
        scratch.cleanup()
        raise
    return name, found, scratch


def _check_folder(path: Path, found: tuple[ImagePath, ...]) -> None:
    """Refuses to name a class by what is no folder of its chips."""
    if not path.is_dir():
        raise ValueError(f"name: {path} is no folder whose name is the class's: give --name=NAME")
    inner = {Path(image.file).relative_to(path).parts[0] for image in found}
    folders = sorted(one for one in inner if (path / one).is_dir())
    if folders:
        raise ValueError(
            f"source: {path} holds folders ({', '.join(folders[:3])}), and one class is enrolled "
            f"at a time: --source={path / folders[0]}, or --name=NAME for all of them"
        )


def _of_group(path: Path, group: int | None, scratch: str) -> tuple[ImagePath, ...]:
    """Finds the images of a group that :func:`jaxatr.runs.cluster_run` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        groups = {int(one["group"]): one["images"] for one in content["groups"]}
        sources = content["sources"]
    except OSError as error:
        raise ValueError(f"source: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"source: {path} is no file of jaxatr cluster ({error})") from error
    if group not in groups:
        listed = ", ".join(map(str, groups)) or "none"
        raise ValueError(f"group: got {group}, wanted one of {path}: {listed}")
    every = {
        image.name: image
        for place, one in enumerate(sources)
        for image in data.image_paths(one, os.path.join(scratch, str(place))).images
    }
    if gone := [name for name in groups[group] if name not in every]:
        raise ValueError(f"source: {gone[0]}, of group {group} of {path}, is not there any more")
    return tuple(every[name] for name in groups[group])


def _new_chips(
    run: TrainedRun, before: Enrolment | None, name: str, paths: tuple[ImagePath, ...]
) -> tuple[np.ndarray, int]:
    """Reads the chips that are not enrolled yet, and counts those that are."""
    there = {one: entry.name for entry in before.entries for one in entry.sha256} if before else {}
    images: dict[str, np.ndarray] = {}
    for path in paths:
        try:
            chip = run.intake(data.read_image(path.file))
        except (ValueError, OSError) as error:
            reason = str(error).replace(path.file, path.name)
            raise ValueError(reason if path.name in reason else f"{path.name}: {reason}") from error
        checksum = enrolled.checksum(chip)
        if (other := there.get(checksum, name)) != name:
            raise ValueError(f"{path.name}: it is enrolled as {other} already")
        images[checksum] = chip
    new = [chip for checksum, chip in images.items() if checksum not in there]
    if not new:
        raise ValueError(f"{name}: all {len(paths)} chips are enrolled already")
    return np.stack(new), len(paths) - len(new)


def _promises(
    run: TrainedRun, decision: openset.Decision, enrolment: Enrolment, name: str
) -> dict[str, Any]:
    """Says what an enrolled class's own chips say of it."""
    further, calibration = decision.further, decision.calibration
    if name in run.classes or further is None:
        return {}
    number = [*run.classes, *enrolment.further(run.classes)].index(name)
    found: dict[str, Any] = {"named": None, "threshold": None, "promise": None}
    own = further.labels == number
    if own.any():
        found["named"] = float(np.mean(further.nearest[own] == number))
    if calibration is not None:
        of_all = openset.conformal_threshold(calibration.scores, tpr=calibration.tpr)
        threshold = float(decision.thresholds(len(run.classes))[number])
        found["threshold"] = threshold if np.isfinite(threshold) else None
        found["threshold_of_the_run"] = of_all if np.isfinite(of_all) else None
        found["promise"] = further.promise(number, calibration.tpr)
    return found
