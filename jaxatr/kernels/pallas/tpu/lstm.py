"""One step of an LSTM: recurrent product, gates and update of the cell in one kernel."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.gates import GATES, update
from jaxatr.typing import Array, Float

ROWS, UNITS = 8, 128  # the last two dimensions of a block are multiples of these
MOST_ROWS = 256
MEMORY = 15 * 2**20  # of a core's 16 MiB; the rest is for the compiler


def applies(hidden: int, dtype: str) -> bool:
    """Returns whether the units are a multiple of a tile and the smallest block fits in memory."""
    known = dtype in ("bfloat16", "float32")
    return known and hidden % UNITS == 0 and _bytes(rows(dtype), hidden, dtype) <= MEMORY


def _bytes(height: int, hidden: int, dtype: str) -> int:
    """Returns the bytes of a block of rows, double-buffered, and of its sums."""
    width, wide = jnp.dtype(dtype).itemsize, 4 * GATES * UNITS
    matrix = GATES * UNITS * hidden * width
    tiles = (GATES + 3) * UNITS * 4  # the cell's state before and after, and the gates
    row = hidden * width + UNITS * width + wide + tiles
    return 2 * (matrix + height * row) + height * wide


def _height(batch: int, hidden: int, dtype: str) -> int:
    """Returns the largest number of rows of a block that divides the batch and fits in memory."""
    least = rows(dtype)
    heights = range(min(batch, MOST_ROWS) // least * least, 0, -least)
    fitting = (n for n in heights if batch % n == 0 and _bytes(n, hidden, dtype) <= MEMORY)
    return next(fitting)


def rows(dtype: str) -> int:
    """Returns the number that the batch must be a multiple of; narrow types are packed by rows."""
    return ROWS * 4 // jnp.dtype(dtype).itemsize


def step(
    h: Float[Array, "b h"],
    c: Float[Array, "b h"],
    r: Float[Array, "h columns"],
    part: Float[Array, "b columns"],
    saves: bool = True,
    interpret: Any = False,
) -> tuple[Float[Array, "b h"], Float[Array, "b h"], tuple[Array, ...]]:
    """Advances the state by one step.

    Args:
      h: the state, bfloat16 or float32; ``b`` must be a multiple of 8 (16 for bfloat16), ``h`` of
        128.
      c: the cell's state, float32.
      r: the recurrent matrix, of the type of ``h``, columns :func:`~..gates.grouped` by ``UNITS``.
      part: the input's part of the gates, float32, with columns grouped in the same way.
      saves: whether to return the gates, which the derivative needs; they are most of the output.
      interpret: whether to run Pallas's interpreter, for tests.

    Returns:
      The next ``h`` and ``c``, and the gates ``(i, f, o, c~, tanh(c))`` in float32, or ``()``.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    (batch, hidden), least = h.shape, rows(h.dtype.name)
    if batch % least or not applies(hidden, h.dtype.name):
        raise NotImplementedError(
            f"got a batch of {batch}, {hidden} units, {h.dtype.name}; wanted multiples of {least} "
            f"and {UNITS}, a matrix whose columns of {UNITS} units fit twice in "
            f"{MEMORY // 2**20} MiB, and bfloat16 or float32"
        )
    height, saved = _height(batch, hidden, h.dtype.name), GATES + 1 if saves else 0
    matrix = r.size * r.dtype.itemsize  # read again for each block of rows
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
        out_specs=[tile] * (2 + saved),
        out_shape=[jax.ShapeDtypeStruct(h.shape, h.dtype), single, *[single] * saved],
        cost_estimate=costs.lstm(h, r, part, saved, (batch // height - 1) * matrix),
        interpret=interpret,
    )(h, c, r, part)
    return h, c, tuple(gates)


def _kernel(h: Any, c: Any, r: Any, part: Any, *outputs: Any) -> None:
    s = part[...] + jnp.dot(h[...], r[...], preferred_element_type=jnp.float32)
    sums = [s[:, gate * UNITS : (gate + 1) * UNITS] for gate in range(GATES)]
    new_h, new_c, gates = update(sums, c[...])
    for output, value in zip(outputs, (new_h, new_c, *gates)[: len(outputs)], strict=True):
        output[...] = value.astype(output.dtype)
