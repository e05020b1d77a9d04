"""Every cell by every algorithm, against plain float64 loops and their finite differences."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from jaxatr.kernels import gru, lstm, recurrent, rnn
from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.recurrent import Weights, layers
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.kernels.ops.recurrent.operation import OPERATION
from jaxatr.kernels.ops.recurrent.problem import CELLS, RecurrentProblem

KEY = jax.random.key(0)
SIGMOID = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731


def draw(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def network(cell, inputs, hidden, layers=1, directions=1, bias=True, skip=False):
    """Returns float64 weights with non-zero biases."""
    gates = {"lstm": 4, "gru": 3}.get(cell, 1)
    seeds = itertools.count(100)

    def one(width, skip):
        return Weights(
            w=None if skip else draw((width, gates * hidden), next(seeds)) / width**0.5,
            r=draw((hidden, gates * hidden), next(seeds)) / hidden**0.5,
            b=draw(gates * hidden, next(seeds)) if bias else None,
            rb=draw(hidden, next(seeds)) if bias and cell == "gru" else None,
        )

    return tuple(
        tuple(one(directions * hidden if k else inputs, skip and k == 0) for _ in range(directions))
        for k in range(layers)
    )


def next_state(cell, weights, x, h, c, before):
    """Computes one step of one sequence, gate by gate."""
    n = len(h)

    def part(gate, h):
        columns = slice(gate * n, (gate + 1) * n)
        own = x if weights.w is None else x @ weights.w[:, columns]
        own = own if weights.b is None else own + weights.b[columns]
        return own, h @ weights.r[:, columns]

    if cell == "gru":
        r, z = SIGMOID(sum(part(0, h))), SIGMOID(sum(part(1, h)))
        bias = 0 if weights.rb is None else weights.rb
        own, inner = part(2, r * h if before else h)
        candidate = np.tanh(own + (inner + bias if before else r * (inner + bias)))
        return candidate + z * (h - candidate), c
    if cell == "lstm":
        i, f, o = (SIGMOID(sum(part(gate, h))) for gate in range(3))
        c = f * c + i * np.tanh(sum(part(3, h)))
        return o * np.tanh(c), c
    a = sum(part(0, h))
    return (np.tanh(a) if cell == "tanh" else np.maximum(a, 0)), c


def loops(cell, params, x, lengths=None, initial=None, before=False):
    """Computes the definition, for each layer, direction, sequence and step separately."""
    hidden, total = params[0][0].r.shape[0], sum(map(len, params))
    lengths = [x.shape[1]] * len(x) if lengths is None else lengths
    zeros = np.zeros((total, len(x), hidden))
    hs, cs = (zeros, zeros) if initial is None else (*initial, zeros)[:2]
    last_h, last_c, row = np.zeros_like(zeros), np.zeros_like(zeros), 0
    for layer in params:
        y = np.zeros((*x.shape[:2], len(layer) * hidden))
        for direction, weights in enumerate(layer):
            for n, length in enumerate(lengths):
                h, c = hs[row, n], cs[row, n]
                for t in reversed(range(length)) if direction else range(length):
                    h, c = next_state(cell, weights, x[n, t], h, c, before)
                    y[n, t, direction * hidden :][:hidden] = h
                last_h[row, n], last_c[row, n] = h, c
            row += 1
        x = y
    return (y, last_h, last_c) if cell == "lstm" else (y, last_h)


def run(cell, params, x, initial=None, **options):
    """Runs the function under test and returns its results as one tuple."""
    if cell == "lstm":
        y, states = lstm(params, x, initial=initial, **options)
        return (y, *states)
    if initial is not None:
        (initial,) = initial
    if cell == "gru":
        return gru(params, x, initial=initial, **options)
    return rnn(params, x, activation=cell, initial=initial, **options)


def compiled(cell, params, x, initial=None, **options):
    """Returns the results of one jitted program, which compiles faster than single operations."""
    program = jax.jit(lambda *arguments: run(cell, *arguments, **options))
    return program(params, x, initial)


def single(tree):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)


def score(results, weights):
    return sum((a * w).sum() for a, w in zip(results, weights, strict=True))


SLOW = pytest.mark.slow
# The quick run covers every cell and every algorithm once.
QUICK = {("lstm", "gemm"), ("gru", "step_gemm"), ("tanh", "step"), ("relu", "scan")}
# The accelerators' kernels are tested under interpreters in tests/kernels/pallas.
PLAIN = [name for name in ALGORITHMS if name not in ("hopper", "persistent", "tpu")]
CASES = [
    pytest.param(*case, marks=() if case in QUICK else SLOW)
    for case in itertools.product(CELLS, PLAIN)
]


@pytest.mark.parametrize(("cell", "algorithm"), CASES)
def test_values_and_both_derivatives(cell, algorithm):
    """Bidirectional and masked; the slope along one random direction covers all arguments."""
    lengths = jnp.array([2, 4, 3])
    check_derivatives(cell, network(cell, 3, 4, directions=2), lengths, algorithm=algorithm)


@pytest.mark.parametrize(
    ("cell", "lengths", "algorithm", "options"),
    [
        ("lstm", (4, 4, 1), "auto", {}),  # known, longest first: no mask
        pytest.param("gru", None, "gemm", {"bias": False}, marks=pytest.mark.slow),
        pytest.param("lstm", (3, 2, 0), "step_gemm", {"bias": False}, marks=pytest.mark.slow),
        pytest.param("gru", None, "auto", {"layers": 2, "directions": 2}, marks=pytest.mark.slow),
        pytest.param(
            "lstm", (4, 2, 1), "gemm", {"skip": True, "layers": 2}, marks=pytest.mark.slow
        ),
        pytest.param("tanh", None, "gemm", {"skip": True, "directions": 2}, marks=pytest.mark.slow),
    ],
)
def test_both_derivatives_of_other_networks(cell, lengths, algorithm, options):
    inputs = 4 if options.get("skip") else 3
    check_derivatives(cell, network(cell, inputs, 4, **options), lengths, algorithm=algorithm)


def check_derivatives(cell, params, lengths, *, algorithm):
    """Compares values, gradient and derivative with the loops and their numeric slope."""
    x = draw((3, 4, 4 if params[0][0].w is None else len(params[0][0].w)), 1)
    rows = sum(map(len, params))
    initial = tuple(draw((rows, 3, 4), seed) for seed in range(2 if cell == "lstm" else 1))
    arguments, plain = (params, x, initial), None if lengths is None else list(map(int, lengths))
    exact = loops(cell, *arguments[:2], plain, initial)
    weights = [draw(a.shape, 50 + k) for k, a in enumerate(exact)]
    leaves, tree = jax.tree.flatten(arguments)
    along = [draw(a.shape, 60 + k) for k, a in enumerate(leaves)]

    def moved(step):
        params, x, initial = jax.tree.unflatten(
            tree, [a + step * b for a, b in zip(leaves, along, strict=True)]
        )
        return score(loops(cell, params, x, plain, initial), weights)

    def fn(params, x, initial):
        results = run(cell, params, x, initial, lengths=lengths, algorithm=algorithm)
        return score(results, weights), results

    @jax.jit
    def everything(arguments, along):
        gradient, results = jax.grad(fn, (0, 1, 2), has_aux=True)(*arguments)
        pair = zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True)
        _, slope = jax.jvp(lambda *a: fn(*a)[0], arguments, along)
        return results, sum(jnp.vdot(g, a) for g, a in pair), slope

    results, reverse, forward = everything(
        single(arguments), single(jax.tree.unflatten(tree, along))
    )
    for ours, wanted in zip(results, exact, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-5)
    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    np.testing.assert_allclose([reverse, forward], slope, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("lstm", {"layers": 2, "directions": 2}),
        ("gru", {"layers": 2, "bias": False}),
        ("lstm", {"skip": True, "layers": 2}),
        ("gru", {"skip": True, "directions": 2, "bias": False}),
        ("tanh", {"skip": True, "layers": 2, "directions": 2}),
    ],
)
def test_shapes_of_networks(cell, options):
    params, x = network(cell, 4, 4, **options), draw((2, 3, 4))
    ours = compiled(cell, single(params), single(x))
    for one, wanted in zip(ours, loops(cell, params, x), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5)


def test_gru_with_reset_before_the_product():
    params, x = network("gru", 3, 4), draw((2, 3, 3))
    ours = compiled("gru", single(params), single(x), reset="before")
    for one, wanted in zip(ours, loops("gru", params, x, before=True), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="'gemm' cannot compute"):
        gru(single(params), single(x), reset="before", algorithm="gemm")


@pytest.mark.parametrize("algorithm", ["auto", "scan"])
def test_values_beyond_a_length_do_not_matter(algorithm):
    params, x, initial = single(
        (network("lstm", 3, 4), draw((2, 3, 3), 1), (draw((1, 2, 4), 2),) * 2)
    )
    lengths = jnp.array([3, 1])
    spoilt = np.array(x)
    spoilt[1, 1:] = np.nan

    def fn(params, x):
        y, h, c = run("lstm", params, x, initial, lengths=lengths, algorithm=algorithm)
        return (y**2).sum() + (h * c).sum()

    slopes = jax.jit(jax.grad(fn, (0, 1)))
    jax.tree.map(np.testing.assert_array_equal, slopes(params, spoilt), slopes(params, x))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes(params, spoilt)))


@pytest.mark.parametrize("lengths", [(4, 4, 2, 1), (3, 3, 0, 0), [1, 4, 2, 0]])
def test_lengths_that_are_known(lengths):
    params, x = network("lstm", 3, 2, directions=2), draw((4, 4, 3))
    initial = (draw((2, 4, 2), 1), draw((2, 4, 2), 2))
    ours = compiled("lstm", single(params), single(x), single(initial), lengths=lengths)
    for one, wanted in zip(ours, loops("lstm", params, x, lengths, initial), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5)


def test_longest_first_computes_only_the_steps_that_exist():
    """Each loop has as many rows as sequences remain, and no mask."""
    assert layers.spans_of((4, 4, 2, 1), 5) == [(0, 1, 4), (1, 2, 3), (2, 4, 2), (4, 5, 0)]
    params, x = single(network("tanh", 3, 2)), single(draw((4, 5, 3)))
    program = str(
        jax.make_jaxpr(lambda p, x: rnn(p, x, lengths=(4, 4, 2, 1), algorithm="scan"))(params, x)
    )
    assert program.count("scan[") == 3 and "select_n" not in program


def test_the_weights_gradient_is_one_product_after_the_loop():
    """No loop of the backward pass carries an array of the matrix's shape (eq. 21)."""
    params, x = single(network("lstm", 3, 5)), single(draw((2, 6, 3)))

    def carried(algorithm):
        fn = lambda p: lstm(p, x, algorithm=algorithm)[0].sum()  # noqa: E731
        program = jax.make_jaxpr(jax.grad(fn))(params)
        results = [v.aval.shape for eqn in scans(program.jaxpr) for v in eqn.outvars]
        return not {(5, 20), (8, 20)}.isdisjoint(results)

    assert carried("scan") and carried("step")
    assert not carried("gemm") and not carried("step_gemm")


