"""Expands operators that the model's functions or ONNX's schemas define by other operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jaxatr.onnx.ops.registry import own
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.proto import opsets, ordered


@dataclass(frozen=True)
class FunctionBody:
    """The nodes that replace one node.

    Attributes:
      inputs: names of the node's inputs in the body.
      outputs: names of the node's outputs in the body.
      node: node protos in order, with all references to the caller's attributes filled in.
      versions: opset version of each domain that the body uses.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: Sequence[Any]
    versions: dict[str, int]


def function_body(node: Any, versions: dict[str, int], function: Any | None) -> FunctionBody | None:
    """Returns a node's body, or None if neither the model nor the schema defines one.

    Args:
      node: the ``NodeProto``.
      versions: opset version of each domain that the node's graph uses.
      function: the model's function with the node's name, or None.
    """
    function = function if function is not None else schema_body(node, versions)
    if function is None:
        return None
    given = {attribute.name: attribute for attribute in node.attribute}
    for default in getattr(function, "attribute_proto", ()):
        given.setdefault(default.name, default)
    return FunctionBody(
        tuple(function.input),
        tuple(function.output),
        [bound(inner, given) for inner in ordered(function.node)],
        opsets(function.opset_import) or versions,
    )


def schema_body(node: Any, versions: dict[str, int]) -> Any | None:
    """Returns the function in the operator's schema, or None.

    Its ``attribute_proto`` holds the defaults of the operator's attributes.
    """
    domain = own(node.domain)
    version = versions.get(domain, 1)
    try:
        schema: Any = onnx.defs.get_schema(
            node.op_type, max_inclusive_version=version, domain=domain
        )
    except onnx.defs.SchemaError:
        return None
    if not schema.has_function:
        return None
    candidates = [
        v for v in schema.function_opset_versions if v <= max(version, schema.since_version)
    ]
    if not candidates:
        return None
    return _parsed(node.op_type, domain, schema.since_version, max(candidates))


@cache
def _parsed(operator: str, domain: str, since: int, version: int) -> Any | None:
    schema: Any = onnx.defs.get_schema(operator, max_inclusive_version=since, domain=domain)
    function = onnx.FunctionProto()
    function.ParseFromString(schema.get_function_with_opset_version(version))
    if not function.node:
        return None
    for attribute in schema.attributes.values():
        if attribute.default_value.name:
            function.attribute_proto.append(attribute.default_value)
    return function


def refers(node: Any) -> bool:
    """Returns whether a node, or one in its subgraphs, refers to an attribute of the caller."""
    return any(
        attribute.ref_attr_name
        or any(refers(one) for graph in [attribute.g, *attribute.graphs] for one in graph.node)
        for attribute in node.attribute
    )


def bound(node: Any, given: dict[str, Any]) -> Any:
    """Returns a node of a body with the references to the caller's attributes filled in.

    A node without such references is not copied, so that all calls share its tensors.
    """
    if not refers(node):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue  # the operator's default applies
            filled = onnx.AttributeProto()
            filled.CopyFrom(given[attribute.ref_attr_name])
            filled.name = attribute.name
        else:
            filled = onnx.AttributeProto()
            filled.CopyFrom(attribute)
            for graph in [filled.g, *filled.graphs] if filled.HasField("g") else filled.graphs:
                inner = [bound(one, given) for one in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
        copy.attribute.append(filled)
    return copy
