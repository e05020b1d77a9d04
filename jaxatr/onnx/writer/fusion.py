"""Fuses groups of nodes into single operators.

The original nodes stay in the graph until they are pruned as unused.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxatr.onnx.writer.cleanup import prune
from jaxatr.onnx.writer.dimensions import groups, is_static, reshaping
from jaxatr.onnx.writer.graph import Graph, Node

_REDUCTIONS = {f"Reduce{kind}" for kind in ("L1", "Max", "Mean", "Min", "Prod", "Sum")}
_RESHAPES = {"Reshape", "Squeeze", "Unsqueeze"}


class Finder:
    """A graph with indices for pattern matching.

    Attributes:
      graph: the graph; new nodes are added at the position of the current one.
      makers: the node that computes each value.
      uses: number of times that each value is read.
      readers: the nodes that read each value.
    """

    def __init__(self, graph: Graph):
        """Indexes the nodes of a graph."""
        self.graph, self.makers, self.uses = graph, graph.producers(), graph.uses()
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.reads():
                self.readers.setdefault(name, []).append(node)

    def maker(self, name: str, *ops: str) -> Node | None:
        """Returns the node that computes a value if it has one of the operators, else None."""
        node = self.makers.get(name)
        return node if node is not None and node.op in ops else None

    def only_reader(self, name: str) -> Node | None:
        """Returns the node that reads a value, if nothing else does."""
        readers = self.readers.get(name)
        return readers[0] if readers and self.uses[name] == 1 else None

    def number(self, name: str) -> float | None:
        """Returns the number of an initializer with one element, else None."""
        array = self.graph.initializers.get(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def vector(self, name: str) -> np.ndarray | None:
        """Returns an initializer if it has one axis, else None."""
        array = self.graph.initializers.get(name)
        return array if array is not None and array.ndim == 1 else None

    def shape(self, name: str) -> tuple[Any, ...]:
        """Returns the shape of a value."""
        return self.graph.types[name].shape

    def is_float(self, name: str) -> bool:
        """Returns whether a value has a float type, which all fused operators support."""
        return self.graph.types[name].dtype.kind == "f"


Pattern = Callable[[Finder, Node], bool]


def rewrite_patterns(graph: Graph) -> None:
    """Applies all patterns to a graph."""
    for pattern in (
        one_reshape,
        kept_axes,
        reduced_before_reshape,
        one_reshape,
        kept_axes,
        mean,
        no_scaling,
        clip,
        max_pool,
        conv_bias,
        batch_norm,
        batch_norm_without_bias,
        gemm,
    ):
        rewrite(graph, pattern)
        prune(graph)


def rewrite(graph: Graph, pattern: Pattern) -> None:
    """Applies a pattern to the nodes of a graph and its bodies."""
    graph.bodies_first(lambda part: _rewrite(part, pattern))


def _rewrite(graph: Graph, pattern: Pattern) -> None:
    finder = Finder(graph)
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        graph.name_scope = node.name.rpartition("/")[0]
        before = len(graph.nodes)
        if not pattern(finder, node):
            graph.nodes.append(node)
        finder.makers |= {name: new for new in graph.nodes[before:] for name in new.outputs}


def either_way(node: Node) -> Iterator[tuple[str, str]]:
    """Yields the two inputs of a node, and then the reverse."""
    first, second = node.inputs
    yield first, second
    yield second, first


def one_reshape(find: Finder, node: Node) -> bool:
    """Fuses two reshapes into one."""
    if node.op not in _RESHAPES or len(node.inputs) > 1:
        return False
    inner = find.maker(node.inputs[0], *_RESHAPES)
    if inner is None:
        return False
    source, target = inner.inputs[0], node.outputs[0]
    if find.shape(source) == find.shape(target):
        find.graph.put("Identity", [source], target)
        return True
    reshape = reshaping(find.shape(source), find.shape(target))
    if reshape is None:
        return False
    find.graph.put(reshape[0], [source], target, **reshape[1])
    return True


def kept_axes(find: Finder, node: Node) -> bool:
    """Fuses a reduction and the ``Unsqueeze`` of its axes into a reduction with ``keepdims``."""
    inner = find.maker(node.inputs[0], *_REDUCTIONS) if node.op == "Unsqueeze" else None
    if inner is None or inner.attributes["keepdims"]:
        return False
    if sorted(inner.attributes["axes"]) != node.attributes["axes"]:
        return False
    find.graph.put(inner.op, inner.inputs, node.outputs[0], **inner.attributes | {"keepdims": 1})
    return True


def reduced_before_reshape(find: Finder, node: Node) -> bool:
    """Moves a reduction before a reshape, to the axes that the reduced axes come from."""
    inner = find.maker(node.inputs[0], *_RESHAPES) if node.op in _REDUCTIONS else None
    if inner is None:
        return False
    source, target, axes = inner.inputs[0], node.outputs[0], set(node.attributes["axes"])
    before = find.shape(source)
    parts = groups(before, find.shape(node.inputs[0]))
    if parts is None or any(axes & set(right) not in (set(), set(right)) for _, right in parts):
        return False
    reduced = [axis for left, right in parts if axes & set(right) for axis in left]
    left = tuple(size for axis, size in enumerate(before) if axis not in reduced)
    reshape = reshaping(left, find.shape(target))
    if not reduced or reshape is None:
        return False
    if left == find.shape(target):
        find.graph.put(node.op, [source], target, axes=reduced, keepdims=0)
        return True
    inside = find.graph.add(node.op, [source], left, axes=reduced, keepdims=0)
    find.graph.put(reshape[0], [inside], target, **reshape[1])
    return True


def mean(find: Finder, node: Node) -> bool:
    """Fuses a sum and the division by its number of elements into ``ReduceMean``."""
    if node.op not in ("Div", "Mul") or not find.is_float(node.outputs[0]):
        return False
    total = find.maker(node.inputs[0], "ReduceSum")
    number = find.number(node.inputs[1])
    if total is None or not number or find.shape(total.outputs[0]) != find.shape(node.outputs[0]):
        return False
    shape, axes = find.shape(total.inputs[0]), total.attributes["axes"]
    sizes = tuple(shape[axis] for axis in axes)
    if not is_static(sizes):
        return False
    count = math.prod(sizes)
    share = np.asarray(1 / count if count else 0, find.graph.types[total.inputs[0]].dtype)
    if number != (count if node.op == "Div" else share):
        return False
    find.graph.put("ReduceMean", total.inputs, node.outputs[0], **total.attributes)
    return True


def no_scaling(find: Finder, node: Node) -> bool:
    """Removes the scaling of ``AveragePool`` by the size of its window and the division by it."""
    inner = find.maker(node.inputs[0], "Mul") if node.op == "Div" else None
    pool = inner and find.maker(inner.inputs[0], "AveragePool", "Transpose")
    if pool and pool.op == "Transpose":
        pool = find.maker(pool.inputs[0], "AveragePool")
    if not inner or not pool:
        return False
    number = find.number(inner.inputs[1])
    if not number or number != find.number(node.inputs[1]):
        return False
    find.graph.put("Identity", [inner.inputs[0]], node.outputs[0])
    return True


def clip(find: Finder, node: Node) -> bool:
    """Fuses ``maximum(x, least)``, ``minimum(x, most)``, or both into ``Clip``."""
    if node.op not in ("Max", "Min") or not find.is_float(node.outputs[0]):
        return False
    for x, bound in either_way(node):
        number = find.number(bound)
        if number is None or math.isnan(number) or find.shape(x) != find.shape(node.outputs[0]):
            continue
        dtype, inner = find.graph.types[x].dtype, find.maker(x, "Clip")
        # Without one of the bounds, ONNX makes infinite numbers finite.
        bounds = (number, np.inf) if node.op == "Max" else (-np.inf, number)
        least, most = (find.graph.constant(np.asarray(limit, dtype)) for limit in bounds)
        if node.op == "Min" and inner is not None and find.number(inner.inputs[2]) == np.inf:
            x, least, _ = inner.inputs
        find.graph.put("Clip", [x, least, most], node.outputs[0])
        return True
    return False


def conv_bias(find: Finder, node: Node) -> bool:
    """Fuses the addition of a vector to the channels of a convolution into its bias."""
    if node.op != "Add":
        return False
    for product, bias in either_way(node):
        moved = find.maker(product, "Transpose")
        conv = find.maker(moved.inputs[0], "Conv", "ConvTranspose") if moved is not None else None
        if conv is None or moved is None or len(conv.inputs) != 2 or find.uses[product] > 1:
            continue
        order, vector = moved.attributes["perm"], find.vector(bias)
        channels = find.shape(conv.outputs[0])[1]
        if find.uses[conv.outputs[0]] > 1 or vector is None or len(vector) != channels:
            continue
        if order[-1] != 1:  # the channels are last
            continue
        inside = find.graph.add(
            conv.op, [*conv.inputs, bias], find.shape(conv.outputs[0]), **conv.attributes
        )
        find.graph.put("Transpose", [inside], node.outputs[0], perm=order)
        return True
    return False


def batch_norm(find: Finder, node: Node) -> bool:
    """Fuses ``(x - mean) * (1 / sqrt(var + eps) * scale) + bias`` along the last axis."""
    if node.op != "Add":
        return False
    for scaled, bias in either_way(node):
        inner, output = find.maker(scaled, "Mul"), node.outputs[0]
        if inner and find.vector(bias) is not None and _normalized(find, inner, bias, output):
            return True
    return False


def batch_norm_without_bias(find: Finder, node: Node) -> bool:
    """Fuses ``(x - mean) * (1 / sqrt(var + eps) * scale)`` along the last axis."""
    return node.op == "Mul" and _normalized(find, node, "", node.outputs[0])


def _normalized(find: Finder, node: Node, bias: str, output: str) -> bool:
    for centred, factor in either_way(node):
        minus = find.maker(centred, "Sub")
        scale, root = "", find.maker(factor, "Reciprocal")
        if outer := find.maker(factor, "Mul"):
            for inverse, other in either_way(outer):
                if find.maker(inverse, "Reciprocal") and find.vector(other) is not None:
                    scale, root = other, find.maker(inverse, "Reciprocal")
        square = find.maker(root.inputs[0], "Sqrt") if root is not None else None
        plus = find.maker(square.inputs[0], "Add") if square is not None else None
        if minus is None or plus is None:
            continue
        (x, average), (variance, epsilon) = minus.inputs, plus.inputs
        vectors = [find.vector(name) for name in (average, variance)]
        small, shape = find.number(epsilon), find.shape(x)
        if (
            small is None
            or not 2 <= len(shape) == len(find.shape(output))
            or any(v is None or len(v) != shape[-1] for v in vectors)
        ):
            continue
        _put_batch_norm(find, x, [scale, bias, average, variance], small, output)
        return True
    return False


def _put_batch_norm(find: Finder, x: str, parts: list[str], epsilon: float, output: str) -> None:
    graph, shape = find.graph, find.shape(x)
    dtype, rank = graph.types[x].dtype, len(shape)
    for index, missing in enumerate((1, 0)):
        if not parts[index]:
            parts[index] = graph.constant(np.full(shape[-1], missing, dtype))
    if rank == 2:
        graph.put("BatchNormalization", [x, *parts], output, epsilon=epsilon)
        return
    order = [0, rank - 1, *range(1, rank - 1)]
    moved = graph.add("Transpose", [x], tuple(shape[axis] for axis in order), perm=order)
    inside = graph.add(
        "BatchNormalization", [moved, *parts], graph.types[moved].shape, epsilon=epsilon
    )
    graph.put("Transpose", [inside], output, perm=[0, *range(2, rank), 1])


def gemm(find: Finder, node: Node) -> bool:
    """Fuses a matrix product and the addition of a vector to each row into ``Gemm``."""
    if node.op != "Add" or not find.is_float(node.outputs[0]):
        return False
    for product, bias in either_way(node):
        inner, vector = find.maker(product, "MatMul"), find.vector(bias)
        if inner is None or vector is None or find.uses[product] > 1:
            continue
        if all(len(find.shape(name)) == 2 for name in inner.inputs):
            find.graph.put("Gemm", [*inner.inputs, bias], node.outputs[0])
            return True
    return False


def max_pool(find: Finder, node: Node) -> bool:
    """Fuses the maximum over strided slices, one for each tap of a window, into ``MaxPool``."""
    if node.op != "Max" or not find.is_float(node.outputs[0]):
        return False
    if [reader.op for reader in find.readers.get(node.outputs[0], ())] == ["Max"]:
        return False  # part of a larger window
    taps = _taps(find, node)
    window = _window(find, taps) if len(taps) > 1 else None
    if window is None:
        return False
    axes, source, attributes = window
    source, pads = _unpadded(find, source, axes)
    shape = find.shape(source)
    order = [*(axis for axis in range(len(shape)) if axis not in axes), *axes]
    moved = find.graph.add("Transpose", [source], tuple(shape[a] for a in order), perm=order)
    target = find.shape(node.outputs[0])
    inside = find.graph.add(
        "MaxPool", [moved], tuple(target[axis] for axis in order), pads=pads, **attributes
    )
    back = np.argsort(order).tolist()
    find.graph.put("Transpose", [inside], node.outputs[0], perm=back)
    return True


def _taps(find: Finder, node: Node) -> list[Node]:
    """Returns the slices under a tree of maxima, or an empty list if it has other operands."""
    slices: list[Node] = []
    for name in node.inputs:
        inner = find.maker(name, "Max", "Slice")
        parts = [] if inner is None else [inner] if inner.op == "Slice" else _taps(find, inner)
        if not parts:
            return []
        slices += parts
    return slices


def _window(find: Finder, taps: list[Node]) -> tuple[list[int], str, dict[str, Any]] | None:
    """Returns axes, source and attributes of the window with these slices as taps, else None."""
    first = taps[0]
    if "axes" not in first.attributes:
        return None
    source, axes, steps = first.inputs[0], first.attributes["axes"], first.attributes["steps"]
    if len(find.shape(source)) - len(axes) != 2 or min(steps) < 1:
        return None
    starts = {tuple(tap.attributes.get("starts", ())) for tap in taps}
    places = [sorted({start[i] for start in starts if i < len(start)}) for i in range(len(axes))]
    sizes = [find.shape(source)[axis] for axis in axes]
    results = [find.shape(first.outputs[0])[axis] for axis in axes]
    complete = len(starts) == len(taps) == math.prod(map(len, places))
    same = all(
        tap.inputs == [source]
        and tap.attributes["axes"] == axes
        and tap.attributes["steps"] == steps
        and find.shape(tap.outputs[0]) == find.shape(first.outputs[0])
        for tap in taps
    )
    dilations = [p[1] - p[0] if len(p) > 1 else 1 for p in places]
    if not complete or not same or not is_static(tuple(sizes)):
        return None
    for place, dilation, size, step, count in zip(
        places, dilations, sizes, steps, results, strict=True
    ):
        reach = (len(place) - 1) * dilation
        if place != list(range(0, reach + 1, dilation)) or (size - reach - 1) // step + 1 != count:
            return None
    kernel = [len(place) for place in places]
    return axes, source, {"kernel_shape": kernel, "strides": steps, "dilations": dilations}


def _unpadded(find: Finder, source: str, axes: list[int]) -> tuple[str, list[int]]:
    """Undoes a padding of the source with −∞ along these axes alone.

    Returns:
      The source before the padding, and the amounts; zeros if there is no such padding.
    """
    pad = find.maker(source, "Pad")
    if pad is not None and len(pad.inputs) == 3 and find.number(pad.inputs[2]) == -math.inf:
        pads = Counter(dict(enumerate(pad.attributes["pads"])))
        rank = len(find.shape(source))
        chosen = [axis + side * rank for side in (0, 1) for axis in axes]
        rest = [amount for place, amount in pads.items() if place not in chosen]
        if not any(rest) and all(pads[place] >= 0 for place in chosen):
            return pad.inputs[0], [pads[place] for place in chosen]
    return source, [0] * 2 * len(axes)
