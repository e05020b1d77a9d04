"""Reads and checks model protos."""

import os
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from jaxatr import memory
from jaxatr.files import MissingFileError
from jaxatr.onnx.ops.dtypes import NAMES
from jaxatr.onnx.ops.registry import own
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.lists import compacted
from jaxatr.onnx.reader.program import ValueInfo


def read(model: Any) -> tuple[Any, Path | None]:
    """Returns a model's proto and the folder of its file (None if it was not read from a file).

    Args:
      model: path of a file, its bytes, or a ``ModelProto``.

    Raises:
      ValueError: there is no such file, it is not an ONNX model, or a name in it is not valid
        text.
    """
    folder = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise MissingFileError(f"model: there is no file {str(model)!r}")
        folder, model = path.parent, path.read_bytes()
    if isinstance(model, (bytes, bytearray, memoryview)):
        # Of a large file, nothing is in memory for longer than it is needed.
        pieces = compacted(bytes(model))
        model, changed = None, len(pieces) > 1
        if changed:
            memory.give_back()
        data = b"".join(pieces)
        del pieces
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except (DecodeError, RecursionError) as error:
            raise ValueError(f"model: the bytes are not an ONNX model ({error})") from error
        del data
        if changed:
            memory.give_back()
    if not isinstance(model, onnx.ModelProto):
        raise ValueError(f"model: got {type(model).__name__}, wanted a path, bytes or ModelProto")
    if not model.HasField("graph"):
        raise ValueError("model: it has no graph")
    _check_texts(entry.domain for entry in model.opset_import)
    for function in model.functions:
        _check_texts((function.name, function.domain, *function.input, *function.output))
        _check_texts((function.overload, *(entry.domain for entry in function.opset_import)))
        _check_nodes(function.node)
    _check_graph(model.graph)
    return model, folder


def _check_graph(graph: Any) -> None:
    values = (graph.input, graph.output, graph.initializer, graph.value_info)
    _check_texts([graph.name, *(value.name for group in values for value in group)])
    for group in (graph.input, graph.output, graph.value_info):
        for value in group:
            _check_texts(size.dim_param for size in value.type.tensor_type.shape.dim)
    _check_nodes(graph.node)


def _check_nodes(nodes: Any) -> None:
    for node in nodes:
        _check_texts((node.name, node.op_type, node.domain, node.overload))
        _check_texts((*node.input, *node.output))
        for attribute in node.attribute:
            _check_texts((attribute.name, attribute.ref_attr_name))
            if attribute.HasField("g"):
                _check_graph(attribute.g)


def _check_texts(texts: Iterable[Any]) -> None:
    """Checks that names are valid UTF-8; where they are not, protobuf returns bytes."""
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"model: the name {text!r} is not valid UTF-8")


def nested(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a graph or function, including those of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from nested(inner)


def ordered(nodes: Sequence[Any]) -> Sequence[Any]:
    """Returns nodes with each one after those whose results it reads, as ONNX Runtime sorts them.

    Nodes that are in order stay as they are, and so do nodes that form a cycle.
    """
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = {
        i: sorted({makers[name] for name in _read(node) if name in makers} - {i})
        for i, node in enumerate(nodes)
    }
    if all(max(before, default=-1) < i for i, before in needs.items()):
        return nodes
    try:
        return [nodes[i] for i in TopologicalSorter(needs).static_order()]
    except CycleError:
        return nodes


def _read(node: Any) -> set[str]:
    """Returns the names that a node reads, including those that its subgraphs read from outside."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            inside = {value.name for value in (*graph.input, *graph.initializer)}
            inside.update(name for one in graph.node for name in one.output)
            read = {value.name for value in graph.output}.union(*map(_read, graph.node))
            names |= read - inside
    return names


def inferred(proto: Any) -> Any:
    """Returns a model with the shapes that ONNX infers, or unchanged if inference fails.

    For a ``Split``, ONNX allocates as many outputs as the attribute ``num_outputs`` says. A model
    in which this is not the actual number is returned unchanged.
    """
    graphs = [proto.graph, *proto.functions]
    for node in (node for graph in graphs for node in nested(graph)):
        declared = [a.i for a in node.attribute if a.name == "num_outputs"]
        if declared not in ([], [len(node.output)]):
            return proto
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        MemoryError,
        ValueError,
    ):
        return proto


def printable(text: str) -> str:
    """Returns text with its control characters replaced, safe to print on a terminal."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def opsets(imports: Any) -> dict[str, int]:
    """Returns the opset version of each domain that a model or function imports.

    Callers assume version 1 for other domains, the only one before IR 3 introduced imports.

    Raises:
      ValueError: a domain has two versions, or an impossible one.
    """
    versions: dict[str, int] = {}
    for entry in imports:
        domain = own(entry.domain)
        if versions.get(domain, entry.version) != entry.version:
            raise ValueError(f"opset_import: got two versions of domain {domain!r}")
        if not 0 < entry.version < 1 << 31:
            raise ValueError(f"opset_import: got version {entry.version}, wanted a positive one")
        versions[domain] = entry.version
    return versions


def value_info(value: Any) -> ValueInfo:
    """Converts a ``ValueInfoProto``."""
    if not value.type.HasField("tensor_type"):
        return ValueInfo(value.name, None, None)
    tensor = value.type.tensor_type
    dtype = NAMES.get(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ValueInfo(value.name, None, dtype)
    return ValueInfo(value.name, tuple(_size(size) for size in tensor.shape.dim), dtype)


def _size(dimension: Any) -> int | str | None:
    if dimension.HasField("dim_value"):
        return dimension.dim_value if dimension.dim_value >= 0 else None
    return dimension.dim_param or None
