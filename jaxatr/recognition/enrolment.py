"""Enrols classes in a finished run and removes them again, without changing the network."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data, openset, training
from jaxatr.data import ImagePath
from jaxatr.data.image_paths import TABLES
from jaxatr.files import MissingFileError, Scratch, read_regular
from jaxatr.recognition import enrolment_file, extension
from jaxatr.recognition.choice import made_for, read
from jaxatr.recognition.decision import load_decision, open_task
from jaxatr.recognition.enrolment_file import Enrolment
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.session import Session
from jaxatr.tasks.open_set.deciders import AUTO
from jaxatr.tasks.open_set.needs import given_by
from jaxatr.tasks.track.of_tracks import OfTracks
from jaxatr.training import Checkpoint, TrainedRun
from jaxatr.typing import Shaped


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
    """Adds the chips of a class to the gallery of a run's score.

    :func:`jaxatr.load`, ``jaxatr predict`` and ``jaxatr evaluate`` then recognise the class, until
    :func:`remove_class` removes it. Chips of a class that the run already knows can be added too.

    Args:
      workdir: the run's folder.
      source: a folder, an archive or a file with images of one class; a table of paths and labels;
        or the JSON file written by :func:`jaxatr.runs.cluster_run`.
      name: name of the class; by default the folder's name, or the only label of a table.
      group: number of the group in that JSON file.
      score: the score that decides from then on; by default the present one. ``"auto"`` picks the
        best of the scores that accept new classes, by the comparison of ``open_set.score=auto``.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      where: fields of ``config.data`` to change if the training data has moved.

    Returns:
      ``name``, ``chips`` (number of enrolled chips of the class), ``added``, ``left_out`` (number
      of chips that are duplicates or were enrolled before), ``score`` and ``path``. For a class on
      which the network was not trained also ``named`` (share of its chips that are classified
      correctly by means of the others; None for a single chip), ``threshold``,
      ``threshold_of_the_run`` and ``promise`` (lower bound on the probability that a further chip
      that is classified as this class is accepted; None if it cannot be derived from the chips).

    Raises:
      ValueError: classes cannot be added to the run or the score, an image cannot be used, or an
        image is enrolled as another class. The run does not change.
    """
    run = _run(workdir, checkpoint)
    title, paths, scratch = _images(source, name, group, run.intake.bands)
    with scratch:
        return enrol_chips(
            run,
            _chips(run, paths),
            name=title,
            source=str(Path(source).absolute()),
            score=score,
            where=where,
        )


def enrol_chips(
    run: TrainedRun,
    chips: Iterable[tuple[str, Shaped[np.ndarray, "h w c"]]],
    *,
    name: str,
    source: str,
    score: str | None = None,
    where: Mapping[str, str] | None = None,
    session: Session | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Adds preprocessed chips of a class to a loaded run, as :func:`enrol_run` does with files.

    Args:
      run: the run; its folder gets the chips.
      chips: for each chip a name for messages, and the chip as the network takes it.
      name: name of the class.
      source: origin of the chips, for the record.
      score: the score that decides from then on, see :func:`enrol_run`.
      where: fields of ``config.data`` to change if the training data has moved.
      session: the run's network, compiled for an earlier enrolment; None for a new one.
      given_up: asked several times a second while another process holds the run's lock.

    Returns:
      The facts of :func:`enrol_run`.

    Raises:
      ValueError: classes cannot be added to the run or the score, or a chip is enrolled as another
        class. The run does not change.
      TimeoutError: another process holds the run's lock.
    """
    workdir, where = run.workdir, where or {}
    session = session or Session(run)
    with enrolment_file.locked(workdir, given_up):
        before = enrolment_file.read(workdir)
        chosen = _chosen(run, score, where, session) or (before.score if before else None)
        decides = _decision(run, chosen, where, False).score
        _check_takes(run, decides)
        if name in run.classes and decides.comparing and not decides.comparing.extends:
            raise ValueError(
                f"{name}: the network was trained on this class, and {decides.name} takes further "
                "chips of new classes only; another score takes them, such as --score=nearest"
            )
        images, left_out = _new_chips(before, name, chips)
        entry = enrolment_file.keep(workdir, name, source, images)
        entries = (*(before.entries if before else ()), entry)
        # Not by a name such as "auto": auto's comparison was made without these classes.
        own = decides.name not in openset.SCORES
        named = (chosen or run.config.open_set.score) if own else decides.name
        enrolment = Enrolment(named, entries)
        try:
            made = _decision(run, enrolment.score, where, enrolment, session)
        except BaseException:
            enrolment_file.discard(workdir, [entry])
            raise
        enrolment_file.write(workdir, enrolment)
    facts = {
        "name": name,
        "chips": enrolment.counts()[name],
        "added": len(images),
        "left_out": left_out,
        "score": enrolment.score,
        "path": str(Path(workdir) / enrolment_file.FILE),
    }
    return facts | _promises(run, made, enrolment, name)


