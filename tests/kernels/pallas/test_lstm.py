"""The LSTM kernels: lowered for their platforms, and interpreted within a whole layer."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import lstm, recurrent
from jaxatr.kernels.ops.recurrent import RecurrentProblem, pallas
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.kernels.pallas.gates import grouped
from jaxatr.kernels.pallas.hopper import lstm as hopper
from jaxatr.kernels.pallas.tpu import lstm as tpu


def draw(shape, dtype, seed):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def single_step(h, c, r, part):
    """Computes equations 1 to 10 in float64."""
    h, c, r, part = (np.asarray(a, np.float64) for a in (h, c, r, part))
    *sums, candidate = np.split(part + h @ r, 4, axis=1)
    i, f, o = (1 / (1 + np.exp(-s)) for s in sums)
    candidate = np.tanh(candidate)
    c = f * c + i * candidate
    return o * np.tanh(c), c, (i, f, o, candidate, np.tanh(c))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 2e-6), pytest.param("bfloat16", 1e-2, marks=pytest.mark.slow)],
)
def test_one_step_on_a_tpu(dtype, tolerance, tpu_interpreter):
    batch, hidden = 128, 256
    h, r = draw((batch, hidden), dtype, 0), draw((hidden, 4 * hidden), dtype, 1) / 16
    c, part = draw((batch, hidden), jnp.float32, 2), draw((batch, 4 * hidden), jnp.float32, 3)
    mine = (h, c, grouped(r, tpu.UNITS), grouped(part, tpu.UNITS))
    wanted = single_step(h, c, r, part)
    for saves in (True, False):
        *states, gates = tpu.step(*mine, saves=saves, interpret=tpu_interpreter)
        assert len(gates) == (5 if saves else 0)
        expected = jax.tree.leaves(wanted if saves else wanted[:2])
        for one, exact in zip(jax.tree.leaves((states, gates)), expected, strict=True):
            np.testing.assert_allclose(np.asarray(one, np.float64), exact, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reverse", "skip", "dtype"),
    [
        (True, False, "bfloat16"),
        pytest.param(False, False, "bfloat16", marks=pytest.mark.slow),
        pytest.param(False, True, "float16", marks=pytest.mark.slow),
    ],
)
def test_all_steps_of_a_layer_on_hopper(reverse, skip, dtype, mosaic):
    """Each step writes where the next one reads; vmap runs examples one by one."""
    problem = RecurrentProblem("lstm", 3, 5, 64, 64, skip, False, dtype)
    ((weights,),) = recurrent.init(jax.random.key(0), "lstm", 64, 64, skip=skip, dtype=dtype)
    x = draw((3, 5, 64), dtype, 1)
    state = draw((5, 64), jnp.float32, 2), draw((5, 64), jnp.float32, 3)

    def ours(x, unroll):
        options = {"unroll": unroll, "interpret": mosaic}
        return pallas.run("hopper", problem, weights, x, state, None, reverse, **options)

    def theirs(x):
        return ALGORITHMS["scan"].run(problem, weights, x, state, None, reverse)

    both = jnp.stack([x, 2 * x])
    for one, other in (
        (ours(x, 2), theirs(x)),
        (jax.vmap(lambda x: ours(x, 1))(both), jax.vmap(theirs)(both)),
    ):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-2)


@pytest.mark.slow
def test_a_derivative_on_hopper_is_that_of_gemm():
    """The kernel saves no gates."""
    problem = RecurrentProblem("lstm", 2, 3, 64, 64, False, False, "bfloat16")
    ((weights,),) = recurrent.init(jax.random.key(0), "lstm", 64, 64, dtype="bfloat16")
    x, state = draw((2, 3, 64), "bfloat16", 1), (jnp.zeros((3, 64)),) * 2

    def gradient(run):
        return jax.jit(jax.grad(lambda w: run(problem, w, x, state, None, False)[0].sum()))(weights)

    ours, theirs = gradient(partial(pallas.run, "hopper")), gradient(ALGORITHMS["gemm"].run)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_blocks_that_fit_in_the_core():
    """For batch 512 and 4096 units in bfloat16, blocks of 256 rows would exceed the 16 MB."""
    assert tpu.applies(4096, "bfloat16") and not tpu.applies(8192, "bfloat16")
    for hidden, dtype in ((128, "float32"), (1024, "float32"), (4096, "bfloat16")):
        for batch in (16, 208, 512):
            height = tpu._height(batch, hidden, dtype)
            assert batch % height == height % tpu.rows(dtype) == 0
            assert tpu._bytes(height, hidden, dtype) <= 15 * 2**20
    assert tpu._height(512, 1024, "bfloat16") == 256 > tpu._height(512, 4096, "bfloat16")


def test_columns_of_a_tile():
    np.testing.assert_array_equal(
        grouped(jnp.arange(16.0), 2), [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    )


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True])
def test_a_layer_with_its_gradient_on_a_tpu(skip):
    """Masked, with a batch that is not a multiple of the tile; the gradient matches the loop's."""
    dtype, steps, batch, hidden = jnp.bfloat16, 2, 3, 128
    problem = RecurrentProblem("lstm", steps, batch, hidden, hidden, skip, True, "bfloat16")
    assert pallas.applies("tpu", problem) and not pallas.applies("hopper", problem)
    ((weights,),) = recurrent.init(jax.random.key(0), "lstm", hidden, hidden, skip=skip)
    weights = jax.tree.map(lambda a: a.astype(dtype), weights)
    x = draw((steps, batch, hidden), dtype, 1)
    state = (draw((batch, hidden), jnp.float32, 2), draw((batch, hidden), jnp.float32, 3))
    mask = (jnp.arange(steps)[:, None] < jnp.array([2, 1, 2]))[..., None]

    def score(run, *arguments):
        hs, final = run(problem, *arguments, mask, False)
        return sum((jnp.sin(a) * 1.0).sum() for a in (hs, *final)), hs

    def both(run):
        return jax.value_and_grad(lambda *a: score(run, *a), (0, 1, 2), has_aux=True)(
            weights, x, state
        )

    (ours, hs), gradient = both(lambda *a: pallas.run("tpu", *a, interpret=True))
    (theirs, wanted_hs), wanted = jax.jit(lambda: both(ALGORITHMS["scan"].run))()
    np.testing.assert_allclose(hs, wanted_hs, atol=1e-2)
    np.testing.assert_allclose(ours, theirs, rtol=1e-2)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted), strict=True):
        other = np.asarray(other, np.float64)
        error = np.asarray(one, np.float64) - other
        assert np.sqrt(np.mean(error**2)) <= 1e-2 * max(abs(other).max(), 1e-3)


