"""Kernels without the taps that meet nothing but padding.

A 3x3 kernel on a 1x1 image uses its middle alone, which is what the last stages of a residual
network do with small images.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.problem import Pair, Problem
from jaxatr.typing import Array


def live_taps(problem: Problem) -> tuple[Pair, Pair]:
    """Returns ``(start, stop)`` of the taps that meet the image anywhere, by rows and columns."""
    return _live(problem, 0), _live(problem, 1)


def _live(problem: Problem, axis: int) -> Pair:
    results, size = problem.y_shape[1 + axis], problem.x_shape[1 + axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    live = []
    for tap in range(problem.w_shape[axis]):
        first = tap * dilation - problem.padding[axis][0]
        if any(0 <= first + stride * i < size for i in range(results)):
            live.append(tap)
    return (live[0], live[-1] + 1) if live else (0, 1)


def trimmed(problem: Problem) -> Problem:
    """Returns the problem with the live taps alone; its padding may be negative."""
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


def cut(problem: Problem, w: Array) -> Array:
    """Returns the live part of the kernel."""
    rows, columns = live_taps(problem)
    return w[slice(*rows), slice(*columns)]


def filled(problem: Problem, w: Array) -> Array:
    """Returns the whole kernel's gradient from that of its live part."""
    edges = [
        (start, taps - stop, 0)
        for (start, stop), taps in zip(live_taps(problem), problem.w_shape[:2], strict=True)
    ]
    if edges == [(0, 0, 0), (0, 0, 0)]:
        return w
    return jax.lax.pad(w, jnp.zeros((), w.dtype), [*edges, (0, 0, 0), (0, 0, 0)])
