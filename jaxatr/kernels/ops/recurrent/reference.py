"""A float64 reference of a recurrent layer and its gradients, step by step, in NumPy."""

from typing import Any

import jax
import numpy as np

from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights


def arguments(problem: RecurrentProblem, generator: np.random.Generator) -> tuple[Any, ...]:
    """Returns ``(weights, x, state, mask)`` and, if backward, the cotangents of ``(hs, final)``."""
    hidden, columns = problem.hidden, problem.gates * problem.hidden
    rows, single = problem.batch, problem.wide.name

    def draw(*shape: int, dtype: str = problem.dtype, scale: float = 1.0) -> np.ndarray:
        return (scale * generator.standard_normal(shape)).astype(dtype)

    weights = Weights(
        w=None if problem.skip else draw(problem.inputs, columns, scale=problem.inputs**-0.5),
        r=draw(hidden, columns, scale=hidden**-0.5),
        b=draw(columns),
        rb=draw(hidden) if problem.cell == "gru" else None,
    )
    mask = None
    if problem.masked:
        lengths = generator.integers(1, problem.steps + 1, rows)
        mask = (np.arange(problem.steps)[:, None] < lengths)[..., None]

    def states() -> tuple[np.ndarray, ...]:
        return tuple(draw(rows, hidden, dtype=single) for _ in range(problem.states))

    x = draw(problem.steps, rows, problem.inputs)
    given = (weights, x, states(), mask)
    if problem.direction == "forward":
        return given
    return *given, (draw(problem.steps, rows, hidden, dtype=single), states())


def reference(problem: RecurrentProblem, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns ``(hs, final)``, or the gradients of weights, input and state."""
    weights, x, state, mask, *cotangent = given
    weights, x, state = jax.tree.map(lambda a: a.astype(np.float64), (weights, x, state))
    part = np.concatenate([x] * problem.gates, -1) if weights.w is None else x @ weights.w
    part = part if weights.b is None else part + weights.b
    hs, steps = np.zeros((problem.steps, problem.batch, problem.hidden)), []
    for step in range(problem.steps):
        new, saved = _forward(problem, weights, part[step], state)
        steps.append((state, saved))
        live = True if mask is None else mask[step]
        state = tuple(np.where(live, n, old) for n, old in zip(new, state, strict=True))
        hs[step] = state[0]
    if not cotangent:
        return hs, state
    return _gradients(problem, weights, x, steps, mask, *cotangent[0])


def _gradients(problem, weights, x, steps, mask, dhs, dstate) -> tuple[Any, ...]:
    dstate = [np.asarray(d).astype(np.float64) for d in dstate]
    dpart = np.zeros((*x.shape[:2], problem.gates * problem.hidden))
    dr = np.zeros_like(weights.r)
    drb = None if weights.rb is None else np.zeros_like(weights.rb)
    for step in reversed(range(problem.steps)):
        before, saved = steps[step]
        dstate[0] = dstate[0] + np.asarray(dhs[step]).astype(np.float64)
        live = np.ones((problem.batch, 1)) if mask is None else mask[step]
        through = [d * live for d in dstate]  # the rest bypasses a masked step
        dpart[step], more_r, more_rb, old = _backward(problem, weights, before, saved, through)
        dr += more_r
        drb = None if drb is None else drb + more_rb
        dstate = [o + d * ~np.asarray(live, bool) for o, d in zip(old, dstate, strict=True)]
    if weights.w is None:
        dx, dw = sum(np.split(dpart, problem.gates, -1)), None
    else:
        dx, dw = dpart @ weights.w.T, np.tensordot(x, dpart, ((0, 1), (0, 1)))
    db = None if weights.b is None else dpart.sum((0, 1))
    return Weights(dw, dr, db, drb), dx, tuple(dstate)


def _sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def _forward(
    problem: RecurrentProblem, weights: Weights, part: np.ndarray, state: Any
) -> tuple[Any, Any]:
    """Returns the next state and the values of the step that :func:`_backward` needs."""
    n, r, h = problem.hidden, np.asarray(weights.r), state[0]
    if problem.cell == "lstm":
        s = part + h @ r
        i, f, o = np.split(_sigmoid(s[:, : 3 * n]), 3, -1)
        candidate = np.tanh(s[:, 3 * n :])
        c = f * state[1] + i * candidate
        return (o * np.tanh(c), c), (i, f, o, candidate, np.tanh(c))
    if problem.cell == "gru":
        reset, update = np.split(_sigmoid(part[:, : 2 * n] + h @ r[:, : 2 * n]), 2, -1)
        bias = 0 if weights.rb is None else weights.rb
        inner = (h if problem.reset_after else reset * h) @ r[:, 2 * n :] + bias
        scaled = reset * inner if problem.reset_after else inner
        candidate = np.tanh(part[:, 2 * n :] + scaled)
        return ((1 - update) * candidate + update * h,), (reset, update, inner, candidate)
    s = part + h @ r
    return (np.tanh(s) if problem.cell == "tanh" else np.maximum(s, 0),), (s,)


def _backward(problem: RecurrentProblem, weights: Weights, state, saved, d) -> tuple[Any, ...]:
    """Returns the gradients of the input's part, of ``r`` and ``rb``, and of the previous state."""
    r, h = np.asarray(weights.r), state[0]
    if problem.cell == "gru":
        return _backward_gru(problem, r, h, saved, d[0])
    if problem.cell == "lstm":
        (i, f, o, candidate, y), (dh, dc) = saved, d
        dc = dc + dh * o * (1 - y**2)
        gates = (
            dc * candidate * i * (1 - i),
            dc * state[1] * f * (1 - f),
            dh * y * o * (1 - o),
            dc * i * (1 - candidate**2),
        )
        ds, rest = np.concatenate(gates, -1), [dc * f]
    else:
        (s,) = saved
        slope = 1 - np.tanh(s) ** 2 if problem.cell == "tanh" else s > 0
        ds, rest = d[0] * slope, []
    return ds, h.T @ ds, None, [ds @ r.T, *rest]


def _backward_gru(problem: RecurrentProblem, r, h, saved, dh) -> tuple[Any, ...]:
    reset, update, inner, candidate = saved
    n = problem.hidden
    dcandidate = dh * (1 - update) * (1 - candidate**2)
    if problem.reset_after:
        dinner, dreset = dcandidate * reset, dcandidate * inner
        read, dh_before = h, dinner @ r[:, 2 * n :].T
    else:
        dinner, dread = dcandidate, dcandidate @ r[:, 2 * n :].T
        dreset, read, dh_before = dread * h, reset * h, dread * reset
    gates = (dreset * reset * (1 - reset), dh * (h - candidate) * update * (1 - update))
    joint = np.concatenate(gates, -1)
    dh_before = dh_before + dh * update + joint @ r[:, : 2 * n].T
    dr = np.concatenate([h.T @ joint, read.T @ dinner], -1)
    return np.concatenate([joint, dcandidate], -1), dr, dinner.sum(0), [dh_before]
