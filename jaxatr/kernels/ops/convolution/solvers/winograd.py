"""Winograd's minimal filtering for 3x3 kernels of stride 1 (Lavin and Gray 2016).

The image is cut into overlapping tiles that give ``m`` x ``m`` results each. With constant
matrices A, B and G, a tile ``d`` and a kernel ``g`` give ``A^T [(B^T d B) * (G g G^T)] A``. For
``m = 2`` that takes 16 products per channel instead of 36; for ``m = 4``, 36 instead of 144. Tiles
are independent, so each of these products is a matrix product over all tiles and channels.

The rounding error for ``m = 2`` is about that of the direct product, because its matrices have only
the entries 0, ±1 and ±1/2. For ``m = 4`` it is about 1e-5 of the largest result in single
precision.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.windows import Shape
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

# Bytes of tile planes, from experiments/benchmarks/convolution.py on a CPU with 32 MiB of cache.
_CACHE, _PIECE = 24e6, 8e6


class Filtering(NamedTuple):
    """The transposed matrices of one tile size, named as in the paper's equation 10.

    Attributes:
      results: ``A^T``, ``[m, m + 2]``.
      tiles: ``B^T``, ``[m + 2, m + 2]``.
      kernels: ``G``, ``[m + 2, 3]``.
    """

    results: np.ndarray
    tiles: np.ndarray
    kernels: np.ndarray

    @property
    def size(self) -> int:
        """``m``, the rows and columns of results of a tile."""
        return len(self.results)


# F(2x2, 3x3) of the paper's section 4.1 and F(4x4, 3x3) of its section 4.2.
TWO = Filtering(
    np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
    np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
)
FOUR = Filtering(
    np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    ),
    np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
)


def applies(problem: ConvProblem) -> bool:
    """Returns whether the kernel is 3x3 and floating-point, with stride 1 and dilation 1."""
    plain = problem.stride == problem.dilation == (1, 1)
    return problem.w_shape[:2] == (3, 3) and plain and problem.floating


def run(filtering: Filtering, pieces: int, problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction, in single precision or wider.

    Args:
      filtering: the matrices of a tile size.
      pieces: number of equal pieces of the batch in a weight gradient.
      problem: the problem to compute.
      a: the direction's first argument.
      b: the direction's second argument.
    """
    dtype = jnp.promote_types(a.dtype, jnp.float32)
    return _run(filtering, pieces, problem, a.astype(dtype), b.astype(dtype)).astype(a.dtype)


def _run(filtering: Filtering, pieces: int, problem: ConvProblem, a: Array, b: Array) -> Array:
    groups = problem.groups
    if problem.direction == "weight":
        return _weight(filtering, pieces, problem, a, b)
    if problem.direction == "forward":
        product = partial(_product, groups, "ptgc,pcgf->ptgf")
        return _correlate(filtering, a, b, problem.padding, problem.y_shape, product)
    # The data gradient is the correlation of y with the kernel rotated by 180 degrees. The formula
    # of the product swaps the kernel's inputs and outputs; transposing it first is slower.
    padding = tuple((2 - low, 2 - high) for low, high in problem.padding)
    product = partial(_product, groups, "ptgf,pcgf->ptgc")
    return _correlate(filtering, a, b[::-1, ::-1], padding, problem.x_shape, product)