def scans(jaxpr):
    """Returns every loop of a program, including nested ones."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "scan":
            found.append(eqn)
        for inner in jaxprs_in_params(eqn.params):
            found.extend(scans(inner))
    return found


def test_vmap_and_second_derivative():
    params, x = single(network("lstm", 3, 2)), single(draw((2, 2, 3, 3)))
    fn = lambda x: (lstm(params, x)[0] ** 2).sum()  # noqa: E731
    one = jax.jit(fn)
    np.testing.assert_allclose(jax.jit(jax.vmap(fn))(x), [one(x[0]), one(x[1])], rtol=1e-5)
    gradient, step, along = jax.jit(jax.grad(fn)), 1e-2, single(draw((2, 3, 3), 9))
    second = jax.jit(jax.grad(lambda x: jnp.vdot(jax.grad(fn)(x), along)))(x[0])
    numeric = (gradient(x[0] + step * along) - gradient(x[0] - step * along)) / (2 * step)
    np.testing.assert_allclose(second, numeric, atol=2e-3)


@pytest.mark.parametrize(
    "algorithm", ["scan", "gemm", *(pytest.param(n, marks=SLOW) for n in ("step", "step_gemm"))]
)
def test_several_steps_per_round_of_the_loop(algorithm):
    ((weights,),) = single(network("lstm", 3, 2))
    x, state = single(draw((5, 2, 3))), (np.zeros((2, 2), np.float32),) * 2
    problem = RecurrentProblem("lstm", 5, 2, 3, 2, False, False, "float32")

    @jax.jit
    def both(weights, x, state):
        run = partial(ALGORITHMS[algorithm].run, problem, weights, x, state, None, True)
        return run(), run(unroll=2)

    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), *both(weights, x, state))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float16, marks=SLOW)])
def test_half_precision(dtype):
    params, x = network("lstm", 8, 8), draw((2, 5, 8))
    half = jax.tree.map(lambda a: jnp.asarray(a, dtype), (params, x))
    params, x = jax.tree.map(lambda a: np.asarray(a, np.float64), half)
    for one, wanted in zip(compiled("lstm", *half), loops("lstm", params, x), strict=True):
        assert one.dtype == dtype
        error = np.sqrt(np.mean((np.asarray(one, np.float64) - wanted) ** 2)) / abs(wanted).max()
        assert error < 5e-2  # MIOpen's tolerance for recurrent networks


def test_without_jit_it_is_the_same():
    params, x = single(network("tanh", 3, 2)), single(draw((2, 3, 3)))
    fn = jax.value_and_grad(lambda x: (rnn(params, x)[0] ** 2).sum())
    jitted = jax.jit(fn)(x)
    with jax.disable_jit():
        for ours, wanted in zip(fn(x), jitted, strict=True):
            np.testing.assert_allclose(ours, wanted, atol=1e-6)


def test_shards_whose_axes_are_followed_are_refused():
    params, x = single(network("tanh", 3, 2)), single(draw((2, 3, 3)))
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((1,), ("data",), automatic, devices=jax.devices()[:1])
    data = jax.sharding.PartitionSpec("data")
    run = jax.shard_map(lambda x: rnn(params, x)[0], mesh=mesh, in_specs=data, out_specs=data)
    with pytest.raises(NotImplementedError, match="recurrent: got arrays that vary along data"):
        run(x)


def test_degenerate_sizes():
    params = single(network("lstm", 3, 2))
    y, (h, c) = lstm(params, jnp.zeros((0, 4, 3)))
    assert y.shape == (0, 4, 2) and h.shape == c.shape == (1, 0, 2)
    for lengths in (None, (0, 0)):
        y, (h, _) = lstm(params, jnp.zeros((2, 0, 3)), lengths=lengths)
        assert y.shape == (2, 0, 2) and not h.any()


def test_initial_weights():
    options = {"layers": 2, "bidirectional": True, "bias": False}
    params = jax.jit(lambda key: recurrent.init(key, "gru", 5, 4, **options))(KEY)
    assert [w.w.shape for w in params[1]] == [(8, 12)] * 2 and params[0][0].b is None
    block = np.asarray(params[0][1].r)[:, 4:8]
    np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-5)
    without = jax.eval_shape(lambda key: recurrent.init(key, "lstm", 4, 4, skip=True), KEY)
    assert without[0][0].w is None
    with pytest.raises(ValueError, match="inputs: got 5, wanted 4"):
        recurrent.init(jax.random.key(0), "lstm", 5, 4, skip=True)


def test_problem_is_a_key():
    problem = RecurrentProblem("gru", 3, 2, 5, 4, False, True, "bfloat16")
    assert {problem: 1}[RecurrentProblem("gru", 3, 2, 5, 4, False, True, "bfloat16")] == 1
    assert (problem.gates, problem.states, problem.wide) == (3, 1, jnp.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": jnp.zeros((2, 3))}, r"x: got shape \(2, 3\), wanted \[b, t, d\]"),
        ({"x": jnp.zeros((2, 3, 3), int)}, "x: got type int32, wanted a floating-point one"),
        ({"x": jnp.zeros((2, 3, 4))}, r"params\[0\]\[0\].w: got shape \(3, 8\), wanted \(4, 8\)"),
        ({"params": ()}, "params: got no layer"),
        ({"lengths": (1,)}, r"lengths: got \(1,\), wanted 2 integers"),
        ({"lengths": (9, 1)}, "wanted all from 0 to 3"),
        ({"lengths": jnp.ones(2)}, "lengths: got type float32"),
        ({"initial": (jnp.zeros((1, 2, 2)),)}, "initial: wanted 2 arrays"),
        ({"algorithm": "fastest"}, "algorithm: got 'fastest', wanted 'auto' or one of"),
    ],
)
def test_errors(change, message, unchecked):
    arguments = {"params": single(network("lstm", 3, 2)), "x": jnp.zeros((2, 3, 3))} | change
    with pytest.raises(ValueError, match=message):
        lstm(arguments.pop("params"), arguments.pop("x"), **arguments)


def test_errors_of_weights(unchecked):
    (layer,) = single(network("lstm", 3, 2))
    x = jnp.zeros((2, 3, 3))
    with pytest.raises(ValueError, match=r"params\[1\]: got 2 directions, wanted 1"):
        lstm((layer, layer * 2), x)
    with pytest.raises(ValueError, match=r"w: got None, but an input of 3 features"):
        lstm(((layer[0]._replace(w=None),),), x)
    with pytest.raises(ValueError, match="only a GRU has this bias"):
        lstm(((layer[0]._replace(rb=jnp.zeros(2)),),), x)
    with pytest.raises(ValueError, match="activation: got 'gelu'"):
        rnn((layer,), x, activation="gelu")
    with pytest.raises(ValueError, match="reset: got 'never'"):
        gru((layer,), x, reset="never")


@pytest.mark.parametrize(
    ("kind", "change", "chosen"),
    [
        ("NVIDIA H200", {}, "hopper"),
        ("NVIDIA H200", {"direction": "backward"}, "gemm"),
        ("NVIDIA H200", {"masked": True}, "gemm"),
        ("NVIDIA H200", {"batch": 8}, "gemm"),
        ("NVIDIA H200", {"dtype": "float16"}, "gemm"),
        ("NVIDIA H200", {"cell": "gru"}, "gemm"),
        ("NVIDIA A100", {}, "gemm"),
    ],
)
def test_the_heuristic_on_a_gpu(kind, change, chosen):
    problem = RecurrentProblem("lstm", 50, 64, 1024, 1024, False, False, "bfloat16")
    problem = dataclasses.replace(problem, **change)
    choice = OPERATION.heuristic(problem, Device("gpu", kind))
    assert choice.algorithm == chosen
    assert ALGORITHMS[chosen].applies(problem)
