"""Runs recurrent layers with :mod:`jaxatr.kernels`, or variants that it lacks with a scan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr import kernels
from jaxatr.onnx.ops import functions
from jaxatr.onnx.ops.values import Value, first_results

# Name to function and ONNX's default alpha and beta, None if the function has no such parameter.
ACTIVATIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "relu": (lambda x, a, b: jax.nn.relu(x), None, None),
    "tanh": (lambda x, a, b: jnp.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: jax.nn.sigmoid(x), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: functions.leaky_relu(x, alpha=a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: functions.thresholded_relu(x, alpha=a), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * jnp.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: functions.hard_sigmoid(x, alpha=a, beta=b), 0.2, 0.5),
    "elu": (lambda x, a, b: functions.elu(x, alpha=a), 1.0, None),
    "softsign": (lambda x, a, b: functions.softsign(x), None, None),
    "softplus": (lambda x, a, b: functions.softplus(x), None, None),
}


def activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Callable[[Value], Value]]:
    """Returns activation functions by name; each takes the next parameters from the lists.

    Raises:
      ValueError: an activation is unknown.
    """
    alphas, betas = list(alphas or ()), list(betas or ())
    selected = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise ValueError(f"activations: got {name!r}, wanted one of {list(ACTIVATIONS)}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        selected.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))
    return selected


class Weights(NamedTuple):
    """The weights of a layer in all directions, or in one, as ONNX's operators take them."""

    w: Value
    r: Value
    b: Value | None
    p: Value | None = None


