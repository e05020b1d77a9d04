"""Winograd's minimal filtering for 3x3 kernels of stride 1 (Lavin and Gray 2016).

The image is cut into overlapping tiles that give 2x2 results each. With the constant matrices
below, a tile ``d`` and a kernel ``g`` give ``A^T [(B^T d B) * (G g G^T)] A``: 16 products per
channel instead of 36. Tiles are independent, so that each of the 16 products is a matrix product
over all tiles and channels. It rounds about as the direct product does, because the matrices hold
only 0, 1 and 1/2.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.convolution.padding import pad
from jaxatr.kernels.convolution.problem import Problem
from jaxatr.typing import Array

TILE = 2
_B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


def applies(problem: Problem) -> bool:
    """Says whether the kernel is 3x3 with stride 1 and dilation 1."""
    return problem.w_shape[:2] == (3, 3) and problem.stride == problem.dilation == (1, 1)


def run(problem: Problem, a: Array, b: Array) -> Array:
    """Returns the result of any direction; half precision is computed in single."""
    dtype = jnp.promote_types(a.dtype, jnp.float32)
    return _run(problem, a.astype(dtype), b.astype(dtype)).astype(a.dtype)


def _run(problem: Problem, a: Array, b: Array) -> Array:
    groups = problem.groups
    if problem.direction == "weight":
        return _weight(problem, a, b)
    if problem.direction == "forward":
        product = partial(_product, groups, "tgc,cgf->tgf")
        return _correlate(a, b, problem.padding, problem.y_shape, product)
    # The data gradient is the correlation of y with the kernel turned by 180 degrees. Inputs and
    # outputs of the kernel change places in the product: to transpose it first is slower.
    padding = tuple((2 - low, 2 - high) for low, high in problem.padding)
    product = partial(_product, groups, "tgf,cgf->tgc")
    return _correlate(a, b[::-1, ::-1], padding, problem.x_shape, product)


def _correlate(x: Array, w: Array, padding, shape: tuple[int, ...], product) -> Array:
    tiles = _mixed(_B, _B, _tiles(x, padding, shape))
    kernels = _mixed(_G, _G, lambda i, j: w[i, j])
    products = [list(map(product, *rows)) for rows in zip(tiles, kernels, strict=True)]
    batch, height, width, features = shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    results = _mixed(_A, _A, lambda i, j: products[i][j].reshape(batch, rows, columns, features))
    whole = jnp.stack([jnp.stack(row, axis=3) for row in results], axis=2)
    return whole.reshape(batch, TILE * rows, TILE * columns, features)[:, :height, :width]


def _weight(problem: Problem, x: Array, y: Array) -> Array:
    tiles = _mixed(_B, _B, _tiles(x, problem.padding, problem.y_shape))
    height, width = problem.y_shape[1:3]
    y = pad(y, (0, height % TILE), (0, width % TILE))
    results = _mixed(_A.T, _A.T, lambda i, j: y[:, i::TILE, j::TILE].reshape(-1, y.shape[-1]))
    product = partial(_product, problem.groups, "tgc,tgf->cgf")
    products = [list(map(product, *rows)) for rows in zip(tiles, results, strict=True)]
    return jnp.stack([jnp.stack(row) for row in _mixed(_G.T, _G.T, lambda i, j: products[i][j])])


def _product(groups: int, formula: str, a: Array, b: Array) -> Array:
    """Returns the product of two matrices per group; ``c`` and ``f`` number one group's members."""
    if groups == 1:
        return jnp.einsum(formula.replace("g", ""), a, b)
    result = jnp.einsum(formula, a.reshape(len(a), groups, -1), b.reshape(len(b), groups, -1))
    return result.reshape(len(result), -1)


def _tiles(x: Array, padding, shape: tuple[int, ...]) -> Callable[[int, int], Array]:
    """Returns ``(i, j) -> [tiles, channels]``: pixel ``(i, j)`` of every tile."""
    height, width = (size + size % TILE for size in shape[1:3])
    (top, _), (left, _) = padding
    x = pad(x, (top, height + 2 - x.shape[1] - top), (left, width + 2 - x.shape[2] - left))

    def pixel(i: int, j: int) -> Array:
        part = x[:, i : i + height - 1 : TILE, j : j + width - 1 : TILE]
        return part.reshape(-1, x.shape[-1])

    return pixel


def _mixed(
    left: np.ndarray, right: np.ndarray, part: Callable[[int, int], Array]
) -> list[list[Array]]:
    """Returns ``left @ part @ right.T`` for a matrix of arrays."""
    parts = [[part(i, j) for j in range(right.shape[1])] for i in range(left.shape[1])]
    rows = [[_combined(weights, column) for column in zip(*parts, strict=True)] for weights in left]
    return [[_combined(weights, row) for weights in right] for row in rows]


def _combined(weights: np.ndarray, parts: Sequence[Array]) -> Array:
    """Returns the weighted sum, without products by 0, 1 and -1."""
    terms = [(weight, part) for weight, part in zip(weights, parts, strict=True) if weight]
    terms.sort(key=lambda term: term[0] < 0)  # so that a sum seldom begins with a negation
    scaled = [(w > 0, part if abs(w) == 1 else part * abs(w)) for w, part in terms]
    positive, total = scaled[0]
    total = total if positive else -total
    for positive, term in scaled[1:]:
        total = total + term if positive else total - term
    return total
