"""Chooses the chips of a pool that a run should be taught next."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, files, openset
from jaxatr.data import ImagePath
from jaxatr.openset import gallery, labelling
from jaxatr.openset.grouping import FEWEST, group
from jaxatr.recognition.enrolment import check_kind
from jaxatr.recognition.neighbours import build_examples
from jaxatr.recognition.pool import Pool
from jaxatr.recognition.prediction import UNKNOWN, Prediction
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.session import FEATURES
from jaxatr.reporting import label_page
from jaxatr.training import Checkpoint
from jaxatr.typing import Bool, Float, Shaped


class Suggestion(NamedTuple):
    """A chip to label.

    Attributes:
      rank: its rank, from 1, which is to be labelled first.
      path: the path of its image; in an archive ``ARCHIVE/PATH_INSIDE``.
      why: why it is suggested, in words.
      verdict: the run's decision, in words.
      prediction: the run's prediction.
    """

    rank: int
    path: str
    why: str
    verdict: str
    prediction: Prediction


class Suggested(NamedTuple):
    """The chips of a pool to label.

    Attributes:
      chips: the chips, the first to be labelled first.
      images: number of usable images in the pool.
      rejected: number of those that the run judges unknown.
      left_out: (path, reason) for each image, folder or archive that cannot be used.
      predictor: the run.
    """

    chips: list[Suggestion]
    images: int
    rejected: int
    left_out: list[tuple[str, str]]
    predictor: Recogniser

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields path, rank, why and the prediction of each chip as JSON values."""
        for one in self.chips:
            yield _first(one) | self.predictor.to_json(one.prediction)

    def table(self) -> list[dict[str, data.Cell]]:
        """Returns the rows of a table: path, rank, why and the columns of ``jaxatr predict``."""
        return [_first(one) | self.predictor.to_row(one.prediction) for one in self.chips]


def _first(one: Suggestion) -> dict[str, data.Cell]:
    return {"path": one.path, "rank": one.rank, "why": one.why}


class _Judged(NamedTuple):
    """A run's decisions about the usable images of a pool.

    Attributes:
      paths: the images.
      predictions: the predictions.
      probabilities: ``[n, k]``, those of the network's classes.
      features: ``[n, d]``, the network's features, of unit length.
      unknown: ``[n]``, whether an image is judged unknown.
      vectors: ``[u, e]``, the vectors by which unknown images are grouped.
    """

    paths: list[ImagePath]
    predictions: list[Prediction]
    probabilities: Float[np.ndarray, "n k"]
    features: Float[np.ndarray, "n d"]
    unknown: Bool[np.ndarray, " n"]
    vectors: Float[np.ndarray, "u e"]


def suggest_run(
    workdir: str | os.PathLike,
    pool: str | os.PathLike | Sequence[str | os.PathLike],
    count: int,
    *,
    score: str | None = None,
    checkpoint: Checkpoint = "latest",
    **options: Any,
) -> Suggested:
    """Loads a run, and suggests chips of a pool.

    Args:
      workdir: the run's folder.
      pool: folders, archives, tables of paths, or files of images.
      count: number of chips to suggest.
      score: the score that decides which chips are unknown; by default the run's.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      **options: those of :func:`suggest`.

    Raises:
      ValueError: ``workdir`` is not a run of open-set recognition of single images, or see
        :func:`suggest`.
      OSError: the page cannot be written.
    """
    check_kind(workdir)
    recogniser = Recogniser.load(workdir, score=score, checkpoint=checkpoint)
    assert isinstance(recogniser, Recogniser)
    return suggest(recogniser, pool, count, **options)


def suggest(
    recogniser: Recogniser,
    pool: str | os.PathLike | Sequence[str | os.PathLike],
    count: int,
    *,
    method: str = labelling.METHODS[0],
    labelled: Sequence[str | os.PathLike] = (),
    page: str | os.PathLike | None = None,
    where: Mapping[str, str] | None = None,
) -> Suggested:
    """Suggests which chips of a pool to label, by :func:`jaxatr.openset.labelling.to_label`.

    Args:
      recogniser: the run.
      pool: folders, archives, tables of paths, or files of images. Those that the run was trained
        on by ``data.added`` are left out.
      count: number of chips to suggest.
      method: how chips that are judged known are chosen.
      labelled: tables of paths whose images are left out, because they have a label.
      page: an HTML file to write, on which the chips can be labelled.
      where: fields of ``config.data`` to change if the training data has moved; only the method
        ``"coverage"`` needs it.

    Raises:
      ValueError: the pool has no image that can be used, or fewer than ``count``; a table of labels
        names no image that exists; there is no such method; the page's images are in an archive,
        where no training finds them; or the training data that ``"coverage"`` needs cannot be read.
      OSError: the page cannot be written.
    """
    if count < 1:
        raise ValueError(f"count: got {count}, wanted 1 or more")
    if page is not None:
        files.check_page(page)
    centres = _training_features(recogniser, where or {}) if method == "coverage" else None
    sources = [pool] if isinstance(pool, str | os.PathLike) else list(pool)
    run = recogniser.session.run
    done = {file for table in labelled for file in _files_of(table)}
    if added := run.config.data.get("added"):
        done |= _files_of(added, checked=False)  # which may have moved since the training
    with Pool(recogniser, sources, done) as images:
        if page is not None:
            _check_unpacked(images)
        judged = _judged(recogniser, images)
        if count > len(judged.paths):
            raise ValueError(
                f"count: got {count}, wanted at most {len(judged.paths)}, the images of the pool "
                "that can be used"
            )
        rows = np.flatnonzero(judged.unknown)
        groups = [rows[one.members] for one in group(judged.vectors, fewest=FEWEST)]
        chosen = labelling.to_label(
            judged.features,
            judged.probabilities,
            count,
            unknown=judged.unknown,
            groups=groups,
            labelled=centres,
            method=method,
        )
        chips = [
            Suggestion(
                rank,
                judged.paths[one.row].name,
                _in_words(one, judged.predictions[one.row], groups),
                recogniser.verdict(judged.predictions[one.row]),
                judged.predictions[one.row],
            )
            for rank, one in enumerate(chosen, 1)
        ]
        if page is not None:
            shown = [judged.paths[one.row] for one in chosen]
            _write_page(page, recogniser, images, shown, chips)
    return Suggested(chips, len(judged.paths), len(rows), images.left_out, recogniser)


