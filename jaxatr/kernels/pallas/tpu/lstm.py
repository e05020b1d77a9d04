"""One step of an LSTM: recurrent product, gates and update of the cell in one kernel."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxatr.kernels.pallas.gates import GATES, close
from jaxatr.typing import Array, Float

ROWS, UNITS = 8, 128  # what the last two dimensions of a block are multiples of
MOST_ROWS = 256


def applies(hidden: int, dtype: str) -> bool:
    """Says whether whole tiles fit, and a block of the matrix fits in the core's memory."""
    width = 2 if dtype == "bfloat16" else 4
    small = GATES * hidden * UNITS * width <= 4 * 2**20
    return hidden % UNITS == 0 and small and dtype in ("bfloat16", "float32")


def rows(dtype: str) -> int:
    """Returns the divisor that the batch must have: shorter types are packed along the rows."""
    return ROWS * 4 // jnp.dtype(dtype).itemsize


def step(
    h: Float[Array, "b h"],
    c: Float[Array, "b h"],
    r: Float[Array, "h columns"],
    part: Float[Array, "b columns"],
    interpret: Any = False,
) -> tuple[Float[Array, "b h"], Float[Array, "b h"], tuple[Array, ...]]:
    """Makes one step.

    Args:
      h: the state, bfloat16 or float32; ``b`` must be a multiple of 8 (16 for bfloat16), ``h`` of
        128.
      c: the cell's state, float32.
      r: the recurrent matrix, of the type of ``h``, columns :func:`~..gates.grouped` by ``UNITS``.
      part: the input's part of the gates, float32, grouped likewise.
      interpret: runs Pallas's interpreter, for tests.

    Returns:
      The next ``h`` and ``c``, and the gates ``(i, f, o, c~, tanh(c))`` in float32.

    Raises:
      NotImplementedError: sizes or type are not as above.
    """
    (batch, hidden), least = h.shape, rows(h.dtype.name)
    if batch % least or not applies(hidden, h.dtype.name):
        raise NotImplementedError(
            f"got a batch of {batch}, {hidden} units, {h.dtype.name}; wanted multiples of {least} "
            f"and {UNITS}, a matrix of at most 4 MiB per {UNITS} units, bfloat16 or float32"
        )
    height = next(n for n in range(min(batch, MOST_ROWS), 0, -least) if batch % n == 0)
    tile = pl.BlockSpec((height, UNITS), lambda m, n: (m, n))
    wide = pl.BlockSpec((height, GATES * UNITS), lambda m, n: (m, n))
    single = jax.ShapeDtypeStruct((batch, hidden), jnp.float32)
    h, c, *gates = pl.pallas_call(
        _kernel,
        grid=(batch // height, hidden // UNITS),
        in_specs=[
            pl.BlockSpec((height, hidden), lambda m, n: (m, 0)),
            tile,
            pl.BlockSpec((hidden, GATES * UNITS), lambda m, n: (0, n)),
            wide,
        ],
        out_specs=[tile] * (GATES + 3),
        out_shape=[jax.ShapeDtypeStruct(h.shape, h.dtype), single, *[single] * (GATES + 1)],
        interpret=interpret,
    )(h, c, r, part)
    return h, c, tuple(gates)


def _kernel(h: Any, c: Any, r: Any, part: Any, *outputs: Any) -> None:
    s = part[...] + jnp.dot(h[...], r[...], preferred_element_type=jnp.float32)
    sums = [s[:, gate * UNITS : (gate + 1) * UNITS] for gate in range(GATES)]
    new_h, new_c, gates = close(sums, c[...])
    for output, value in zip(outputs, (new_h, new_c, *gates), strict=True):
        output[...] = value.astype(output.dtype)