def _correlate(filtering: Filtering, x: Array, w: Array, padding, shape: Shape, product) -> Array:
    size = filtering.size
    tiles, kernels = _tiles(filtering, x, padding, shape), _kernels(filtering, w)
    products = map(product, tiles, kernels)
    batch, height, width, features = shape
    rows, columns = -(-height // size), -(-width // size)
    wide = (_mixed(filtering.results, _planes(row), axis=1) for row in products)
    lines = [row.reshape(batch, rows, columns * size, features) for row in wide]
    whole = _mixed(filtering.results, lines, axis=2)
    return whole.reshape(batch, size * rows, size * columns, features)[:, :height, :width]


def _weight(filtering: Filtering, pieces: int, problem: ConvProblem, x: Array, y: Array) -> Array:
    size = filtering.size
    height, width = problem.y_shape[1:3]
    product = partial(_product, problem.groups, "ptgc,ptgf->pcgf")

    def piece(x: Array, y: Array) -> list[Array]:
        tiles = _tiles(filtering, x, problem.padding, problem.y_shape)
        y = pad(y, (0, -height % size), (0, -width % size))
        results = _transformed(filtering.results.T, y, size, size)
        return list(map(product, tiles, results))

    if pieces == 1:
        products = piece(x, y)
    else:
        cut = [a.reshape(pieces, -1, *a.shape[1:]) for a in (x, y)]
        first = piece(*(a[0] for a in cut))
        add = lambda sums, part: (jax.tree.map(jnp.add, sums, piece(*part)), None)  # noqa: E731
        products, _ = jax.lax.scan(add, first, tuple(a[1:] for a in cut))
    rows = [_mixed(filtering.kernels.T, _planes(row)) for row in products]
    return _mixed(filtering.kernels.T, rows)


def _pieces(filtering: Filtering, shape: Shape, channels: int) -> int:
    """Returns the number of equal pieces of the batch that keep the work in cache.

    The planes of all tiles before and after the product are several times the size of the image and
    exceed a processor's cache from about 100x100 pixels in the first stage of a residual network.
    Only the weight gradient is cut into pieces. In the other directions the loop would prevent
    fusion with the following operations: the layer alone is faster, but the network is slower.
    """
    batch, height, width, features = shape
    if not isinstance(batch, int):  # a symbolic dimension of jax.export
        return 1
    share = ((filtering.size + 2) / filtering.size) ** 2
    each = 4 * share * height * width * (channels + features)
    if batch * each <= _CACHE:
        return 1
    fit = max(1, int(_PIECE / each))
    return next(batch // size for size in range(min(fit, batch), 0, -1) if batch % size == 0)


def _product(groups: int, formula: str, a: Array, b: Array) -> Array:
    """Returns the einsum of matrices per group; ``c`` and ``f`` index members of a group."""
    if groups == 1:
        return jnp.einsum(formula.replace("g", ""), a, b)
    cut = [matrix.reshape(*matrix.shape[:2], groups, -1) for matrix in (a, b)]
    result = jnp.einsum(formula, *cut)
    return result.reshape(*result.shape[:2], -1)


def _tiles(filtering: Filtering, x: Array, padding, shape: Shape) -> list[Array]:
    """Returns the rows of ``B^T d B`` of all tiles: ``[m + 2 columns, tiles, channels]`` each."""
    size = filtering.size
    height, width = (side + -side % size for side in shape[1:3])
    (top, _), (left, _) = padding
    x = pad(x, (top, height + 2 - x.shape[1] - top), (left, width + 2 - x.shape[2] - left))
    return _transformed(filtering.tiles, x, size + 2, size)


def _transformed(matrix: np.ndarray, x: Array, side: int, step: int) -> list[Array]:
    """Returns the rows of ``matrix @ t @ matrix.T`` of all tiles t of an image.

    The columns of all rows of pixels are transformed first, once for the tiles that share a row.
    The results of a row of the matrix are one array, so that the compiler has a dozen operations
    instead of one for each of the 36 planes, and one product instead of six.

    Args:
      matrix: constant, ``[r, side]``.
      x: ``[batch, height, width, channels]``.
      side: height and width of a tile.
      step: distance of neighbouring tiles.

    Returns:
      ``r`` arrays ``[r, tiles, channels]``.
    """
    cut = partial(_every, side=side, step=step)
    wide = _mixed(matrix, cut(x, axis=2))  # [r, batch, height, columns, channels]
    rows = cut(wide, axis=2)
    return [_combined(weights, rows).reshape(len(matrix), -1, x.shape[-1]) for weights in matrix]


def _every(x: Array, axis: int, side: int, step: int) -> list[Array]:
    """Returns, for each place in a tile, that line of all tiles along an axis."""
    stop = x.shape[axis] - side + 1
    cut = partial(jax.lax.slice_in_dim, x, stride=step, axis=axis)
    return [cut(start_index=i, limit_index=i + stop) for i in range(side)]


def _kernels(filtering: Filtering, w: Array) -> list[Array]:
    """Returns the rows of ``G g G^T``: ``[m + 2 columns, channels, features]`` each.

    A row is one product, because there are few taps and many channels.
    """
    taps, columns = w.reshape(9, -1), len(filtering.kernels)
    weights = (np.kron(row[None], filtering.kernels) for row in filtering.kernels)
    product = partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)
    rows = (product(matrix.astype(w.dtype), taps) for matrix in weights)
    return [row.reshape(columns, *w.shape[2:]) for row in rows]


def _planes(x: Array) -> list[Array]:
    return [jax.lax.index_in_dim(x, i, keepdims=False) for i in range(len(x))]


def _mixed(matrix: np.ndarray, parts: Sequence[Array], axis: int = 0) -> Array:
    """Returns ``matrix @ parts``, whose rows are stacked along a new axis."""
    return jnp.stack([_combined(weights, parts) for weights in matrix], axis)


def _combined(weights: np.ndarray, parts: Sequence[Array]) -> Array:
    """Returns the weighted sum of the parts, without products by 0, 1 and -1.

    A transform has hundreds of these terms; ``lax`` functions trace twice as fast as operators.
    """
    terms = [(weight, part) for weight, part in zip(weights, parts, strict=True) if weight]
    terms.sort(key=lambda term: term[0] < 0)  # start with a positive term, to avoid a negation
    scaled = [(w > 0, part if abs(w) == 1 else _times(part, float(abs(w)))) for w, part in terms]
    positive, total = scaled[0]
    total = total if positive else jax.lax.neg(total)
    for positive, term in scaled[1:]:
        total = (jax.lax.add if positive else jax.lax.sub)(total, term)
    return total


def _times(part: Array, weight: float) -> Array:
    return jax.lax.mul(part, jax.lax.full_like(part, weight))


class Winograd(Solver):
    """Solves 3x3 kernels of stride 1; weight gradients are tuned by the number of pieces."""

    version = 2  # the planes of a row of tiles are one array

    def __init__(self, name: str, filtering: Filtering):
        self.name, self._filtering = name, filtering

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the kernel is 3x3 with stride 1."""
        return applies(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the planes of all tiles, before and after the product."""
        each, size = max(4, problem.bytes(())), self._filtering.size
        tiles = problem.y_shape[0] * math.prod(-(-n // size) for n in problem.y_shape[1:3])
        return each * tiles * (size + 2) ** 2 * (problem.x_shape[3] + problem.w_shape[3])

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns the number of pieces expected to fit the cache first, then powers of two."""
        if problem.direction != "weight":
            return [()]
        first = _pieces(self._filtering, problem.y_shape, problem.x_shape[3])
        batch = problem.x_shape[0]
        others = [n for n in (1, 2, 4, 8, 16, 32) if batch % n == 0 and n != first]
        return [(("pieces", count),) for count in (first, *others)]

    def build(self, problem: ConvProblem, config: Config):
        """Returns :func:`run` for the problem and the configuration."""
        return partial(run, self._filtering, int(dict(config).get("pieces", 1)), problem)


PARTS = (Winograd("winograd", TWO), Winograd("winograd4", FOUR))
