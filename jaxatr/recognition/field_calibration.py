"""The calibration of a finished run to field chips, without changing the network."""

import dataclasses
import datetime
import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import metrics, openset
from jaxatr.data import archive, class_name, image_facts, image_paths, line_of
from jaxatr.recognition import store
from jaxatr.recognition.recogniser import OpenSetPredictor, Recogniser
from jaxatr.reporting.tables import guarantee_in_words
from jaxatr.tasks.image_facts import by_name


class Chips(NamedTuple):
    """A network's outputs for labelled field chips.

    Attributes:
      outputs: outputs of the network, with the chips' classes as labels.
      counts: number of chips of each class, by name.
      digest: SHA-256 of the names and contents of the chips' files.
      facts: facts of the chips as images, by name; empty for tracks.
    """

    outputs: openset.Outputs
    counts: dict[str, int]
    digest: str
    facts: dict[str, list[float]]


def calibrate(
    recogniser: OpenSetPredictor,
    workdir: str | os.PathLike,
    step: int,
    source: str | os.PathLike,
    *,
    tpr: float,
    per_class: bool,
) -> dict[str, Any]:
    """Fits thresholds and probabilities to field chips, and saves them beside the run's.

    Args:
      recogniser: the run's recogniser, without calibration to field chips.
      workdir: the run's folder.
      step: step of the checkpoint.
      source: labelled chips of known classes: a folder, a table or an archive, as for training;
        for tracks, a folder of class folders that contain one folder per track.
      tpr: fraction of known chips to accept.
      per_class: fit a separate threshold for each predicted class.

    Returns:
      ``score``, ``chips`` (count by class), ``path`` of the calibration, and ``before`` and
      ``after``, each with ``threshold`` (None if it accepts everything or differs between classes),
      ``guarantee`` (smallest share of known chips that it is guaranteed to accept, or None),
      ``accepted`` (fraction of the chips; leave-one-out after the calibration), and ``temperature``
      and ``calibration_error`` of the class probabilities on the same chips, except those of
      enrolled classes, which have no probabilities (None if no chips are left).

    Raises:
      ValueError: a class is not known, there are no chips, or a chip is invalid.
    """
    chips, before = read_chips(recogniser, source), recogniser.decision
    calibration = before.calibration
    after = openset.calibrate(
        before,
        chips.outputs,
        tpr=tpr,
        per_class=per_class,
        sigmoid=None if calibration is None else calibration.sigmoid,
    )
    _warn_of_few(after, recogniser.classes[: chips.outputs.logits.shape[1]])
    provenance = {
        "source": str(Path(source).absolute()),
        "chips": chips.counts,
        "digest": chips.digest,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "image_facts": chips.facts,
    }
    path = store.save(workdir, step, recogniser.kept + store.FIELD, after, provenance)
    figures = {
        "before": _figures(before, chips.outputs, before(chips.outputs).accepted),
        "after": _figures(after, chips.outputs, _by_the_others(after)),
    }
    return {"score": before.score.name, "chips": chips.counts, "path": str(path), **figures}


def _warn_of_few(decision: openset.Decision, classes: Sequence[str]) -> None:
    """Warns if there are too few chips to guarantee the rate, in all or in some of the classes."""
    calibration = decision.calibration
    assert calibration is not None
    guarantees = calibration.guarantees(len(classes))
    few = ~(guarantees >= calibration.tpr)
    if not few.any():
        return
    every = "" if few.all() else f" taken for {', '.join(np.array(classes)[few])}"
    promise = guarantee_in_words(calibration.guarantee(len(classes)))
    warnings.warn(
        f"tpr: {len(calibration.scores)} chips are too few to guarantee a rate of "
        f"{calibration.tpr:.3g} for chips{every}: the threshold is an estimate, with {promise}; "
        f"{openset.examples_needed(calibration.tpr)}{' per class' * calibration.per_class} are "
        "needed, or fewer with a lower tpr",
        stacklevel=3,
    )


def read_chips(recogniser: OpenSetPredictor, source: str | os.PathLike) -> Chips:
    """Reads labelled chips, and applies the network to them.

    Raises:
      ValueError: a class is not known, there are no chips, or a chip is invalid.
    """
    with (
        tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch,
        archive.naming(Path(scratch), Path(source)),
    ):
        listed = _listed(recogniser, Path(source), Path(scratch))
        labels = [recogniser.classes.index(one.label) for one in listed]
        outputs, facts = _outputs(recogniser, listed)
        digest = _digest(listed)
    counts = {recogniser.classes[c]: labels.count(c) for c in dict.fromkeys(labels)}
    return Chips(outputs._replace(labels=np.array(labels)), counts, digest, facts)