def _training_features(
    recogniser: Recogniser, where: Mapping[str, str]
) -> Float[np.ndarray, "l d"]:
    """Returns the features of the run's training chips, of unit length.

    Raises:
      ValueError: the training data cannot be read.
    """
    about = {"runtime": recogniser.runtime, "needs": recogniser.session.needs}
    examples, missing = build_examples(recogniser.session.run, where, recogniser.features, **about)
    if examples is None or examples.features is None:
        raise ValueError(f"method=coverage: {missing}")
    return examples.features


def _files_of(table: str | os.PathLike, *, checked: bool = True) -> set[Path]:
    """Returns the resolved paths of the images that a table names.

    Raises:
      ValueError: none of them is a file, if this is ``checked``.
    """
    found = data.image_paths(str(table), "").images
    if checked and not any(Path(one.file).is_file() for one in found):
        raise ValueError(
            f"labelled: {table}: there is no file {found[0].file}, nor any other of the table's: "
            "its paths are relative to its folder"
        )
    return {Path(one.file).resolve() for one in found}


def _check_unpacked(pool: Pool) -> None:
    """Checks that a table of labels can name the images.

    Raises:
      ValueError: one is in an archive.
    """
    if inside := next((path.name for path in pool.paths if pool.is_unpacked(path)), None):
        raise ValueError(
            f"page: {inside} is in an archive, from which no table of labels can name it: unpack "
            "the archive first"
        )


def _judged(recogniser: Recogniser, pool: Pool) -> _Judged:
    """Computes the run's decisions about a pool."""
    predictions: list[Prediction] = []
    features, vectors = [], []
    for outputs in recogniser.outputs(pool.chips()):
        answers = list(recogniser.decide(outputs))
        predictions += answers
        features.append(gallery.unit(outputs.more[FEATURES]))
        rejected = np.array([one.label == UNKNOWN for one in answers])
        if rejected.any():
            found = openset.compared_rows(recogniser.decision, outputs.select(rejected))
            vectors.append(found)
    # Of an enrolled class, the network has no probability.
    certain = np.array([one.nearest in recogniser.further for one in predictions])
    probabilities = np.array([[*one.probabilities.values()] for one in predictions])
    return _Judged(
        pool.used,
        predictions,
        np.where(certain[:, None], np.nan, probabilities),
        np.concatenate(features),
        np.array([one.label == UNKNOWN for one in predictions]),
        np.concatenate(vectors) if vectors else np.zeros((0, 1), np.float32),
    )


def _in_words(
    choice: labelling.Choice, prediction: Prediction, groups: Sequence[Shaped[np.ndarray, " m"]]
) -> str:
    """Says why a chip is suggested."""
    if choice.why == labelling.GROUPED:
        return f"group {choice.group + 1} of unknown chips, {len(groups[choice.group])} chips"
    if choice.why == labelling.STRANGE:
        return "unknown, unlike the other chips to label"
    if choice.why == labelling.COVERS:
        return "covers the pool"
    first, second, *_ = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
    return f"uncertain between {first[0]} and {second[0]}"


def _write_page(
    page: str | os.PathLike,
    recogniser: Recogniser,
    pool: Pool,
    paths: Sequence[ImagePath],
    chips: Sequence[Suggestion],
) -> None:
    """Writes the page on which chips are labelled."""
    cards = [
        label_page.Card(
            str(Path(path.file).absolute()),
            chip.path,
            data.thumbnail(
                recogniser.chip.picture(recogniser.read(path.file)), side=label_page.SIDE
            ),
            chip.why,
            chip.verdict,
        )
        for path, chip in zip(paths, chips, strict=True)
    ]
    title = ", ".join(Path(one).name for one in pool.sources)
    files.write_text(page, label_page.render(title, recogniser.classes, cards))
