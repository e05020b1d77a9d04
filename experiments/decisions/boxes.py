"""Boxes that are off by a tenth: decisions with and without an estimate of the box.

Run: python -m experiments.decisions.boxes --workdir=FOLDER [--only=thermal]

Each run is trained once, below ``FOLDER``, and decides twice by the same network: by the chips as
they are, and, with ``open_set.box_error=0.1``, by chips that are cut anew at an estimated box. In
the trials, known classes are left out of the training and stand for unknown ones. The estimate, its
penalty and what it is used for were chosen on ``thermal`` and its trial alone.
``results/boxes.json`` has a row for each run, decision and kind of box.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions import package, run
from experiments.decisions.measure import RESULTS, rounded
from experiments.decisions.tasks import TASKS
from jaxatr import files, metrics

ERROR, TPR = 0.1, 0.95
PARTS = {"exact": "test", "off": "box_off"}


class BoxRun(NamedTuple):
    """A run whose decision is measured.

    Attributes:
      name: its name, that of a task or ``default``.
      training: name of the task's training.
      score: the score that decides.
      role: what the run is for.
    """

    name: str
    training: str
    score: str
    role: str


RUNS = (
    BoxRun("thermal", "trial-0", "fusion_cbc", "choice"),
    BoxRun("thermal", "main", "fusion_cbc", "choice"),
    BoxRun("mstar-64-1", "trial-0", "fusion_template", "check"),
    BoxRun("default", "main", "fusion_cbc", "check"),
)


def configured(one: BoxRun, workdir: Path, data: Path) -> Any:
    """Returns the configuration of a run."""
    if one.name == "default":
        return package.configured("cbc:default", {"open_set.box_error": 0.0})
    task = next(task for task in TASKS if task.name == one.name)
    training = next(each for each in run.trainings(task) if each.name == one.training)
    source = run.chips_of(task, training, workdir, data)
    # The trials have all steps: they stand for the run itself.
    steps = {"train.steps": task.overrides["train.steps"], "data.box_error": ERROR}
    return package.configured(
        task.config, {**task.overrides, **source, **training.overrides, **steps}
    )


def measured(folder: Path, score: str) -> Iterator[dict[str, Any]]:
    """Measures the decisions of a trained run, a row for each kind of box."""
    for error in (0.0, ERROR):
        arrays, operations = package.evaluated(folder, error, score)
        threshold = package.conformal_threshold(arrays[f"validation_score_{score}"], TPR)
        for boxes, part in PARTS.items():
            found = figures(arrays, part, score, threshold)
            yield {"box_error": error, "boxes": boxes, "operations": operations, **found}


def figures(
    arrays: Mapping[str, np.ndarray], part: str, score: str, threshold: float
) -> dict[str, float]:
    """Computes the figures of a part from the arrays of an evaluation.

    Args:
      arrays: the content of ``scores.npz``.
      part: name of the part.
      score: name of the score that decides, and names the class.
      threshold: its threshold.
    """
    labels, values = arrays[f"{part}_labels"], arrays[f"{part}_score_{score}"]
    known = labels >= 0
    right = arrays[f"{part}_predicted_{score}"] == labels
    head = arrays[f"{part}_logits"].argmax(axis=1) == labels
    return {
        "auroc": metrics.auroc(values[known], values[~known]),
        "oscr": metrics.oscr(values[known], right[known], values[~known]),
        "named": float(right[known].mean()),
        "named_by_head": float(head[known].mean()),
        "known_accepted": float((values[known] >= threshold).mean()),
        "unknown_accepted": float((values[~known] >= threshold).mean()),
    }


def main() -> None:
    """Trains the runs that are missing, and writes the record."""
    parser = argparse.ArgumentParser(description="Measures decisions on boxes that are off.")
    parser.add_argument("--workdir", required=True, help="folder of chips and runs")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--only", default="", help="comma-separated prefixes of runs")
    flags = parser.parse_args()
    workdir, path = Path(flags.workdir).absolute(), RESULTS / "boxes.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else {}
    for one in RUNS:
        name = f"{one.name} {one.training}"
        if not one.name.startswith(tuple(flags.only.split(","))):
            continue
        folder = workdir / f"{one.name}-{one.training}"
        package.train(configured(one, workdir, Path(flags.data).absolute()), folder)
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        facts = {key: record.get(key) for key in ("code", "examples", "split")}
        rows[name] = {
            **one._asdict(),
            **facts,
            "rows": [rounded(row) for row in measured(folder, one.score)],
        }
        path.parent.mkdir(exist_ok=True)
        content = {"error": ERROR, "tpr": TPR, "runs": rows}
        files.write_text(path, json.dumps(content, indent=1) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
