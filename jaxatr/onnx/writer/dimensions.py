"""Adds nodes that compute symbolic dimensions when the model runs.

A symbolic dimension is parsed from its text, in the grammar of ``jax.export.symbolic_shape``:
``"2*batch"``, ``"floordiv(batch, 2) + 1"``.
"""

import ast
import math

import numpy as np

from jaxatr.onnx.writer.graph import Dim, Graph, Shape, Unsupported

_OPERATORS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
_FUNCTIONS = {"max": "Max", "min": "Min", "mod": "Mod"}


class Dimensions:
    """The symbolic dimensions of a graph.

    Attributes:
      graph: the root graph, whose inputs define the dimensions.
    """

    def __init__(self, graph: Graph):
        """Starts with no computed dimension."""
        self.graph = graph
        self._known: dict[str, str] = {}

    def shape(self, shape: Shape) -> str:
        """Returns the name of an int64 vector with the sizes of ``shape``."""
        parts: list[str] = []
        fixed: list[int] = []
        for size in shape:
            if isinstance(size, (int, np.integer)):
                fixed.append(int(size))
                continue
            if fixed:
                parts.append(self.graph.int64(fixed))
                fixed = []
            parts.append(self.size(size))
        if fixed or not parts:
            parts.append(self.graph.int64(fixed))
        if len(parts) == 1:
            return parts[0]
        return self.graph.add("Concat", parts, (len(shape),), np.int64, axis=0)

    def size(self, size: Dim) -> str:
        """Returns the name of an int64 vector with one size.

        Raises:
          Unsupported: the size contains an operation that has no equivalent in ONNX.
        """
        text = str(size)
        if text not in self._known:
            tree = ast.parse(text.replace("^", "**"), mode="eval").body
            self._known[text] = self._of_tree(tree, text)
        return self._known[text]

    def _of_tree(self, tree: ast.AST, text: str) -> str:
        match tree:
            case ast.Constant(value=int(value)):
                return self.graph.int64([value])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._vector("Neg", self._of_tree(operand, text))
            case ast.Name(id=symbol):
                return self._of_input(symbol)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                operands = self._of_tree(left, text), self._of_tree(right, text)
                return self._vector(_OPERATORS[type(op)], *operands)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
                factors = [self._of_tree(left, text)] * power
                product = factors[0]
                for factor in factors[1:]:
                    product = self._vector("Mul", product, factor)
                return product
            case ast.Call(func=ast.Name(id="floordiv"), args=[left, right]):
                total, step = self._of_tree(left, text), self._of_tree(right, text)
                whole = self._vector("Sub", total, self._vector("Mod", total, step))
                return self._vector("Div", whole, step)  # ONNX's alone rounds towards zero
            case ast.Call(func=ast.Name(id=function), args=[*arguments]) if function in _FUNCTIONS:
                operands = [self._of_tree(argument, text) for argument in arguments]
                return self._vector(_FUNCTIONS[function], *operands)
        raise Unsupported(f"with a size of {text}")

    def _vector(self, op: str, *operands: str) -> str:
        return self.graph.add(op, list(operands), (1,), np.int64)

    def _of_input(self, symbol: str) -> str:
        if symbol not in self._known:
            name, axis = next(
                (name, axis)
                for name in self.graph.inputs
                for axis, size in enumerate(self.graph.types[name].shape)
                if str(size) == symbol
            )
            self._known[symbol] = self.graph.add(
                "Shape", [name], (1,), np.int64, start=axis, end=axis + 1
            )
        return self._known[symbol]


def is_static(shape: Shape) -> bool:
    """Returns whether a shape has no symbolic dimension.

    >>> is_static((2, 3))
    True
    """
    return all(isinstance(size, (int, np.integer)) for size in shape)


def weight(shape: Shape) -> int:
    """Returns the number of elements, counting symbolic dimensions as 1.

    >>> weight((2, 3))
    6
    """
    return math.prod(int(size) for size in shape if isinstance(size, (int, np.integer)))


def broadcast(*shapes: Shape) -> Shape:
    """Returns the common shape of shapes under NumPy broadcasting.

    >>> broadcast((3,), (2, 1))
    (2, 3)
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(
        next((size for size in sizes if not _is_one(size)), 1)
        for sizes in zip(*padded, strict=True)
    )


def stripped(shape: Shape) -> Shape:
    """Returns the shape without leading ones, which broadcasting restores.

    >>> stripped((1, 1, 3, 1))
    (3, 1)
    """
    first = next((axis for axis, size in enumerate(shape) if not _is_one(size)), len(shape))
    return tuple(shape[first:])


def reshaping(before: Shape, after: Shape) -> tuple[str, dict[str, list[int]]] | None:
    """Returns the operator and attributes of a reshape.

    Returns None if several sizes are symbolic, so that the shape must be computed.

    >>> reshaping((2, 3), (2, 1, 3))
    ('Unsqueeze', {'axes': [1]})
    """
    added = _added_ones(before, after)
    if added is not None:
        return "Unsqueeze", {"axes": added}
    removed = _added_ones(after, before)
    if removed is not None:
        return "Squeeze", {"axes": removed}
    fixed = [int(size) if is_static((size,)) else -1 for size in after]
    return None if fixed.count(-1) > 1 else ("Reshape", {"shape": fixed})


def groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Returns groups of axes that a reshape maps to each other.

    Returns None if they depend on symbolic sizes.

    >>> groups((2, 3, 4), (2, 12, 1))
    [([0], [0]), ([1, 2], [1]), ([], [2])]
    """
    pairs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right, products = [], [], [1, 1]
        if i < len(before) and j < len(after) and before[i] == after[j]:
            left, right, i, j = [i], [j], i + 1, j + 1
        while not (left or right) or products[0] != products[1]:
            from_left = i < len(before) and (products[0] <= products[1] or j == len(after))
            if not from_left and j == len(after):
                return None
            size = before[i] if from_left else after[j]
            if not is_static((size,)):
                return None
            if from_left:
                products[0], i, left = products[0] * size, i + 1, [*left, i]
            else:
                products[1], j, right = products[1] * size, j + 1, [*right, j]
        pairs.append((left, right))
    return pairs


def _added_ones(before: Shape, after: Shape) -> list[int] | None:
    """Returns the axes of size 1 that ``after`` adds to ``before``, or None if more differs."""
    axes, position = [], 0
    for axis, size in enumerate(after):
        if position < len(before) and before[position] == size:
            position += 1
        elif _is_one(size):
            axes.append(axis)
        else:
            return None
    return axes if position == len(before) else None


def _is_one(size: Dim) -> bool:
    return isinstance(size, (int, np.integer)) and size == 1
