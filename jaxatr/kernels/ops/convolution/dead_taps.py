"""Removal of dead taps: kernel taps that only ever meet padding.

A 3x3 kernel on a 1x1 image uses only its centre. This happens in the last stages of a residual
network on small images.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.problem import ConvProblem, Pair
from jaxatr.typing import Array

# Multiplications that take about as long as copying one number of the kernel, on two cores.
_COPY = 47


def live_taps(problem: ConvProblem) -> tuple[Pair, Pair]:
    """Returns ``(start, stop)`` of the rows and of the columns of taps that meet the image."""
    return _live(problem, 0), _live(problem, 1)


def _live(problem: ConvProblem, axis: int) -> Pair:
    results, size = problem.y_shape[1 + axis], problem.x_shape[1 + axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    live = []
    for tap in range(problem.w_shape[axis]):
        first = tap * dilation - problem.padding[axis][0]
        if any(0 <= first + stride * i < size for i in range(results)):
            live.append(tap)
    return (live[0], live[-1] + 1) if live else (0, 1)


def without_dead_taps(problem: ConvProblem) -> ConvProblem:
    """Returns the equivalent problem with only the live taps; its padding may be negative."""
    live = live_taps(problem)
    padding = []
    for axis, (start, stop) in enumerate(live):
        low = problem.padding[axis][0] - start * problem.dilation[axis]
        needed = (problem.y_shape[1 + axis] - 1) * problem.stride[axis]
        needed += (stop - start - 1) * problem.dilation[axis] + 1
        padding.append((low, needed - problem.x_shape[1 + axis] - low))
    window = [stop - start for start, stop in live]
    return dataclasses.replace(
        problem, w_shape=(*window, *problem.w_shape[2:]), padding=tuple(padding)
    )


def removal_pays(problem: ConvProblem) -> bool:
    """Returns whether the saved products are worth copying the live part of the kernel.

    In the forward direction of few small images, the copy can take longer than the products with
    zeros. The gradients always gain: a weight gradient has no kernel to copy, and ``taps`` computes
    the data gradient without a copy.
    """
    if problem.direction != "forward" or not isinstance(problem.x_shape[0], int):
        return True
    live = math.prod(stop - start for start, stop in live_taps(problem))
    dead = math.prod(problem.w_shape[:2]) - live
    return live == 1 or dead == 0 or dead * math.prod(problem.y_shape[:3]) > _COPY * live


def live_weights(problem: ConvProblem, w: Array) -> Array:
    """Returns the live part of the kernel."""
    rows, columns = live_taps(problem)
    return w[slice(*rows), slice(*columns)]


def whole_gradient(problem: ConvProblem, w: Array) -> Array:
    """Pads the gradient of the live part with zeros to that of the whole kernel."""
    edges = [
        (start, taps - stop, 0)
        for (start, stop), taps in zip(live_taps(problem), problem.w_shape[:2], strict=True)
    ]
    if edges == [(0, 0, 0), (0, 0, 0)]:
        return w
    return jax.lax.pad(w, jnp.zeros((), w.dtype), [*edges, (0, 0, 0), (0, 0, 0)])
