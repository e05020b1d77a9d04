"""Stacks of layers, in one or two directions, on sequences of different lengths."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent import primitive
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.problem import Cell, RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Params, Weights
from jaxatr.typing import Array

Lengths = Array | tuple[int, ...] | None


def stack(
    params: Params,
    x: Array,
    cell: Cell,
    lengths: Lengths,
    initial: State,
    algorithm: str,
    reset_after: bool = True,
) -> tuple[Array, State]:
    """Runs all layers of a network.

    Args:
      params: ``params[layer][direction]``.
      x: ``[t, b, d]``.
      cell: the type of the cells.
      lengths: the number of steps of each sequence: a static tuple, longest first, or an array.
      initial: the initial states, ``[layers * directions, b, h]`` each.
      algorithm: the name of an algorithm, or ``"auto"``.
      reset_after: whether a GRU's reset gate acts after the recurrent product.

    Returns:
      The top layer's outputs ``[t, b, directions * h]``, zero beyond a sequence's length, and the
      final states ``[layers * directions, b, h]``.
    """
    dtype = x.dtype
    mask = None
    if lengths is not None and not isinstance(lengths, tuple):
        mask = (jnp.arange(x.shape[0])[:, None] < lengths)[..., None]
        x = jnp.where(mask, x, 0)  # NaN in the padding would make the gradients NaN
    finals: list[State] = []
    for layer in params:
        outputs = []
        for index, weights in enumerate(layer):
            problem = RecurrentProblem(
                cell=cell,
                steps=x.shape[0],
                batch=x.shape[1],
                inputs=x.shape[2],
                hidden=weights.r.shape[0],
                skip=weights.w is None,
                masked=mask is not None,
                dtype=dtype.name,
                reset_after=reset_after,
            )
            state = tuple(s[len(finals)].astype(problem.wide) for s in initial)
            hs, final = _direction(problem, weights, x, state, mask, index == 1, algorithm, lengths)
            outputs.append(hs.astype(dtype))
            finals.append(final)
        x = jnp.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
    states = tuple(jnp.stack(parts).astype(dtype) for parts in zip(*finals, strict=True))
    return x, states


def _direction(problem, weights, x, state, mask, reverse, algorithm, lengths):
    if isinstance(lengths, tuple) and problem.steps:
        return _packed(problem, weights, x, state, reverse, algorithm, lengths)
    hs, final = _run(problem, weights, x, state, mask, reverse, algorithm)
    return hs if mask is None else jnp.where(mask, hs, 0), final


def _run(problem: RecurrentProblem, weights: Weights, x, state, mask, reverse, algorithm):
    if algorithm == "auto":
        return primitive.layer(problem, reverse, weights, x, state, mask)
    return ALGORITHMS[algorithm].run(problem, weights, x, state, mask, reverse)


def _packed(problem, weights, x, state, reverse, algorithm, lengths):
    """Runs sequences that are sorted longest first, computing only the steps that exist.

    There is one loop per distinct length. From one to the next the batch shrinks, or grows if it
    runs in reverse.
    """
    pieces = []
    spans = spans_of(lengths, problem.steps)
    for start, stop, rows in reversed(spans) if reverse else spans:
        if rows == 0:
            hs = jnp.zeros((stop - start, 0, problem.hidden), problem.wide)
        else:
            part = dataclasses.replace(problem, steps=stop - start, batch=rows)
            live = tuple(s[:rows] for s in state)
            hs, live = _run(part, weights, x[start:stop, :rows], live, None, reverse, algorithm)
            state = tuple(s.at[:rows].set(new) for s, new in zip(state, live, strict=True))
        pieces.append(jnp.pad(hs, ((0, 0), (0, problem.batch - rows), (0, 0))))
    return jnp.concatenate(pieces[::-1] if reverse else pieces), state


def spans_of(lengths: Sequence[int], steps: int) -> list[tuple[int, int, int]]:
    """Divides the steps into spans ``(start, stop, rows)`` with a constant number of sequences.

    >>> spans_of((5, 5, 2), 6)
    [(0, 2, 3), (2, 5, 2), (5, 6, 0)]
    """
    edges = sorted({0, steps, *lengths})
    return [
        (start, stop, sum(length > start for length in lengths))
        for start, stop in zip(edges[:-1], edges[1:], strict=True)
    ]
