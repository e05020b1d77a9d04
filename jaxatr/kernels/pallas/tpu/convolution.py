"""Convolution with its bias or folded batch norm, residual input and activation: implicit GEMM.

The core's memory holds one image at a time, copied once per column of the kernel, so that each tap
reads an aligned window of its rows (see :mod:`jaxatr.kernels.pallas.rows`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.typing import Array, Float

LANES = 128
MEMORY = 8 * 2**20  # bytes of blocks; double buffering doubles them


def applies(rows: Rows, channels: int, features: int, dtype: str) -> bool:
    """Returns whether the sizes are multiples of a tile and an image fits in the core's memory."""
    width, (down, across) = 2 if dtype == "bfloat16" else 4, rows.taps
    image = across * rows.lines * rows.pitch * channels * width
    kernel = down * across * channels * LANES * width
    fits = image + kernel + 3 * rows.height * rows.pitch * LANES * 4 <= MEMORY
    whole = channels % LANES == 0 and features % LANES == 0
    return whole and fits and dtype in ("bfloat16", "float32")


def convolution(
    x: Float[Array, "b h w c"],
    w: Float[Array, "kh kw c n"],
    rows: Rows,
    epilogue: Epilogue,
    scale: Float[Array, " n"] | None = None,
    shift: Float[Array, " n"] | None = None,
    residual: Float[Array, "b h2 w2 n"] | None = None,
    interpret: Any = False,
) -> Float[Array, "b h2 w2 n"]:
    """Computes the convolution with its epilogue.

    Args:
      x: images, bfloat16 or float32; ``c`` must be a multiple of 128.
      w: kernel of the same type; ``n`` must be a multiple of 128.
      rows: the geometry of the convolution.
      epilogue: the epilogue.
      scale: scale of each feature, if the epilogue has one.
      shift: shift of each feature, if the epilogue has one.
      residual: added before the activation, if the epilogue has one.
      interpret: whether to run Pallas's interpreter, for tests.

    Raises:
      NotImplementedError: the channels, features or type are not supported, or an image is too
        large.
    """
    channels, features = w.shape[2:]
    if not applies(rows, channels, features, x.dtype.name):
        raise NotImplementedError(
            f"got {channels} channels, {features} features, {x.dtype.name}; wanted multiples of "
            f"{LANES}, bfloat16 or float32, and an image of at most {MEMORY} bytes with its kernel"
        )
    (down, across), pitch = rows.taps, rows.pitch
    count = rows.height * pitch
    images = _copies(rows, x)
    operands, specs = [images], [pl.BlockSpec((1, *images.shape[1:]), lambda b, n: (b, 0, 0, 0))]
    operands.append(w.reshape(down * across, channels, features))
    specs.append(pl.BlockSpec((down * across, channels, LANES), lambda b, n: (0, 0, n)))
    for vector in (scale, shift):
        if vector is not None:
            operands.append(vector.astype(jnp.float32)[None])
            specs.append(pl.BlockSpec((1, LANES), lambda b, n: (0, n)))
    tile = pl.BlockSpec((1, count, LANES), lambda b, n: (b, 0, n))
    if residual is not None:
        edge = ((0, 0), (0, 0), (0, pitch - rows.width), (0, 0))
        operands.append(jnp.pad(residual, edge).reshape(rows.batch, count, features))
        specs.append(tile)
    result = jax.ShapeDtypeStruct((rows.batch, count, features), x.dtype)
    matrix = w.size * w.dtype.itemsize  # read again for every image if it has several blocks
    again = 0 if features == LANES else (rows.batch - 1) * matrix
    y = pl.pallas_call(
        partial(_kernel, rows=rows, epilogue=epilogue),
        grid=(rows.batch, features // LANES),
        in_specs=specs,
        out_specs=tile,
        out_shape=result,
        cost_estimate=costs.convolution(
            rows.batch * count, w, epilogue, (*operands, result), again
        ),
        interpret=interpret,
    )(*operands)
    return y.reshape(rows.batch, rows.height, pitch, features)[:, :, : rows.width]


def _copies(rows: Rows, x: Array) -> Array:
    """Returns ``[b, columns of the kernel, rows of the padded image, c]``."""
    across, pitch = rows.taps[1], rows.pitch
    left = rows.padding[1][0]
    right = pitch + across - 1 - left - x.shape[2]
    x = jnp.pad(x, ((0, 0), rows.padding[0], (left, right), (0, 0)))
    moved = [x[:, :, j : j + pitch].reshape(x.shape[0], -1, x.shape[3]) for j in range(across)]
    return jnp.stack(moved, axis=1)


def _kernel(x: Any, w: Any, *rest: Any, rows: Rows, epilogue: Epilogue) -> None:
    *extras, out = rest
    (down, across), pitch = rows.taps, rows.pitch
    count = rows.height * pitch
    total = jnp.zeros(out.shape[1:], jnp.float32)
    for i in range(down):
        for j in range(across):
            window = x[0, j, i * pitch : i * pitch + count, :]
            total += jnp.dot(window, w[i * across + j], preferred_element_type=jnp.float32)
    scale = extras.pop(0)[...] if epilogue.scale else None
    shift = extras.pop(0)[...] if epilogue.shift else None
    residual = extras.pop(0)[0] if epilogue.residual else None
    out[0] = epilogue(total, scale, shift, residual).astype(out.dtype)
