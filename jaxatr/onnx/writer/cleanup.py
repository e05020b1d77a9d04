"""Removes identities, duplicates and unused nodes from a graph."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxatr.onnx.writer.graph import Graph, Node


def prune(graph: Graph) -> None:
    """Removes nodes and initializers whose values are unused."""
    graph.bodies_first(_prune_nodes)
    if graph.root is graph:
        used = graph.uses()
        for name in [name for name in graph.initializers if name not in used]:
            del graph.initializers[name]


def _prune_nodes(graph: Graph) -> None:
    used = Counter(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(name in used for name in node.outputs):
            kept.append(node)
            used.update(node.reads())
    graph.nodes = kept[::-1]


def merge_equal(graph: Graph) -> None:
    """Merges nodes that compute the same values."""

    def merge(part: Graph) -> None:
        first: dict[Any, list[str]] = {}
        names: dict[str, str] = {}
        kept = []
        for node in part.nodes:
            node.rename(names)
            key = None if node.bodies else (node.op, tuple(node.inputs), repr(node.attributes))
            if key is not None and key in first and not set(node.outputs) & set(part.outputs):
                names |= dict(zip(node.outputs, first[key], strict=True))
                continue
            if key is not None:
                first.setdefault(key, node.outputs)
            kept.append(node)
        part.nodes = kept

    graph.bodies_first(merge)


def drop_identities(graph: Graph) -> None:
    """Removes ``Identity`` nodes.

    If one computes an output of the graph, the node before it takes over the name of the output.
    """
    graph.bodies_first(_drop_identities)


def _drop_identities(graph: Graph) -> None:
    computed = {name for node in graph.nodes for name in node.outputs}
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "Identity":
            continue
        (source,), (target,) = node.inputs, node.outputs
        source = _resolved(source, names)
        if target not in graph.outputs:
            names[target] = source
        elif source in computed and source not in graph.outputs:
            names[source] = target
    graph.nodes = [
        node
        for node in graph.nodes
        if node.op != "Identity"
        or _resolved(node.inputs[0], names) != _resolved(node.outputs[0], names)
    ]
    final = {name: _resolved(name, names) for name in names}
    for node in graph.nodes:
        node.rename(final)
        node.outputs = [final.get(name, name) for name in node.outputs]


def _resolved(name: str, names: Mapping[str, str]) -> str:
    while name in names:
        name = names[name]
    return name


def fold_weights(graph: Graph) -> None:
    """Transposes stored constants and kernels that are read only through one ``Transpose``."""
    used, makers = graph.uses(), graph.producers()
    kernels = {node.inputs[1] for node in graph.nodes if node.op in ("Conv", "ConvTranspose")}
    readers: dict[str, list[Node]] = {}
    for node in makers.values():
        if node.op == "Transpose" and node.inputs[0] in graph.initializers:
            readers.setdefault(node.inputs[0], []).append(node)
    names: dict[str, str] = {}
    for name, nodes in readers.items():
        orders = {tuple(node.attributes["perm"]) for node in nodes}
        outputs = {node.outputs[0] for node in nodes}
        if len(nodes) == used[name] and len(orders) == 1:
            if name not in graph.weights or outputs <= kernels:
                graph.replace(name, graph.initializers[name].transpose(*orders))
                names |= dict.fromkeys(outputs, name)
    graph.nodes = [node for node in graph.nodes if node.outputs[0] not in names]
    for node in graph.nodes:
        node.rename(names)


def split_absolute_sums(graph: Graph) -> None:
    """Computes sums of absolute values in two operators, which engines do faster than in one."""

    def split(part: Graph) -> None:
        makers = {name: node.op for node in part.nodes for name in node.outputs}
        nodes = []
        for node in part.nodes:
            source = node.inputs[0] if node.op == "ReduceL1" else ""
            if source and graph.types[source].dtype == np.float32:
                node.op = "ReduceSum"
                if makers.get(source) != "Abs":
                    node.inputs = [part.declare("absolute", *graph.types[source])]
                    nodes.append(Node("Abs", [source], list(node.inputs), {}, node.name))
            nodes.append(node)
        part.nodes = nodes

    graph.bodies_first(split)


def number_names(graph: Graph) -> None:
    """Names nodes and outputs after their position in the network, with a number if necessary."""
    kept = {*graph.initializers, *_ends(graph)}
    taken, counts = set(kept), Counter[str]()
    names: dict[str, str] = {}

    def name(node: Node) -> None:
        place = f"{node.name.rpartition('/')[0]}/{node.op}".lstrip("/")
        node.name = place
        while node.name in taken:
            counts[place] += 1
            node.name = f"{place}_{counts[place]}"
        taken.add(node.name)
        for index, output in enumerate(node.outputs):
            if output not in kept:
                names[output] = node.name if len(node.outputs) == 1 else f"{node.name}:{index}"

    def visit(part: Graph, act: Callable[[Node], None]) -> None:
        for node in part.nodes:
            act(node)
            for body in node.bodies:
                visit(body, act)

    def put(node: Node) -> None:
        node.inputs = [names.get(name, name) for name in node.inputs]
        node.outputs = [names.get(name, name) for name in node.outputs]

    visit(graph, name)
    visit(graph, put)


def _ends(graph: Graph) -> Iterator[str]:
    """Yields the inputs and outputs of a graph and its bodies."""
    yield from (*graph.inputs, *graph.outputs)
    for node in graph.nodes:
        for body in node.bodies:
            yield from _ends(body)
