"""Shifts the thresholds of MSTAR's two recipes to another depression angle without labels.

    jaxatr train --config=cbc:mstar --config.open_set.split=mstar/reference-0 --workdir=DIR/mstar-0
    python -m experiments.decisions.recipes --workdir=DIR

The folder has a finished run of ``cbc:mstar`` and of ``cbc:mstar_strong`` for each reference split,
trained as in the first line. Each run's own decision is shifted to mixtures of its test chips as by
``jaxatr calibrate --unlabelled``, and measured on all of them. ``results/recipes.json`` has a row
for each run, share and draw.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.decisions.measure import RESULTS, rounded
from experiments.decisions.unlabelled import CHIPS, DRAWS, SHARES
from experiments.open_set_atr.field import figures
from jaxatr import files, openset, training
from jaxatr.recognition.choice import made_for
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.field_calibration import shiftable, shifted

RECIPES = ("mstar", "mstar_strong")


def measure(workdir: Path) -> list[dict[str, Any]]:
    """Shifts a run's decision to every mixture of its test chips.

    Raises:
      openset.CannotTell: the run's score does not separate known from held-out classes.
    """
    run = training.load_run(workdir)
    task: Any = open_task(run, {})
    before = made_for(task, run.variables, run.workdir, run.step).decision
    assert before is not None
    shiftable(before)
    test = task.outputs(run.variables, "test", before.score.all_needs)
    known = test.labels != openset.UNKNOWN
    fields, rows = run.config.open_set, []
    for share in SHARES:
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, round(100 * share)])
            count = round(CHIPS * share)
            few = [rng.choice(np.flatnonzero(known), CHIPS - count, replace=False)]
            few += [rng.choice(np.flatnonzero(~known), count, replace=False)]
            row = {"run": workdir.name, "score": before.score.name, "share": share, "draw": draw}
            row |= {"before": figures(before, test)}
            try:
                chips = test.select(np.concatenate(few))
                after, found = shifted(before, chips, tpr=fields.tpr, per_class=fields.per_class)
            except openset.CannotTell as error:
                rows.append(row | {"refused": str(error)})
                continue
            rows.append(row | {"after": figures(after, test), "estimated": found.unknown})
    return rows


def main() -> None:
    """Measures the trained runs of both recipes."""
    parser = argparse.ArgumentParser(description="Shifts the recipes' thresholds without labels.")
    parser.add_argument("--workdir", type=Path, required=True)
    folder = parser.parse_args().workdir.absolute()
    training.enable_compilation_cache()
    rows, records = [], {}
    for recipe in RECIPES:
        for split in range(3):
            workdir = folder / f"{recipe}-{split}"
            rows += measure(workdir)
            record = training.read_record(workdir)
            records[workdir.name] = {
                name: record[name] for name in ("code", "device", "versions", "fingerprint")
            }
            print(f"done    {workdir.name}", flush=True)
    content = {"chips": CHIPS, "records": records, "rows": rounded(rows)}
    files.write_text(RESULTS / "recipes.json", json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
