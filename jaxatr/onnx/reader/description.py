"""Describes an ONNX file: its inputs, outputs and metadata."""

import json
import os
from pathlib import Path
from typing import Any

from jaxatr.onnx.reader.lowering import FIXED
from jaxatr.onnx.reader.proto import opsets, printable, read, value_info


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the description of a file.

    Returns:
      A dictionary of JSON values: ``file``; ``bytes``, including external data; ``producer``;
      ``opset``; ``nodes``, their number; ``inputs`` and ``outputs``, each with ``name``, ``type``
      and ``shape``; and ``metadata``, with its values parsed if they are JSON.

    Raises:
      ValueError: there is no such file, or it is not an ONNX model.
    """
    proto, _ = read(path)
    size = Path(path).stat().st_size
    names = {
        e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"
    }
    size += sum(
        part.stat().st_size for name in names if (part := Path(path).parent / name).is_file()
    )
    weights = {tensor.name for tensor in proto.graph.initializer}
    return {
        "file": str(path),
        "bytes": size,
        "producer": printable(f"{proto.producer_name} {proto.producer_version}".strip()),
        "opset": opsets(proto.opset_import).get("", None),
        "nodes": len(proto.graph.node),
        "inputs": [_value(value) for value in proto.graph.input if value.name not in weights],
        "outputs": [_value(value) for value in proto.graph.output],
        "metadata": {
            entry.key: _parsed(entry.value) for entry in proto.metadata_props if entry.key != FIXED
        },
    }


def described(description: dict[str, Any]) -> str:
    """Formats a description as text, one line per entry."""
    size = f"{description['bytes'] / 1e6:.1f} MB, {description['nodes']} nodes"
    producer = description["producer"] or "not named"
    head = f"{description['file']}: {size}, opset {description['opset']}, producer: {producer}"
    lines = [head]
    for kind in ("input", "output"):
        for value in description[f"{kind}s"]:
            shape = "any shape" if value["shape"] is None else _sizes(value["shape"])
            lines.append(f"  {kind} {printable(value['name'])} {value['type']} {shape}")
    for name, value in description["metadata"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"  {printable(name)}: {printable(text)}")
    return "\n".join(lines)


def _value(value: Any) -> dict[str, Any]:
    info = value_info(value)
    shape = None if info.shape is None else list(info.shape)
    return {
        "name": info.name,
        "type": None if info.dtype is None else str(info.dtype),
        "shape": shape,
    }


def _sizes(shape: list[Any]) -> str:
    return f"[{', '.join('?' if size is None else printable(str(size)) for size in shape)}]"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
