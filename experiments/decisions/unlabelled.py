"""Shifts thresholds to field chips without labels, on the recorded tasks.

    python -m experiments.decisions.unlabelled --workdir=FOLDER

MSTAR's test chips have another depression angle than its training chips, and simulated chips with
boxes off by a tenth have another crop: both stand for the field. Mixtures of 300 of them, with 0 to
80 % unknown ones, go through :func:`jaxatr.openset.fit_mixture`, which chooses nothing by labels.
The score is the sum of ``template`` and ``spatial_stage2``, each standardised on validation chips,
as in ``fusion_template``. ``results/unlabelled.json`` has a row for each task, share and draw.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions.measure import RESULTS, rounded
from jaxatr import files, openset

MEMBERS = ("template", "spatial_stage2")
SHARES = (0.0, 0.2, 0.5, 0.8)
CHIPS, DRAWS = 300, 2
TPR = 0.95


class Field(NamedTuple):
    """A task whose chips stand for the field.

    Attributes:
      task: name of the recorded task.
      part: the part with the field's chips.
      kind: what has changed.
    """

    task: str
    part: str
    kind: str


FIELDS = (
    *(Field(f"mstar-{name}", "test", "angle") for name in ("64-0", "64-1", "48-1", "80-2")),
    *(Field(name, "box_off", "boxes") for name in ("visible", "thermal")),
    *(Field(name, "test", "nothing") for name in ("thermal", "thermal-boxes")),
)


def summed(arrays: Any, part: str) -> np.ndarray:
    """Returns the sum of the members' scores of a part, standardised on validation chips."""
    total = np.zeros(len(arrays[f"{part}/labels"]))
    for name in MEMBERS:
        own = arrays[f"validation/score_{name}"]
        total += (arrays[f"{part}/score_{name}"] - own.mean()) / own.std()
    return total


def figures(threshold: float, scores: np.ndarray, right: np.ndarray, known: np.ndarray) -> dict:
    """Measures a threshold; the open-set accuracy counts the known and unknown chips of the test.

    Args:
      threshold: the threshold.
      scores: ``[n]``.
      right: ``[n]``, whether the class that the template names is right.
      known: ``[n]``, which chips are known.
    """
    accepted = scores >= threshold
    return {
        "known_accepted": float(accepted[known].mean()),
        "unknown_accepted": float(accepted[~known].mean()),
        "open_accuracy": float(np.mean(np.where(known, accepted & right, ~accepted))),
    }


def measure(field: Field, arrays: Any) -> list[dict[str, Any]]:
    """Shifts the threshold to every mixture of a field's chips, and measures it on all of them."""
    validation, scores = summed(arrays, "validation"), summed(arrays, field.part)
    labels = arrays[f"{field.part}/labels"]
    known, right = labels >= 0, arrays[f"{field.part}/label_template"] == labels
    before = figures(openset.conformal_threshold(validation, tpr=TPR), scores, right, known)
    rows = []
    for share in SHARES:
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, round(100 * share)])
            count = round(CHIPS * share)
            few = [rng.choice(scores[known], CHIPS - count, replace=False)]
            few += [rng.choice(scores[~known], count, replace=False)]
            row = {**field._asdict(), "share": share, "draw": draw, "before": before}
            try:
                found = openset.fit_mixture(validation, np.concatenate(few), tpr=TPR)
            except openset.CannotTell as error:
                rows.append(row | {"refused": str(error)})
                continue
            threshold = openset.conformal_threshold(found.moved(validation), tpr=TPR)
            after = figures(threshold, scores, right, known)
            rows.append(row | {"after": after, "estimated": found.unknown})
    return rows


def main() -> None:
    """Measures the recorded tasks."""
    parser = argparse.ArgumentParser(description="Shifts thresholds without labels.")
    parser.add_argument("--workdir", type=Path, required=True)
    folder = parser.parse_args().workdir / "members"
    rows = []
    for field in FIELDS:
        with np.load(folder / field.task / "main.npz") as arrays:
            rows += measure(field, arrays)
        print(f"done    {field.task}, {field.kind}", flush=True)
    content = {"members": MEMBERS, "tpr": TPR, "chips": CHIPS, "rows": rounded(rows)}
    files.write_text(RESULTS / "unlabelled.json", json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
