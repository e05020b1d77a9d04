"""Two forms of pooling: by slices of the image, and by XLA's ``reduce_window``.

The first form slices the image once per tap of the window, and passes the gradient of a maximum to
the first tap that holds it. It is the default because on CPU, ``reduce_window`` and its derivative
``select_and_scatter`` took a third of a training step of a small residual network.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.ops.pooling.problem import PoolingProblem
from jaxatr.typing import Array


def taps(problem: PoolingProblem, x: Array) -> Array:
    """Pools by slices of the image."""
    if problem.mode == "max":
        return _max_of_taps(problem, x)
    total = sum(_taps(problem, x.astype(_wide(x)), 0.0), start=jnp.zeros((), _wide(x)))
    return (total / counts(problem)).astype(x.dtype)


def xla(problem: PoolingProblem, x: Array) -> Array:
    """Pools by ``reduce_window``."""
    edges = ((0, 0), *problem.padding, (0, 0))
    window, stride = (1, *problem.window, 1), (1, *problem.stride, 1)
    if problem.mode == "max":
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, stride, edges)
    total = jax.lax.reduce_window(x.astype(_wide(x)), 0.0, jax.lax.add, window, stride, edges)
    return (total / counts(problem)).astype(x.dtype)


def counts(problem: PoolingProblem) -> np.ndarray | int:
    """Returns the divisor of each window's sum, ``[h2, w2, 1]``, or one number for all windows."""
    if problem.mode == "average_inclusive":
        return problem.window[0] * problem.window[1]
    inside = []
    for axis in (0, 1):
        low = np.arange(problem.y_shape[1 + axis]) * problem.stride[axis] - problem.padding[axis][0]
        high = np.minimum(low + problem.window[axis], problem.x_shape[1 + axis])
        inside.append(high - np.maximum(low, 0))
    return np.multiply.outer(*inside)[..., None]


def _wide(x: Array) -> jnp.dtype:
    return jnp.promote_types(x.dtype, jnp.float32)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _max_of_taps(problem: PoolingProblem, x: Array) -> Array:
    first, *rest = _taps(problem, x, -jnp.inf)
    for tap in rest:
        first = jnp.maximum(first, tap)
    return first


@_max_of_taps.defjvp
def _derivative(problem, primals, tangents):
    (x,), (dx,) = primals, tangents
    y = _max_of_taps(problem, x)
    count = problem.window[0] * problem.window[1]
    number = jnp.uint8 if count < 256 else jnp.uint32
    first = jnp.zeros(y.shape, number)
    for index, tap in reversed(list(enumerate(_taps(problem, x, -jnp.inf)))):
        first = jnp.where(tap == y, number(index), first)
    dy = jnp.zeros_like(y)
    for index, tap in enumerate(_taps(problem, dx, 0.0)):
        dy += jnp.where(first == index, tap, 0)
    return y, dy


def _taps(problem: PoolingProblem, x: Array, fill: float) -> list[Array]:
    """Returns the pixels that each tap of the window meets."""
    x = jnp.pad(x, ((0, 0), *problem.padding, (0, 0)), constant_values=fill)
    (rows, columns), (sy, sx) = problem.window, problem.stride
    below, right = (
        (count - 1) * step + 1
        for count, step in zip(problem.y_shape[1:3], problem.stride, strict=True)
    )

    def tap(i: int, j: int) -> Array:  # with a symbolic batch, jnp would gather
        end = (x.shape[0], i + below, j + right, x.shape[3])
        return jax.lax.slice(x, (0, i, j, 0), end, (1, sy, sx, 1))

    return [tap(i, j) for i in range(rows) for j in range(columns)]
