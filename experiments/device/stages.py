"""The stages of prove.py that run this package."""

import argparse
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kernel_stages
import network_stages
import training_stages
from rows import Rows, Unit

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


def units(stage: str, rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    """Returns the units of a stage.

    Raises:
      ValueError: the record is of another device.
    """
    # The other stages start processes that need all of the device's memory.
    if stage not in ("sanitize", "disk", "resume", "long"):
        check_device(rows)
    return _STAGES[stage](rows, options)


def check_device(rows: Rows) -> None:
    import jax

    device = jax.devices()[0]
    here = {"kind": device.device_kind, "platform": device.platform, "jax": jax.__version__}
    recorded = next((r for r in rows.rows if r["unit"] == "device"), None)
    if recorded is None:
        rows.add("about", "device", **here)
    elif {name: recorded[name] for name in here} != here:
        there = {name: recorded[name] for name in here}
        raise ValueError(f"--out: recorded on {there}, but this is {here}: give another folder")


def ceilings(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    import ceilings as limits

    if options.rehearse:
        limits.SIZES = {"cpu": (64, 2**16)}
    for dtype in ("bfloat16", "float32"):
        yield dtype, partial(limits.measured, dtype)


def find(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    import dataclasses

    import kernel_problems
    from jax import devices

    from jaxatr import kernels as package
    from jaxatr.kernels import database
    from jaxatr.kernels.device import describe

    dtype = "float32" if options.rehearse else "bfloat16"
    lists = [kernel_problems.deepbench(dtype)]
    lists += [kernel_problems.resnet(s, b, dtype) for s in (32, 64, 128, 224) for b in (8, 32)]
    problems = [problem for part in lists for _, problem in part]
    if options.rehearse:
        problems = sorted(problems, key=kernel_problems.flops)[:1]
    seen = set()
    for problem, direction in itertools.product(problems, ("forward", "data", "weight")):
        one = dataclasses.replace(problem, direction=direction)
        if one.key in seen:
            continue
        seen.add(one.key)

        def measure(one=one) -> dict[str, Any]:
            best, *others = package.find(one, budget_seconds=2 if options.rehearse else 10)
            known = {p.algorithm: p.milliseconds for p in (*others[::-1], best)}
            row = {"chosen": best.algorithm, "config": dict(best.config), "ms": best.milliseconds}
            return row | {"xla_ms": known.get("xla")}

        yield one.key, measure

    def shipped() -> dict[str, Any]:
        file = database.user_file(describe(devices()[0]))
        return {"database": str(shutil.copy(file, options.out / file.name))}

    yield "the database to ship", shipped


_STAGES: dict[str, Callable[[Rows, argparse.Namespace], Iterator[Unit]]] = {
    "ceilings": ceilings,
    "smoke": kernel_stages.smoke,
    "right": kernel_stages.right,
    "sanitize": kernel_stages.sanitize,
    "kernels": kernel_stages.kernels,
    "networks": network_stages.networks,
    "networks_graphs": network_stages.small_networks,
    "disk": training_stages.disk,
    "find": find,
    "resume": training_stages.resume,
    "long": training_stages.long,
}
