"""Measures Grad-CAM and RISE on the validation images by which training variants are chosen.

    python -m experiments.attentive_distillation.rivals [--data=FOLDER] [--workdir=FOLDER]

The script needs the folders of the first variant's tuning runs, which ``run.py`` creates below
``--workdir``. Recorded results are not measured again.
"""

import argparse
import json
import os
from pathlib import Path
from typing import cast

from experiments.attentive_distillation.run import RESULTS, TARGETS, WAYS
from experiments.named_runs import portable
from jaxatr import runs, training
from jaxatr.tasks import Distillation

METHODS = ("grad_cam", "rise")


def measure(workdir: Path, data: Path, archive: str | None) -> dict[str, dict[str, float]]:
    """Computes the measures on a run's validation images, by method."""
    config = training.load_config(workdir)
    if archive:
        config.data.source = str(data / archive)
    task = cast(Distillation, runs.make_task(config, workdir))
    variables = training.load_run(workdir).variables
    measures = task.compare(variables, "validation", METHODS, progress=True)
    return {name: measures[name] for name in METHODS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/attentive_distillation")
    flags = parser.parse_args()
    for name, target in TARGETS.items():
        path = RESULTS / f"rivals-{name}.json"
        workdir = Path(flags.workdir).absolute() / f"tune-{name}-{next(iter(WAYS))}"
        if path.exists():
            print(f"done    {name}")
        elif not workdir.exists():
            print(f"open    {name}: there is no {workdir}")
        else:
            data = Path(flags.data).absolute()
            measures = measure(workdir, data, target.archive)
            record = json.loads((workdir / "record.json").read_text())
            result = {"run": f"rivals-{name}", "validation": measures, "record": record}
            text = json.dumps(result, indent=1, default=str)
            path.write_text(portable(text, workdir.parent, data) + "\n")
            print(f"done    {name}: {measures}")


if __name__ == "__main__":
    main()
