"""Convolution by fast Fourier transform, for large kernels.

The kernel is padded to the size of the image, so that a convolution is one product per frequency
and its cost does not depend on the kernel's size. Each direction is a circular correlation or
convolution, long enough not to wrap around; strides and dilations insert zeros.
"""

import math
from collections.abc import Sequence

import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Pair
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

_TAPS = 25  # on kernels with fewer taps the FFT was never faster


def run(lengths: str, problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction, in single precision or wider.

    Args:
      lengths: the lengths of the transforms: ``"smooth"`` numbers or a ``"power"`` of two.
      problem: the problem to compute.
      a: the direction's first argument.
      b: the direction's second argument.
    """
    wide = jnp.promote_types(problem.dtype, jnp.float32)
    compute = {"forward": _forward, "data": _data, "weight": _weight}[problem.direction]
    sizes = _sizes(problem, lengths)
    return compute(problem, sizes, a.astype(wide), b.astype(wide)).astype(problem.dtype)


def _forward(problem: ConvProblem, sizes: Pair, x: Array, w: Array) -> Array:
    x, w = _frequencies(pad(x, *problem.padding), sizes), _kernel(problem, w, sizes)
    y = jnp.einsum("bhwgc,hwcgf->bhwgf", _grouped(problem, x), w.conj())
    y = jnp.fft.irfft2(_joined(y), sizes, axes=(1, 2))
    (height, width), (sy, sx) = problem.y_shape[1:3], problem.stride
    return y[:, : (height - 1) * sy + 1 : sy, : (width - 1) * sx + 1 : sx]


def _data(problem: ConvProblem, sizes: Pair, y: Array, w: Array) -> Array:
    y, w = _frequencies(_spread(y, problem.stride), sizes), _kernel(problem, w, sizes)
    x = jnp.einsum("bhwgf,hwcgf->bhwgc", _grouped(problem, y), w)
    x = jnp.fft.irfft2(_joined(x), sizes, axes=(1, 2))
    edges = [
        (-low, low + side - size)
        for (low, _), side, size in zip(problem.padding, problem.x_shape[1:3], sizes, strict=True)
    ]
    return pad(x, *edges)


def _weight(problem: ConvProblem, sizes: Pair, x: Array, y: Array) -> Array:
    x = _grouped(problem, _frequencies(pad(x, *problem.padding), sizes))
    y = _grouped(problem, _frequencies(_spread(y, problem.stride), sizes))
    w = _joined(jnp.einsum("bhwgc,bhwgf->hwcgf", x, y.conj()))
    w = jnp.fft.irfft2(w, sizes, axes=(0, 1))
    (height, width), (dy, dx) = problem.w_shape[:2], problem.dilation
    return w[: (height - 1) * dy + 1 : dy, : (width - 1) * dx + 1 : dx]


def _frequencies(images: Array, sizes: Pair) -> Array:
    return jnp.fft.rfft2(images, sizes, axes=(1, 2))


def _kernel(problem: ConvProblem, w: Array, sizes: Pair) -> Array:
    """Returns the kernel's spectrum, ``[h, w, channels, groups, features]``, sizes per group."""
    w = jnp.fft.rfft2(_spread(w[None], problem.dilation)[0], sizes, axes=(0, 1))
    return w.reshape(*w.shape[:3], problem.groups, -1)


def _spread(images: Array, step: Pair) -> Array:
    """Inserts zeros between the pixels of ``[b, h, w, c]`` images."""
    shape = list(images.shape)
    shape[1:3] = [(size - 1) * s + 1 for size, s in zip(shape[1:3], step, strict=True)]
    return jnp.zeros(shape, images.dtype).at[:, :: step[0], :: step[1]].set(images)


def _grouped(problem: ConvProblem, frequencies: Array) -> Array:
    return frequencies.reshape(*frequencies.shape[:3], problem.groups, -1)


def _joined(frequencies: Array) -> Array:
    return frequencies.reshape(*frequencies.shape[:3], -1)


def _sizes(problem: ConvProblem, lengths: str) -> Pair:
    """Returns rows and columns of the transforms, which hold the padded image without wrapping."""
    longer = _smooth if lengths == "smooth" else _power
    height, width = (
        longer(max(size + sum(edges), (results - 1) * stride + (taps - 1) * dilation + 1))
        for size, edges, results, stride, taps, dilation in zip(
            problem.x_shape[1:3],
            problem.padding,
            problem.y_shape[1:3],
            problem.stride,
            problem.w_shape[:2],
            problem.dilation,
            strict=True,
        )
    )
    return height, width


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _smooth(size: int) -> int:
    """Returns the next even number without prime factors above 5."""
    while size % 2 or not _is_smooth(size):
        size += 1
    return size


def _is_smooth(size: int) -> bool:
    for factor in (2, 3, 5):
        while size % factor == 0:
            size //= factor
    return size == 1


class FFT(Solver):
    """Solves large floating-point kernels; tuned by the length of the transforms."""

    name = "fft"
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the kernel is large and of a floating-point type."""
        return problem.floating and math.prod(problem.w_shape[:2]) >= _TAPS

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the spectra of all three arrays, at the longer length."""
        height, width = _sizes(problem, "power")
        depth, features = problem.w_shape[2:]
        planes = problem.x_shape[0] * (problem.x_shape[3] + features) + depth * features
        return 2 * max(4, problem.bytes(())) * height * (width // 2 + 1) * planes

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns the smooth lengths first, then powers of two."""
        same = _sizes(problem, "smooth") == _sizes(problem, "power")
        return [(("lengths", name),) for name in (["smooth"] if same else ["smooth", "power"])]


PART = FFT()
