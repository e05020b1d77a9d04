"""Writes a model as source code: a flax module, with its weights and a README."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.onnx.codegen import blocks, paths
from jaxatr.onnx.codegen.bodies import Body
from jaxatr.onnx.codegen.classes import block_class, imports, model_class
from jaxatr.onnx.codegen.names import identifier, quoted
from jaxatr.onnx.codegen.printing import SourceFile, shape_text
from jaxatr.onnx.codegen.source import call, flat, literal
from jaxatr.onnx.codegen.steps import graph_of
from jaxatr.onnx.codegen.weights import save_weights
from jaxatr.onnx.package import PRODUCER
from jaxatr.onnx.reader.model import OnnxModel, load
from jaxatr.onnx.reader.proto import inferred, value_info

STYLES = ("linen",)


def generate(
    path: Any,
    out_dir: str | os.PathLike[str],
    *,
    style: str = "linen",
    trainable: Sequence[str] = (),
    constant: Sequence[str] = (),
) -> Path:
    """Writes a model as a flax module with its weights.

    The module makes the same calls as a model from :func:`jaxatr.onnx.load`, so their outputs are
    equal. Layers own their weights. Repeated structure becomes one class, and a chain of its
    instances becomes a loop.

    Args:
      path: path of the ``.onnx`` file, its bytes, or a ``ModelProto``.
      out_dir: folder for ``model.py``, ``weights.safetensors`` and ``README.md``; created if it
        does not exist.
      style: ``"linen"``, the only style.
      trainable: names or patterns of arrays to train in any case, as for
        :func:`jaxatr.onnx.load`.
      constant: names or patterns of arrays not to train in any case.

    Returns:
      The path of ``model.py``.

    Raises:
      ValueError: the style is unknown, or the model cannot be loaded.
    """
    if style not in STYLES:
        raise ValueError(f"style: got {style!r}, wanted one of {STYLES}")
    model = load(path, trainable=trainable, constant=constant)
    name = Path(path).stem if isinstance(path, (str, os.PathLike)) else model.proto.graph.name
    text, weights = source(model, identifier(name, "model"))
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(text, encoding="utf-8")
    save_weights(folder / "weights.safetensors", weights)
    (folder / "README.md").write_text(readme(model, identifier(name, "model")), encoding="utf-8")
    return folder / "model.py"


def source(model: OnnxModel, title: str) -> tuple[str, dict[tuple[str, ...], Any]]:
    """Returns the source of a model's module, and its arrays by (collection, modules…, name)."""
    shapes = shapes_of(model.proto)
    graph = graph_of(model.program, model.known, model.variables)
    body = blocks.fold(graph, named=model.proto.producer_name == PRODUCER)
    blocks.fields(body, shapes)
    paths.assign(body)
    nested = list(blocks.blocks_of(body))
    module = SourceFile(shapes, [block.title for block in nested])
    for block in [*nested, body]:
        for row in block.rows:
            module.learn(row.steps[0])
    classes = [block_class(block, module, _where(block)) for block in nested]
    classes.append(model_class(body, module, f"The model {title}.", model.inputs))
    text = "\n\n\n".join("\n".join(tidied(lines)) for lines in classes)
    looked_up = [
        f"{variable} = {flat(call('operator', quoted(name), quoted(domain), literal(int(since))))}"
        for key, variable in module.operators.items()
        for domain, name, since in [key.rsplit(":", 2)]
    ]
    constants = [line for statement in module.constants.values() for line in statement]
    head = "\n".join([*looked_up, *constants])
    doc = f'"""{title}: an ONNX model as a flax module, channels first."""'
    needed = imports("\n".join([head, text]))
    parts = [doc, "", *needed, *(["", head] if head else []), "", "", text]
    return "\n".join(parts) + "\n", arrays(model, paths.locations(body))


def arrays(
    model: OnnxModel, locations: Mapping[tuple[str, ...], Any]
) -> dict[tuple[str, ...], Any]:
    """Returns the arrays of a module by (collection, modules…, name)."""
    values: dict[str, Any] = {**model.known}
    for group in model.variables.values():
        values |= group
    return {place: np.asarray(values[weight.name]) for place, weight in locations.items()}


def shapes_of(proto: Any) -> dict[str, tuple[int | str | None, ...] | None]:
    """Returns the shapes of values that the model declares or ONNX infers."""
    graph = inferred(proto).graph
    values = [*graph.value_info, *graph.output, *graph.input]
    return {value.name: value_info(value).shape for value in values}


def tidied(lines: list[str]) -> list[str]:
    """Returns lines without repeated blank lines, and without blank lines after a colon."""
    kept: list[str] = []
    for line in lines:
        if not line and (not kept or not kept[-1] or kept[-1].endswith(":")):
            continue
        kept.append(line)
    return kept


def _where(block: Body) -> str:
    """Returns a block's docstring: the name of its first instance and the number of the others."""
    prefix = paths.common(
        [paths.hint(row.steps[0]) for row in block.rows if paths.hint(row.steps[0])]
    )
    others = f"{len(block.outputs) - 1} more" if len(block.outputs) > 2 else "one more"
    return f"{identifier('_'.join(prefix), 'a_block')}, and {others} of this structure."


def readme(model: OnnxModel, title: str) -> str:
    """Returns the text of the README."""
    names = [identifier(wanted.name, "x") for wanted in model.inputs]
    rows = [
        f"| {kind} | `{identifier(value.name, 'value')}` | {value.dtype or 'no tensor'} | "
        f"{_shape(value.shape)} |"
        for kind, values in (("input", model.inputs), ("output", model.outputs))
        for value in values
    ]
    count = sum(int(np.size(value)) for value in model.variables["params"].values())
    return f"""# {title}

`model.py` is the model as a flax module, `weights.safetensors` its {count:,} parameters, running
statistics and constants. Written by `jaxatr.onnx.generate`.

```python
from jaxatr.onnx import load_weights
from model import Model

outputs = Model().apply(load_weights("weights.safetensors"), {", ".join(names)})
```

To train, give `train=True`, `mutable=["batch_stats"]` and `rngs={{"dropout": key}}`.

| | name | type | shape |
|---|---|---|---|
{chr(10).join(rows)}
"""


def _shape(shape: Any) -> str:
    return "any" if shape is None else shape_text(shape)
