"""The kernels and fusion plans that are compiled for described devices."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.contrib.fusion import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionPlan,
    FusionProblem,
    Residual,
)
from jaxatr.kernels.contrib.fusion.operations import Operation
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Direction
from jaxatr.kernels.ops.convolution.solvers import SOLVERS as CONVOLUTIONS
from jaxatr.kernels.ops.differentiable import Direction as Pass
from jaxatr.kernels.pallas import Device, kernel
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.kernels.pallas.windows import Windows


class Case(NamedTuple):
    """A kernel with the shapes that it is compiled for.

    Attributes:
      name: the name of the case.
      function: the function to compile.
      arguments: shapes and types of the function's arguments, in trees.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


ONE, THREE = ((1, 1), ((0, 0), (0, 0))), ((3, 3), ((1, 1), (1, 1)))
UNEVEN, FIVE = ((2, 3), ((1, 0), (0, 2))), ((5, 5), ((2, 2), (2, 2)))
SEVEN, WIDE, HIGH = (
    ((7, 7), ((3, 3), (3, 3))),
    ((1, 9), ((0, 0), (4, 4))),
    ((9, 1), ((4, 4), (0, 0))),
)
FULL = Epilogue(scale=True, shift=True, residual=True, activation="relu")
BIAS = Epilogue(shift=True, activation="relu")


def convolution_case(
    device: Device,
    size: tuple[int, int, int],
    channels: tuple[int, int],
    geometry: Any,
    epilogue: Epilogue,
    dtype: str,
    stride: int = 1,
    gradient: bool = False,
) -> Case:
    """Returns the case of a convolution kernel.

    Args:
      device: the device that the kernel is for.
      size: images, rows and columns of the convolution's result.
      channels: channels of the image and of the result.
      geometry: the kernel's size and the padding.
      epilogue: the epilogue.
      dtype: name of the element type.
      stride: pixels between neighbouring results, for ``hopper``.
      gradient: whether to compute the data gradient, for ``hopper``.

    Raises:
      ValueError: the kernel does not support the sizes or the type.
    """
    (taps, padding), batch = geometry, size[0]
    x, y = _images(size, geometry, stride, channels[0]), (*size, channels[1])
    if gradient:
        x, y = y, x
    module, place = kernel(device, "convolution"), Rows(*size, taps, padding)
    if device == "hopper":
        before = padding[0][0], padding[1][0]
        place = Windows(batch, x[1:3], y[1:3], taps, (stride, stride), before, gradient)
    if not module.applies(place, x[3], y[3], dtype):
        raise ValueError(f"{device}: {place}, {channels} channels, {dtype}: does not apply")
    struct = jax.ShapeDtypeStruct
    arrays, extras = (struct(x, dtype), struct((*taps, *channels), dtype)), {}
    for name in ("scale", "shift"):
        if getattr(epilogue, name):
            extras[name] = struct(y[3:], "float32")
    if epilogue.residual:
        extras["residual"] = struct(y, dtype)

    def run(x: Any, w: Any, *others: Any) -> Any:
        named = dict(zip(extras, others, strict=True))
        return module.convolution(x, w, place, epilogue, **named)

    text = _described(size, geometry, stride, channels) + " gradient" * gradient
    return Case(
        f"conv {text} {dtype} {'+'.join([*extras, epilogue.activation])}",
        run,
        (*arrays, *extras.values()),
    )


def weight_case(
    size: tuple[int, int, int],
    channels: tuple[int, int],
    geometry: Any,
    dtype: str,
    stride: int = 1,
    number: int = 0,
) -> Case:
    """Returns the case of Hopper's weight gradient.

    Args:
      size: images, rows and columns of the convolution's result.
      channels: channels of the image and of the result.
      geometry: the kernel's size and the padding.
      dtype: name of the element type.
      stride: pixels between neighbouring results.
      number: of the size of a tile, where 0 is the default.

    Raises:
      ValueError: the kernel does not support the sizes or the type.
    """
    (taps, padding), module = geometry, kernel("hopper", "weight")
    x, y = _images(size, geometry, stride, channels[0]), (*size, channels[1])
    before = padding[0][0], padding[1][0]
    windows = Windows(size[0], x[1:3], y[1:3], taps, (stride, stride), before)
    if not module.applies(windows, *channels, dtype):
        raise ValueError(f"hopper: {windows}, {channels} channels, {dtype}: does not apply")
    tile = module.tiles(windows, *channels)[number]
    run = partial(module.weight_gradient, windows=windows, tile=tile)
    text = _described(size, geometry, stride, channels)
    text = f"weight {text} {dtype} {tile.rows}x{tile.columns}, {tile.pieces} pieces"
    return Case(text, run, tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in (x, y)))


