"""The recurrent operators RNN, GRU and LSTM."""

from collections.abc import Callable
from typing import Any, Literal

from jaxatr import kernels
from jaxatr.onnx.ops.recurrence import Kernel, Options, Weights, biases, clipped, run_layer
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value

Texts = tuple[str, ...]


@register("RNN", weights=("w", "r", "b"), ignored=("output_sequence",), attributes_of=Options)
def rnn(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: Texts = ("Tanh", "Tanh"),
    **attributes: Any,
) -> Any:
    """Runs a recurrent layer over sequences (ONNX RNN-22).

    Args:
      x: ``[t, b, i]``.
      w: input weights ``[directions, h, i]``.
      r: state weights ``[directions, h, h]``.
      b: biases ``[directions, 2h]``.
      sequence_lens: lengths of the sequences ``[b]``; results past the end are zero.
      initial_h: initial hidden state ``[directions, b, h]``, zeros by default.
      activations: names of the activations, one for each direction.
      **attributes: ``activation_alpha`` and ``activation_beta``, the parameters of each activation
        that has one; ``clip``, a bound on the absolute value of each activation's input;
        ``direction``, forward, reverse or bidirectional; ``hidden_size``, which is ignored, since
        ``r`` determines it; ``layout``, 1 if ``x`` is ``[b, t, i]`` and results are
        ``[b, t, directions, h]`` and ``[b, directions, h]``; and ``outputs``, their number.

    Returns:
      All hidden states ``[t, directions, b, h]``, and with two ``outputs`` the last hidden states
      ``[directions, b, h]``.
    """
    options = Options(activations=activations, **attributes)
    usual: Literal["relu", "tanh"] = "relu" if activations[0].lower() == "relu" else "tanh"

    def run(params, x, lengths, initial):
        start = None if initial is None else initial[0]
        y, h = kernels.rnn(params, x, activation=usual, lengths=lengths, initial=start)
        return y, (h,)

    def cell(weights: Weights, functions):
        w, r, b, _ = weights
        of_input, of_state = biases(b, 1, r)

        def step(carry, value):
            total = value @ w.T + carry[0] @ r.T + of_input + of_state
            return (functions[0](clipped(total, options.clip)),)

        return step

    return run_layer(
        cell, (usual, run), (usual,), x, Weights(w, r, b), (initial_h,), sequence_lens, options
    )


@register("GRU", weights=("w", "r", "b"), ignored=("output_sequence",), attributes_of=Options)
def gru(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: Texts = ("Sigmoid", "Tanh"),
    linear_before_reset: int = 0,
    **attributes: Any,
) -> Any:
    """Runs a gated recurrent unit (GRU) layer over sequences (ONNX GRU-22).

    All other arguments and the results are those of :func:`rnn`.

    Args:
      x: ``[t, b, i]``.
      w: input weights ``[directions, 3h, i]``: update, reset, hidden.
      r: state weights ``[directions, 3h, h]``.
      b: biases ``[directions, 6h]``.
      activations: names of the activations of the gates and the hidden state, for each direction.
      linear_before_reset: whether the reset gate is applied after the state product.
    """
    options = Options(activations=activations, **attributes)

    def run(params, x, lengths, initial):
        start = None if initial is None else initial[0]
        reset = "after" if linear_before_reset else "before"
        y, h = kernels.gru(params, x, reset=reset, lengths=lengths, initial=start)
        return y, (h,)

    def cell(weights: Weights, functions):
        w, r, b, _ = weights
        of_input, of_state = biases(b, 3, r)
        h = r.shape[-1]

        def step(carry, value):
            (state,) = carry
            inputs = value @ w.T + of_input
            gates = inputs[:, : 2 * h] + state @ r[: 2 * h].T + of_state[: 2 * h]
            gates = functions[0](clipped(gates, options.clip))
            update, reset = gates[:, :h], gates[:, h:]
            if linear_before_reset:
                part = reset * (state @ r[2 * h :].T + of_state[2 * h :])
            else:
                part = (reset * state) @ r[2 * h :].T + of_state[2 * h :]
            new = functions[1](clipped(inputs[:, 2 * h :] + part, options.clip))
            return ((1 - update) * new + update * state,)

        return step

    usual = "sigmoid", "tanh"
    return run_layer(
        cell, ("gru", run), usual, x, Weights(w, r, b), (initial_h,), sequence_lens, options
    )


@register("LSTM", weights=("w", "r", "b", "p"), ignored=("output_sequence",), attributes_of=Options)
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
    activations: Texts = ("Sigmoid", "Tanh", "Tanh"),
    input_forget: int = 0,
    **attributes: Any,
) -> Any:
    """Runs a long short-term memory (LSTM) layer over sequences (ONNX LSTM-22).

    All other arguments are those of :func:`rnn`.

    Args:
      x: ``[t, b, i]``.
      w: input weights ``[directions, 4h, i]``: input, output, forget, cell.
      r: state weights ``[directions, 4h, h]``.
      b: biases ``[directions, 8h]``.
      initial_c: initial cell state ``[directions, b, h]``, zeros by default.
      p: peephole weights ``[directions, 3h]``: input, output, forget.
      activations: names of the activations of the gates, the cell and the hidden state, for each
        direction.
      input_forget: whether the forget gate is 1 minus the input gate.

    Returns:
      All hidden states ``[t, directions, b, h]``, and with more ``outputs`` the last hidden and
      cell states, ``[directions, b, h]`` each.
    """
    options = Options(activations=activations, **attributes)

    def run(params, x, lengths, initial):
        return kernels.lstm(params, x, lengths=lengths, initial=initial)

    states = (initial_h, initial_c)
    kernel: Kernel | None = ("lstm", run) if p is None and not input_forget else None
    cell, weights = lstm_cell(options, input_forget), Weights(w, r, b, p)
    usual = "sigmoid", "tanh", "tanh"
    return run_layer(cell, kernel, usual, x, weights, states, sequence_lens, options)


def lstm_cell(
    options: Options, input_forget: int, seen: Callable[[Value], Value] = lambda state: state
) -> Callable[..., Any]:
    """Returns the cell of an LSTM, for :func:`jaxatr.onnx.ops.recurrence.run_layer`.

    Args:
      options: settings of the layer.
      input_forget: whether the forget gate is 1 minus the input gate.
      seen: function from the hidden state to what the state weights multiply.
    """
    clip = options.clip

    def cell(weights: Weights, functions):
        w, r, b, p = weights
        of_input, of_state = biases(b, 4, r)
        h = r.shape[-1]
        peep = [0, 0, 0] if p is None else [p[i * h : (i + 1) * h] for i in range(3)]

        def step(carry, value):
            state, memory = carry
            gates = value @ w.T + seen(state) @ r.T + of_input + of_state
            i, o, f, c = (gates[:, k * h : (k + 1) * h] for k in range(4))
            i = functions[0](clipped(i + peep[0] * memory, clip))
            f = functions[0](clipped(f + peep[2] * memory, clip)) if not input_forget else 1 - i
            memory = f * memory + i * functions[1](clipped(c, clip))
            o = functions[0](clipped(o + peep[1] * memory, clip))
            return o * functions[2](memory), memory

        return step

    return cell