def remove_class(workdir: str | os.PathLike, name: str) -> int:
    """Removes all enrolled chips of a class from a run, and returns their number.

    Raises:
      ValueError: no chips of the class are enrolled.
    """
    check_kind(workdir)
    with enrolment_file.locked(workdir):
        enrolment = enrolment_file.read(workdir)
        entries = () if enrolment is None else enrolment.entries
        name = data.class_name(name)
        gone = [entry for entry in entries if entry.name == name]
        if enrolment is None or not gone:
            listed = ", ".join(enrolment.counts()) if enrolment else "none"
            raise ValueError(f"{workdir}: cannot remove {name!r}; enrolled classes: {listed}")
        left = tuple(entry for entry in entries if entry.name != name)
        enrolment_file.write(workdir, enrolment._replace(entries=left) if left else None)
        enrolment_file.discard(workdir, gone)
    return sum(len(entry.sha256) for entry in gone)


def check_kind(workdir: str | os.PathLike) -> None:
    """Checks that a run is one of open-set recognition of single images.

    Raises:
      ValueError: it is of another kind.
    """
    kind = training.task_of(workdir)
    takes_images = kind.predictor and issubclass(training.predictor_class(kind), Recogniser)
    if not takes_images or issubclass(kind, OfTracks):
        raise ValueError(
            f"{workdir}: a run of {kind.kind()}, wanted one of open-set recognition of single "
            "images"
        )


def _run(workdir: str | os.PathLike, checkpoint: Checkpoint) -> TrainedRun:
    check_kind(workdir)
    return training.load_run(workdir, checkpoint)


def _decision(
    run: TrainedRun,
    score: str | None,
    where: Mapping[str, str],
    enrolment: Enrolment | bool,
    session: Session | None = None,
) -> openset.Decision:
    """Loads a run's decision by a score, with an enrolment, as predictions use it."""
    options: dict[str, Any] = {"runtime": session.runtime} if session else {}
    options |= {"enrolment": enrolment, "session": session}
    return load_decision(run, score, None, where, run.step, **options).rule


def _chosen(
    run: TrainedRun, score: str | None, where: Mapping[str, str], session: Session
) -> str | None:
    """Resolves ``auto`` to a score, after comparing scores unless a comparison is recorded."""
    if score != AUTO:
        return score
    if not session.areas:
        # A named score's own record compares it with no other.
        made = read(run.workdir, run.step, run.config, score=AUTO)
        if made is None:
            try:
                task = open_task(run, where)
            except (ValueError, OSError) as error:
                raise ValueError(
                    f"score: {run.workdir} has no recorded comparison of scores, and the data for "
                    f"one cannot be read ({error}): choose a score by name"
                ) from error
            made = made_for(task, run.variables, run.workdir, run.step, score=AUTO)
        session.areas = areas_of({"decision": made.record})
    best = extension.best_taker(session.given, session.areas)
    if best is None:
        raise ValueError(
            f"score: {run.workdir} has too few validation examples or known classes to compare "
            "the scores that accept new classes: choose a score by name"
        )
    return best


