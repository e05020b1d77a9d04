"""From a network or a function to a jaxpr whose batch size is free."""

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.extend.core as jex
import numpy as np
from jax import export as jax_export

from jaxatr.typing import PyTree

BATCH = "batch"


class FreeAxis(NamedTuple):
    """An axis of an input whose size is free.

    Attributes:
      name: of the size, in the file; axes of one name are of one size.
      least: the smallest size that the function takes.
    """

    name: str
    least: int = 1


class Traced(NamedTuple):
    """A function as equations.

    Attributes:
      jaxpr: closed; its variables are the leaves of ``variables`` and then of the inputs.
      weights: name to array, for the first variables.
      inputs: names of the others.
      outputs: names of the results.
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
    """Returns the equations of a function, with names for what goes in and out.

    Args:
      function: a linen module, or ``f(variables, *inputs)``.
      variables: of it.
      example_inputs: arrays or trees of arrays, for their shapes and dtypes alone.
      dynamic_batch: whether the first axis of every input is a free batch size.
      free_axes: for each of the first inputs, which are arrays, further free axes by number.

    Raises:
      ValueError: the inputs have no common batch size, or the function uses a free one as a number.
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
    except (TypeError, jex.InconclusiveDimensionOperation) as error:
        symbolic = dynamic_batch or bool(free)
        if not symbolic or not any(word in str(error) for word in (*names, "_DimExpr")):
            raise
        raise ValueError(_needs_the_size(error)) from error
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
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def _with_free_batch(specs: list[Any], batch: Any) -> list[Any]:
    leaves = [leaf for leaf in jax.tree.leaves(specs) if leaf.shape]
    sizes = sorted({leaf.shape[0] for leaf in leaves})
    if len(sizes) != 1:
        raise ValueError(
            f"example_inputs: got first axes of {sizes or 'no size at all'}, wanted one batch size "
            "for all inputs, or dynamic_batch=False"
        )

    def freed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = (batch, *leaf.shape[1:]) if leaf.shape else ()
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(freed, specs)


def _callable(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
    """Returns ``f(variables, *inputs)`` and the names of its inputs, as far as they are known."""
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
    except (TypeError, ValueError):  # of a builtin
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
    frame, reason = frames[-1], str(error).splitlines()[0]
    return (
        f"{frame.filename}:{frame.lineno} ({frame.line}) needs the batch size as a number "
        f"({reason}): write x.shape[0] for len(x), and nothing of the example's own size; "
        "or export with dynamic_batch=False"
    )