def _outputs(
    recogniser: OpenSetPredictor, listed: Sequence["_Listed"]
) -> tuple[openset.Outputs, dict[str, list[float]]]:
    """Reads chips or tracks and applies the network; returns facts of single images, too."""
    facts: list[np.ndarray] = []

    def read() -> Iterator[np.ndarray]:
        for one in listed:
            item = _read(recogniser, one)
            if isinstance(recogniser, Recogniser):
                facts.append(image_facts(item))
            yield item

    outputs = openset.concatenated(list(recogniser.outputs(read())))
    return outputs, {n: v.tolist() for n, v in by_name(facts).items()} if facts else {}


def shift(
    recogniser: OpenSetPredictor,
    workdir: str | os.PathLike,
    step: int,
    source: str | os.PathLike,
    *,
    tpr: float,
    per_class: bool,
) -> dict[str, Any]:
    """Shifts the run's calibration to chips without labels, and saves it beside the run's.

    The validation scores are moved and stretched to the known part of the chips' scores
    (:mod:`jaxatr.openset.unlabelled`), with thresholds, p-values and probabilities. This is an
    estimate without a guarantee.

    Args:
      recogniser: the run's recogniser, without calibration to field chips.
      workdir: the run's folder.
      step: step of the checkpoint.
      source: chips of known and unknown classes: a folder, a table or an archive; for tracks, a
        folder that contains one folder per track.
      tpr: fraction of known chips to accept.
      per_class: fit a separate threshold for each predicted class.

    Returns:
      ``score``, ``chips`` (their number), ``path`` of the calibration, ``unknown`` (estimated
      share), ``unknown_accepted`` (estimated share of the unknown chips), and ``before`` and
      ``after``, each with ``threshold`` (None if it accepts everything or differs between classes)
      and ``accepted`` (fraction of the chips).

    Raises:
      openset.CannotTell: the known chips cannot be told from the unknown ones; nothing is saved.
      ValueError: the decision is not calibrated to validation chips or has enrolled classes, there
        are no chips, or a chip is invalid.
    """
    before = recogniser.decision
    name, calibration = before.score.name, before.calibration
    if calibration is None:
        raise ValueError(f"{name} is not calibrated to validation chips, which could be shifted")
    if before.further is not None:
        raise ValueError(
            f"unlabelled: the enrolled classes {', '.join(recogniser.further)} have thresholds of "
            "their own: wanted a run without them, or --chips with labelled ones"
        )
    _check_separates(before)
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        listed = _unlabelled(recogniser, Path(source), Path(scratch))
        outputs, facts = _outputs(recogniser, listed)
        digest = _digest(listed)
    try:
        mixture = openset.fit_mixture(calibration.scores, before.score_of(outputs)[0], tpr=tpr)
    except openset.CannotTell as error:
        raise openset.CannotTell(f"{source}: {_CANNOT}: {error}; {_INSTEAD}") from None
    moved = calibration._replace(
        scores=mixture.moved(calibration.scores), tpr=tpr, per_class=per_class, unseen=0
    )
    after = dataclasses.replace(before, calibration=moved, threshold=None)
    estimate = {"unknown": mixture.unknown, "unknown_accepted": mixture.overlap(moved.threshold)}
    provenance = {
        "source": str(Path(source).absolute()),
        "unlabelled": len(listed),
        "mixture": mixture._asdict() if mixture.unknown else mixture._asdict() | {"centre": None},
        "digest": digest,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "image_facts": facts,
    }
    path = store.save(workdir, step, recogniser.kept + store.FIELD, after, provenance)
    classes = outputs.logits.shape[1]
    figures = {
        when: {
            "threshold": _one_threshold(decision, classes),
            "accepted": float(np.mean(decision(outputs).accepted)),
        }
        for when, decision in (("before", before), ("after", after))
    }
    return {"score": name, "chips": len(listed), "path": str(path), **estimate, **figures}


_CANNOT = "known chips cannot be told from unknown ones, so nothing is changed"
_INSTEAD = "use --chips with a few labelled ones"
_MOST_DOUBT = 0.1


def _check_separates(decision: openset.Decision) -> None:
    """Checks that the score separates known classes from those held out in their place.

    The mean probability of being unknown, at even odds, of known chips is 0.1 if known and unknown
    scores are Gaussians three spreads apart. That is farther than the mixture needs, because the
    network may have seen the held-out classes.

    Raises:
      openset.CannotTell: it does not.
    """
    calibration = decision.calibration
    assert calibration is not None
    if calibration.sigmoid is None:
        return
    known = calibration.known_probabilities(calibration.scores)
    assert known is not None
    if (doubt := float(np.mean(1 - known))) > _MOST_DOUBT:
        raise openset.CannotTell(
            f"{_CANNOT}: {decision.score.name} gives known validation chips a mean probability of "
            f"{doubt:.0%} of being unknown, wanted at most {_MOST_DOUBT:.0%}; {_INSTEAD}"
        )


class _Listed(NamedTuple):
    """A chip, or the folder of a track.

    Attributes:
      name: its name, whose first or last folder is usually the class.
      path: the file or the folder.
      label: name of its class; empty without labels.
    """

    name: str
    path: Path
    label: str = ""


