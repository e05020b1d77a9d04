"""A float64 reference of a convolution and its gradients, in NumPy."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.tolerance import PLAIN, of_products


def tolerance(problem: ConvProblem, device: Device) -> float:
    """Returns the tolerance (:func:`~jaxatr.kernels.ops.tolerance.of_products`)."""
    return of_products(problem.dtype, device, PLAIN)


def arguments(problem: ConvProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random arguments: standard normal, or uniform for ``int8``."""
    shapes = problem.argument_shapes
    if problem.floating:
        drawn = (generator.standard_normal(shape, np.float32) for shape in shapes)
        return tuple(array.astype(problem.dtype) for array in drawn)
    return tuple(generator.integers(-128, 128, shape).astype(problem.dtype) for shape in shapes)


def reference(problem: ConvProblem, given: tuple[np.ndarray, ...]) -> np.ndarray:
    """Computes the problem's direction, one tap and one group at a time."""
    a, b = (np.asarray(array).astype(np.float64) for array in given)
    x, padded = _padded(problem)
    if problem.direction != "data":
        x[...] = a
    y = {"forward": np.zeros(problem.y_shape), "data": a, "weight": b}[problem.direction]
    w = np.zeros(problem.w_shape) if problem.direction == "weight" else b
    for pixels, results, weights in _taps(problem, padded, y, w):
        if problem.direction == "forward":
            results += pixels @ weights
        elif problem.direction == "data":
            pixels += results @ weights.T
        else:
            weights += np.tensordot(pixels, results, axes=((0, 1, 2), (0, 1, 2)))
    return {"forward": y, "data": x, "weight": w}[problem.direction]


def _padded(problem: ConvProblem) -> tuple[np.ndarray, np.ndarray]:
    """Returns zeros for the image, and the image with its padding: views of the same memory."""
    batch, height, width, channels = problem.x_shape
    (top, bottom), (left, right) = problem.padding
    edge = max(0, top, bottom, left, right)  # negative padding crops
    memory = np.zeros((batch, height + 2 * edge, width + 2 * edge, channels))
    rows = slice(edge - top, edge + height + bottom)
    columns = slice(edge - left, edge + width + right)
    return memory[:, edge : edge + height, edge : edge + width], memory[:, rows, columns]


def _taps(
    problem: ConvProblem, padded: np.ndarray, y: np.ndarray, w: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields, for each tap and group, views of the pixels, of the results and of the weights."""
    depth, features = problem.w_shape[2], problem.w_shape[3] // problem.groups
    (height, width), (sy, sx) = problem.y_shape[1:3], problem.stride
    for i, j, group in product(*map(range, (*problem.w_shape[:2], problem.groups))):
        top, left = i * problem.dilation[0], j * problem.dilation[1]
        rows = slice(top, top + (height - 1) * sy + 1, sy)
        columns = slice(left, left + (width - 1) * sx + 1, sx)
        inputs = slice(group * depth, (group + 1) * depth)
        outputs = slice(group * features, (group + 1) * features)
        yield padded[:, rows, columns, inputs], y[..., outputs], w[i, j, :, outputs]
