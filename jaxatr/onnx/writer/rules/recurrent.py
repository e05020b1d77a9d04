"""Rule for the recurrent layers of :mod:`jaxatr.kernels`.

The weights are stored with their columns in this package's order. Nodes before the operator permute
them to ONNX's order; a runtime computes these once, when it loads the model.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxatr.kernels.ops.recurrent.algorithms import scan
from jaxatr.kernels.ops.recurrent.convert.order import ONNX, OURS, reordered
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.onnx.writer.graph import TensorType
from jaxatr.onnx.writer.translate import COMPUTED, Equation, Tensor, Translator, rule

_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "relu": "RNN", "tanh": "RNN"}


def _computed(params: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Returns the layer as a scan if ONNX or ONNX Runtime has no operator for it, else None."""
    problem = params["problem"]
    if problem.dtype == "float32" and not problem.skip:
        return None

    def run(*leaves):
        weights, x, state, mask = jax.tree.unflatten(params["tree"], leaves)
        hs, final = scan.run(problem, weights, x, state, mask, params["reverse"])
        return [hs, *final]

    return run


COMPUTED["jaxatr_recurrent"] = _computed


@rule("jaxatr_recurrent", unread="chooser")  # it chooses among equivalent kernels
def _recurrent(t: Translator, equation: Equation) -> list[Tensor]:
    problem: RecurrentProblem = equation.params["problem"]
    positions = jax.tree.unflatten(equation.params["tree"], range(len(equation.inputs)))
    weights, x, state, mask = positions
    steps, batch, hidden = problem.steps, problem.batch, problem.hidden
    read, add = partial(t.read, equation), t.graph.add

    def matrix(index: int) -> str:
        ordered = _ordered(t, problem, read(index), 1)
        turned = t.transpose(ordered, (1, 0))
        return add("Unsqueeze", [turned], (1, *t.graph.types[turned].shape), axes=[0])

    inputs = [read(x), matrix(weights.w), matrix(weights.r), "", "", ""]
    if weights.b is not None or weights.rb is not None:
        inputs[3] = _biases(t, equation, problem, weights)
    if mask is not None:
        valid = add("Cast", [read(mask)], (steps, batch, 1), np.int32, to=np.dtype(np.int32))
        inputs[4] = add("ReduceSum", [valid], (batch,), axes=[0, 2], keepdims=0)
    starts = [add("Unsqueeze", [read(i)], (1, batch, hidden), axes=[0]) for i in state]
    inputs[5] = starts[0]
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if equation.params["reverse"]:
        attributes["direction"] = "reverse"
    if problem.cell == "gru":
        attributes["linear_before_reset"] = int(problem.reset_after)
    if problem.cell == "relu":
        attributes["activations"] = ["Relu"]
    last = TensorType((1, batch, hidden), np.dtype(np.float32))
    infos = [last._replace(shape=(steps, *last.shape)), *[last] * problem.states]
    results = t.graph.add_many(
        _OPERATORS[problem.cell], [*inputs, *starts[1:]], infos, **attributes
    )
    outputs = [add("Squeeze", [results[0]], (steps, batch, hidden), axes=[1])]
    outputs += [add("Squeeze", [name], (batch, hidden), axes=[0]) for name in results[1:]]
    return [t.tensor(name) for name in outputs]


def _ordered(t: Translator, problem: RecurrentProblem, name: str, axis: int) -> str:
    """Permutes the gates along an axis of a value to ONNX's order."""
    ours, theirs = OURS[problem.cell], ONNX[problem.cell]
    if ours == theirs:
        return name
    order = reordered(np.arange(problem.gates * problem.hidden), ours, theirs)
    return t.graph.add("Gather", [name, t.graph.int64(order)], t.graph.types[name].shape, axis=axis)


def _biases(t: Translator, equation: Equation, problem: RecurrentProblem, weights: Any) -> str:
    """Returns ``B``: input biases, then recurrent ones, zero except for a GRU's candidate."""
    columns, hidden = problem.gates * problem.hidden, problem.hidden

    def zeros(count: int) -> str:
        return t.graph.constant(np.zeros(count, np.float32))

    first = zeros(columns)
    if weights.b is not None:
        first = _ordered(t, problem, t.read(equation, weights.b), 0)
    parts = [first, zeros(columns)]
    if weights.rb is not None:
        parts = [first, zeros(columns - hidden), t.read(equation, weights.rb)]
    both = t.graph.add("Concat", parts, (2 * columns,), axis=0)
    return t.graph.add("Unsqueeze", [both], (1, 2 * columns), axes=[0])
