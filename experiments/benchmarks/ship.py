"""Makes the database that comes with the package from the convolutions that kernels.py recorded.

Each entry is the choice of the row's find step. If the row was timed twice and a single form was
faster by a tenth both times, the entry is that form. If this choice is not clearly faster than the
heuristic's, the entry is the heuristic's choice: such choices do not make a network faster, and
every additional form is compiled separately and takes memory. Rows are left out if their solver has
another version now or cannot compute the problem. An existing database is replaced.

Run: python experiments/benchmarks/ship.py [--record results/kernels_cpu_float32.json]
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import kernels
from contest import RESULTS, forms, read
from recording import FAR, ratio

from jaxatr import files
from jaxatr.kernels import database
from jaxatr.kernels.device import Device, describe
from jaxatr.kernels.entries import Entry, to_compact_text
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.solver import Choice

CLEARLY = 1.25  # speed-up over the heuristic's choice


def best(row: dict[str, Any], problem: ConvProblem, device: Device) -> tuple[Choice, float, int]:
    """Returns a row's best choice, its milliseconds and its solver's version."""
    times = row["milliseconds"]
    choice, milliseconds, version = read(row["chosen"]), times["auto"], row["version"]
    if "again" in row and max(ratio(row, "best", one) for one in ("milliseconds", "again")) < FAR:
        times = row["again"]
        faster = min((name for name in forms(row) if name in times), key=lambda name: times[name])
        choice, milliseconds, version = default(faster, problem, times)
    heuristic = OPERATION.heuristic(problem, device).algorithm
    if times.get(heuristic, math.inf) < CLEARLY * milliseconds:
        choice, milliseconds, version = default(heuristic, problem, times)
    return choice, milliseconds, version


def default(
    algorithm: str, problem: ConvProblem, times: dict[str, float]
) -> tuple[Choice, float, int]:
    """Returns an algorithm's default choice, its milliseconds and its solver's version."""
    solver = OPERATION.solvers[algorithm]
    return Choice(algorithm, solver.configs(problem)[0]), times[algorithm], solver.version


def entries(record: dict[str, Any], device: Device) -> Iterator[tuple[str, Entry]]:
    """Yields the key and the entry of each canonical problem in a record."""
    rows = {(row["layer"], row["problem"]): row for row in record["rows"]}
    options = kernels.parser().parse_args(["--dtype", record["dtype"]])
    for about, problem in kernels.problems(options):
        row = rows.get((about["layer"], about["problem"]))
        if row is None or not row["milliseconds"]:
            continue
        canonical = OPERATION.canonical(problem, device)
        choice, milliseconds, version = best(row, canonical, device)
        entry = Entry(choice, milliseconds, version, record["jax"])
        why = OPERATION.refusal(canonical, choice, device) or database.outdated(OPERATION, entry)
        if why:
            print(f"left out: {canonical.key}: {why}")
        else:
            yield canonical.key, entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RESULTS / "kernels_cpu_float32.json")
    record = json.loads(parser.parse_args().record.read_text(encoding="utf-8"))
    device = describe(jax.local_devices()[0])
    if record["device"] != device.kind:
        raise SystemExit(f"the record is of {record['device']}, this is {device.kind}")
    listed = dict(entries(record, device))
    shipped = database.shipped_file(device)
    shipped.parent.mkdir(exist_ok=True)
    files.write_text(shipped, to_compact_text(device, listed))
    print(f"{shipped}: {len(listed)} of {len(record['rows'])} problems")


if __name__ == "__main__":
    main()
