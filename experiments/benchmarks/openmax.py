"""Times OpenMax: the fit, and the probabilities of 10,000 queries over 100 classes.

The record has the best and the median of several runs, in seconds.

Run: python experiments/benchmarks/openmax.py [--queries 10000] [--classes 100]
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy

from jaxatr.openset import openmax

HERE = Path(__file__).parent


def draw(rng: np.random.Generator, count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns float32 logits, nearly all classified correctly, and labels."""
    labels = np.arange(count) % classes
    logits = rng.normal(size=(count, classes)) + 8 * np.eye(classes)[labels]
    return logits.astype(np.float32), labels


def seconds(run: Callable[[], object], repeats: int) -> dict[str, float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"best": round(min(times), 4), "median": round(statistics.median(times), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "openmax_cpu.json")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    train, labels = draw(rng, options.train, options.classes)
    queries, _ = draw(rng, options.queries, options.classes)
    sizes = {name: getattr(options, name) for name in ("queries", "classes", "train", "repeats")}
    rows = []
    for distance in ("euclidean", "eucos"):
        model = openmax.fit(train, labels, distance=distance)
        times = {
            "fit": seconds(lambda d=distance: openmax.fit(train, labels, distance=d), 3),
            "probabilities": seconds(
                lambda m=model: openmax.probabilities(m, queries), options.repeats
            ),
            "score": seconds(lambda m=model: openmax.score(m, queries), options.repeats),
        }
        rows.append({"distance": distance, "seconds": times})
        print(distance, times, flush=True)
    record = {"numpy": np.__version__, "scipy": scipy.__version__, "cores": os.cpu_count()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record | sizes | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
