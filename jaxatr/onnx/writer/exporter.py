"""Exports networks and functions as ONNX files."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer import rules  # noqa: F401 (fills the table of rules)
from jaxatr.onnx.writer.cleanup import (
    drop_identities,
    fold_weights,
    merge_equal,
    number_names,
    prune,
    split_absolute_sums,
)
from jaxatr.onnx.writer.fusion import rewrite_patterns
from jaxatr.onnx.writer.graph import Graph
from jaxatr.onnx.writer.layout import settle_layouts
from jaxatr.onnx.writer.replacement import replace_weights
from jaxatr.onnx.writer.serialisation import model_proto, write_model
from jaxatr.onnx.writer.tails import settle_tails
from jaxatr.onnx.writer.trace import FreeAxis, Traced, trace
from jaxatr.onnx.writer.translate import Translator
from jaxatr.typing import PyTree

OPSET = 18  # the oldest and best supported version in which all reductions take axes as inputs


def export(
    model: Any,
    variables: PyTree,
    example_inputs: Any,
    path: str | os.PathLike,
    *,
    opset: int = OPSET,
    dynamic_batch: bool = True,
    free_axes: Sequence[Mapping[int, FreeAxis]] = (),
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Writes a network or a function as an ONNX file.

    The function is traced once, in float32, jax's default. Each array of ``variables`` becomes
    an initializer named after its path, such as ``params/backbone/stem_conv/kernel``. A kernel that
    only convolutions read is stored in ONNX's layout (features first), any other array unchanged.
    Arrays that the function closes over become ``constant``, ``constant_1`` and so on. Random draws
    from a fixed key become constants.

    Args:
      model: a linen module, exported in test mode (``train=False`` if its call has that argument);
        a function ``f(variables, *inputs)``; or a model loaded from ONNX. The latter is not traced:
        its ``proto`` is written with the arrays of ``variables``
        (:func:`~jaxatr.onnx.writer.replacement.replace_weights`), and all arguments after ``path``
        are ignored.
      variables: the model's variables; unused ones are left out.
      example_inputs: a tuple or list of the inputs after the variables, or a single input: arrays
        or trees of arrays, of which only shapes and dtypes are used.
      path: path of the file.
      opset: ONNX opset version, at least 18.
      dynamic_batch: whether the first axis of all inputs has a free size; the function then must
        not use the batch size as a number.
      free_axes: for each of the leading inputs, further axes with a free size, by axis index.
      input_names: names of the inputs; by default the names of the function's parameters.
      output_names: names of the outputs; by default the fields of the function's result
        (``logits``), or ``output``.
      properties: additional entries of the file's metadata.

    Returns:
      The ``ModelProto`` that was written.

    Raises:
      ValueError: an argument is invalid, the batch size is used as a number, or primitives have no
        rule; the message lists all of these with their source locations.
    """
    source = getattr(model, "proto", model)
    if source is None:
        raise ValueError(
            "model: got part of a loaded model, which has no proto to write; export the function "
            "`lambda v, x: part.apply(v, x, keep_64_bit=False)` instead, which is traced"
        )
    if isinstance(source, onnx.ModelProto):
        read = {
            "before": getattr(model, "variables", None),
            "folder": getattr(model, "folder", None),
        }
        return replace_weights(source, variables, path, **read)
    newest = onnx.defs.onnx_opset_version()
    if not OPSET <= opset <= newest:
        raise ValueError(f"opset: got {opset}, wanted {OPSET} to {newest}")
    inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    traced = trace(model, variables, inputs, dynamic_batch=dynamic_batch, free_axes=free_axes)
    traced = traced._replace(
        inputs=_checked("input_names", input_names, traced.inputs),
        outputs=_checked("output_names", output_names, traced.outputs),
    )
    graph = build(traced)
    name = type(model).__name__ if hasattr(model, "apply") else getattr(model, "__name__", "model")
    proto = model_proto(graph, opset=opset, name=name, properties=properties or {})
    write_model(proto, path)
    return proto


def build(traced: Traced) -> Graph:
    """Converts a traced function to a graph.

    Raises:
      ValueError: a primitive has no rule.
    """
    graph = Graph()
    jaxpr = traced.jaxpr.jaxpr
    given = jaxpr.invars[len(traced.weights) :]
    for name, var in zip(traced.inputs, given, strict=True):
        graph.inputs.append(graph.declare(name, var.aval.shape, var.aval.dtype))
    for name, aval in zip(traced.outputs, traced.jaxpr.out_avals, strict=True):
        graph.outputs.append(graph.declare(name, aval.shape, aval.dtype))
    weights = []
    for name, var, array in zip(
        traced.weights, jaxpr.invars, traced.weights.values(), strict=False
    ):
        weights.append(graph.declare(name, var.aval.shape, var.aval.dtype))
        graph.initializers[weights[-1]] = np.asarray(array, var.aval.dtype)
    graph.weights.update(filter(_is_trained(traced.weights), weights))
    translator = Translator(graph)
    values = [translator.tensor(name) for name in (*weights, *graph.inputs)]
    results = translator.run(jaxpr, traced.jaxpr.consts, values)
    if translator.missing:
        raise ValueError(_message(translator.missing))
    graph.name_scope = ""
    for target, value in zip(graph.outputs, results, strict=True):
        name = translator.full(value, graph.types[target].shape)
        graph.put("Identity", [name], target)
    simplify(graph)
    return graph


def _is_trained(names: Iterable[str]) -> Callable[[str], bool]:
    """Returns a predicate of names: whether an array is a weight, not a constant.

    If there is a collection ``params``, only it and ``batch_stats`` hold weights.
    """
    if not any(name.startswith("params/") for name in names):
        return lambda name: True
    return lambda name: name.split("/")[0] in ("params", "batch_stats")


def simplify(graph: Graph) -> None:
    """Simplifies a translated graph in place."""
    for step in (
        drop_identities,
        prune,
        merge_equal,
        rewrite_patterns,
        settle_tails,
        drop_identities,
        settle_layouts,
        fold_weights,
        drop_identities,
        prune,
        split_absolute_sums,
        number_names,
    ):
        step(graph)


def _message(missing: Sequence[tuple[str, str, str]]) -> str:
    lines = dict.fromkeys(f"  {name}: {reason}, at {place}" for name, reason, place in missing)
    return "\n".join(["the function cannot be written as ONNX:", *lines])


def _checked(argument: str, names: Sequence[str] | None, default: list[str]) -> list[str]:
    if names is None:
        return default
    if len(names) != len(default) or len(set(names)) != len(names):
        raise ValueError(
            f"{argument}: got {list(names)}, wanted {len(default)} different names to replace "
            f"{default}"
        )
    return list(names)
