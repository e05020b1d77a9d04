"""Recurrent layers: one scan over time, every gate's weights in one product."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops import functions
from jaxatr.onnx.ops.values import Value
from jaxatr.onnx.registry import register

# Which parameters each activation has, with the defaults that the specification gives.
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
    """Returns the functions of these names; each takes its parameters from the lists in turn.

    Raises:
      ValueError: there is no such function.
    """
    alphas, betas = list(alphas or ()), list(betas or ())
    found = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise ValueError(f"activations: got {name!r}, wanted one of {list(ACTIVATIONS)}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        found.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))
    return found


def _run(
    cell: Callable[..., Any],
    x: Value,
    weights: Sequence[Value | None],
    states: Sequence[Value | None],
    lengths: Value | None,
    direction: str,
    layout: int,
    functions_each: int,
    names: Sequence[str],
    parameters: tuple[Any, Any],
) -> tuple[Value, ...]:
    """Returns all hidden states and the last ones of each direction.

    Args:
      cell: from ``(weights, functions)`` to a function of (states, input) to states.
      x: ``[t, b, i]``, with layout 1 ``[b, t, i]``.
      weights: each ``[directions, …]``, or None.
      states: each ``[directions, b, h]``, with layout 1 ``[b, directions, h]``.
      lengths: ``[b]``, or None.
      direction: forward, reverse or bidirectional.
      layout: 1 for the batch first.
      functions_each: activations of one direction.
      names: the activations, those of each direction.
      parameters: their alphas and betas.

    Returns:
      ``[t, directions, b, h]`` and, for each state, ``[directions, b, h]``; the batch first with
      layout 1.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction: got {direction!r}, wanted forward, reverse or bidirectional")
    count = 2 if direction == "bidirectional" else 1
    if weights[0] is None or weights[0].shape[0] != count:
        raise ValueError(f"w: wanted {count} directions first")
    chosen = activations((tuple(names) * count)[: functions_each * count], *parameters)
    if layout:
        x = jnp.swapaxes(x, 0, 1)
        states = [None if s is None else jnp.swapaxes(s, 0, 1) for s in states]
    time, batch = x.shape[:2]
    inside = None if lengths is None else jnp.arange(time)[:, None] < jnp.asarray(lengths)
    ys, lasts = [], []
    for i in range(count):
        step = cell(
            [None if w is None else w[i] for w in weights],
            chosen[i * functions_each : (i + 1) * functions_each],
        )
        hidden = weights[1].shape[-1]  # pyright: ignore[reportOptionalMemberAccess]
        start = tuple(jnp.zeros((batch, hidden), x.dtype) if s is None else s[i] for s in states)
        backward = direction == "reverse" or i == 1
        y, last = _scanned(step, start, jnp.asarray(x), inside, backward)
        ys.append(y)
        lasts.append(last)
    every = jnp.stack(ys, 1)
    final = [jnp.stack(group) for group in zip(*lasts, strict=True)]
    if layout:
        every = jnp.moveaxis(every, 2, 0)
        final = [jnp.swapaxes(group, 0, 1) for group in final]
    return every, *final


def _scanned(step, start, x: Value, inside: Value | None, backward: bool) -> tuple[Any, Any]:
    def one(carry, now):
        value, valid = now
        new = step(carry, value)
        if valid is None:
            return new, new[0]
        new = tuple(jnp.where(valid[:, None], n, o) for n, o in zip(new, carry, strict=True))
        return new, jnp.where(valid[:, None], new[0], 0)

    last, y = jax.lax.scan(one, start, (x, inside), reverse=backward)
    return y, last


def _clipped(x: Value, limit: float | None) -> Value:
    return x if limit is None or limit == 0 else jnp.clip(x, -limit, limit)


