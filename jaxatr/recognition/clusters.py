"""Clusters the chips that a run rejects, as candidates for classes to enrol."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, files, openset
from jaxatr.data import ImagePath
from jaxatr.openset.grouping import FEWEST, group
from jaxatr.recognition.enrolment import check_kind
from jaxatr.recognition.pool import Pool
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.reporting import cluster_page
from jaxatr.training import Checkpoint

_SHOWN = 32  # largest number of pictures of a group on the page
_LONE = 64  # largest number of pictures of ungrouped images on the page


class Clustered(NamedTuple):
    """The result of :func:`cluster_run`.

    Attributes:
      content: content of the JSON file.
      page: path of the HTML file.
      file: path of the JSON file beside it.
      left_out: (path, reason) for each image, folder or archive that cannot be used.
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
    """Groups the images that a run rejects, and writes the groups to an HTML page and a JSON file.

    Images are compared by the vectors of the score that decides, or by the network's features if
    the score does not compare with examples.

    Args:
      workdir: the run's folder.
      sources: folders, archives or files of images.
      out: the HTML file; the JSON file beside it has the same name with the suffix ``.json``.
      fewest: smallest number of images in a group.
      score: the score that decides which images are rejected; by default the run's.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Raises:
      ValueError: ``workdir`` is not a run of open-set recognition of single images, a source has
        no image, no image can be used, ``out`` does not end in ``.html``, or the JSON file beside
        it exists and does not hold groups.
      OSError: ``out`` cannot be written.
    """
    check_kind(workdir)
    page = Path(out)
    beside = page.with_suffix(".json")
    files.check_page(page)
    _check_groups(beside)
    recogniser = Recogniser.load(workdir, score=score, checkpoint=checkpoint)
    assert isinstance(recogniser, Recogniser)
    decides = recogniser.decision.score
    # The best of those that can take the class decides from then on.
    by = (score or "") if decides.takes_classes else "auto"
    with Pool(recogniser, [Path(one).absolute() for one in sources]) as pool:
        seen, rejected = _rejected(recogniser, pool)
        groups, alone = _grouped(rejected, fewest)
        clusters = [
            cluster_page.Cluster(
                number=number,
                size=len(members),
                spread=spread,
                nearest=_counts([one.nearest for one in members]),
                pictures=_pictures(recogniser, pool, members[:_SHOWN]),
                command=enrol_command(workdir, beside, number, by),
            )
            for number, (members, spread) in enumerate(groups, 1)
        ]
        lone_pictures = _pictures(recogniser, pool, alone[:_LONE])
    content = {
        "workdir": str(Path(workdir).absolute()),
        "step": recogniser.step,
        "score": decides.name,
        "sources": pool.sources,
        "images": seen,
        "rejected": len(rejected),
        "groups": [
            _record(one, members) for one, (members, _) in zip(clusters, groups, strict=True)
        ],
        "alone": [one.path.name for one in alone],
        "enrols_by": by,
    }
    title = ", ".join(Path(one).name for one in pool.sources)
    summary = f"{len(rejected)} of {seen} images are unknown to {workdir}, by {decides.name}."
    files.write_text(beside, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    files.write_text(page, cluster_page.render(title, summary, clusters, lone_pictures, len(alone)))
    return Clustered(content, str(page), str(beside), pool.left_out)


def _check_groups(path: Path) -> None:
    """Raises ValueError where the groups would overwrite another file, such as a run's record."""
    if not path.exists():
        return
    try:
        content = files.read_json(path)
    except ValueError:
        content = None
    if not isinstance(content, dict) or not {"groups", "rejected"} <= content.keys():
        raise ValueError(
            f"out: the groups are written to {path}, which is another file: choose another --out"
        )


def enrol_command(
    workdir: str | os.PathLike, file: str | os.PathLike, number: int, score: str = ""
) -> str:
    """Returns the command that enrols a group, with ``NAME`` for the name of the class.

    Args:
      workdir: the run's folder.
      file: the JSON file of the groups.
      number: number of the group.
      score: the score that decides from then on; empty for the run's.
    """
    words = ["jaxatr", "enrol", f"--workdir={workdir}", f"--chips={file}", f"--group={number}"]
    words += [f"--score={score}"] * bool(score)
    return f"{shlex.join(words)} --name=NAME"


def _rejected(recogniser: Recogniser, pool: Pool) -> tuple[int, list[_Rejected]]:
    """Returns the number of usable images, and the images that the run rejects."""
    rejected: list[_Rejected] = []
    done = 0
    for outputs in recogniser.outputs(pool.chips()):
        answers = recogniser.deciding(outputs)
        rows = openset.compared_rows(recogniser.decision, outputs)
        for place in np.flatnonzero(~answers.accepted):
            path = pool.used[done + int(place)]
            nearest = recogniser.classes[int(answers.nearest[place])]
            rejected.append(_Rejected(path, rows[place], nearest, float(answers.scores[place])))
        done += len(outputs.labels)
    return done, rejected


def _grouped(
    rejected: Sequence[_Rejected], fewest: int
) -> tuple[list[tuple[list[_Rejected], float]], list[_Rejected]]:
    """Returns the images and the spread of each group, and the images that are in none."""
    rows = np.stack([one.row for one in rejected]) if rejected else np.zeros((0, 1))
    groups = group(rows, fewest=fewest)
    grouped = {int(row) for one in groups for row in one.members}
    members = [([rejected[row] for row in one.members], one.spread) for one in groups]
    return members, [one for row, one in enumerate(rejected) if row not in grouped]


def _record(cluster: cluster_page.Cluster, members: Sequence[_Rejected]) -> dict[str, Any]:
    return {
        "group": cluster.number,
        "size": cluster.size,
        "spread": cluster.spread,
        "nearest": cluster.nearest,
        "images": [one.path.name for one in members],
    }


def _counts(names: Sequence[str]) -> dict[str, int]:
    """Counts names, the most frequent first."""
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _pictures(
    recogniser: Recogniser, pool: Pool, chosen: Sequence[_Rejected]
) -> list[cluster_page.Picture]:
    return [
        cluster_page.Picture(
            one.path.name,
            data.thumbnail(recogniser.chip.shown(pool.chip(one.path)), side=cluster_page.SIDE),
            f"nearest {one.nearest}, score {one.score:.3g}",
        )
        for one in chosen
    ]