def _images(
    size: tuple[int, int, int], geometry: Any, stride: int, channels: int
) -> tuple[int, int, int, int]:
    """Returns the shape of the images of a convolution whose result has some size."""
    (taps, padding), (batch, *edges) = geometry, size
    rows, columns = (
        (n - 1) * stride + t - sum(pad) for n, t, pad in zip(edges, taps, padding, strict=True)
    )
    return batch, rows, columns, channels


def _described(
    size: tuple[int, int, int], geometry: Any, stride: int, channels: tuple[int, int]
) -> str:
    text = f"{'x'.join(map(str, geometry[0]))} {'x'.join(map(str, size))} "
    return text + f"{channels[0]}>{channels[1]}" + f" stride {stride}" * (stride > 1)


def step_case(batch: int, hidden: int, dtype: str, saves: bool) -> Case:
    """Returns the case of one LSTM step on a TPU; ``saves`` includes the derivative's gates."""
    module = kernel("tpu", "lstm")
    if batch % module.rows(dtype) or not module.applies(hidden, dtype):
        raise ValueError(f"batch {batch}, {hidden} units, {dtype}: does not apply")
    name = f"lstm {batch}x{hidden} {dtype}{' with gates' if saves else ''}"
    *states, part = _lstm(batch, hidden, dtype)
    return Case(name, partial(module.step, saves=saves), (*states, part))


def layer_case(batch: int, hidden: int, steps: int, dtype: str = "bfloat16") -> Case:
    """Returns the case of all steps of Hopper's LSTM for inference."""
    *states, part = _lstm(batch, hidden, dtype)
    parts = jax.ShapeDtypeStruct((steps, *part.shape), part.dtype)
    layer = kernel("hopper", "lstm").layer
    return Case(f"lstm {batch}x{hidden} {dtype}", layer, (*states, parts))


def persistent_case(
    cell: str, direction: Pass, batch: int, hidden: int, dtype: str = "bfloat16"
) -> Case:
    """Returns the case of all steps of Hopper's LSTM or GRU in one launch, forward or backward."""
    module, steps, struct = kernel("hopper", "recurrent"), 50, jax.ShapeDtypeStruct
    if not module.applies(cell, hidden, dtype):
        raise ValueError(f"{cell}, {hidden} units, {dtype}: does not apply")
    columns, several = module.GATES[cell] * hidden, 2 if cell == "lstm" else 1
    wide, single = struct((batch, hidden), "float32"), struct((steps, batch, hidden), "float32")
    r, gates = struct((hidden, columns), dtype), struct((steps, batch, columns), "float32")
    name = f"persistent {cell} {direction} {batch}x{hidden} {dtype}"
    if direction == "forward":
        return Case(name, partial(module.forward, cell), ([wide] * several, r, gates))
    arguments = r, gates, [single] * several, single, wide
    return Case(name, partial(module.backward, cell), arguments)


