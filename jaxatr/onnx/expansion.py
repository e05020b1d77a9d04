"""Operators that are defined by other operators: a model's own functions, and the schemas'."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxatr.onnx.package import onnx
from jaxatr.onnx.reading import opsets
from jaxatr.onnx.registry import own


@dataclass(frozen=True)
class Body:
    """What a node is to be replaced by.

    Attributes:
      inputs: names that the body has for the node's inputs.
      outputs: names that it has for the node's outputs.
      nodes: protos, in order; their attributes refer to no other.
      versions: opset of each domain that they are written in.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[Any]
    versions: dict[str, int]


def body(node: Any, versions: dict[str, int], function: Any | None) -> Body | None:
    """Returns a node's body, or None where neither model nor schema has one.

    Args:
      node: the proto.
      versions: opset of each domain that the node is written in.
      function: the model's own function of that name, or None.
    """
    function = function if function is not None else schema_body(node, versions)
    if function is None:
        return None
    given = {attribute.name: attribute for attribute in node.attribute}
    for default in getattr(function, "attribute_proto", ()):
        given.setdefault(default.name, default)
    return Body(
        tuple(function.input),
        tuple(function.output),
        [bound(inner, given) for inner in function.node],
        opsets(function.opset_import) or versions,
    )


def schema_body(node: Any, versions: dict[str, int]) -> Any | None:
    """Returns the function that the operator's schema gives, or None."""
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
    function = onnx.FunctionProto()
    fitting = [v for v in schema.function_opset_versions if v <= max(version, schema.since_version)]
    found = schema.get_function_with_opset_version(max(fitting)) if fitting else b""
    function.ParseFromString(found)
    if not function.node:
        return None
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in {a.name for a in node.attribute}:
            function.attribute_proto.append(attribute.default_value)
    return function


def bound(node: Any, given: dict[str, Any]) -> Any:
    """Returns a node of a body with the references to the caller's attributes filled in."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue  # left to the operator's own default
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
        made.attribute.append(filled)
    return made
