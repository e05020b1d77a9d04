"""Times the searches behind an embedding: selecting quadruplets, and measuring retrieval.

``selection``: quadruplets for 25,000 × 512 embeddings by both methods, against the bare blocked
products of all pairs, scikit-learn's brute force and faiss's flat index; the last two search for
the negatives only. All run alternately in one process; the record has medians and ratios. Then four
sizes × 128, each in a separate process with its peak memory, extrapolated to a million.

``measures``: Recall@K, MAP@R and NMI of 60,000 × 512, with the peak memory.

Run: python experiments/benchmarks/retrieval.py [selection] [measures]
It needs ``pip install faiss-cpu``, which is not a dependency of the package.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from alternating import alternately

from jaxatr import metrics, mining

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "retrieval_cpu.json"
SIZES = (6_250, 12_500, 25_000, 50_000)
FINE, COARSE = 100, 20
METHODS = ("nearest_to_negative", "nearest_to_reference")
PARTS = ("selection", "measures")


def draw(count: int, dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns unit-length embeddings clustered by fine class, with fine and coarse labels."""
    rng = np.random.default_rng(0)
    fine = rng.integers(0, FINE, count).astype(np.int32)
    centres = rng.normal(size=(FINE, dimensions))
    points = 0.5 * centres[fine] + rng.normal(size=(count, dimensions))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32), fine, fine // (FINE // COARSE)


@partial(jax.jit, static_argnums=1)
def bare_products(points: jax.Array, block: int) -> jax.Array:
    """Returns the minimum of each row of the blocked products, without masks and indices."""
    half_squares = jnp.sum(jnp.square(points), axis=1) / 2

    def of_block(rows: jax.Array) -> jax.Array:
        products = jnp.dot(rows, points.T, precision=jax.lax.Precision.HIGHEST)
        return jnp.min(half_squares - products, axis=1)

    return jax.lax.map(of_block, points.reshape(-1, block, points.shape[1]))


def select(points: Any, fine: np.ndarray, coarse: np.ndarray, method: Any) -> Any:
    return mining.quadruplets(
        points, fine, coarse, jnp.arange(len(points)), method=method, key=jax.random.key(0)
    )


def negatives_of_sklearn(points: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    from sklearn.metrics import pairwise_distances_argmin

    nearest = np.empty(len(points), np.int64)
    for group in np.unique(coarse):
        others = np.flatnonzero(coarse != group)
        own = np.flatnonzero(coarse == group)
        nearest[own] = others[pairwise_distances_argmin(points[own], points[others])]
    return nearest


def negatives_of_faiss(points: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    import faiss

    nearest = np.empty(len(points), np.int64)
    for group in np.unique(coarse):
        others = np.flatnonzero(coarse != group)
        own = np.flatnonzero(coarse == group)
        index = faiss.IndexFlatL2(points.shape[1])
        index.add(points[others])
        nearest[own] = others[index.search(points[own], 1)[1][:, 0]]
    return nearest


def forget_the_peak() -> None:
    """Resets the peak memory of this process to its current use."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def selection(count: int, dimensions: int, repeats: int) -> dict[str, Any]:
    points, fine, coarse = draw(count, dimensions)
    on_device = jnp.asarray(points)
    runs: dict[str, Callable[[], Any]] = {
        "bare products": lambda: bare_products(on_device, 500),
        **{name: partial(select, on_device, fine, coarse, name) for name in METHODS},
        "scikit-learn, negatives only": lambda: negatives_of_sklearn(points, coarse),
        "faiss, negatives only": lambda: negatives_of_faiss(points, coarse),
    }
    own = np.asarray(select(on_device, fine, coarse, METHODS[0]).negative)
    distances = [
        np.linalg.norm(points - points[negatives], axis=1)
        for negatives in (
            own,
            negatives_of_sklearn(points, coarse),
            negatives_of_faiss(points, coarse),
        )
    ]
    seconds = alternately(runs, repeats)
    return {
        "examples": count,
        "dimensions": dimensions,
        "repeats": repeats,
        "seconds": seconds,
        "times the bare products": {
            name: round(value / seconds["bare products"], 2) for name, value in seconds.items()
        },
        "largest difference of the negatives' distances": float(
            np.max([np.abs(distances[0] - other).max() for other in distances[1:]])
        ),
    }


def one_size(count: int, dimensions: int) -> dict[str, Any]:
    """Returns the time and the additional peak memory of both methods at one size."""
    points, fine, coarse = draw(count, dimensions)
    on_device = jax.block_until_ready(jnp.asarray(points))
    forget_the_peak()
    before = peak_megabytes()
    runs = {name: partial(select, on_device, fine, coarse, name) for name in METHODS}
    seconds = alternately(runs, 3)
    return {
        "examples": count,
        "seconds": seconds,
        "megabytes": round(peak_megabytes() - before, 1),
    }


def in_a_process(*arguments: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def scaling(dimensions: int) -> dict[str, Any]:
    rows = [in_a_process("size", size, dimensions) for size in SIZES]
    last = rows[-1]
    factor = 1_000_000 / last["examples"]
    return {
        "dimensions": dimensions,
        "rows": rows,
        "a million, by the square of the size": {
            "hours": {n: round(s * factor**2 / 3600, 1) for n, s in last["seconds"].items()},
            "megabytes, by the size": round(last["megabytes"] * factor),
        },
    }


def measures(count: int, dimensions: int) -> dict[str, Any]:
    points, fine, _ = draw(count, dimensions)
    forget_the_peak()
    before = peak_megabytes()
    record: dict[str, Any] = {"examples": count, "dimensions": dimensions, "seconds": {}}
    runs: dict[str, Callable[[], Any]] = {
        "recall_at_k": lambda: metrics.recall_at_k(points, fine),
        "map_at_r": lambda: metrics.map_at_r(points, fine),
        "nmi": lambda: metrics.nmi(points, fine),
    }
    for name, run in runs.items():
        start = time.perf_counter()
        run()
        record["seconds"][name] = round(time.perf_counter() - start, 1)
        record[f"peak megabytes after {name}"] = round(peak_megabytes())
    return record | {"megabytes before": round(before)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.parts[0] == "size":
        print(json.dumps(one_size(*map(int, options.parts[1:]))))
        return
    if options.parts[0] == "measured":
        print(json.dumps(measures(*map(int, options.parts[1:]))))
        return
    if strange := set(options.parts) - set(PARTS):
        parser.error(f"got {min(strange)!r}, wanted {' or '.join(PARTS)}")
    path = options.output
    record = json.loads(path.read_text()) if path.exists() else {}
    record |= {"jax": jax.__version__, "cores": os.cpu_count()}
    record["platform"] = jax.default_backend()
    if "selection" in options.parts:
        record["selection"] = selection(25_000, 512, options.repeats)
        record["selection by size"] = scaling(128)
    if "measures" in options.parts:
        record["measures"] = in_a_process("measured", 60_000, 512)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
