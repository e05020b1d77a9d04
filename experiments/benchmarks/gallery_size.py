"""Measures what smaller galleries of maps cost in AUROC, on held-out known vehicles of MSTAR.

For each reference split, a network is trained on half of the training chips of four known vehicles,
which are also the gallery. The queries are the other half and the chips of two held-out known
vehicles; test chips and unknown vehicles are not used. A row has a gallery's bytes for each
example, its AUROC, and the share of queries of the four vehicles that it names right.

Run: python experiments/benchmarks/gallery_size.py [--source=mstar10.tar.gz] [--workdir=FOLDER]
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from recording import device_and_version
from reranking import without_two

import jaxatr
from jaxatr import training
from jaxatr.metrics import auroc
from jaxatr.openset import gallery
from jaxatr.openset.detectors import spatial
from jaxatr.recognition.decision import open_task

OUTPUT = Path(__file__).parent / "results" / "gallery_size_cpu.json"
STAGES = (1, 2)
TRAINING = {"open_set.score": "cbc", "open_set.trials": 0, "train.steps": 450}
GALLERIES: Mapping[str, Mapping[str, Any]] = {
    "whole": {},
    "4 KB": {"most_bytes": 4096},
    "2 KB": {"most_bytes": 2048},
    "1 KB": {"most_bytes": 1024},
    "4 KB, half of the chips": {"most_bytes": 4096, "keep": 0.5},
    "4 KB, a quarter of the chips": {"most_bytes": 4096, "keep": 0.25},
}
"""Options of :func:`jaxatr.openset.detectors.spatial.fit`."""


def trained(workdir: Path, source: Path, split: int) -> Path:
    """Trains on a split, unless its folder has been evaluated already; returns the folder."""
    folder = workdir / f"split-{split}"
    if not (folder / "evaluation.json").exists():
        config = without_two(source, split)
        config.update_from_flattened_dict(TRAINING)
        jaxatr.train(config, folder, progress=False)
    return folder


def rows(folder: Path, split: int) -> list[dict[str, Any]]:
    """Measures all galleries of a run."""
    run = training.load_run(folder)
    task: Any = open_task(run, {})
    needs = frozenset(f"map_stage{stage}" for stage in STAGES)
    train, test = (task.outputs(run.variables, part, needs) for part in ("train", "test"))
    known, found = test.labels >= 0, []
    for stage in STAGES:
        maps, queries = (part.more[f"map_stage{stage}"] for part in (train, test))
        for name, options in GALLERIES.items():
            model = spatial.fit(maps, train.labels, len(run.classes), **options)
            answer = spatial.answer(gallery.ready(model), queries)
            rate = auroc(answer.score[known], answer.score[~known])
            right = np.mean(answer.label[known] == test.labels[known])
            found.append(
                {
                    "split": split,
                    "stage": stage,
                    "gallery": name,
                    "examples": len(model.labels),
                    "bytes an example": int(model.examples.nbytes // len(model.labels)),
                    "auroc": round(float(rate), 5),
                    "named right": round(float(right), 4),
                }
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--source", type=Path, default=data / "mstar10.tar.gz")
    parser.add_argument("--workdir", type=Path, default=Path("runs/gallery_size"))
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    record: dict[str, Any] = {
        **device_and_version(),
        "rows": [],
    }
    for split in range(3):
        record["rows"] += rows(trained(flags.workdir, flags.source, split), split)
        flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
