"""Calibrates MSTAR's runs to a few chips of the field, and measures them on the other chips.

    python -m experiments.open_set_atr.field [--only=mstar-auto-0] [--workdir=runs/open_set_atr]

MSTAR's test chips stand for the field, because they have another depression angle than the training
chips. Some of them are drawn from each known class, and thresholds and probabilities are fitted to
these as by ``jaxatr calibrate``. The other test chips are measured before and after.
``results/field-NAME.json`` has a row for each score, number of chips and draw.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.open_set_atr.run import RESULTS, mstar_auto
from jaxatr import files, openset, training
from jaxatr.recognition.choice import made_for
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.measures import decision_metrics

FIELD = ("fusion_template", "template", "spatial_stage2", "cbc", "mls")
"""Scores to calibrate; the one that decides comes first."""
CHIPS = (5, 10, 20)
"""Numbers of chips of each class."""
DRAWS = 5


def figures(decision: openset.Decision, outputs: openset.Outputs) -> dict[str, float]:
    """Measures a decision on known and unknown examples."""
    found = decision_metrics(decision, outputs)
    kept = {name: found[name] for name in ("known_accepted", "unknown_accepted", "open_accuracy")}
    errors = {
        f"{name}_error": found[name]["error"]
        for name in ("class_probability", "known_probability")
        if name in found
    }
    return kept | errors


def measure(workdir: Path) -> list[dict[str, Any]]:
    """Calibrates a run by each score, number of chips and draw."""
    run = training.load_run(workdir)
    task: Any = open_task(run, {})
    decisions: dict[str, openset.Decision] = {}
    for name in FIELD:
        made = made_for(task, run.variables, run.workdir, run.step, score=name)
        assert made.decision is not None
        decisions[name] = made.decision
    needs = frozenset().union(*(one.score.all_needs for one in decisions.values()))
    test = task.outputs(run.variables, "test", needs)
    rows, tpr = [], run.config.open_set.tpr
    for chips in CHIPS:
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, chips])
            own = [np.flatnonzero(test.labels == c) for c in range(len(run.classes))]
            few = np.concatenate([rng.permutation(indices)[:chips] for indices in own])
            rest = np.setdiff1d(np.arange(len(test.labels)), few)
            for name, before in decisions.items():
                sigmoid = None if before.calibration is None else before.calibration.sigmoid
                after = openset.calibrate(before, test.select(few), tpr=tpr, sigmoid=sigmoid)
                rows.append(
                    {"score": name, "chips": chips, "draw": draw}
                    | {"before": figures(before, test.select(rest))}
                    | {"after": figures(after, test.select(rest))}
                )
    return rows


def main() -> None:
    """Measures the trained runs of MSTAR that are not recorded yet."""
    parser = argparse.ArgumentParser(description="Calibrates MSTAR's runs to chips of the field.")
    parser.add_argument("--only", default="mstar-auto", help="comma-separated prefixes of runs")
    parser.add_argument("--workdir", default="runs/open_set_atr")
    flags = parser.parse_args()
    runs = [run for run in mstar_auto() if run.name.startswith(tuple(flags.only.split(",")))]
    if not runs:
        parser.error(f"--only: no run's name begins with {flags.only!r}")
    training.enable_compilation_cache()
    for run in runs:
        workdir = Path(flags.workdir).absolute() / run.name
        path = RESULTS / f"field-{run.name}.json"
        if path.exists():
            continue
        if not (workdir / "evaluation.json").exists():
            print(f"open    {run.name}: it is not trained here", flush=True)
            continue
        record = training.read_record(workdir)
        kept = {name: record[name] for name in ("code", "device", "versions", "fingerprint")}
        content = {"run": path.stem, "record": kept, "rows": measure(workdir)}
        files.write_text(path, json.dumps(content, indent=1) + "\n")
        print(f"done    {run.name}", flush=True)


if __name__ == "__main__":
    main()