def _lstm(batch: int, hidden: int, dtype: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Returns both states, the recurrent matrix and the input's part of the gates of a step."""
    struct = jax.ShapeDtypeStruct
    h, r = struct((batch, hidden), dtype), struct((hidden, 4 * hidden), dtype)
    return h, struct(h.shape, "float32"), r, struct((batch, 4 * hidden), "float32")


def hopper_cases() -> Iterator[Case]:
    """Yields Hopper's kernels: every epilogue and type, and the limits of ``applies``."""
    case = partial(convolution_case, "hopper")
    usual = (8, 28, 28)
    for dtype, geometry, epilogue, width in itertools.product(
        ("bfloat16", "float16"), (ONE, THREE), (Epilogue(), BIAS, FULL), (64, 256)
    ):
        yield case(usual, (width, width), geometry, epilogue, dtype)
    for activation in sorted(set(ACTIVATIONS) - {"relu"}):
        epilogue = dataclasses.replace(FULL, activation=activation)
        yield case(usual, (256, 256), THREE, epilogue, "bfloat16")
    for size, channels, geometry in (
        ((1, 1, 1), (64, 64), ONE),  # the smallest
        ((13, 13, 7), (192, 320), UNEVEN),  # multiples of 64 only, a padded batch
        ((8, 28, 28), (64, 192), FIVE),
        ((8, 12, 12), (64, 64), SEVEN),
        ((32, 7, 7), (4096, 2048), THREE),  # many products
        ((256, 224, 224), (64, 64), THREE),  # 50,176 tiles
        ((256, 56, 56), (64, 256), ONE),
        ((256, 28, 28), (256, 256), THREE),  # the images of a tile at one or two pixels
    ):
        yield case(size, channels, geometry, FULL, "bfloat16")
    for geometry, stride, gradient in (
        (THREE, 2, False),
        (ONE, 2, False),
        (THREE, 1, True),
        (THREE, 2, True),
        (ONE, 2, True),
        (SEVEN, 3, True),
    ):
        for dtype, width, epilogue in (("bfloat16", 256, FULL), ("float16", 64, Epilogue())):
            yield case((32, 14, 14), (width, width), geometry, epilogue, dtype, stride, gradient)
    for geometry, epilogue, size in itertools.product(
        (ONE, THREE), (Epilogue(), FULL), (usual, (256, 28, 28))
    ):
        yield case(size, (256, 256), geometry, epilogue, "float32")
    for stride in (1, 2):
        yield case(usual, (128, 192), THREE, FULL, "float32", stride, True)
    for dtype, geometry, width in itertools.product(
        ("bfloat16", "float16"), (ONE, THREE), (64, 256)
    ):
        yield weight_case(usual, (width, width), geometry, dtype)
    for number in range(1, 10):  # every size of a tile, with up to three numbers of pieces
        yield weight_case((32, 28, 28), (256, 256), THREE, "bfloat16", number=number)
    for size, channels, geometry, stride in (
        ((9, 1, 1), (64, 64), ONE, 1),  # the smallest
        ((8, 1, 1), (64, 64), ((3, 3), ((0, 0), (0, 0))), 2),  # a single result
        ((13, 13, 7), (192, 320), UNEVEN, 1),  # multiples of 64 only, a padded batch
        ((32, 14, 14), (256, 256), ONE, 2),
        ((32, 14, 14), (256, 256), THREE, 2),
        ((32, 14, 14), (64, 128), SEVEN, 3),
        ((32, 7, 7), (4096, 2048), THREE, 1),  # the kernel writes the result itself
        ((256, 224, 224), (64, 64), THREE, 1),
        ((256, 56, 56), (64, 256), ONE, 1),
    ):
        yield weight_case(size, channels, geometry, "bfloat16", stride)
    for batch, hidden in ((64, 64), (64, 1024), (128, 2048), (64, 8192)):
        yield layer_case(batch, hidden, 50)
    yield layer_case(192, 320, 50, "float16")
    passes: tuple[Pass, ...] = ("forward", "backward")
    for cell, direction in itertools.product(("lstm", "gru"), passes):
        for batch, hidden in ((64, 32), (64, 64), (192, 96), (64, 128), (16_384, 128)):
            yield persistent_case(cell, direction, batch, hidden)
        yield persistent_case(cell, direction, 64, 128, "float16")


def tpu_cases() -> Iterator[Case]:
    """Yields the TPU's kernels: every epilogue and type, and the largest sizes that apply."""
    case, module = partial(convolution_case, "tpu"), kernel("tpu", "convolution")
    for dtype, geometry, epilogue in itertools.product(
        ("bfloat16", "float32"), (ONE, THREE, UNEVEN), (Epilogue(), BIAS, FULL)
    ):
        yield case((8, 14, 14), (128, 128), geometry, epilogue, dtype)
    for activation in sorted(set(ACTIVATIONS) - {"relu"}):
        epilogue = dataclasses.replace(FULL, activation=activation)
        yield case((8, 14, 14), (128, 256), THREE, epilogue, "bfloat16")
    for dtype, geometry, width in itertools.product(
        ("bfloat16", "float32"), (ONE, THREE, FIVE, SEVEN, WIDE, HIGH), (128, 512, 2048, 8192)
    ):
        sides = [
            side
            for side in range(1, 129)
            if module.applies(Rows(2, side, side, *geometry), width, 128, dtype)
        ]
        if sides:
            yield case((2, sides[-1], sides[-1]), (width, 128), geometry, FULL, dtype)
    lstm = kernel("tpu", "lstm")
    for dtype in ("bfloat16", "float32"):
        widest = max(h for h in range(128, 16384, 128) if lstm.applies(h, dtype))
        for batch, hidden in itertools.product((16, 512, 1008), (128, 2048, 4096, widest)):
            if lstm.applies(hidden, dtype):
                yield step_case(batch, hidden, dtype, saves=True)
        yield step_case(512, widest, dtype, saves=False)


DIRECTIONS = {  # images, side, channels, features, taps, stride
    "3x3 28x28 256": (32, 28, 256, 256, 3, 1),
    "3x3 56x56 64": (32, 56, 64, 64, 3, 1),
    "3x3 7x7 512": (32, 7, 512, 512, 3, 1),
    "1x1 28x28 256": (32, 28, 256, 256, 1, 1),
    "3x3 56x56 128, stride 2": (32, 56, 128, 128, 3, 2),
    "1x1 56x56 256>512, stride 2": (32, 56, 256, 512, 1, 2),
    "3x3 28x28 256, batch 36": (36, 28, 256, 256, 3, 1),
}


def direction_problem(direction: Direction, shape: str) -> ConvProblem:
    """Returns one direction of a convolution in bfloat16; ``shape`` is in :data:`DIRECTIONS`."""
    images, side, channels, features, taps, stride = DIRECTIONS[shape]
    edge = (taps // 2, taps // 2)
    sizes = (images, side, side, channels), (taps, taps, channels, features)
    return ConvProblem(direction, *sizes, (stride, stride), (edge, edge), (1, 1), 1, "bfloat16")


def direction_case(direction: Direction, shape: str, solver: str) -> Case:
    """Returns the case of one direction of a convolution in bfloat16, without an epilogue.

    Args:
      direction: ``"forward"``, ``"data"`` or ``"weight"``.
      shape: a key of :data:`DIRECTIONS`.
      solver: the name of a solver.
    """
    problem, chosen = direction_problem(direction, shape), CONVOLUTIONS[solver]
    arguments = (jax.ShapeDtypeStruct(s, problem.dtype) for s in problem.argument_shapes)
    run = chosen.build(problem, chosen.configs(problem)[0])
    return Case(f"{direction} {shape} {solver}", run, tuple(arguments))


TAILS: dict[str, list[Operation]] = {
    "CBA": [Bias(), Activation()],
    "CBRA": [Bias(), Residual(), Activation()],
    "CBNA": [Bias(), BatchNorm(), Activation()],
    "CBNRA": [Bias(), BatchNorm(), Residual(), Activation()],
}
SHAPES = {  # images, side, channels, taps
    "3x3 28x28 256": (32, 28, 256, 3),
    "3x3 56x56 64": (32, 56, 64, 3),
    "3x3 7x7 512": (32, 7, 512, 3),
    "1x1 28x28 256": (32, 28, 256, 1),
}


def plan_case(combination: str, shape: str, dtype: str, solver: str) -> Case:
    """Returns the case of a fusion plan.

    Args:
      combination: a key of :data:`TAILS`.
      shape: a key of :data:`SHAPES`.
      dtype: name of the element type.
      solver: a key of ``fusion.solvers.SOLVERS``.
    """
    images, side, width, taps = SHAPES[shape]
    edge = (taps // 2, taps // 2)
    plan = FusionPlan([Convolution(padding=(edge, edge)), *TAILS[combination]])
    problem = FusionProblem((images, side, side, width), (taps, taps, width, width), dtype)
    names = plan.arguments(problem)
    arguments = [
        jax.ShapeDtypeStruct(s, dtype if n in ("x", "w", "residual") else "float32")
        for n, s in names.items()
    ]

    def run(*arrays: Any) -> Any:
        return SOLVERS[solver].run(plan.operations, dict(zip(names, arrays, strict=True)))

    return Case(f"{combination} {shape} {dtype} {solver}", run, tuple(arguments))
