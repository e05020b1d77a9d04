"""Measures the thresholds of small tasks, from few validation chips and the training chips.

    python -m experiments.decisions.few --workdir=FOLDER

Writes ``results/few.json``. Besides the task's own validation chips, as many known test chips are
drawn in their place many times, because what 6 chips say varies from draw to draw.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.decisions import evidence, package
from experiments.decisions.choices import SUM, consensus_of
from experiments.decisions.combinations import MEMBERS, SIX, UNLIKE, Combination
from experiments.decisions.combinations import standardised as in_units
from experiments.decisions.measure import RESULTS, TPR
from experiments.decisions.rules import standardised, unit_of

DEFAULT = "consensus"
RULES = {
    DEFAULT: Combination(MEMBERS, "bent"),  # with the task's own weights
    "six, sum within 3": Combination(SIX, SUM),
    "four, sum within 3": Combination(UNLIKE, SUM),
    **{name: Combination((name,)) for name in ("cbc", "knn", "spatial_stage2", "template")},
}
"""Combinations and single scores that are measured; none was chosen for its threshold."""
IMAGES_ONLY = ("template",)
DRAWS = 200


def accepted(scores: np.ndarray, known: np.ndarray, threshold: float) -> tuple[float, float]:
    """Computes the shares of known and unknown chips that a threshold accepts."""
    return float(np.mean(scores[known] >= threshold)), float(np.mean(scores[~known] >= threshold))


def measured(name: str, e: evidence.Evidence, draws: int = DRAWS) -> dict[str, Any]:
    """Measures the threshold of a rule on a task.

    Args:
      name: a rule of :data:`RULES`.
      e: a task whose training chips were scored by fits without them.
      draws: number of draws of validation chips from the known test chips.
    """
    assert e.refitted is not None
    one, move = RULES[name], name not in IMAGES_ONLY
    if name == DEFAULT:
        one = consensus_of(in_units(e))
    unit = unit_of(e.refitted.values)
    seen, validation, test = (
        one.on(e, standardised(unit, values))
        for values in (e.refitted.values[: e.training], e.validation.values, e.test.values)
    )
    known, rng = e.test.known, np.random.default_rng(0)
    oracle = package.conformal_threshold(test[known], TPR)
    shares, drawn = [], np.flatnonzero(known)
    for _ in range(draws):
        chosen = rng.choice(drawn, len(validation), replace=False)
        left = np.setdiff1d(np.arange(len(test)), chosen)
        threshold, _ = package.few_threshold(test[chosen], seen, TPR, move=move)
        shares.append(accepted(test[left], known[left], threshold))
    threshold, promise = package.few_threshold(validation, seen, TPR, move=move)
    means = np.mean(shares, axis=0)
    return {
        "own": accepted(test, known, threshold),
        "validation": accepted(test, known, package.conformal_threshold(validation, TPR)),
        "as_seen": accepted(
            test, known, package.conformal_threshold(np.concatenate([validation, seen]), TPR)
        ),
        "drawn": means.tolist(),
        "drawn_low": float(np.quantile([one for one, _ in shares], 0.1)),
        "oracle": accepted(test, known, oracle),
        "promise": promise,
    }


def results(workdir: Path) -> dict[str, Any]:
    """Measures all rules on all small tasks that have the scores of fits without training chips."""
    tasks = [e for e in evidence.every(workdir) if e.small and e.refitted is not None]
    return {
        e.name: {
            "training": e.training,
            "validation": len(e.validation.labels),
            "rules": {name: measured(name, e) for name in RULES},
        }
        for e in tasks
    }


def main() -> None:
    """Measures and writes the record."""
    parser = argparse.ArgumentParser(description="Measures thresholds from few chips.")
    parser.add_argument("--workdir", required=True, help="folder of the recorded outputs")
    flags = parser.parse_args()
    made = results(Path(flags.workdir).absolute())
    path = RESULTS / "few.json"
    rounded = json.loads(json.dumps(made), parse_float=lambda digits: round(float(digits), 4))
    path.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
