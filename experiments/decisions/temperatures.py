"""Temperatures and thresholds from a few labelled field chips, on the recorded tasks.

    python -m experiments.decisions.temperatures --workdir=FOLDER

The temperature is that of the validation chips ("none"), fitted to the field chips alone ("alone"),
or fitted to them from that of the validation chips ("both", as ``jaxatr calibrate`` does). The
error is measured on the other known chips. The spread of the prior was chosen on the simulated
tasks.

The threshold for 95 % is that of the validation chips, of the field chips alone, or, if these are
few, of both, the validation chips moved to where the field chips lie. The score is that of
``experiments.decisions.unlabelled``. That the validation chips are moved and not stretched was
chosen on the simulated tasks. ``results/temperatures.json`` has the means over draws.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.decisions import package
from experiments.decisions.few import accepted
from experiments.decisions.measure import RESULTS, TPR, rounded
from experiments.decisions.unlabelled import FIELDS, Field, summed
from jaxatr import files, metrics, openset
from jaxatr.openset.logistic import softmax

CHIPS, DRAWS = (5, 10, 20), 20


def error(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Computes the expected calibration error of the largest class probability."""
    shares = softmax(logits / temperature)
    right = shares.argmax(axis=1) == labels
    return metrics.expected_calibration_error(np.clip(shares.max(axis=1), 0, 1), right)


def thresholds(validation: np.ndarray, few: np.ndarray) -> dict[str, float]:
    """Computes thresholds for 95 % of the field's known chips, by what they are fitted to.

    Args:
      validation: ``[v]``, scores of the validation chips.
      few: ``[n]``, scores of the field chips.
    """
    alone = openset.conformal_threshold(few, tpr=TPR, least=1)
    both = alone
    if openset.are_few(len(few), tpr=TPR):
        both, _ = package.few_threshold(few, validation, TPR, move=True)
    return {"none": package.conformal_threshold(validation, TPR), "alone": alone, "both": both}


def measure(field: Field, arrays: Any, members: Any) -> list[dict[str, Any]]:
    """Fits both to each number of chips of a class, and measures them on the other chips.

    Args:
      field: the task and the part that stands for the field.
      arrays: the recorded outputs of its network.
      members: its recorded scores, of the same chips.
    """
    logits, labels = (arrays[f"{field.part}_{name}"] for name in ("logits", "labels"))
    known = np.flatnonzero(labels >= 0)
    validation, scores = summed(members, "validation"), summed(members, field.part)
    unknown, scores = scores[labels < 0], scores[known]
    logits, labels = logits[known].astype(np.float64), labels[known]
    before = openset.fit_temperature(arrays["validation_logits"], arrays["validation_labels"])
    rows = []
    for chips in CHIPS:
        errors, shares = [], []
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, chips])
            own = [rng.permutation(np.flatnonzero(labels == c))[:chips] for c in np.unique(labels)]
            few, rest = np.concatenate(own), np.ones(len(labels), bool)
            rest[few] = False
            fitted = {
                "none": before,
                "alone": openset.fit_temperature(logits[few], labels[few]),
                "both": openset.fit_temperature(logits[few], labels[few], before=before),
            }
            errors.append({n: error(logits[rest], labels[rest], t) for n, t in fitted.items()})
            left = np.concatenate([scores[rest], unknown])
            own = np.arange(len(left)) < rest.sum()
            limits = thresholds(validation, scores[few])
            shares.append({name: accepted(left, own, limit) for name, limit in limits.items()})
        means = {name: float(np.mean([one[name] for one in errors])) for name in errors[0]}
        means |= {
            f"accepted_{name}": np.mean([one[name] for one in shares], axis=0).tolist()
            for name in shares[0]
        }
        means |= {
            f"off_{name}": float(np.mean([abs(one[name][0] - TPR) for one in shares]))
            for name in shares[0]
        }
        rows.append({"task": field.task, "kind": field.kind, "chips": chips, **means})
    return rows


def main() -> None:
    """Measures the recorded tasks."""
    parser = argparse.ArgumentParser(description="Fits decisions to a few field chips.")
    parser.add_argument("--workdir", type=Path, required=True)
    folder, rows = parser.parse_args().workdir, []
    for field in FIELDS:
        name = f"{field.task}/main.npz"
        with np.load(folder / "outputs" / name) as arrays, np.load(folder / "members" / name) as m:
            rows += measure(field, arrays, m)
    content = {"draws": DRAWS, "rows": rounded(rows)}
    files.write_text(RESULTS / "temperatures.json", json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
