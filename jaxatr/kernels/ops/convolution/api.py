"""The public convolutions, which check and normalise their arguments and bind the primitive."""

from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.checks import as_arrays, check_algorithm, check_groups
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.windows import Padding, Pair, edges, pair
from jaxatr.typing import Array, Shaped


def convolution(
    x: Shaped[Array, "b *pixels c"],
    w: Shaped[Array, "*window d f"],
    *,
    stride: int | Pair = 1,
    padding: Padding = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> Shaped[Array, "b *results f"]:
    """Computes the convolution (cross-correlation) of images or sequences ``x`` with ``w``.

    All of jax's transformations work, to any order; ``jax.shard_map`` needs ``check_vma=False``.
    With ``algorithm="auto"``, the forward pass and each gradient use the algorithm that was
    measured to be fastest on the device (:func:`jaxatr.kernels.find`). Without a measurement a
    heuristic decides; on GPU and TPU it always chooses XLA's convolution.
    :func:`jaxatr.kernels.choices` pins the algorithms.

    A sequence ``[b, t, c]`` is treated as an image of one row. Its stride and dilation are one
    number each, and its padding is one number or ``(before, after)``.

    Args:
      x: images ``[b, h, w, c]``, or sequences ``[b, t, c]``.
      w: kernel ``[kh, kw, c / groups, f]``, or ``[k, c / groups, f]``, of the same type as ``x``.
      stride: pixels between neighbouring results, one number or ``(rows, columns)``.
      padding: zeros around the image: one number, ``(rows, columns)``,
        ``((top, bottom), (left, right))``, ``"VALID"`` (none) or ``"SAME"`` (enough for
        ``ceil(size / stride)`` results, an odd pixel at the bottom and right).
      dilation: pixels between neighbouring taps of the kernel, one number or ``(rows, columns)``.
      groups: number of independent groups that channels and features are divided into.
      algorithm: ``"auto"``, or the name of a solver to use in its default configuration for every
        direction on every platform. XLA computes the directions that the solver cannot.

    Returns:
      ``[b, h2, w2, f]`` or ``[b, t2, f]``, of the type of ``x``, or ``int32`` if that is ``int8``,
      with ``h2 = (h + top + bottom - (kh - 1) * dilation - 1) // stride + 1``.

    Raises:
      ValueError: an argument is invalid, shapes do not fit together, or the result would be empty.
    """
    x, w = as_arrays(x, w, "c / groups, f")
    if x.ndim == 3:
        row = _one_row(stride=stride, padding=padding, dilation=dilation)
        return convolution(x[:, None], w[None], **row, groups=groups, algorithm=algorithm)[:, 0]
    stride, dilation = pair("stride", stride, 1), pair("dilation", dilation, 1)
    check_groups(x.shape[3], w.shape[3], w.shape[2], groups)
    problem = ConvProblem(
        direction="forward",
        x_shape=x.shape,
        w_shape=w.shape,
        stride=stride,
        padding=edges(padding, x.shape[1:3], w.shape[:2], stride, dilation),
        dilation=dilation,
        groups=groups,
        dtype=x.dtype.name,
    )
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(
            f"x: {x.shape[1]}x{x.shape[2]} pixels with padding {problem.padding} are too few for a "
            f"{w.shape[0]}x{w.shape[1]} kernel of dilation {dilation}: the result would be empty"
        )
    check_algorithm(problem, algorithm)
    return bind(x, w, problem, algorithm)


def transposed_convolution(
    x: Shaped[Array, "b *pixels c"],
    w: Shaped[Array, "*window d c"],
    *,
    stride: int | Pair = 1,
    padding: Padding = 0,
    output_padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> Shaped[Array, "b *results f"]:
    """Computes the transposed convolution: the data gradient of a convolution with ``w``.

    It is the ``data`` direction of that convolution's problem, and its own gradients are the other
    two directions, so it needs no solvers of its own.

    Args:
      x: images ``[b, h, w, c]``, or sequences ``[b, t, c]``, of floating-point numbers.
      w: the kernel of the convolution that maps the result to ``x``, ``[kh, kw, f / groups, c]``
        or ``[k, f / groups, c]``; PyTorch and ONNX store it as ``[c, f / groups, kh, kw]``.
      stride: pixels of the result between neighbouring pixels of ``x``, one number or
        ``(rows, columns)``.
      padding: pixels cropped from the edges of the result, written as in :func:`convolution` but
        without ``"SAME"``.
      output_padding: additional pixels of the result at the bottom and right, fewer than the
        stride.
      dilation: pixels between neighbouring taps of the kernel, one number or ``(rows, columns)``.
      groups: number of independent groups that channels and features are divided into.
      algorithm: ``"auto"``, or the name of a solver, whose data gradient is used.

    Returns:
      ``[b, h2, w2, f]`` or ``[b, t2, f]``, with ``h2 = (h - 1) * stride - top - bottom
      + (kh - 1) * dilation + 1 + output_padding``.

    Raises:
      ValueError: an argument is invalid, shapes do not fit together, or the result would be empty.
    """
    x, w = as_arrays(x, w, "f / groups, c")
    if x.ndim == 3:
        row = _one_row(stride=stride, padding=padding, dilation=dilation)
        return transposed_convolution(
            x[:, None],
            w[None],
            **row,
            output_padding=(0, output_padding),  # type: ignore[arg-type]
            groups=groups,
            algorithm=algorithm,
        )[:, 0]
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x: got {x.dtype.name}, wanted floating-point numbers")
    if isinstance(padding, str) and padding != "VALID":
        raise ValueError(f"padding: got {padding!r}, wanted numbers or 'VALID'")
    stride, dilation = pair("stride", stride, 1), pair("dilation", dilation, 1)
    more = pair("output_padding", output_padding, 0)
    if more[0] >= stride[0] or more[1] >= stride[1]:
        raise ValueError(f"output_padding: got {more}, wanted less than the stride, {stride}")
    check_groups(w.shape[2] * groups, w.shape[3], w.shape[2], groups)
    if w.shape[3] != x.shape[3]:
        raise ValueError(f"w: got {w.shape[3]} as its last axis, wanted x's {x.shape[3]} channels")
    cut = edges(padding, x.shape[1:3], w.shape[:2], stride, dilation)
    sides = [
        (n - 1) * s - sum(pad) + (taps - 1) * d + 1 + extra
        for n, s, pad, taps, d, extra in zip(
            x.shape[1:3], stride, cut, w.shape[:2], dilation, more, strict=True
        )
    ]
    if min(sides) < 1:
        raise ValueError(f"padding: got {cut}, which leaves {sides[0]}x{sides[1]} pixels")
    shape = (x.shape[0], *sides, w.shape[2] * groups)
    problem = ConvProblem("data", shape, w.shape, stride, cut, dilation, groups, x.dtype.name)
    check_algorithm(problem, algorithm)
    return bind(x, w, problem, algorithm)


def _one_row(*, stride: Any, padding: Any, dilation: Any) -> dict[str, Any]:
    """Returns the options of a sequence as those of an image of one row."""
    return {
        "stride": (1, stride),
        "padding": padding if isinstance(padding, str) else ((0, 0), pair("padding", padding, 0)),
        "dilation": (1, dilation),
    }
