"""The algorithms: ways to compute a convolution from ordinary jax operations.

``xla``      the convolution operation of XLA.
``matmul``   the shifted images side by side on the channel axis (im2col), then one matrix product.

"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.kernels.convolution import winograd
from jaxatr.kernels.convolution.problem import Problem
from jaxatr.typing import Array


class Algorithm(NamedTuple):
    """One way to compute a convolution.

    Attributes:
      applies: says whether it can compute the problem.
      run: ``(problem, a, b) -> result``, with the arguments and result of the problem's direction.
    """

    applies: Callable[[Problem], bool]
    run: Callable[[Problem, Array, Array], Array]


def _xla(problem: Problem, a: Array, b: Array) -> Array:
    def forward(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            problem.stride,
            problem.padding,
            rhs_dilation=problem.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=problem.groups,
        )

    if problem.direction == "forward":
        return forward(a, b)
    unknown = jax.ShapeDtypeStruct(problem.result_shape, a.dtype)
    if problem.direction == "data":
        (result,) = jax.linear_transpose(lambda x: forward(x, b), unknown)(a)
    else:
        (result,) = jax.linear_transpose(lambda w: forward(a, w), unknown)(b)
    return result


def _shifted(problem: Problem, x: Array) -> list[Array]:
    """Returns, for each tap of the kernel, the pixels of ``x`` that it meets: ``[b, oh, ow, c]``."""
    x = jnp.pad(x, ((0, 0), *problem.padding, (0, 0)))
    _, height, width, _ = problem.y_shape
    (sy, sx), (dy, dx) = problem.stride, problem.dilation
    return [
        x[
            :,
            i * dy : i * dy + (height - 1) * sy + 1 : sy,
            j * dx : j * dx + (width - 1) * sx + 1 : sx,
        ]
        for i in range(problem.w_shape[0])
        for j in range(problem.w_shape[1])
    ]


def _product(problem: Problem, parts: Sequence[Array], w: Array) -> Array:
    """Returns the sum over taps of ``parts[tap] @ w[tap]`` per group, as one matrix product.

    Args:
      problem: gives the groups.
      parts: per tap ``[b, h, w, groups * m]``.
      w: ``[taps, m, groups * n]``.
    """
    groups, (taps, depth, features) = problem.groups, w.shape
    lead = parts[0].shape[:3]
    if groups == 1:
        patches = jnp.concatenate(parts, axis=-1) if taps > 1 else parts[0]
        return (patches.reshape(-1, taps * depth) @ w.reshape(-1, features)).reshape(
            *lead, features
        )
    patches = jnp.stack(parts, axis=3).reshape(-1, taps, groups, depth)
    kernels = w.reshape(taps, depth, groups, features // groups)
    return jnp.einsum("ptgc,tcgf->pgf", patches, kernels).reshape(*lead, features)


def _matmul_forward(problem: Problem, x: Array, w: Array) -> Array:
    return _product(problem, _shifted(problem, x), w.reshape(-1, *w.shape[2:]))


def _matmul_weight(problem: Problem, x: Array, y: Array) -> Array:
    parts, groups = _shifted(problem, x), problem.groups
    taps, depth, features = len(parts), problem.w_shape[2], problem.w_shape[3]
    if groups == 1:
        patches = jnp.concatenate(parts, axis=-1).reshape(-1, taps * depth)
        return (patches.T @ y.reshape(-1, features)).reshape(problem.w_shape)
    patches = jnp.stack(parts, axis=3).reshape(-1, taps, groups, depth)
    y = y.reshape(-1, groups, features // groups)
    return jnp.einsum("ptgc,pgf->tcgf", patches, y).reshape(problem.w_shape)


def _matmul_data(problem: Problem, y: Array, w: Array) -> Array:
    """Gathers, for each phase of the stride, the results that its pixels have gone into.

    Pixel ``p`` (counted from the padded edge) meets tap ``i`` in result ``o`` where
    ``p = o * stride + i * dilation``. The pixels with the same ``p % stride`` meet the same taps, so
    that each phase is a convolution of stride 1 of ``y``; the phases are then interleaved.
    """
    w = _swapped(problem, w)
    batch, height, width, channels = problem.x_shape
    rows = [_phase(problem, 0, r) for r in range(problem.stride[0])]
    columns = [_phase(problem, 1, r) for r in range(problem.stride[1])]
    reach = [[offset for phase in axis for _, offset in phase] for axis in (rows, columns)]
    counts = [-(-n // s) for n, s in zip((height, width), problem.stride, strict=True)]
    low = [max(0, -min(r)) for r in reach]
    high = [
        max(0, max(r) + n - size) for r, n, size in zip(reach, counts, y.shape[1:3], strict=True)
    ]
    y = jnp.pad(y, ((0, 0), (low[0], high[0]), (low[1], high[1]), (0, 0)))

    def one(row_taps, column_taps):
        parts, kernels = [], []
        for i, top in row_taps:
            for j, left in column_taps:
                top_, left_ = top + low[0], left + low[1]
                parts.append(y[:, top_ : top_ + counts[0], left_ : left_ + counts[1]])
                kernels.append(w[i, j])
        if not parts:
            return jnp.zeros((batch, *counts, channels), y.dtype)
        return _product(problem, parts, jnp.stack(kernels))

    if problem.stride == (1, 1):
        return one(rows[0], columns[0])
    phases = jnp.stack([jnp.stack([one(r, c) for c in columns], axis=3) for r in rows], axis=2)
    whole = phases.reshape(
        batch, counts[0] * problem.stride[0], counts[1] * problem.stride[1], channels
    )
    return whole[:, :height, :width]


def _phase(problem: Problem, axis: int, phase: int) -> list[tuple[int, int]]:
    """Returns the taps that the pixels ``q * stride + phase`` meet, and which result: ``q + offset``."""
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    start = phase + problem.padding[axis][0]
    return [
        (tap, (start - tap * dilation) // stride)
        for tap in range(problem.w_shape[axis])
        if (start - tap * dilation) % stride == 0
    ]


def _swapped(problem: Problem, w: Array) -> Array:
    """Returns the kernel with inputs and outputs exchanged within each group: ``[kh, kw, f/g, c]``."""
    kh, kw, depth, features = w.shape
    w = w.reshape(kh, kw, depth, problem.groups, features // problem.groups)
    return w.transpose(0, 1, 4, 3, 2).reshape(kh, kw, -1, depth * problem.groups)


_MATMUL = {"forward": _matmul_forward, "data": _matmul_data, "weight": _matmul_weight}


def _everywhere(problem: Problem) -> bool:
    del problem
    return True


ALGORITHMS = {
    "xla": Algorithm(_everywhere, _xla),
    "matmul": Algorithm(
        _everywhere, lambda problem, a, b: _MATMUL[problem.direction](problem, a, b)
    ),
    "winograd": Algorithm(winograd.applies, winograd.run),
}
