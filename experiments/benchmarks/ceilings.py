"""Measures the limits of a device and the share of them that a run reaches (the roofline)."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from alternating import timed

#: TFLOP/s of a large matrix product and TB/s of a copy.
Ceilings: TypeAlias = dict[str, float]

RUNS = 9
# Rows of the square matrices, and bytes of the copied array; both far exceed the caches.
SIZES = {"cpu": (2048, 2**28), "gpu": (8192, 2**30), "tpu": (8192, 2**30)}


def measured(dtype: str) -> Ceilings:
    """Returns the best rates of several matrix products and copies in a type.

    Products of float32 use jax's ``default_matmul_precision``, like the benchmarks. A copy counts
    the bytes read and the bytes written.
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
    """Returns the ceilings of a record, measuring them if it has none yet."""
    if "ceilings" not in about:
        about["ceilings"] = measured(dtype)
    return about["ceilings"]


def _best(run) -> float:
    clock = timed(run)
    clock()  # compiles
    return min(clock() for _ in range(RUNS))


def reached(flops: float, moved: float, milliseconds: float, ceilings: Ceilings) -> Ceilings:
    """Returns the rates of a run and the fraction of the roofline that it reaches.

    Args:
      flops: operations by the definition; Winograd and FFT need fewer and may exceed the roofline.
      moved: bytes of arguments and results, each counted once.
      milliseconds: the time of the run.
      ceilings: the result of :func:`measured`.
    """
    rates = {"TFLOP/s": 1e-9 * flops / milliseconds, "TB/s": 1e-9 * moved / milliseconds}
    roof = max(rates[name] / ceilings[name] for name in rates)
    return {name: round(rate, 5) for name, rate in rates.items()} | {"roof": round(roof, 3)}
