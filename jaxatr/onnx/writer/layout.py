"""Removes transpositions from a graph.

Networks in jax are channels-last, while ONNX's operators are channels-first, so each convolution
is translated with a transposition before and after it. A pass through the graph defers these: it
records a value as a view, with permuted axes, of another value. Operators that work in any order of
axes are applied to that other value; only the others get a transposed input. An image that
is normalised first, with constants, is transposed before that: engines broadcast a few numbers
along the last axis more slowly than along the first one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from jaxatr.onnx.writer.dimensions import groups, reshaping, stripped, weight
from jaxatr.onnx.writer.fusion import Finder
from jaxatr.onnx.writer.graph import Graph, Node, Shape

_POINTWISE = set(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast "
    "Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual Identity IsInf IsNaN Less "
    "LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal Relu Round Sigmoid Sign Sin Sinh "
    "Sqrt Sub Tan Tanh Where Xor".split()
)
_MOVING = {"Concat", "Gather", "Pad", "Resize", "Slice"}  # crop, fill up or resample images
Order = tuple[int, ...]


def settle_layouts(graph: Graph) -> None:
    """Removes the transpositions that are not needed."""
    graph.bodies_first(lambda part: _Pass(part).run())


class _Pass:
    """One pass through one graph.

    ``views`` contains the values that exist only with permuted axes: the value ``name`` is
    ``numpy.transpose(held, order)`` with ``held, order = views[name]``.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.views: dict[str, tuple[str, Order]] = {}
        self.known: dict[tuple[str, Order], str] = {}  # existing transpositions
        self.names: dict[str, str] = {}  # new value to the one that it replaces

    def run(self) -> None:
        images = self._images()
        nodes, self.graph.nodes = self.graph.nodes, []
        for node in nodes:
            self.graph.name_scope = node.name.rpartition("/")[0]
            if id(node) in images:
                self._transpose_first(node, *images[id(node)])
            handler = _pointwise if node.op in _POINTWISE else _HANDLERS.get(node.op)
            if handler is None or not handler(self, node):
                self.keep(node)
        for name in self.graph.outputs:
            if name in self.views:
                self.graph.put("Identity", [self.plain(name)], name)
        self._rename()

    def _images(self) -> dict[int, tuple[str, Order]]:
        """Finds values that only pointwise operators with constants separate from a transposition.

        Returns:
          The value and the order of axes of the transposition, by the first operator's id.
        """
        find = Finder(self.graph)
        found: dict[int, tuple[str, Order]] = {}
        moving = {*_MOVING, "Transpose"}
        moved = [node.outputs[0] for node in self.graph.nodes if node.op in moving]
        for name in (*self.graph.inputs, *moved):
            for first in find.readers.get(name, ()):
                node, source = first, name
                while node is not None and self._is_pointwise_of(node, source):
                    source = node.outputs[0]
                    node = find.only_reader(source)
                if node is not None and node is not first and node.op == "Transpose":
                    found[id(first)] = name, tuple(node.attributes["perm"])
        return found

    def _transpose_first(self, node: Node, name: str, order: Order) -> None:
        """Lets a node read a transposed value, if it is an image that has its axes in order."""
        held, present = self.held(name)
        maker = self.graph.producers().get(held)
        if not _is_plain(present) or (maker is not None and maker.op not in _MOVING):
            return
        view = self.graph.declare(name, *self.graph.types[name])
        self.views[view] = self.transposed(held, order), _inverse(order)
        node.rename({name: view})

    def _is_pointwise_of(self, node: Node, source: str) -> bool:
        """Returns whether a node combines each element of a value with constants."""
        others = [name for name in node.inputs if name != source]
        return (
            node.op in _POINTWISE
            and self.shape(node.outputs[0]) == self.shape(source)
            and all(name in self.graph.initializers for name in others)
        )

    def keep(self, node: Node) -> None:
        """Keeps a node that depends on the order of the axes."""
        node.rename({name: self.plain(name) for name in node.reads() if name in self.views})
        self.graph.nodes.append(node)

    def shape(self, name: str) -> Shape:
        """Returns the shape of a value in its original order."""
        return self.graph.types[name].shape

    def held(self, name: str) -> tuple[str, Order]:
        """Returns the value that a value is a view of (possibly itself), and the order of axes."""
        return self.views.get(name, (name, tuple(range(len(self.shape(name))))))

    def plain(self, name: str) -> str:
        """Returns the name of a value with its axes in the original order."""
        return self.transposed(*self.held(name))

    def transposed(self, name: str, order: Sequence[int]) -> str:
        """Returns the name of a value with its axes in another order."""
        order = tuple(order)
        if _is_plain(order):
            return name
        if (name, order) not in self.known:
            shape = tuple(self.shape(name)[axis] for axis in order)
            self.known[name, order] = self.graph.add("Transpose", [name], shape, perm=list(order))
        return self.known[name, order]

    def put(self, node: Node, inputs: list[str], order: Order, **changed: object) -> bool:
        """Replaces a node by one that computes its output in another order of axes."""
        (output,) = node.outputs
        target = output
        if not _is_plain(order):
            shape, dtype = self.graph.types[output]
            target = self.graph.declare(
                output, tuple(shape[axis] for axis in _inverse(order)), dtype
            )
            self.views[output], self.names[target] = (target, order), output
        attributes = node.attributes | changed
        self.graph.nodes.append(Node(node.op, inputs, [target], attributes, node.name))
        return True

    def common(self, names: Sequence[str]) -> Order:
        """Returns the order in which most elements of values of equal rank are stored."""
        counts: dict[Order, int] = {}
        for name in names:
            order = self.held(name)[1]
            counts[order] = counts.get(order, 0) + weight(self.shape(name))
        return max(counts, key=lambda order: (counts[order], not _is_plain(order)))

    def aligned(self, name: str, order: Order) -> str:
        """Returns the name of a value stored in the given order, up to broadcasting."""
        shape, inverse = self.shape(name), _inverse(order)
        if stripped(shape) == ():
            return self.plain(name)
        if len(shape) == len(order):
            held, present = self.held(name)
            return self.transposed(held, [present[axis] for axis in inverse])
        sizes = (1,) * (len(order) - len(shape)) + shape
        moved = stripped(tuple(sizes[axis] for axis in inverse))
        axes = [axis for axis in inverse if sizes[axis] != 1]
        if axes == sorted(axes) and reshaping(shape, moved) is not None:  # only axes of size 1 move
            return self._reshaped(self.plain(name), moved)
        return self.transposed(self._reshaped(self.plain(name), sizes), inverse)

    def _reshaped(self, name: str, shape: Shape) -> str:
        graph, before = self.graph, self.shape(name)
        if before == shape:
            return name
        if name in graph.initializers and name not in graph.weights:
            return graph.constant(graph.initializers[name].reshape(shape))
        op, attributes = reshaping(before, shape) or ("", {})
        return graph.add(op, [name], shape, **attributes)

    def _rename(self) -> None:
        """Gives new values the names of the values that they replace, if these no longer exist."""
        producers = self.graph.producers()
        names = {new: old for new, old in self.names.items() if old not in producers}
        for new, old in names.items():
            self.graph.types[old] = self.graph.types[new]
        for node in self.graph.nodes:
            node.rename(names)
            node.outputs = [names.get(name, name) for name in node.outputs]


