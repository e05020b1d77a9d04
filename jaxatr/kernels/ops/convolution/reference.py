"""What a convolution is, in NumPy's float64 and without any of the solvers."""

from collections.abc import Iterator
from itertools import product

import jax
import numpy as np

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import Problem

# Of the RMS of the difference over the largest value, as MIOpen's driver has them.
_TOLERANCE = {"float32": 1.5e-6, "float16": 8.2e-3, "bfloat16": 8 * 8.2e-3, "float64": 1e-13}


def tolerance(problem: Problem, device: Device) -> float:
    """Returns the accepted error; integers must be exact.

    Unless jax's ``default_matmul_precision`` asks for more, products of ``float32`` are rounded as
    TF32 on a GPU, whose fraction is that of ``float16``, and as ``bfloat16`` on a TPU.
    """
    dtype = problem.dtype
    precise = jax.config.values["jax_default_matmul_precision"] in ("highest", "float32")
    if dtype == "float32" and not precise:
        dtype = {"cpu": "float32", "gpu": "float16"}.get(device.platform, "bfloat16")
    return _TOLERANCE.get(dtype, 0.0)


def arguments(problem: Problem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random arguments: normal, or of ``int8`` all its values."""
    shapes = problem.argument_shapes
    if problem.floating:
        drawn = (generator.standard_normal(shape, np.float32) for shape in shapes)
        return tuple(array.astype(problem.dtype) for array in drawn)
    return tuple(generator.integers(-128, 128, shape).astype(problem.dtype) for shape in shapes)


def reference(problem: Problem, given: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns the result of the problem's direction, a tap and a group at a time."""
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


def _padded(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Returns zeros for the image, and the image with its padding: views of the same memory."""
    batch, height, width, channels = problem.x_shape
    (top, bottom), (left, right) = problem.padding
    edge = max(0, top, bottom, left, right)  # a negative one crops
    memory = np.zeros((batch, height + 2 * edge, width + 2 * edge, channels))
    rows = slice(edge - top, edge + height + bottom)
    columns = slice(edge - left, edge + width + right)
    return memory[:, edge : edge + height, edge : edge + width], memory[:, rows, columns]


def _taps(
    problem: Problem, padded: np.ndarray, y: np.ndarray, w: np.ndarray
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
