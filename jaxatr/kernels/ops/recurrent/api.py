"""The public recurrent networks, which check their arguments and run the layers time-major."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.ops.checks import check_floating
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.kernels.ops.recurrent.checks import check_algorithm, check_params, check_shape
from jaxatr.kernels.ops.recurrent.layers import stack
from jaxatr.kernels.ops.recurrent.problem import Cell, RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Params
from jaxatr.typing import Array, ArrayLike, Float

Lengths: TypeAlias = ArrayLike | Sequence[int] | None
LSTMState: TypeAlias = tuple[Float[Array, "n b h"], Float[Array, "n b h"]]


def lstm(
    params: Params,
    x: Float[Array, "b t d"],
    *,
    lengths: Lengths = None,
    initial: LSTMState | None = None,
    algorithm: str = "auto",
) -> tuple[Float[Array, "b t features"], LSTMState]:
    """Runs a long short-term memory network (equations 1 to 10 of the MIOpen paper).

    ``i, f, o = sigmoid(x W + h R + b)``, ``c~ = tanh(x W + h R + b)``, ``c = f c + i c~``,
    ``h = o tanh(c)``, with the columns of ``W`` and ``R`` in the order i, f, o, c~.

    All of jax's transformations work; ``jax.shard_map`` needs ``check_vma=False``. The structure of
    ``params`` determines the number of layers and directions, and which of them have a bias and an
    input matrix (see :class:`Weights`).

    Args:
      params: ``params[layer][direction]``, a tree of :class:`Weights`; the second direction runs
        backwards in time. A layer above the first reads both directions of the one below.
      x: input sequences.
      lengths: the number of steps of each sequence, by default all. An array ``[b]`` may change
        from call to call; steps beyond a sequence's length are computed and masked. Integers in a
        tuple or list, longest first, are static: only existing steps are computed, in one loop per
        distinct length. Integers in another order are masked like an array.
      initial: ``(h, c)``, ``[layers * directions, b, h]`` each, directions within layers; zeros if
        None.
      algorithm: ``"auto"``, or one of :data:`ALGORITHMS` for every layer and direction.
        ``"auto"`` is the algorithm that was measured to be fastest on the device
        (:func:`jaxatr.kernels.find`), or without a measurement the heuristic's. If the network is
        differentiated, the choice is that for the backward problem.
        :func:`jaxatr.kernels.choices` pins it.

    Returns:
      The top layer's ``h`` at each step, ``[b, t, directions * h]``, zero beyond a sequence's
      length; and the final ``(h, c)`` at each sequence's end, of the shape of ``initial``.

    Raises:
      ValueError: shapes or names do not fit, or the algorithm cannot compute the network.
    """
    return _network("lstm", params, x, lengths, initial, algorithm)  # type: ignore[return-value]


def gru(
    params: Params,
    x: Float[Array, "b t d"],
    *,
    lengths: Lengths = None,
    initial: Float[Array, "n b h"] | None = None,
    reset: Literal["after", "before"] = "after",
    algorithm: str = "auto",
) -> tuple[Float[Array, "b t features"], Float[Array, "n b h"]]:
    """Runs a network of gated recurrent units.

    ``r, z = sigmoid(x W + h R + b)``, ``n = tanh(x W + b + r * (h R + rb))``,
    ``h = (1 - z) n + z h``, with the columns of ``W`` and ``R`` in the order r, z, n.

    The other arguments and the results are those of :func:`lstm`.

    Args:
      initial: ``[layers * directions, b, h]``; zeros if None.
      reset: whether the reset gate acts ``"after"`` the recurrent product, as above and in cuDNN,
        PyTorch and flax, or ``"before"`` it, ``n = tanh(x W + b + (r * h) R + rb)``, the default
        of ONNX.

    Returns:
      All ``h`` of the top layer, and the final ``h``, of the shape of ``initial``.
    """
    if reset not in ("after", "before"):
        raise ValueError(f"reset: got {reset!r}, wanted 'after' or 'before'")
    start = None if initial is None else (initial,)
    y, (h,) = _network("gru", params, x, lengths, start, algorithm, reset == "after")
    return y, h


def rnn(
    params: Params,
    x: Float[Array, "b t d"],
    *,
    activation: Literal["relu", "tanh"] = "tanh",
    lengths: Lengths = None,
    initial: Float[Array, "n b h"] | None = None,
    algorithm: str = "auto",
) -> tuple[Float[Array, "b t features"], Float[Array, "n b h"]]:
    """Runs a vanilla recurrent network, ``h = activation(x W + h R + b)``.

    The other arguments and the results are those of :func:`gru`.

    Args:
      activation: ``"relu"`` or ``"tanh"``.
    """
    if activation not in ("relu", "tanh"):
        raise ValueError(f"activation: got {activation!r}, wanted 'relu' or 'tanh'")
    start = None if initial is None else (initial,)
    y, (h,) = _network(activation, params, x, lengths, start, algorithm)
    return y, h


def _network(cell: Cell, params, x, lengths, initial, algorithm, reset_after=True):
    x = jnp.asarray(x)  # jax narrows some NumPy types, such as float64
    if x.ndim != 3:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, t, d]")
    check_floating(x)
    batch, steps, width = x.shape
    problem = RecurrentProblem(
        cell, steps, batch, width, 0, False, False, x.dtype.name, reset_after
    )
    hidden, rows = check_params(problem, params)
    params = jax.tree.map(jnp.asarray, params)  # weights of other libraries are NumPy arrays
    check_algorithm(problem, params, algorithm, ALGORITHMS)
    shape = (rows, batch, hidden)
    if initial is None:
        initial = (jnp.zeros(shape, x.dtype),) * problem.states
    if not isinstance(initial, (tuple, list)) or len(initial) != problem.states:
        raise ValueError(f"initial: wanted {problem.states} arrays {shape}")
    for array in initial:
        check_shape("initial", array, shape)
    y, states = stack(
        params,
        jnp.swapaxes(x, 0, 1),
        cell,
        _lengths(lengths, batch, steps),
        tuple(initial),
        algorithm,
        reset_after,
    )
    return jnp.swapaxes(y, 0, 1), states


def _lengths(lengths: Any, batch: Any, steps: int) -> Array | tuple[int, ...] | None:
    """Returns static lengths (integers, longest first) as a tuple, and others as an array."""
    if lengths is None:
        return None
    if isinstance(lengths, (tuple, list)):
        known = np.asarray(lengths)
        if known.shape != (batch,) or known.dtype.kind != "i":
            raise ValueError(f"lengths: got {lengths!r}, wanted {batch} integers")
        if batch and not 0 <= known.min() <= known.max() <= steps:
            raise ValueError(f"lengths: got {lengths!r}, wanted all from 0 to {steps}")
        if (np.diff(known) <= 0).all():
            return tuple(known.tolist())
        return jnp.asarray(known)
    check_shape("lengths", lengths, (batch,))
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError(f"lengths: got type {lengths.dtype}, wanted integers")
    return jnp.asarray(lengths)
