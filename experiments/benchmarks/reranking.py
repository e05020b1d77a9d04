"""Compares the two-stage template search on MSTAR with the exhaustive search.

For each reference split, the gallery is half of the training chips of four known vehicles. The
queries are the other half and the chips of two held-out known vehicles; test chips and unknown
vehicles are not used. A row has the AUROC of both searches, the share of scores that differ, the
number of chips that get another class, and the milliseconds per chip.

Run: python experiments/benchmarks/reranking.py [--source=mstar10.tar.gz]
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from recording import device_and_version

from jaxatr import bundled
from jaxatr.metrics import auroc
from jaxatr.openset import gallery
from jaxatr.openset.detectors import template
from jaxatr.openset.gallery import reranking
from jaxatr.tasks.examples import Examples
from jaxatr.typing import Config

OUTPUT = Path(__file__).parent / "results" / "reranking_cpu.json"
HELD_OUT = {"open_set.hold_out": 2, "data.test_split": "train", "data.validation": 0.5}


def without_two(source: Path, split: int) -> Config:
    """Returns ``cbc:mstar`` with the held-out vehicles of a reference split."""
    config = bundled.load("cbc:mstar")
    config.update_from_flattened_dict(HELD_OUT | {"data.source": str(source)})
    config.open_set.split = f"mstar/reference-{split}"
    return config


def chips(source: Path, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns gallery chips and labels, and query chips and labels, -1 for held-out vehicles."""
    parts = Examples(without_two(source, split)).parts
    arrays = []
    for part in (parts["train"], parts["test"]):
        arrays += [part.chips(np.arange(len(part.labels))), part.labels]
    return tuple(arrays)


def timed(model: template.Template, queries: np.ndarray) -> tuple[Any, float]:
    """Answers the queries twice; returns the answers and the second run's milliseconds per chip."""
    template.answer(model, queries)
    start = time.perf_counter()
    answer = template.answer(model, queries)
    return answer, 1e3 * (time.perf_counter() - start) / len(queries)


def row(source: Path, split: int) -> dict[str, Any]:
    """Compares both searches on a split."""
    examples, labels, queries, truth = chips(source, split)
    model = template.fit(examples, labels, int(labels.max()) + 1)
    two_stages, fast = timed(gallery.ready(model), queries)
    whole_limit, reranking.WHOLE = reranking.WHOLE, len(labels) * model.forms
    whole, slow = timed(gallery.ready(model), queries)  # without an index
    reranking.WHOLE = whole_limit
    known = truth >= 0
    return {
        "split": split,
        "examples": len(labels),
        "known": int(known.sum()),
        "strangers": int((~known).sum()),
        "auroc": {
            name: round(float(auroc(answer.score[known], answer.score[~known])), 5)
            for name, answer in (("whole", whole), ("two stages", two_stages))
        },
        "scores that differ": round(
            float(np.mean(np.abs(two_stages.score - whole.score) > 1e-4)), 4
        ),
        "other classes": int(np.sum(two_stages.label != whole.label)),
        "ms a chip": {"whole": round(slow, 3), "two stages": round(fast, 3)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path(os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--source", type=Path, default=folder / "mstar10.tar.gz")
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    record: dict[str, Any] = {
        **device_and_version(),
        "rows": [],
    }
    for split in range(3):
        record["rows"].append(row(flags.source, split))
        print(json.dumps(record["rows"][-1]), flush=True)
        flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
