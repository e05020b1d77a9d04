"""The lists of convolutions that kernels.py times, and the work of a convolution.

A line of DeepBench's training list is ``name WxH channels>features kernel width x height p(adding)
s(tride) : batches``.
"""

import math
import re
from collections.abc import Iterator

from jaxatr.kernels.ops.convolution.problem import ConvProblem

DEEPBENCH = """
speech 700x161 1>32 20x5 p0 s2 : 4 8 16 32
speech 341x79 32>32 10x5 p0 s2 : 4 8 16 32
speech 700x161 1>64 5x5 p1 s2 : 16
speech 350x80 64>64 3x3 p1 s1 : 16
speech 350x80 64>128 5x5 p1 s2 : 16
speech 175x40 128>128 3x3 p1 s1 : 16
speech 175x40 128>256 5x5 p1 s2 : 16
speech 84x20 256>256 3x3 p1 s1 : 16
speech 84x20 256>512 5x5 p1 s2 : 16
speech 42x10 512>512 3x3 p1 s1 : 16
ocr 480x48 1>16 3x3 p1 s1 : 16
ocr 240x24 16>32 3x3 p1 s1 : 16
ocr 120x12 32>64 3x3 p1 s1 : 16
ocr 60x6 64>128 3x3 p1 s1 : 16
face 108x108 3>64 3x3 p1 s2 : 8
face 54x54 64>64 3x3 p1 s1 : 8
face 27x27 128>128 3x3 p1 s1 : 8
face 14x14 128>256 3x3 p1 s1 : 8
face 7x7 256>512 3x3 p1 s1 : 8
vgg 224x224 3>64 3x3 p1 s1 : 8 16
vgg 112x112 64>128 3x3 p1 s1 : 8 16
vgg 56x56 128>256 3x3 p1 s1 : 8 16
vgg 28x28 256>512 3x3 p1 s1 : 8 16
vgg 14x14 512>512 3x3 p1 s1 : 8 16
vgg 7x7 512>512 3x3 p1 s1 : 8 16
googlenet 224x224 3>64 7x7 p3 s2 : 16
googlenet 28x28 192>32 5x5 p2 s1 : 16
googlenet 28x28 192>64 1x1 p0 s1 : 16
googlenet 14x14 512>48 5x5 p2 s1 : 16
googlenet 14x14 512>192 1x1 p0 s1 : 16
googlenet 7x7 832>256 1x1 p0 s1 : 16
googlenet 7x7 832>128 5x5 p2 s1 : 16
resnet 56x56 64>64 3x3 p1 s1 : 8 16
resnet 28x28 128>128 3x3 p1 s1 : 8 16
resnet 14x14 256>256 3x3 p1 s1 : 8 16
resnet 112x112 64>64 1x1 p0 s1 : 8 16
resnet 56x56 64>256 1x1 p0 s1 : 8 16
resnet 56x56 256>64 1x1 p0 s1 : 8 16
resnet 28x28 128>512 1x1 p0 s1 : 8 16
resnet 28x28 512>128 1x1 p0 s1 : 8 16
resnet 14x14 256>256 1x1 p0 s1 : 8 16
resnet 14x14 256>1024 1x1 p0 s1 : 8 16
resnet 14x14 1024>256 1x1 p0 s1 : 8 16
resnet 7x7 512>512 1x1 p0 s1 : 8 16
resnet 7x7 512>2048 1x1 p0 s1 : 8 16
resnet 7x7 2048>512 1x1 p0 s1 : 8 16
resnet 56x56 64>256 1x1 p0 s2 : 8 16
resnet 56x56 256>128 1x1 p0 s2 : 8 16
resnet 28x28 128>512 1x1 p0 s2 : 8 16
resnet 28x28 512>256 1x1 p0 s2 : 8 16
resnet 28x28 512>1024 1x1 p0 s2 : 8 16
resnet 14x14 256>1024 1x1 p0 s2 : 8 16
resnet 14x14 1024>512 1x1 p0 s2 : 8 16
resnet 14x14 1024>2048 1x1 p0 s2 : 8 16
"""

_LINE = re.compile(r"(\w+) (\d+)x(\d+) (\d+)>(\d+) (\d+)x(\d+) p(\d+) s(\d+) : ([\d ]+)")


def deepbench(dtype: str = "float32") -> Iterator[tuple[str, ConvProblem]]:
    """Yields a name and the forward problem of each line and batch."""
    for line in DEEPBENCH.strip().splitlines():
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ValueError(f"not a line of the list: {line}")
        name, *numbers, batches = matched.groups()
        width, height, channels, features, columns, rows, pad, stride = map(int, numbers)
        for batch in map(int, batches.split()):
            image, kernel = (batch, height, width, channels), (rows, columns, channels, features)
            yield name, _problem(image, kernel, stride, pad, dtype)


def resnet(size: int, batch: int, dtype: str = "float32") -> Iterator[tuple[str, ConvProblem]]:
    """Yields the distinct convolutions of ResNet-18 and ResNet-50 at ``size`` pixels."""
    yield "stem", _problem((batch, size, size, 3), (7, 7, 3, 64), 2, 3, dtype)
    side = -(-size // 4)
    seen = set()
    for stage in range(4):
        narrow, wide = 64 * 2**stage, 256 * 2**stage
        into18, into50 = (64, 64) if stage == 0 else (narrow // 2, wide // 2)
        stride = 1 if stage == 0 else 2
        after = -(-side // stride)
        layers = [
            ("18", side, 3, into18, narrow, stride),
            ("18", after, 3, narrow, narrow, 1),
            ("50", side, 1, into50, narrow, 1),
            ("50", side, 3, narrow, narrow, stride),
            ("50", after, 1, narrow, wide, 1),
            ("50", after, 1, wide, narrow, 1),
            ("50", side, 1, into50, wide, stride),
        ]
        if stage:
            layers.append(("18", side, 1, into18, narrow, stride))
        for depth, at, taps, channels, features, step in layers:
            image, kernel = (batch, at, at, channels), (taps, taps, channels, features)
            problem = _problem(image, kernel, step, taps // 2, dtype)
            if problem not in seen:
                seen.add(problem)
                yield f"resnet{depth} stage {stage + 1}", problem
        side = after


def size(problem: ConvProblem) -> int:
    """Returns the bytes of arguments and result."""
    shapes = (problem.x_shape, problem.w_shape, problem.y_shape)
    return sum(problem.bytes(shape) for shape in shapes)


def flops(problem: ConvProblem) -> int:
    """Returns the floating-point operations, which are the same in every direction."""
    return 2 * math.prod(problem.y_shape) * math.prod(problem.w_shape[:3])


def _problem(image, kernel, stride: int, pad: int, dtype: str) -> ConvProblem:
    edges = ((pad, pad), (pad, pad))
    return ConvProblem("forward", image, kernel, (stride, stride), edges, (1, 1), 1, dtype)
