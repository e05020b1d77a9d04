"""Temperatures of the class probabilities from a few labelled field chips, on the recorded tasks.

    python -m experiments.decisions.temperatures --workdir=FOLDER

The temperature is that of the validation chips ("none"), fitted to the field chips alone ("alone"),
or fitted to them from that of the validation chips ("both", as ``jaxatr calibrate`` does). The
error is measured on the other known chips. The spread of the prior was chosen on the simulated
tasks. ``results/temperatures.json`` has the means over draws.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.decisions.measure import RESULTS, rounded
from experiments.decisions.unlabelled import FIELDS, Field
from jaxatr import files, metrics, openset
from jaxatr.openset.logistic import softmax

CHIPS, DRAWS = (5, 10, 20), 5


def error(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Computes the expected calibration error of the largest class probability."""
    shares = softmax(logits / temperature)
    right = shares.argmax(axis=1) == labels
    return metrics.expected_calibration_error(np.clip(shares.max(axis=1), 0, 1), right)


def measure(field: Field, arrays: Any) -> list[dict[str, Any]]:
    """Fits temperatures to each number of chips of a class, and measures them on the others."""
    logits, labels = (arrays[f"{field.part}_{name}"] for name in ("logits", "labels"))
    known = np.flatnonzero(labels >= 0)
    logits, labels = logits[known].astype(np.float64), labels[known]
    before = openset.fit_temperature(arrays["validation_logits"], arrays["validation_labels"])
    rows = []
    for chips in CHIPS:
        errors = []
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
        means = {name: float(np.mean([one[name] for one in errors])) for name in errors[0]}
        rows.append({"task": field.task, "kind": field.kind, "chips": chips, **means})
    return rows


def main() -> None:
    """Measures the recorded tasks."""
    parser = argparse.ArgumentParser(description="Fits temperatures to a few field chips.")
    parser.add_argument("--workdir", type=Path, required=True)
    folder, rows = parser.parse_args().workdir / "outputs", []
    for field in FIELDS:
        with np.load(folder / field.task / "main.npz") as arrays:
            rows += measure(field, arrays)
    content = {"draws": DRAWS, "rows": rounded(rows)}
    files.write_text(RESULTS / "temperatures.json", json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