def _inverse(order: Order) -> Order:
    return tuple(np.argsort(order).tolist())


def _is_plain(order: Order) -> bool:
    return order == tuple(range(len(order)))


# Handlers of operators that can work on permuted inputs. Each returns whether it replaced the node.


def _pointwise(run: _Pass, node: Node) -> bool:
    rank = len(run.shape(node.outputs[0]))
    order = run.common([name for name in node.inputs if len(run.shape(name)) == rank])
    if _is_plain(order):
        return False
    return run.put(node, [run.aligned(name, order) for name in node.inputs], order)


def _concat(run: _Pass, node: Node) -> bool:
    order = run.common(node.inputs)
    if _is_plain(order):
        return False
    names = [run.aligned(name, order) for name in node.inputs]
    return run.put(node, names, order, axis=order[node.attributes["axis"]])


def _transpose(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    run.views[node.outputs[0]] = held, tuple(order[axis] for axis in node.attributes["perm"])
    return True


def _reduce(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    single = "axis" in node.attributes
    axes = [node.attributes["axis"]] if single else node.attributes.get("axes")
    if _is_plain(order) or axes is None:
        return False
    moved = sorted(order[axis] for axis in axes)
    changed = {"axis": moved[0]} if single else {"axes": moved}
    if not node.attributes.get("keepdims", 0):
        order = _without(order, axes)
    return run.put(node, [held], order, **changed)


def _without(order: Order, axes: Sequence[int]) -> Order:
    """Returns the order of the remaining axes."""
    rest = [place for axis, place in enumerate(order) if axis not in axes]
    return tuple(sorted(rest).index(place) for place in rest)


def _unsqueeze(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    if _is_plain(order):
        return False
    axes, rank = node.attributes["axes"], len(order)
    old, new = iter(order), iter(range(rank, rank + len(axes)))  # the new axes are stored last
    order = tuple(next(new if axis in axes else old) for axis in range(rank + len(axes)))
    return run.put(node, [held], order, axes=list(range(rank, len(order))))


def _reshape(run: _Pass, node: Node) -> bool:
    """Handles a reshape that splits axes, or joins some that are stored next to each other."""
    held, order = run.held(node.inputs[0])
    before, after = run.shape(node.inputs[0]), run.shape(node.outputs[0])
    pairs = groups(before, after)
    if _is_plain(order) or pairs is None:
        return False
    stored: list[tuple[int, list[int]]] = []
    for left, right in pairs:
        places = [order[axis] for axis in left] or [len(order)]
        if places != list(range(places[0], places[0] + len(places))):
            return False
        stored.append((places[0], right))
    axes = [axis for _, right in sorted(stored) for axis in right]
    found = reshaping(run.shape(held), tuple(after[axis] for axis in axes))
    if found is None or found[0] != node.op:
        return False
    return run.put(node, [held], _inverse(tuple(axes)), **found[1])


def _slice(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    if _is_plain(order) or "axes" not in node.attributes:
        return False
    return run.put(node, [held], order, axes=[order[axis] for axis in node.attributes["axes"]])


def _pad(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    if _is_plain(order):
        return False
    pads, rank, inverse = node.attributes["pads"], len(order), _inverse(order)
    moved = [pads[axis + side] for side in (0, rank) for axis in inverse]
    return run.put(node, [held, *node.inputs[1:]], order, pads=moved)


def _gather(run: _Pass, node: Node) -> bool:
    held, order = run.held(node.inputs[0])
    if _is_plain(order) or len(run.shape(node.inputs[1])) != 1:
        return False
    indices = run.plain(node.inputs[1])
    return run.put(node, [held, indices], order, axis=order[node.attributes["axis"]])


def _matmul(run: _Pass, node: Node) -> bool:
    """Handles a product with a matrix, which sums over the last axis of the first operand."""
    (held, order), matrix = run.held(node.inputs[0]), node.inputs[1]
    rank = len(order)
    if _is_plain(order) or rank < 3 or len(run.shape(matrix)) != 2:
        return False
    if order[-1] == rank - 1:
        return run.put(node, [held, run.plain(matrix)], order)
    if order[-1] == rank - 2:  # multiply from the left
        matrix, present = run.held(matrix)
        return run.put(node, [run.transposed(matrix, present[::-1]), held], order)
    return False


_HANDLERS: dict[str, Callable[[_Pass, Node], bool]] = {
    "ArgMax": _reduce,
    "ArgMin": _reduce,
    "Concat": _concat,
    "Gather": _gather,
    "MatMul": _matmul,
    "Pad": _pad,
    "ReduceL1": _reduce,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceMin": _reduce,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _reduce,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