def areas_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Reads the recorded AUROC of each score on held-out known classes.

    Args:
      record: the content of a run's ``record.json``.

    Returns:
      AUROC by name of the score; empty if no comparison is recorded.
    """
    candidates = record.get("decision", {}).get("candidates", {})
    return {name: row["auroc"] for name, row in candidates.items() if "auroc" in row}


def _check_takes(run: TrainedRun, score: openset.Score) -> None:
    extension.check_takes(
        run.workdir, score, given_by(run.module, run.config), areas_of(run.record)
    )


def _images(
    source: str | os.PathLike, name: str | None, group: int | None, bands: data.Bands
) -> tuple[str, tuple[ImagePath, ...], Any]:
    """Finds the name of a class and its image files, after unpacking an archive.

    Returns:
      The name, the files, and a context manager that removes the unpacked files.
    """
    path = Path(source)
    scratch = Scratch()
    try:
        if path.suffix == ".json":
            images = _of_group(path, group, scratch.name, bands)
        elif group is not None:
            raise ValueError(f"group: {source} is not a JSON file written by jaxatr cluster")
        else:
            if not path.exists():
                raise MissingFileError(f"source: there is no folder or file {path}")
            if str(path).lower().endswith(TABLES):
                name, images = _of_table(path, name, bands)
            else:
                images = data.image_paths(str(path), scratch.name, bands).images
            if name is None:
                _check_folder(path, images)
                name = os.path.basename(os.path.abspath(path))  # of a link, not of its target
        name = data.class_name(name or "")
        if not name or name == UNKNOWN:
            raise ValueError(
                f"name: got {name!r}, wanted a name for the class, other than {UNKNOWN!r}, "
                "--name=NAME"
            )
    except BaseException:
        scratch.cleanup()
        raise
    return name, images, scratch


def _check_folder(path: Path, images: tuple[ImagePath, ...]) -> None:
    """Checks that a path can name a class: a folder of chips without subfolders."""
    if not path.is_dir():
        raise ValueError(f"name: {path} is not a folder named after the class: give --name=NAME")
    inner = {Path(image.file).relative_to(path).parts[:1] for image in images}
    folders = sorted(one for (one,) in inner - {()} if (path / one).is_dir())
    if folders:
        raise ValueError(
            f"source: {path} holds folders ({', '.join(folders[:3])}), but one class is enrolled "
            f"at a time: --chips={shlex.quote(str(path / folders[0]))}, or --name=NAME for all of "
            "them"
        )


def _of_table(path: Path, name: str | None, bands: data.Bands) -> tuple[str, tuple[ImagePath, ...]]:
    """Finds the images of a class in a table of labels, and the name of the class.

    Raises:
      ValueError: the table has no labels or none of this name, or several and no name is given.
    """
    from jaxatr.data.sources.image_folder import labelled_truth  # not for other commands

    found = labelled_truth(path, path.parent, bands)
    labels = sorted({one.label for one in found.listed} - {UNKNOWN})
    if name is None and len(labels) == 1:
        (name,) = labels
    if name is None or data.class_name(name) not in labels:
        listed = ", ".join(labels) or "no class"
        raise ValueError(f"name: got {name!r}, wanted a label of {path}: {listed}")
    chosen = (one.path for one in found.listed if one.label == data.class_name(name))
    return name, tuple(
        ImagePath(str(found.root / below), str(found.root / below), below) for below in chosen
    )


def _of_group(
    path: Path, group: int | None, scratch: str, bands: data.Bands
) -> tuple[ImagePath, ...]:
    """Finds the images of a group in a JSON file written by :func:`jaxatr.runs.cluster_run`."""
    try:
        content = json.loads(read_regular(path))
        groups = {int(one["group"]): one["images"] for one in content["groups"]}
        sources = content["sources"]
    except OSError as error:
        raise ValueError(f"source: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"source: {path} is not a JSON file written by jaxatr cluster ({error})"
        ) from error
    if group not in groups:
        listed = ", ".join(map(str, groups)) or "none"
        raise ValueError(f"group: got {group}, wanted one of those in {path}: {listed}")
    every: dict[str, ImagePath] = {}
    for place, one in enumerate(sources):
        for image in data.image_paths(one, os.path.join(scratch, str(place)), bands).images:
            every.setdefault(image.name, image)  # the second of a name cannot be read
    if gone := [name for name in groups[group] if name not in every]:
        raise ValueError(f"source: {gone[0]}, in group {group} of {path}, no longer exists")
    return tuple(every[name] for name in groups[group])


def _chips(
    run: TrainedRun, paths: tuple[ImagePath, ...]
) -> Iterator[tuple[str, Shaped[np.ndarray, "h w c"]]]:
    """Reads chips, each with its name."""
    for path in paths:
        try:
            if path.error is not None:
                raise path.error
            yield path.name, run.intake(run.intake.read(path.file))
        except (ValueError, OSError) as error:
            raise ValueError(data.line_of(error, path.name, path.file)) from error


def _new_chips(
    before: Enrolment | None, name: str, chips: Iterable[tuple[str, Shaped[np.ndarray, "h w c"]]]
) -> tuple[np.ndarray, int]:
    """Returns the chips that are not enrolled yet, and the number of others."""
    there = {one: entry.name for entry in before.entries for one in entry.sha256} if before else {}
    images: dict[str, np.ndarray] = {}
    count = 0
    for title, chip in chips:
        count += 1
        checksum = enrolment_file.checksum(chip)
        if (other := there.get(checksum, name)) != name:
            raise ValueError(f"{title}: already enrolled as {other}")
        images[checksum] = chip
    new = [chip for checksum, chip in images.items() if checksum not in there]
    if not new:
        raise ValueError(f"{name}: all {count} chips are already enrolled")
    return np.stack(new), count - len(new)


def _promises(
    run: TrainedRun, decision: openset.Decision, enrolment: Enrolment, name: str
) -> dict[str, Any]:
    """Estimates how well an enrolled class is recognised, from its own chips."""
    further, calibration = decision.further, decision.calibration
    if name in run.classes or further is None:
        return {}
    number = [*run.classes, *enrolment.further(run.classes)].index(name)
    promises: dict[str, Any] = {"named": None, "threshold": None, "promise": None}
    of_class = further.labels == number
    if of_class.any():
        promises["named"] = float(np.mean(further.nearest[of_class] == number))
    if calibration is not None:
        of_all = calibration.threshold
        threshold = float(decision.thresholds(len(run.classes))[number])
        promises["threshold"] = threshold if np.isfinite(threshold) else None
        promises["threshold_of_the_run"] = of_all if np.isfinite(of_all) else None
        promises["promise"] = further.promise(number, calibration.tpr)
    return promises
