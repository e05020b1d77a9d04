"""Measures the limits of a device, and the share of them that a run reached (the roofline)."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from alternating import timed

#: TFLOP/s of a large matrix product and TB/s of a copy.
Ceilings: TypeAlias = dict[str, float]

RUNS = 9
# Rows of the square matrices, and bytes of the array that is copied: far beyond the caches.
SIZES = {"cpu": (2048, 2**28), "gpu": (8192, 2**30), "tpu": (8192, 2**30)}


def measured(dtype: str) -> Ceilings:
    """Returns the best of several runs of a product and of a copy, in a type.

    Products of float32 are rounded as jax's ``default_matmul_precision`` says, as those of the
    benchmarks are. A copy counts what it reads and what it writes.
    """
    rows, size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    draw = np.random.default_rng(0)
    a = jnp.asarray(draw.standard_normal((rows, rows), np.float32), dtype)
    b = jnp.ones(size // a.dtype.itemsize, dtype)
    product, copy = jax.jit(jnp.matmul), jax.jit(lambda b: -b)
    return {
        "TFLOP/s": round(2e-12 * rows**3 / _best(lambda: product(a, a)), 4),
        "TB/s": round(2e-12 * size / _best(lambda: copy(b)), 5),
    }


def kept(about: dict[str, Any], dtype: str) -> Ceilings:
    """Returns the ceilings that a record has, which are measured only where it has none yet."""
    if "ceilings" not in about:
        about["ceilings"] = measured(dtype)
    return about["ceilings"]


def _best(run) -> float:
    clock = timed(run)
    clock()  # compiles
    return min(clock() for _ in range(RUNS))


def reached(flops: float, moved: float, milliseconds: float, ceilings: Ceilings) -> Ceilings:
    """Returns the rates of a run, and how near its time is to the least that the ceilings allow.

    Args:
      flops: of the definition; Winograd's and Fourier's forms need fewer, and may pass the roof.
      moved: bytes of arguments and results, each counted once.
      milliseconds: the run's.
      ceilings: what :func:`measured` gave.
    """
    rates = {"TFLOP/s": 1e-9 * flops / milliseconds, "TB/s": 1e-9 * moved / milliseconds}
    roof = max(rates[name] / ceilings[name] for name in rates)
    return {name: round(rate, 5) for name, rate in rates.items()} | {"roof": round(roof, 3)}