def _biases(b: Value | None, gates: int, like: Value) -> tuple[Value, Value]:
    """Returns the bias of the input's product and that of the hidden state's."""
    if b is None:
        zero = jnp.zeros(gates * like.shape[-1], like.dtype)
        return zero, zero
    return b[: b.shape[0] // 2], b[b.shape[0] // 2 :]


def _chosen(results: tuple[Value, ...], outputs: int) -> Any:
    return results[0] if outputs == 1 else results[:outputs]


@register("RNN", weights=("w", "r", "b"), ignored=("output_sequence",))
def rnn(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    outputs: int = 1,
) -> Any:
    """Returns all hidden states, and on demand the last ones (ONNX RNN-22).

    Args:
      x: ``[t, b, i]``.
      w: ``[directions, h, i]``.
      r: ``[directions, h, h]``.
      b: ``[directions, 2h]``.
      sequence_lens: ``[b]``; what lies behind is zero.
      initial_h: ``[directions, b, h]``.
      activations: one for each direction.
      activation_alpha: parameters of those activations that have one.
      activation_beta: their second parameters.
      clip: largest absolute value before an activation.
      direction: forward, reverse or bidirectional.
      hidden_size: h, which ``r`` says too.
      layout: 1: x ``[b, t, i]``, results ``[b, t, directions, h]`` and ``[b, directions, h]``.
      outputs: how many come out.

    Returns:
      ``[t, directions, b, h]``, ``[directions, b, h]``.
    """

    def cell(weights, functions):
        w, r, b = weights
        of_input, of_state = _biases(b, 1, r)

        def step(carry, value):
            total = value @ w.T + carry[0] @ r.T + of_input + of_state
            return (functions[0](_clipped(total, clip)),)

        return step

    results = _run(
        cell,
        x,
        (w, r, b),
        (initial_h,),
        sequence_lens,
        direction,
        layout,
        1,
        activations,
        (activation_alpha, activation_beta),
    )
    return _chosen(results, outputs)


@register("GRU", weights=("w", "r", "b"), ignored=("output_sequence",))
def gru(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh"),
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    outputs: int = 1,
) -> Any:
    """Returns all hidden states, and on demand the last ones (ONNX GRU-22).

    Args:
      x: ``[t, b, i]``.
      w: ``[directions, 3h, i]``: update, reset, hidden.
      r: ``[directions, 3h, h]``.
      b: ``[directions, 6h]``.
      sequence_lens: ``[b]``; what lies behind is zero.
      initial_h: ``[directions, b, h]``.
      activations: of the gates and of the hidden state, for each direction.
      activation_alpha: parameters of those activations that have one.
      activation_beta: their second parameters.
      clip: largest absolute value before an activation.
      direction: forward, reverse or bidirectional.
      hidden_size: h, which ``r`` says too.
      layout: 1: x ``[b, t, i]``, results ``[b, t, directions, h]`` and ``[b, directions, h]``.
      linear_before_reset: whether the reset gate acts after the product.
      outputs: how many come out.

    Returns:
      ``[t, directions, b, h]``, ``[directions, b, h]``.
    """

    def cell(weights, functions):
        w, r, b = weights
        of_input, of_state = _biases(b, 3, r)
        h = r.shape[-1]

        def step(carry, value):
            (state,) = carry
            whole = value @ w.T + of_input
            gates = whole[:, : 2 * h] + state @ r[: 2 * h].T + of_state[: 2 * h]
            gates = functions[0](_clipped(gates, clip))
            update, reset = gates[:, :h], gates[:, h:]
            if linear_before_reset:
                part = reset * (state @ r[2 * h :].T + of_state[2 * h :])
            else:
                part = (reset * state) @ r[2 * h :].T + of_state[2 * h :]
            new = functions[1](_clipped(whole[:, 2 * h :] + part, clip))
            return ((1 - update) * new + update * state,)

        return step

    results = _run(
        cell,
        x,
        (w, r, b),
        (initial_h,),
        sequence_lens,
        direction,
        layout,
        2,
        activations,
        (activation_alpha, activation_beta),
    )
    return _chosen(results, outputs)


@register("LSTM", weights=("w", "r", "b", "p"), ignored=("output_sequence",))
def lstm(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh", "Tanh"),
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    outputs: int = 1,
) -> Any:
    """Returns all hidden states, and on demand the last ones and the last cells (ONNX LSTM-22).

    Args:
      x: ``[t, b, i]``.
      w: ``[directions, 4h, i]``: input, output, forget, cell.
      r: ``[directions, 4h, h]``.
      b: ``[directions, 8h]``.
      sequence_lens: ``[b]``; what lies behind is zero.
      initial_h: ``[directions, b, h]``.
      initial_c: ``[directions, b, h]``.
      p: ``[directions, 3h]``, from the cell to its gates: input, output, forget.
      activations: of the gates, the cell and the hidden state, for each direction.
      activation_alpha: parameters of those activations that have one.
      activation_beta: their second parameters.
      clip: largest absolute value before an activation.
      direction: forward, reverse or bidirectional.
      hidden_size: h, which ``r`` says too.
      input_forget: whether the forget gate is one minus the input gate.
      layout: 1: x ``[b, t, i]``, results ``[b, t, directions, h]`` and ``[b, directions, h]``.
      outputs: how many come out.

    Returns:
      ``[t, directions, b, h]``, ``[directions, b, h]``, ``[directions, b, h]``.
    """

    def cell(weights, functions):
        w, r, b, p = weights
        of_input, of_state = _biases(b, 4, r)
        h = r.shape[-1]
        peep = [0, 0, 0] if p is None else [p[i * h : (i + 1) * h] for i in range(3)]

        def step(carry, value):
            state, memory = carry
            whole = value @ w.T + state @ r.T + of_input + of_state
            i, o, f, c = (whole[:, k * h : (k + 1) * h] for k in range(4))
            i = functions[0](_clipped(i + peep[0] * memory, clip))
            f = functions[0](_clipped(f + peep[2] * memory, clip)) if not input_forget else 1 - i
            memory = f * memory + i * functions[1](_clipped(c, clip))
            o = functions[0](_clipped(o + peep[1] * memory, clip))
            return o * functions[2](memory), memory

        return step

    results = _run(
        cell,
        x,
        (w, r, b, p),
        (initial_h, initial_c),
        sequence_lens,
        direction,
        layout,
        3,
        activations,
        (activation_alpha, activation_beta),
    )
    return _chosen(results, outputs)