@pytest.mark.parametrize(
    ("platform", "algorithm", "dtype"),
    [
        ("cuda", "hopper", "bfloat16"),
        ("tpu", "tpu", "bfloat16"),
        pytest.param("cuda", "hopper", "float16", marks=pytest.mark.slow),
        pytest.param("tpu", "tpu", "float32", marks=pytest.mark.slow),
    ],
)
def test_lowering_of_a_network_and_its_gradient(platform, algorithm, dtype, kernels_in):
    init = partial(recurrent.init, bidirectional=True, dtype=dtype)
    params = jax.eval_shape(lambda key: init(key, "lstm", 128, 128), jax.random.key(0))
    x = jax.ShapeDtypeStruct((5, 3, 128), dtype)
    fn = lambda p, x: lstm(p, x, algorithm=algorithm)[0].sum().astype(jnp.float32)  # noqa: E731
    assert kernels_in(platform, fn, params, x) == 2
    assert kernels_in(platform, jax.grad(fn), params, x) == (2 if algorithm == "tpu" else 0)


def test_sizes_that_do_not_fit(unchecked):
    params = jax.jit(lambda key: recurrent.init(key, "lstm", 5, 5))(jax.random.key(0))
    with pytest.raises(ValueError, match="algorithm: 'hopper' cannot compute"):
        lstm(params, jnp.zeros((2, 3, 5)), algorithm="hopper")
    arrays = [jnp.zeros(shape, jnp.bfloat16) for shape in ((2, 64), (2, 64), (64, 256), (2, 256))]
    with pytest.raises(NotImplementedError, match="got a batch of 2, 64 units"):
        hopper.layer(*arrays[:3], arrays[3][None])
    with pytest.raises(NotImplementedError, match="got a batch of 2, 64 units"):
        tpu.step(*arrays)
