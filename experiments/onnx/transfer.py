"""Transfer learning from an ONNX file, compared with training from random weights.

    python -m experiments.onnx.transfer [--jobs=2] [--list] [--data=DIR] [--workdir=DIR]

``base`` is trained on six of MSTAR's classes and exported. Then the other four classes are learned
in a few steps by the network of that file with a new head, and by the same network from random
weights, with the same steps, batches, learning rate and three seeds. The runs and their table are
written to ``results/transfer``. See :mod:`experiments.named_runs` for how runs are carried out.
"""

import sys
from pathlib import Path

from experiments.named_runs import Run, main
from experiments.records import cell, commits, recorded, table

RESULTS = Path(__file__).parent / "results" / "transfer"
SEEDS = range(3)
STEPS = (20, 50, 100)
_ARCHIVE = "mstar10.tar.gz"
_PLAIN = {"loss.open": "none", "loss.entropy_weight": 0.0, "model.width": 32}
_KINDS = {
    "transfer": {
        "model.onnx": "{runs}/base.onnx",
        "model.output": "features",
        "data.normalize": False,  # the exported network normalises its input
    },
    "scratch": {},
}


def all_runs() -> list[Run]:
    """Lists all runs, in the order of training."""
    fields = {**_PLAIN, "open_set.split": "mstar/retrieval", "train.epochs": 12}
    runs = [Run("base", "cbc.py:mstar", fields, _ARCHIVE, exported=True)]
    if not runs[0].done(RESULTS):  # the runs that build on it follow at the next call
        return runs
    for seed in SEEDS:
        for steps in STEPS:
            for kind, own in _KINDS.items():
                fields = {
                    **_PLAIN,
                    "open_set.split": "rest/mstar/retrieval",
                    "train.steps": steps,
                    "optimizer.warmup_epochs": 0.0,
                    "seed": seed,
                    **own,
                }
                runs.append(Run(f"{kind}-{steps}-{seed}", "cbc.py:mstar", fields, _ARCHIVE))
    return runs


def page() -> str:
    """Formats the table of the recorded runs."""
    rows = []
    for steps in STEPS:
        row = [str(steps)]
        for kind in _KINDS:
            results = [recorded(RESULTS, f"{kind}-{steps}-{seed}") for seed in SEEDS]
            groups = [run["evaluation"]["groups"]["all"] for run in results if run]
            row.append(cell([100 * group["closed_accuracy"] for group in groups]))
        rows.append(row)
    lines = [
        "# Transfer through an ONNX file",
        "",
        "Accuracy in percent on four MSTAR classes, by the number of training steps of 32 chips:",
        "for a network that was trained on the other six classes, exported and read again, and for",
        "the same network from random weights. Mean ± standard deviation (number of runs).",
        "",
        commits(RESULTS),
        "",
        *table(["steps", "from the file", "from random weights"], rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RESULTS.mkdir(parents=True, exist_ok=True)
    code = main("Transfer through an ONNX file.", all_runs(), RESULTS, "runs/onnx_transfer")
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    sys.exit(code)