Kernel: TypeAlias = tuple[kernels.recurrent.Cell, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The attributes that all recurrent operators share; :func:`.recurrent.rnn` describes them."""

    activations: Sequence[str]
    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0
    outputs: int = 1


def run_layer(
    cell: Callable[..., Any],
    kernel: Kernel | None,
    usual: Sequence[str],
    x: Value,
    weights: Weights,
    states: Sequence[Value | None],
    lengths: Value | None,
    options: Options,
) -> Any:
    """Runs a recurrent layer by :mod:`jaxatr.kernels` if it is a standard one, else by a scan.

    Args:
      cell: function from (weights, activations) to a step function from (states, input) to states.
      kernel: type of the cell, and function from parameters, sequences ``[b, t, i]``, lengths and
        initial states to all hidden states ``[b, t, directions · h]`` and the last states; None if
        no kernel computes this cell.
      usual: names of the activations, in lower case, that the kernel has.
      x: ``[t, b, i]``, or ``[b, t, i]`` with layout 1.
      weights: arrays ``[directions, …]``.
      states: initial states ``[directions, b, h]``, or ``[b, directions, h]`` with layout 1; None
        for zeros.
      lengths: lengths of the sequences ``[b]``; None for full length.
      options: the settings.

    Returns:
      The first ``options.outputs`` of all hidden states ``[t, directions, b, h]`` and, for each
      state, the last one ``[directions, b, h]``; with layout 1 the batch is the first axis. One
      result is not in a tuple.
    """
    direction, layout = options.direction, options.layout
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction: got {direction!r}, wanted forward, reverse or bidirectional")
    count, given = _directions(direction), weights.w.shape[0]
    if given != count:
        raise ValueError(f"w: got {given} directions, wanted {count}")
    names = [name.lower() for name in (tuple(options.activations) * count)[: len(usual) * count]]
    back = direction == "reverse" and lengths is not None
    if kernel is not None and names == list(usual) * count and not back and not options.clip:
        results = _by_kernel(*kernel, x, weights, states, lengths, direction, layout)
    else:
        results = _scanned(cell, len(usual), x, weights, states, lengths, options)
    return first_results(results, options.outputs)


def _scanned(
    cell: Callable[..., Any],
    functions_each: int,
    x: Value,
    weights: Weights,
    states: Sequence[Value | None],
    lengths: Value | None,
    options: Options,
) -> tuple[Value, ...]:
    """Scans a recurrent cell over time in each direction."""
    direction, layout = options.direction, options.layout
    names, parameters = options.activations, (options.activation_alpha, options.activation_beta)
    count = _directions(direction)
    activation_functions = activations(
        (tuple(names) * count)[: functions_each * count], *parameters
    )
    if layout:
        x = jnp.swapaxes(x, 0, 1)
        states = [None if s is None else jnp.swapaxes(s, 0, 1) for s in states]
    batch = x.shape[1]
    ys, lasts = [], []
    for i in range(count):
        step = cell(
            Weights._make(None if one is None else one[i] for one in weights),
            activation_functions[i * functions_each : (i + 1) * functions_each],
        )
        hidden = weights.r.shape[-1]
        start = tuple(jnp.zeros((batch, hidden), x.dtype) if s is None else s[i] for s in states)
        backward = direction == "reverse" or i == 1
        y, last = _over_time(step, start, jnp.asarray(x), lengths, backward)
        ys.append(y)
        lasts.append(last)
    every = jnp.stack(ys, 1)
    final = [jnp.stack(group) for group in zip(*lasts, strict=True)]
    if layout:
        every = jnp.moveaxis(every, 2, 0)
        final = [jnp.swapaxes(group, 0, 1) for group in final]
    return every, *final


def _directions(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


def _over_time(
    step, start: tuple[Value, ...], x: Value, lengths: Value | None, backward: bool
) -> tuple[Any, Any]:
    """Scans sequences, each from its own first or last element.

    A step sees zeros as the hidden state of a sequence that has ended, as in ONNX Runtime; it
    matters to a cell that quantises the states of a batch together.
    """
    if lengths is None:

        def plain(carry, value):
            new = step(carry, value)
            return new, new[0]

        last, y = jax.lax.scan(plain, start, x, reverse=backward)
        return y, last

    at = jnp.arange(len(x))[:, None]
    inside = at < jnp.asarray(lengths)
    order = jnp.where(inside, jnp.asarray(lengths) - 1 - at, at)[:, :, None]

    def one(carry, now):
        (last, output), (value, valid) = carry, now
        new = step((output, *last[1:]), value)
        last = tuple(jnp.where(valid[:, None], n, o) for n, o in zip(new, last, strict=True))
        output = jnp.where(valid[:, None], new[0], 0)
        return (last, output), output

    x = jnp.take_along_axis(x, order, 0) if backward else x
    (last, _), y = jax.lax.scan(one, (start, start[0]), (x, inside))
    return jnp.take_along_axis(y, order, 0) if backward else y, last


def clipped(x: Value, limit: float | None) -> Value:
    """Clips x to [−limit, limit], unless ``limit`` is None or 0."""
    return x if limit is None or limit == 0 else jnp.clip(x, -limit, limit)


def _by_kernel(
    cell: kernels.recurrent.Cell,
    run: Callable[..., Any],
    x: Value,
    weights: Weights,
    states: Sequence[Value | None],
    lengths: Value | None,
    direction: str,
    layout: int,
) -> tuple[Value, ...]:
    """Computes the result of :func:`_scanned` with a function of :mod:`jaxatr.kernels`."""
    layer = kernels.recurrent.from_onnx(cell, weights.w, weights.r, weights.b)
    x = jnp.asarray(x) if layout else jnp.swapaxes(x, 0, 1)
    states = [s if s is None or not layout else jnp.swapaxes(s, 0, 1) for s in states]
    if any(s is not None for s in states):
        zero = jnp.zeros((len(layer), x.shape[0], layer[0].r.shape[0]), x.dtype)
        states = [zero if s is None else jnp.asarray(s) for s in states]
    initial = None if any(s is None for s in states) else tuple(states)
    lengths = None if lengths is None else jnp.asarray(lengths)
    back = direction == "reverse"
    every, final = run((layer,), jnp.flip(x, 1) if back else x, lengths, initial)
    shape = (*x.shape[:2], len(layer), layer[0].r.shape[0])
    every = (jnp.flip(every, 1) if back else every).reshape(shape)
    if layout:
        return every, *(jnp.swapaxes(s, 0, 1) for s in final)
    return jnp.transpose(every, (1, 2, 0, 3)), *final


def biases(b: Value | None, gates: int, like: Value) -> tuple[Value, Value]:
    """Splits ``b`` into the biases of the input and of the state product; zeros if it is None."""
    if b is None:
        zero = jnp.zeros(gates * like.shape[-1], like.dtype)
        return zero, zero
    return b[: b.shape[0] // 2], b[b.shape[0] // 2 :]
