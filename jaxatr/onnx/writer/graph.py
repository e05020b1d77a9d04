"""A mutable graph of ONNX nodes.

Axes, pads, shapes and the like, which are inputs since opset 13 or 18, are attributes here if they
are constants. This makes them easy to rewrite; :mod:`~jaxatr.onnx.writer.serialisation` turns them
into inputs.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.writer.types import Unsupported, computed_in

__all__ = ["Dim", "Graph", "Node", "Shape", "TensorType", "Unsupported"]

Dim: TypeAlias = Any  # an int, or a symbolic dimension of jax.export
Shape: TypeAlias = tuple[Dim, ...]


class TensorType(NamedTuple):
    """Shape and type of a value.

    Attributes:
      shape: numbers and symbolic dimensions.
      dtype: type of the elements.
    """

    shape: Shape
    dtype: np.dtype


@dataclasses.dataclass
class Node:
    """One node.

    Attributes:
      op: name of the operator in ONNX's standard domain.
      inputs: names of values, ``""`` for an absent one.
      outputs: names of values.
      attributes: Python values; a :class:`Graph` is a body.
      name: position in the network, which several nodes may share.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str

    @property
    def bodies(self) -> list["Graph"]:
        """The graphs among the attributes."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]

    def reads(self) -> Iterator[str]:
        """Yields the values that the node reads, including those that its bodies capture."""
        yield from (name for name in self.inputs if name)
        for body in self.bodies:
            yield from body.captured()

    def rename(self, names: Mapping[str, str]) -> None:
        """Renames the values that the node and its bodies read."""
        self.inputs = [names.get(name, name) for name in self.inputs]
        for body in self.bodies:
            for node in body.nodes:
                node.rename(names)


class Graph:
    """A graph of nodes in topological order: the main graph, or the body of a node.

    Attributes:
      inputs: names of the inputs.
      outputs: names of the outputs.
      nodes: the nodes.
      root: the outermost graph, which is the graph itself unless it is a body.
      initializers: arrays by name, shared by the root and all bodies.
      weights: names of the initializers that are weights of the network; the rest are constants.
      types: shape and type of each value, shared by the root and all bodies.
      name_scope: position in the network of the nodes that are added next.
    """

    def __init__(self, root: "Graph | None" = None):
        """Creates an empty graph, or an empty body in ``root``."""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.nodes: list[Node] = []
        self.root: Graph = self if root is None else root
        self.name_scope = ""
        if root is None:
            self.initializers: dict[str, np.ndarray] = {}
            self.weights: set[str] = set()
            self.types: dict[str, TensorType] = {}
            self._taken: Counter[str] = Counter()
            self._constants: dict[tuple, str] = {}
        else:
            self.initializers, self.weights = self.root.initializers, self.root.weights
            self.types = self.root.types
            self._taken, self._constants = self.root._taken, self.root._constants

    def fresh(self, hint: str) -> str:
        """Returns an unused name: the hint, with a number if it is taken."""
        name = hint
        while name in self._taken:
            self._taken[hint] += 1
            name = f"{hint}_{self._taken[hint]}"
        self._taken[name] += 1
        return name

    def declare(self, name: str, shape: Shape, dtype: Any) -> str:
        """Declares a value under an unused name based on ``name``, and returns that name."""
        name = self.fresh(name)
        self.types[name] = TensorType(tuple(shape), np.dtype(dtype))
        return name

    def add(
        self, op: str, inputs: list[str], shape: Shape, dtype: Any = None, /, **attributes: Any
    ) -> str:
        """Adds a node with one output.

        Args:
          op: name of the operator.
          inputs: names of values.
          shape: shape of the output.
          dtype: type of the output; by default that of the first input.
          **attributes: attributes of the node.

        Returns:
          The output's name.
        """
        dtype = self.types[inputs[0]].dtype if dtype is None else dtype
        output = TensorType(tuple(shape), np.dtype(dtype))
        return self.add_many(op, inputs, [output], **attributes)[0]

    def add_many(
        self, op: str, inputs: list[str], outputs: list[TensorType], /, **attributes: Any
    ) -> list[str]:
        """Adds a node with several outputs, and returns their names.

        Values of a type that the operator does not take are converted to a wider one and back.

        Raises:
          Unsupported: the operator does not take a wider type either.
        """
        typed = inputs[1:] if op == "Where" else inputs
        dtype = self.types[typed[0]].dtype if typed and typed[0] else np.dtype(np.bool_)
        wide = computed_in(op, dtype)
        if wide != dtype:
            operands = [self._cast(name, dtype, wide) for name in typed]
            types = [out._replace(dtype=wide) if out.dtype == dtype else out for out in outputs]
            inputs = [*inputs[: len(inputs) - len(typed)], *operands]
            names = self.add_many(op, inputs, types, **attributes)
            ends = zip(names, outputs, strict=True)
            return [
                self._cast(name, wide, dtype) if out.dtype == dtype else name for name, out in ends
            ]
        place = f"{self.name_scope}/{op}".lstrip("/")
        names = [self.declare(place, *output) for output in outputs]
        self.nodes.append(Node(op, list(inputs), names, attributes, place))
        return names

    def _cast(self, name: str, before: np.dtype, after: np.dtype) -> str:
        """Returns the name of a value in another type; one of a third type stays as it is."""
        if not name or self.types[name].dtype != before:
            return name
        if name in self.initializers and name not in self.weights:
            return self.constant(self.initializers[name].astype(after))
        return self.add("Cast", [name], self.types[name].shape, after, to=after)

    def put(self, op: str, inputs: list[str], output: str, /, **attributes: Any) -> None:
        """Adds a node whose output is already declared."""
        place = f"{self.name_scope}/{op}".lstrip("/")
        self.nodes.append(Node(op, list(inputs), [output], attributes, place))

    def constant(self, array: Any, hint: str = "constant") -> str:
        """Returns the name of an initializer for an array; equal small arrays are shared."""
        if hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.extended):
            raise Unsupported("needs a random key in the file, which cannot hold one")
        array = np.asarray(array, order="C")
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is not None and self._constants.get(key) in self.initializers:
            return self._constants[key]
        name = self.declare(hint, array.shape, array.dtype)
        self.initializers[name] = array
        if key is not None:
            self._constants[key] = name
        return name

    def int64(self, numbers: Any) -> str:
        """Returns the name of an int64 constant, for sizes, indices or axes."""
        return self.constant(np.asarray(numbers, np.int64))

    def replace(self, name: str, array: np.ndarray) -> None:
        """Replaces the array of an initializer."""
        self.initializers[name] = np.asarray(array, order="C")
        self.types[name] = TensorType(array.shape, array.dtype)
        for key in [key for key, known in self._constants.items() if known == name]:
            del self._constants[key]  # the old value can no longer be shared

    def captured(self) -> Iterator[str]:
        """Yields the values that a body reads from the enclosing graphs."""
        local = {*self.inputs, *(name for node in self.nodes for name in node.outputs)}
        for node in self.nodes:
            yield from (name for name in node.reads() if name not in local)

    def uses(self) -> Counter[str]:
        """Counts how often each value is read; an output of the graph counts as one read."""
        counts = Counter(name for node in self.nodes for name in node.reads())
        counts.update(self.outputs)
        return counts

    def producers(self) -> dict[str, Node]:
        """Returns the node that computes each value."""
        return {name: node for node in self.nodes for name in node.outputs}

    def bodies_first(self, rewrite: Callable[["Graph"], None]) -> None:
        """Applies a rewrite to every body in the graph, and then to the graph itself."""
        for node in self.nodes:
            for body in node.bodies:
                body.bodies_first(rewrite)
        rewrite(self)
