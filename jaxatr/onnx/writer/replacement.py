"""Replaces the weights of a model file without changing its graph."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr.onnx import ops
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.lowering import lower
from jaxatr.onnx.reader.program import Program
from jaxatr.onnx.reader.tensors import embed
from jaxatr.onnx.writer.serialisation import write_model
from jaxatr.typing import PyTree


def replace_weights(
    model: onnx.ModelProto,
    variables: PyTree,
    path: str | os.PathLike,
    *,
    before: Mapping[str, Mapping[str, Any]] | None = None,
    folder: Path | None = None,
) -> onnx.ModelProto:
    """Writes a model with new values of its initializers and constants.

    Args:
      model: the source, which is not changed.
      variables: trees of arrays. An array replaces the initializer or ``Constant`` output whose
        name is the array's path joined by ``/``, with or without the collection: the array in
        ``{"params": {"conv1.weight": …}}`` replaces ``params/conv1.weight`` or ``conv1.weight``.
        Arrays in subgraphs and functions have the names that :func:`jaxatr.onnx.load` gives them.
        All other values are kept.
      path: path of the file to write.
      before: the variables that :func:`jaxatr.onnx.load` returned for the model. Arrays equal to
        these are left alone. A changed array that was folded, or came from an ``Identity``, turns
        the node that computed it into a ``Constant``.
      folder: folder of the source's external data, which are moved into the new file.

    Returns:
      The ``ModelProto`` that was written.

    Raises:
      ValueError: the source or its external data are malformed, the new arrays make the file
        invalid where the source was valid, the model has no value with an
        array's name, shape and dtype, or different arrays would replace one that the file stores
        once (a constant of a function that is called twice). The message lists all such arrays.
    """
    changed, parts = _whole(model, folder)
    program, holders = _holders(changed, parts)
    known = {name: array for group in (before or {}).values() for name, array in group.items()}
    arrays, titles = {}, {}
    for keys, leaf in jax.tree.leaves_with_path(variables):
        title = jax.tree_util.keystr(keys, simple=True, separator="/")
        short = jax.tree_util.keystr(keys[1:], simple=True, separator="/")
        name = short if short in known or title not in holders else title
        arrays[name], titles[name] = np.asarray(leaf), title
    new, problems = _changed(arrays, known, program), []
    for name, array in new.items():
        part = parts[holders[name]] if name in holders else None
        if problem := _problem(part, known.get(name), array):
            problems.append(f"  {titles.get(name, name)}: {problem}")
    problems += _conflicts(new, holders)
    if problems:
        raise ValueError("\n".join(["variables do not fit the model:", *problems]))
    for name, array in new.items():
        _put(parts[holders[name]], array)
    write_model(changed, path, source=lambda: _whole(model, folder)[0])
    return changed


def _whole(model: onnx.ModelProto, folder: Path | None) -> tuple[onnx.ModelProto, list[Any]]:
    """Returns a copy of a model with its external data, and its nodes and tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    parts = [*_parts(copy.graph), *(p for f in copy.functions for p in _parts(f))]
    for part in parts:
        if isinstance(part, onnx.TensorProto):
            embed(part, folder)
    return copy, parts


def _parts(owner: Any) -> Iterator[Any]:
    """Yields the nodes and tensors of a graph or function, including those of its subgraphs."""
    yield from getattr(owner, "initializer", ())
    sparse = [*getattr(owner, "sparse_initializer", ())]
    for node in owner.node:
        yield node
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors
            sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _parts(graph)
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _holders(model: onnx.ModelProto, parts: list[Any]) -> tuple[Program, dict[str, int]]:
    """Returns the program, and the index of the part that stores or computes each of its values.

    Parts are marked by their ``doc_string``, since copies of a function's nodes keep it.
    """
    texts = [part.doc_string if part.HasField("doc_string") else None for part in parts]
    for place, part in enumerate(parts):
        part.doc_string = str(place)
    lowered = lower(model, None, complete=False)
    holders = {name: source.doc_string for name, source in lowered.sources.items()}
    for part, text in zip(parts, texts, strict=True):
        if text is None:
            part.ClearField("doc_string")
        else:
            part.doc_string = text
    # Nodes from ONNX's own definition of an operator are not in the model and have no mark.
    return lowered.program, {name: int(place) for name, place in holders.items() if place.isdigit()}


def _changed(
    arrays: Mapping[str, np.ndarray], known: Mapping[str, Any], program: Program
) -> dict[str, np.ndarray]:
    """Returns the arrays that have changed, and the copies that an ``Identity`` made of them."""
    new = {
        name: array
        for name, array in arrays.items()
        if name not in known or not _equal(array, np.asarray(known[name]))
    }
    for call in program.calls:
        copied = call.operator.function is ops.identity and call.outputs
        if copied and call.inputs[0] in new and call.outputs[0] in known:
            name = call.outputs[0]
            new.setdefault(name, arrays.get(name, np.asarray(known[name])))
    return new


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Compares arrays bit by bit, so that NaN is equal to itself and 0 differs from -0."""
    if one.dtype != other.dtype or one.dtype.hasobject:
        return np.array_equal(one, other)
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _conflicts(new: Mapping[str, np.ndarray], holders: Mapping[str, int]) -> Iterator[str]:
    """Yields a message for each part of the file that several different arrays would replace."""
    sharing = defaultdict(list)
    for name, place in holders.items():
        sharing[place].append(name)
    for place in {holders[name] for name in new if name in holders}:
        first, *others = names = sharing[place]
        if any(
            name not in new or not _equal(new[name], new.get(first, np.array(())))
            for name in others
        ):
            yield f"  {', '.join(sorted(names))}: the file stores them once, but they differ"


def _tensor(part: Any) -> onnx.TensorProto | None:
    """Returns the tensor of an initializer or a ``Constant`` node, else None."""
    if isinstance(part, onnx.TensorProto):
        return part
    values = [a.t for a in part.attribute if a.name == "value" and a.HasField("t")]
    return values[0] if part.op_type == "Constant" and values else None


def _problem(part: Any, known: Any, array: np.ndarray) -> str:
    """Returns why an array cannot replace a part, or an empty string if it can."""
    tensor = None if part is None else _tensor(part)
    if tensor is not None:
        shape = tuple(tensor.dims)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    elif part is None or known is None:
        return "the model has no value of this name"
    else:
        shape, dtype = known.shape, known.dtype
    if shape != array.shape or dtype != array.dtype:
        return f"got {array.dtype} {array.shape}, wanted {dtype} {shape}"
    return ""


def _put(part: Any, array: np.ndarray) -> None:
    """Sets the value of an initializer or ``Constant`` node; turns any other node into one."""
    tensor = _tensor(part)
    if tensor is not None:
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        return
    value = onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array, part.output[0]))
    part.op_type, part.domain, part.overload = "Constant", "", ""
    del part.input[:], part.attribute[:]
    part.attribute.append(value)
