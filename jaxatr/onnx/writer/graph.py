"""A graph of ONNX nodes while it is built and rewritten.

The constant inputs of opsets since 13 or 18 (axes, pads, shapes …) are attributes here, so that a
rewriting can change them; :mod:`~jaxatr.onnx.writer.serialisation` makes inputs of them.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Dim: TypeAlias = Any  # an int, or a symbolic dimension of jax.export
Shape: TypeAlias = tuple[Dim, ...]


class Unsupported(Exception):
    """An operation has no form in ONNX; the text says why."""


class TensorType(NamedTuple):
    """Shape and type of a value.

    Attributes:
      shape: of numbers and symbolic dimensions.
      dtype: of the elements.
    """

    shape: Shape
    dtype: np.dtype


@dataclasses.dataclass
class Node:
    """One operator.

    Attributes:
      op: its name in ONNX's own domain.
      inputs: names of values; ``""`` for one that is left out.
      outputs: names of values.
      attributes: Python values; a :class:`Graph` is a body.
      name: where in the network it stands; several may stand at one place.
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
        """Yields the values that the node needs, those that its bodies take from outside too."""
        yield from (name for name in self.inputs if name)
        for body in self.bodies:
            yield from body.captured()

    def rename(self, names: Mapping[str, str]) -> None:
        """Takes other values in the place of some, in the bodies too."""
        self.inputs = [names.get(name, name) for name in self.inputs]
        for body in self.bodies:
            for node in body.nodes:
                node.rename(names)


class Graph:
    """Nodes in an order in which they can run, or the body of one that has bodies.

    Attributes:
      inputs: names of values that are given.
      outputs: names of values that are wanted.
      nodes: the operators.
      root: the graph that this one is a body in, at whatever depth; the graph itself if in none.
      initializers: name to array, of the root and all bodies.
      weights: which of them are weights of the network, and no constants.
      types: name to what is known of a value, likewise.
      name_scope: where in the network the nodes that are added next stand.
    """

    def __init__(self, root: "Graph | None" = None):
        """Begins an empty graph, or an empty body in ``root``."""
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
        """Returns a name that no value has yet: the hint, with a number where it is taken."""
        name = hint
        while name in self._taken:
            self._taken[hint] += 1
            name = f"{hint}_{self._taken[hint]}"
        self._taken[name] += 1
        return name

    def declare(self, name: str, shape: Shape, dtype: Any) -> str:
        """Notes a value under a free name like ``name``, which is returned."""
        name = self.fresh(name)
        self.types[name] = TensorType(tuple(shape), np.dtype(dtype))
        return name

    def add(
        self, op: str, inputs: list[str], shape: Shape, dtype: Any = None, /, **attributes: Any
    ) -> str:
        """Adds a node with one output.

        Args:
          op: the operator.
          inputs: names of values.
          shape: of the output.
          dtype: of the output; the first input's, where not given.
          attributes: of the node.

        Returns:
          The output's name.
        """
        dtype = self.types[inputs[0]].dtype if dtype is None else dtype
        return self.add_many(op, inputs, [TensorType(tuple(shape), np.dtype(dtype))], **attributes)[
            0
        ]

    def add_many(
        self, op: str, inputs: list[str], outputs: list[TensorType], /, **attributes: Any
    ) -> list[str]:
        """Adds a node with any number of outputs, as :meth:`add` does, and returns their names."""
        place = f"{self.name_scope}/{op}".lstrip("/")
        names = [self.declare(place, *output) for output in outputs]
        self.nodes.append(Node(op, list(inputs), names, attributes, place))
        return names

    def put(self, op: str, inputs: list[str], output: str, /, **attributes: Any) -> None:
        """Adds a node that makes a value which is declared already."""
        place = f"{self.name_scope}/{op}".lstrip("/")
        self.nodes.append(Node(op, list(inputs), [output], attributes, place))

    def constant(self, array: Any, hint: str = "constant") -> str:
        """Returns the name of an initializer; equal small ones are one."""
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
        """Returns the name of a constant of sizes, places or axes."""
        return self.constant(np.asarray(numbers, np.int64))

    def replace(self, name: str, array: np.ndarray) -> None:
        """Gives an initializer another array."""
        self.initializers[name] = np.asarray(array, order="C")
        self.types[name] = TensorType(array.shape, array.dtype)
        for key in [key for key, known in self._constants.items() if known == name]:
            del self._constants[key]  # it is no longer the constant that it was

    def captured(self) -> Iterator[str]:
        """Yields the values that a body takes from the graph around it."""
        own = {*self.inputs, *(name for node in self.nodes for name in node.outputs)}
        for node in self.nodes:
            yield from (name for name in node.reads() if name not in own)

    def uses(self) -> Counter[str]:
        """Returns how often each value is read; an output of the graph is read once more."""
        counts = Counter(name for node in self.nodes for name in node.reads())
        counts.update(self.outputs)
        return counts

    def producers(self) -> dict[str, Node]:
        """Returns the node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs}

    def bodies_first(self, rewrite: Callable[["Graph"], None]) -> None:
        """Rewrites every body in the graph, and then the graph itself."""
        for node in self.nodes:
            for body in node.bodies:
                body.bodies_first(rewrite)
        rewrite(self)
