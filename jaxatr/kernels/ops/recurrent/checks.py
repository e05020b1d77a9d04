"""Argument checks of the recurrent networks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.ops.checks import check_algorithm_name
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Params, Weights


def check_params(problem: RecurrentProblem, params: Params) -> tuple[int, int]:
    """Checks the weights of a network.

    Returns:
      The size of the state and the number of states, ``layers * directions``.

    Raises:
      ValueError: an array of ``params`` is missing or has the wrong shape.
    """
    if not params or not params[0]:
        raise ValueError("params: got no layers, wanted params[layer][direction]")
    directions, width = len(params[0]), problem.inputs
    if directions > 2:
        raise ValueError(f"params[0]: got {directions} directions, wanted one or two")
    for index, layer in enumerate(params):
        if len(layer) != directions:
            raise ValueError(
                f"params[{index}]: got {len(layer)} directions, wanted {directions} as in params[0]"
            )
        for direction, weights in enumerate(layer):
            _check_weights(problem, f"params[{index}][{direction}]", weights, width, params)
        width = directions * params[0][0].r.shape[0]
    return params[0][0].r.shape[0], directions * len(params)


def _check_weights(problem, name: str, weights: Any, width: int, params: Params) -> None:
    if not isinstance(weights, Weights):
        raise ValueError(f"{name}: got a {type(weights).__name__}, wanted Weights(w, r, b, rb)")
    hidden = jnp.shape(params[0][0].r)[0]
    columns = problem.gates * hidden
    check_shape(f"{name}.r", weights.r, (hidden, columns))
    if weights.w is not None:
        check_shape(f"{name}.w", weights.w, (width, columns))
    elif width != hidden:
        raise ValueError(
            f"{name}.w: got None, but an input of {width} features cannot be added to gates of "
            f"{hidden}"
        )
    if weights.b is not None:
        check_shape(f"{name}.b", weights.b, (columns,))
    if weights.rb is not None and problem.cell != "gru":
        raise ValueError(f"{name}.rb: got an array, wanted None: only a GRU has this bias")
    if weights.rb is not None:
        check_shape(f"{name}.rb", weights.rb, (hidden,))


def check_shape(name: str, array: Any, shape: tuple[Any, ...]) -> None:
    """Raises a ``ValueError`` unless the array has the shape."""
    if jnp.shape(array) != shape:
        raise ValueError(f"{name}: got shape {jnp.shape(array)}, wanted {shape}")


def check_algorithm(
    problem: RecurrentProblem, params: Params, name: str, algorithms: Mapping[str, Any]
) -> None:
    """Raises a ``ValueError`` unless the algorithm exists and can compute each layer."""
    check_algorithm_name(name, algorithms)
    if name == "auto":
        return
    for skip in {weights.w is None for layer in params for weights in layer}:
        one = dataclasses.replace(problem, skip=skip, hidden=params[0][0].r.shape[0])
        if not algorithms[name].applies(one):
            fit = [other for other, a in algorithms.items() if a.applies(one)]
            raise ValueError(f"algorithm: {name!r} cannot compute {one}, but {fit} can")
