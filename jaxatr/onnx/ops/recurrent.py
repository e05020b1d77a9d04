"""Recurrent layers: those of :mod:`jaxatr.kernels`, or a scan for what only ONNX has."""

from typing import Any

from jaxatr import kernels
from jaxatr.onnx.ops.recurrence import (
    biases,
    by_kernel,
    check_directions,
    chosen,
    clipped,
    is_usual,
    scanned,
)
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value


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

    check_directions(direction, w)
    usual = activations[0].lower()
    if usual in ("tanh", "relu") and is_usual(
        activations, (usual,), direction, sequence_lens, clip
    ):

        def run(params, x, lengths, initial):
            start = None if initial is None else initial[0]
            y, h = kernels.rnn(params, x, activation=usual, lengths=lengths, initial=start)
            return y, (h,)

        found = by_kernel(run, usual, x, (w, r, b), (initial_h,), sequence_lens, direction, layout)
        return chosen(found, outputs)

    def cell(weights, functions):
        w, r, b = weights
        of_input, of_state = biases(b, 1, r)

        def step(carry, value):
            total = value @ w.T + carry[0] @ r.T + of_input + of_state
            return (functions[0](clipped(total, clip)),)

        return step

    results = scanned(
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
    return chosen(results, outputs)


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

    check_directions(direction, w)
    if is_usual(activations, ("sigmoid", "tanh"), direction, sequence_lens, clip):

        def run(params, x, lengths, initial):
            start = None if initial is None else initial[0]
            reset = "after" if linear_before_reset else "before"
            y, h = kernels.gru(params, x, reset=reset, lengths=lengths, initial=start)
            return y, (h,)

        found = by_kernel(run, "gru", x, (w, r, b), (initial_h,), sequence_lens, direction, layout)
        return chosen(found, outputs)

    def cell(weights, functions):
        w, r, b = weights
        of_input, of_state = biases(b, 3, r)
        h = r.shape[-1]

        def step(carry, value):
            (state,) = carry
            whole = value @ w.T + of_input
            gates = whole[:, : 2 * h] + state @ r[: 2 * h].T + of_state[: 2 * h]
            gates = functions[0](clipped(gates, clip))
            update, reset = gates[:, :h], gates[:, h:]
            if linear_before_reset:
                part = reset * (state @ r[2 * h :].T + of_state[2 * h :])
            else:
                part = (reset * state) @ r[2 * h :].T + of_state[2 * h :]
            new = functions[1](clipped(whole[:, 2 * h :] + part, clip))
            return ((1 - update) * new + update * state,)

        return step

    results = scanned(
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
    return chosen(results, outputs)


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

    check_directions(direction, w)
    usual, rest = ("sigmoid", "tanh", "tanh"), (clip, input_forget, p is not None)
    if is_usual(activations, usual, direction, sequence_lens, *rest):

        def run(params, x, lengths, initial):
            return kernels.lstm(params, x, lengths=lengths, initial=initial)

        states = (initial_h, initial_c)
        found = by_kernel(run, "lstm", x, (w, r, b), states, sequence_lens, direction, layout)
        return chosen(found, outputs)

    def cell(weights, functions):
        w, r, b, p = weights
        of_input, of_state = biases(b, 4, r)
        h = r.shape[-1]
        peep = [0, 0, 0] if p is None else [p[i * h : (i + 1) * h] for i in range(3)]

        def step(carry, value):
            state, memory = carry
            whole = value @ w.T + state @ r.T + of_input + of_state
            i, o, f, c = (whole[:, k * h : (k + 1) * h] for k in range(4))
            i = functions[0](clipped(i + peep[0] * memory, clip))
            f = functions[0](clipped(f + peep[2] * memory, clip)) if not input_forget else 1 - i
            memory = f * memory + i * functions[1](clipped(c, clip))
            o = functions[0](clipped(o + peep[1] * memory, clip))
            return o * functions[2](memory), memory

        return step

    results = scanned(
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
    return chosen(results, outputs)
