"""Traces a network or a function to a jaxpr with a free batch size."""

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from jaxatr.jax_internals import InconclusiveDimensionOperation
from jaxatr.typing import PyTree

BATCH = "batch"


class FreeAxis(NamedTuple):
    """An axis of an input whose size is free.

    Attributes:
      name: name of the size in the file; axes with the same name have the same size.
      least: smallest size that the function accepts.
    """

    name: str
    least: int = 1


class Traced(NamedTuple):
    """A traced function.

    Attributes:
      jaxpr: the closed jaxpr; its inputs are the leaves of the variables, then those of the inputs.
      weights: the leaves of the variables, by name.
      inputs: names of the leaves of the inputs.
      outputs: names of the leaves of the result.
    """

    jaxpr: Any
    weights: dict[str, Any]
    inputs: list[str]
    outputs: list[str]


def trace(
    function: Callable[..., Any],
    variables: PyTree,
    example_inputs: Sequence[Any],
    *,
    dynamic_batch: bool,
    free_axes: Sequence[Mapping[int, FreeAxis]] = (),
) -> Traced:
    """Traces a function, and names its inputs and outputs.

    Args:
      function: a linen module, or a function ``f(variables, *inputs)``.
      variables: the function's variables.
      example_inputs: arrays or trees of arrays, of which only shapes and dtypes are used.
      dynamic_batch: whether the first axis of every input has a free size.
      free_axes: for each of the leading inputs, which must be arrays, further axes with a free
        size, by axis index.

    Raises:
      ValueError: the inputs have no common batch size, or the function uses a free size as a
        number.
    """
    specs = [jax.tree.map(_spec, example) for example in example_inputs]
    free = {axis.name: axis.least for axes in free_axes for axis in axes.values()}
    names = [BATCH, *free]
    limits = [f"{name} >= {least}" for name, least in free.items() if least > 1]
    sizes = dict(
        zip(names, jax_export.symbolic_shape(", ".join(names), constraints=limits), strict=True)
    )
    if dynamic_batch:
        specs = _with_free_batch(specs, sizes[BATCH])
    for place, axes in enumerate(free_axes):
        shape = list(specs[place].shape)
        for axis, one in axes.items():
            shape[axis] = sizes[one.name]
        specs[place] = jax.ShapeDtypeStruct(tuple(shape), specs[place].dtype)
    call, parameters = _callable(function)
    weights = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(variables)}
    given = jax.tree.map(_spec, variables)
    try:
        jaxpr, shapes = jax.make_jaxpr(call, return_shape=True)(given, *specs)
    except (TypeError, ValueError, InconclusiveDimensionOperation) as error:
        symbolic = dynamic_batch or bool(free)
        words = ["_DimExpr"] if isinstance(error, ValueError) else [*names, "_DimExpr"]
        if not symbolic or not any(word in str(error) for word in words):
            raise
        raise ValueError(_needs_the_size(error)) from error
    jax.tree.map(_spec, shapes)  # refuses random keys
    inputs = [
        _joined(name, path)
        for name, spec in zip(_parameters(parameters, len(specs)), specs, strict=True)
        for path, _ in jax.tree.leaves_with_path(spec)
    ]
    outputs = [_name(path) or "output" for path, _ in jax.tree.leaves_with_path(shapes)]
    outputs = [f"output.{name}" if name[0].isdigit() else name for name in outputs]
    return Traced(jaxpr, weights, inputs, outputs)


def _spec(leaf: Any) -> jax.ShapeDtypeStruct:
    array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        raise ValueError(
            f"variables, inputs or results: got {array.dtype}, wanted numbers; a file cannot hold "
            "random keys, so let the function use a fixed one, whose draws become constants"
        )
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def _with_free_batch(specs: list[Any], batch: Any) -> list[Any]:
    leaves = [leaf for leaf in jax.tree.leaves(specs) if leaf.shape]
    sizes = sorted({leaf.shape[0] for leaf in leaves})
    if len(sizes) != 1:
        raise ValueError(
            f"example_inputs: got first axes of sizes {sizes or 'none'}, wanted the same batch "
            "size for all inputs, or dynamic_batch=False"
        )

    def freed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = (batch, *leaf.shape[1:]) if leaf.shape else ()
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(freed, specs)


def _callable(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
    """Returns a function ``f(variables, *inputs)`` and the names of its inputs, if known."""
    if not isinstance(function, nn.Module):
        return function, _positional(function)[1:]
    names = _positional(type(function).__call__)[1:]
    options: dict[str, Any] = {"train": False} if "train" in names else {}

    def call(variables: PyTree, *inputs: Any) -> Any:
        return function.apply(variables, *inputs, **options)

    return call, names


def _positional(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _parameters(names: list[str], count: int) -> list[str]:
    fallback = ["input"] if count == 1 else [f"input_{index}" for index in range(count)]
    return names[:count] if len(names) >= count else fallback


def _name(path: Sequence[Any]) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def _joined(name: str, path: Sequence[Any]) -> str:
    return f"{name}/{_name(path)}" if path else name


def _needs_the_size(error: Exception) -> str:
    libraries = [Path(jax.__file__).parent, Path(nn.__file__).parents[1], Path(__file__).parent]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(folder) for folder in libraries)
    ]
    place, reason = "the function", str(error).splitlines()[0]
    if frames:  # a function of jax has none of its own
        place = f"{frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})"
    return (
        f"{place} needs the batch size as a number "
        f"({reason}): write x.shape[0] in place of len(x), do not use the size of the example, "
        "or export with dynamic_batch=False"
    )
