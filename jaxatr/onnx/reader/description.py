"""A description of a file: its inputs and outputs, and everything that its metadata says."""

import json
import os
from pathlib import Path
from typing import Any

from jaxatr.onnx.reader.lowering import FIXED
from jaxatr.onnx.reader.proto import opsets, printable, read, value_info


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """Reads what a file says of itself.

    Args:
      path: of the file.

    Returns:
      JSON values: ``file``, ``bytes`` (external data included), ``producer``, ``opset``,
      ``nodes``, ``inputs`` and ``outputs``, each with ``name``, ``type`` and ``shape``, and
      ``metadata``, whose values are parsed where they are JSON.

    Raises:
      ValueError: there is no such file, or it is no model.
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


def described(found: dict[str, Any]) -> str:
    """Writes a description as text, a line for each thing."""
    head = f"{found['file']}: {found['bytes'] / 1e6:.1f} MB, {found['nodes']} nodes"
    lines = [f"{head}, opset {found['opset']}, of {found['producer'] or 'no named producer'}"]
    for kind in ("input", "output"):
        for value in found[f"{kind}s"]:
            shape = "any shape" if value["shape"] is None else _sizes(value["shape"])
            lines.append(f"  {kind} {printable(value['name'])} {value['type']} {shape}")
    for name, value in found["metadata"].items():
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
