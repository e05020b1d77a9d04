"""Groups the chips that a run rejects, as candidates for classes to enrol."""

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, files, openset
from jaxatr.data import ImagePath
from jaxatr.openset.grouping import FEWEST, group
from jaxatr.reporting import clustered
from jaxatr.runs.enrolment import check_kind
from jaxatr.tasks.open_set.predictor import Recogniser
from jaxatr.training import Checkpoint

_SHOWN = 32  # pictures of a group on the page
_LONE = 64  # of those that are in none


class Clustered(NamedTuple):
    """What came of the grouping.

    Attributes:
      content: of the machine-readable file.
      page: of the HTML file.
      file: the machine-readable one, beside it.
      left_out: (image, why) of those that cannot be used.
    """

    content: dict[str, Any]
    page: str
    file: str
    left_out: list[tuple[str, str]]


class _Rejected(NamedTuple):
    path: ImagePath
    row: np.ndarray
    nearest: str
    score: float


def cluster_run(
    workdir: str | os.PathLike,
    sources: Sequence[str],
    out: str | os.PathLike,
    *,
    fewest: int = FEWEST,
    score: str | None = None,
    checkpoint: Checkpoint = "latest",
) -> Clustered:
    """Groups the images that a run rejects, and writes a page of them and a file beside it.

    They are compared by what the score that decides compares: the vectors that it searches among,
    or, of a score that searches nothing, the network's features.

    Args:
      workdir: the run's folder.
      sources: folders, archives or files of images.
      out: the HTML file; the machine-readable one has its name and ``.json``.
      fewest: images that make a group.
      score: by which is decided; by default the run's.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Raises:
      ValueError: no run that decides, a source without an image, or none that can be used.
    """
    check_kind(workdir)
    page = Path(out)
    beside = page.with_suffix(".json")
    if page.suffix == ".json":
        raise ValueError(f"out: got {out}, wanted an HTML file: the .json is written beside it")
    recogniser = Recogniser.load(workdir, score=score, checkpoint=checkpoint)
    assert isinstance(recogniser, Recogniser)
    left_out: list[tuple[str, str]] = []
    sources = [str(Path(one).absolute()) for one in sources]
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        paths = [
            path
            for place, one in enumerate(sources)
            for path in data.image_paths(one, os.path.join(scratch, str(place))).images
        ]
        seen, rejected = _rejected(recogniser, paths, left_out)
        rows = np.stack([one.row for one in rejected]) if rejected else np.zeros((0, 1))
        groups = group(rows, fewest=fewest)
        grouped = {int(row) for one in groups for row in one.members}
        lone = [row for row in range(len(rejected)) if row not in grouped]
        content = {
            "workdir": str(Path(workdir).absolute()),
            "step": recogniser.step,
            "score": recogniser.decision.score.name,
            "sources": sources,
            "images": seen,
            "rejected": len(rejected),
            "groups": [
                {
                    "group": number,
                    "size": len(one.members),
                    "spread": one.spread,
                    "nearest": _counts([rejected[row].nearest for row in one.members]),
                    "images": [rejected[row].path.name for row in one.members],
                }
                for number, one in enumerate(groups, 1)
            ],
            "alone": [rejected[row].path.name for row in lone],
        }
        shown = [[rejected[row] for row in one.members[:_SHOWN]] for one in groups]
        shown.append([rejected[row] for row in lone[:_LONE]])
        pictures = [_pictures(recogniser, one) for one in shown]
    clusters = [
        clustered.Cluster(
            number=one["group"],
            size=one["size"],
            spread=one["spread"],
            nearest=one["nearest"],
            pictures=pictures[place],
            command=enrol_command(workdir, beside, one["group"]),
        )
        for place, one in enumerate(content["groups"])
    ]
    title = ", ".join(Path(one).name for one in sources)
    files.write_text(beside, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    summary = (
        f"{len(rejected)} of {seen} images are unknown to {workdir}, by "
        f"{recogniser.decision.score.title}."
    )
    text = clustered.render(title, summary, clusters, pictures[-1], len(lone))
    files.write_text(page, text)
    return Clustered(content, str(page), str(beside), left_out)


def enrol_command(workdir: str | os.PathLike, file: str | os.PathLike, number: int) -> str:
    """Writes the command that enrols a group, but for the name of its class."""
    folder, source = shlex.quote(str(workdir)), shlex.quote(str(file))
    return f"jaxatr enrol --workdir={folder} --source={source} --group={number} --name=NAME"


def _rejected(
    recogniser: Recogniser, paths: Sequence[ImagePath], left_out: list[tuple[str, str]]
) -> tuple[int, list[_Rejected]]:
    """Decides about images; returns how many could be used, and those that are rejected."""
    used: list[ImagePath] = []

    def usable() -> Iterator[np.ndarray]:
        for path in paths:
            try:
                image = recogniser.read(path.file)
                recogniser.check(image)
            except (ValueError, OSError) as error:
                reason = str(error).replace(path.file, path.name)
                left_out.append((path.name, reason.removeprefix(f"{path.name}: ")))
                continue
            used.append(path)
            yield image

    found: list[_Rejected] = []
    done = 0
    for outputs in recogniser.outputs(usable()):
        answers = recogniser.deciding(outputs)
        rows = openset.compared_rows(recogniser.decision, outputs)
        for place in np.flatnonzero(~answers.accepted):
            path = used[done + int(place)]
            nearest = recogniser.classes[int(answers.nearest[place])]
            found.append(_Rejected(path, rows[place], nearest, float(answers.scores[place])))
        done += len(outputs.labels)
    if not done:
        reason = f" ({left_out[0][0]}: {left_out[0][1]})" if left_out else ""
        raise ValueError(f"there is no image that can be used{reason}")
    return done, found


def _counts(names: Sequence[str]) -> dict[str, int]:
    """Counts names, the most frequent first."""
    found = {name: names.count(name) for name in dict.fromkeys(names)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _pictures(recogniser: Recogniser, chosen: Sequence[_Rejected]) -> list[clustered.Picture]:
    return [
        clustered.Picture(
            one.path.name,
            data.thumbnail(recogniser.chip(recogniser.read(one.path.file)), side=clustered.SIDE),
            f"nearest {one.nearest}, score {one.score:.3g}",
        )
        for one in chosen
    ]