def _unlabelled(recogniser: OpenSetPredictor, source: Path, scratch: Path) -> list[_Listed]:
    """Lists the chips or tracks at a path.

    Raises:
      ValueError: there are none, or a file cannot be unpacked.
    """
    if isinstance(recogniser, Recogniser):
        listed = []
        for one in image_paths(str(source), str(scratch)).images:
            if one.error is not None:
                raise ValueError(line_of(one.error, one.name, one.file)) from one.error
            listed.append(_Listed(one.name, Path(one.file)))
    else:
        listed = [_Listed(path.name, path) for path in _visible(source) if path.is_dir()]
    if not listed:
        raise ValueError(f"{source}: there are no chips")
    return listed


def _listed(recogniser: OpenSetPredictor, source: Path, scratch: Path) -> list[_Listed]:
    """Lists the chips or tracks at a path, with names of known classes."""
    if isinstance(recogniser, Recogniser):
        from jaxatr.data.sources.image_folder import labelled_truth  # not for other commands

        found = labelled_truth(source, scratch)
        listed = [_Listed(one.path, found.root / one.path, one.label) for one in found.listed]
    else:
        listed = [
            _Listed(str(path.relative_to(source)), path, class_name(folder.name))
            for folder in _visible(source)
            if folder.is_dir()
            for path in _visible(folder)
        ]
    if not listed:
        raise ValueError(f"{source}: there is no folder of a class that contains tracks")
    for one in listed:
        if one.label not in recogniser.classes:
            raise ValueError(
                f"{one.path}: got the class {one.label!r}, wanted known classes, "
                f"{', '.join(recogniser.classes)}"
            )
    return listed


def _read(recogniser: OpenSetPredictor, one: _Listed) -> Any:
    """Reads and prepares a chip or a track, and names it in errors."""
    try:
        return recogniser.prepare(recogniser.read(str(one.path)))
    except (ValueError, OSError) as error:
        raise ValueError(line_of(error, str(one.path))) from error


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"source: there is no folder {folder}")
    return sorted(path for path in folder.iterdir() if path.name[0] != ".")


def undo(workdir: str | os.PathLike, step: int, kept: str) -> Path | None:
    """Removes the calibration of a score to field chips.

    Args:
      workdir: the run's folder.
      step: step of the checkpoint.
      kept: name of the score's fit (:attr:`OpenSetPredictor.kept`).

    Returns:
      The path of the removed file, or None if there was none.
    """
    path = store.path_of(workdir, step, kept + store.FIELD)
    if not path.is_file():
        return None
    path.unlink()
    return path


def _figures(
    decision: openset.Decision, outputs: openset.Outputs, accepted: np.ndarray
) -> dict[str, Any]:
    answers = decision(outputs)
    least = float(np.min(decision.guarantees(outputs.logits.shape[1])))
    # The network has no probabilities of enrolled classes.
    trained = outputs.labels < outputs.logits.shape[1]
    shares, labels = answers.probabilities[trained], outputs.labels[trained]
    error = (
        metrics.expected_calibration_error(
            np.clip(shares.max(axis=1), 0, 1), shares.argmax(axis=1) == labels
        )
        if trained.any()
        else None
    )
    calibration = decision.calibration
    return {
        "threshold": _one_threshold(decision, outputs.logits.shape[1]),
        "guarantee": None if np.isnan(least) else least,
        "accepted": float(np.mean(accepted)),
        "temperature": 1.0 if calibration is None else calibration.temperature,
        "calibration_error": error,
    }


def _one_threshold(decision: openset.Decision, classes: int) -> float | None:
    """Returns the threshold; None if it accepts everything or differs between classes."""
    thresholds = set(decision.thresholds(classes).tolist())
    alone = thresholds.pop() if len(thresholds) == 1 else None
    return alone if alone is not None and np.isfinite(alone) else None


def _by_the_others(decision: openset.Decision) -> np.ndarray:
    """Decides about each chip with the threshold fitted to all others (leave-one-out)."""
    calibration, further = decision.calibration, decision.further
    assert calibration is not None
    accepted = []
    for row, nearest in enumerate(calibration.nearest):
        others = np.arange(len(calibration.scores)) != row
        count = calibration.unseen and calibration.unseen - 1
        rest = calibration._replace(
            scores=calibration.scores[others], nearest=calibration.nearest[others], unseen=count
        )
        if further is not None and nearest >= further.first:
            threshold = further.thresholds(rest)[nearest - further.first]
        else:
            threshold = rest.thresholds(int(nearest) + 1)[nearest]
        accepted.append(calibration.scores[row] >= threshold)
    return np.array(accepted)


def _digest(listed: list[_Listed]) -> str:
    sha256 = hashlib.sha256()
    for one in listed:
        files = _visible(one.path) if one.path.is_dir() else [one.path]
        for file in files:
            name = Path(one.name, file.relative_to(one.path))
            sha256.update(f"{name}\n".encode())
            sha256.update(file.read_bytes())
    return sha256.hexdigest()
