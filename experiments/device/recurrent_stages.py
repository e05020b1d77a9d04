"""The units that check and time recurrent layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from measuring import error, interpreter, milliseconds, target

LSTMS = {"64x1024": (64, 1024, 50), "64x2048": (64, 2048, 25), "128x512": (128, 512, 100)}
PERSISTENT = {"64x128": (64, 128, 100), "1024x128": (1024, 128, 100), "64x64": (64, 64, 100)}
CELLS = ("lstm", "gru")
TINY_LSTM = {"64x64": (64, 64, 2)}


def checked_lstm(batch: int, hidden: int, steps: int, runs: int, options) -> dict:
    """Compares the results and gradients of an LSTM, one kernel per step, with the plain loop's."""
    from jaxatr.kernels.ops.recurrent import pallas

    device: Any = target(options)
    run = partial(pallas.run, device, **interpreter(options))
    return checked_layer(run, "lstm", batch, hidden, steps, runs)


def checked_persistent(
    cell: str, batch: int, hidden: int, steps: int, runs: int, options
) -> dict[str, Any]:
    """Compares the results and gradients of all steps in one kernel with the plain loop's."""
    from jaxatr.kernels.ops.recurrent.algorithms import persistent

    run = partial(persistent.run, **interpreter(options))
    # Before jax 0.12 the interpreter does not transpose operands, as the backward pass does.
    return checked_layer(run, cell, batch, hidden, steps, runs, gradients=not options.rehearse)


def checked_layer(
    ours: Callable[..., Any],
    cell: Any,
    batch: int,
    hidden: int,
    steps: int,
    runs: int,
    gradients: bool = True,
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from jaxatr.kernels import recurrent
    from jaxatr.kernels.ops.recurrent import RecurrentProblem
    from jaxatr.kernels.ops.recurrent.algorithms import scan

    problem = RecurrentProblem(cell, steps, batch, hidden, hidden, False, False, "bfloat16")
    ((weights,),) = recurrent.init(jax.random.key(0), cell, hidden, hidden, dtype="bfloat16")
    x = jax.random.normal(jax.random.key(1), (steps, batch, hidden), jnp.bfloat16)
    zeros = (jnp.zeros((batch, hidden)),) * problem.states

    def results(run, weights):
        return run(problem, weights, x, zeros, None, False)

    def gradient(run, weights):
        return jax.grad(lambda w: results(run, w)[0].sum())(weights)

    errors, same = [], True
    for what in (results, gradient) if gradients else (results,):
        run = jax.jit(partial(what, ours))
        first, wanted = jax.tree.leaves(run(weights)), jax.jit(partial(what, scan.run))(weights)
        errors += [error(a, b) for a, b in zip(first, jax.tree.leaves(wanted), strict=True)]
        for _ in range(runs - 1):
            again = zip(first, jax.tree.leaves(run(weights)), strict=True)
            same = same and all(bool((a == b).all()) for a, b in again)
    return {"error": max(errors), "same_bits": same, "passed": max(errors) < 5e-2 and same}


def timed_layer(
    form: Any, cell: Any, mode: str, batch: int, hidden: int, steps: int, runs: int
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from jaxatr import kernels
    from jaxatr.kernels import recurrent

    params = recurrent.init(jax.random.key(0), cell, hidden, hidden, dtype="bfloat16")
    x = jax.random.normal(jax.random.key(1), (batch, steps, hidden), jnp.bfloat16)
    layer = kernels.lstm if cell == "lstm" else kernels.gru
    forward = lambda params, x: layer(params, x, algorithm=form)[0]  # noqa: E731
    gradient = jax.grad(lambda params, x: forward(params, x).astype(jnp.float32).sum())
    run = jax.jit(forward if mode == "forward" else gradient)
    return milliseconds(run, (params, x), max(2, runs // 4))
