"""All steps of an LSTM or GRU in one kernel: interpreted within a whole layer, and lowered."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import gru, lstm, recurrent
from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.recurrent import RecurrentProblem
from jaxatr.kernels.ops.recurrent.algorithms import persistent, scan
from jaxatr.kernels.ops.recurrent.operation import SOLVERS
from jaxatr.kernels.pallas.hopper import recurrent as kernels

LAYERS = {"lstm": lstm, "gru": gru}


def draw(shape, dtype, seed):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def layer(cell, hidden, batch=5, dtype="bfloat16", **options):
    """Returns a problem and its weights, input and initial state; no array is zero."""
    steps, inputs = 2, 48
    problem = RecurrentProblem(cell, steps, batch, inputs, hidden, False, False, dtype)
    ((weights,),) = recurrent.init(jax.random.key(0), cell, inputs, hidden, dtype=dtype, **options)
    weights = jax.tree.map(lambda a: a + draw(a.shape, dtype, 3) / 8, weights)
    state = tuple(draw((batch, hidden), "float32", 4 + n) for n in range(problem.states))
    return problem, (weights, draw((steps, batch, inputs), dtype, 7), state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "reverse", "hidden", "batch", "dtype"),
    [
        ("lstm", True, 64, 5, "bfloat16"),
        ("gru", False, 32, 5, "bfloat16"),
        pytest.param("gru", True, 32, 65, "float16", marks=pytest.mark.slow),
        pytest.param("lstm", True, 128, 3, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_a_layer_with_its_gradient(cell, reverse, hidden, batch, dtype, mosaic):
    """Batches are padded to blocks of 64; several blocks and one warp group work too."""
    problem, given = layer(cell, hidden, batch, dtype=dtype)

    def both(run):
        results, transposed = jax.vjp(lambda *given: run(problem, *given, None, reverse), *given)
        cotangent = jax.tree.map(lambda a: draw(a.shape, a.dtype, 9), results)
        return results, transposed(cotangent)

    ours, theirs = both(partial(persistent.run, interpret=mosaic)), both(scan.run)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.sqrt(np.mean((one - other) ** 2)) <= 5e-3 * abs(other).max()


@pytest.mark.slow
def test_a_layer_under_vmap(mosaic):
    """Examples run one by one, also with weights of their own, here without biases."""
    problem, (weights, x, state) = layer("gru", 32, bias=False)

    def gradient(run, weights, x):
        score = lambda w: run(problem, w, x, state, None, False)[0].sum()  # noqa: E731
        return jax.grad(score)(weights)

    both = jax.tree.map(lambda a: jnp.stack([a, a / 2]), (weights, x))
    ours = jax.vmap(partial(gradient, partial(persistent.run, interpret=mosaic)))(*both)
    theirs = jax.vmap(partial(gradient, scan.run))(*both)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.sqrt(np.mean((one - other) ** 2)) <= 1e-2 * abs(other).max()


@pytest.mark.parametrize("cell", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_a_network_is_one_kernel_per_direction(cell, kernels_in):
    init = partial(recurrent.init, bidirectional=True, dtype="bfloat16")
    params = jax.eval_shape(lambda key: init(key, cell, 128, 128), jax.random.key(0))
    x = jax.ShapeDtypeStruct((5, 3, 128), "bfloat16")

    def run(params, x):
        return LAYERS[cell](params, x, algorithm="persistent")[0].sum().astype(jnp.float32)

    assert kernels_in("cuda", run, params, x) == 2
    assert kernels_in("cuda", jax.grad(run), params, x) == 4


def test_the_problems_that_it_solves(unchecked):
    def applies(device="NVIDIA H200", **changes):
        given = {"cell": "lstm", "steps": 9, "batch": 3, "inputs": 7, "hidden": 128}
        given |= {"skip": False, "masked": False, "dtype": "bfloat16"} | changes
        platform = "cpu" if device == "cpu" else "gpu"
        return SOLVERS["persistent"].applies(RecurrentProblem(**given), Device(platform, device))

    assert applies() and applies(direction="backward") and applies(cell="gru", hidden=32)
    assert not applies("cpu") and not applies("NVIDIA B200")
    assert not any((applies(hidden=160), applies(hidden=40), applies(dtype="float32")))
    assert not any((applies(cell="tanh"), applies(masked=True), applies(batch="b")))
    assert not applies(cell="gru", reset_after=False)
    params = jax.jit(lambda key: recurrent.init(key, "lstm", 5, 5))(jax.random.key(0))
    with pytest.raises(ValueError, match="algorithm: 'persistent' cannot compute"):
        lstm(params, jnp.zeros((2, 3, 5)), algorithm="persistent")
    state = (jnp.zeros((2, 64)),) * 2
    with pytest.raises(NotImplementedError, match="got 'lstm', a batch of 2, 64 units"):
        kernels.forward("lstm", state, jnp.zeros((64, 256), "bfloat16"), jnp.zeros((1, 2, 256)))
