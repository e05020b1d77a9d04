"""The choice of ``"auto"``: by the heuristic, the database, a measurement or a pinned choice."""

import dataclasses
import sys
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import choosing, contrib, database
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.ops.convolution import ConvProblem, primitive
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.solver import Choice

CPU = of_platform("cpu")
X, W = jnp.ones((3, 5, 5, 2)), jnp.ones((3, 3, 2, 2))
PROBLEM = ConvProblem("forward", X.shape, W.shape, (1, 1), ((1, 1), (1, 1)), (1, 1), 1, "float32")


@pytest.fixture(autouse=True)
def own_database(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    monkeypatch.delenv("JAXATR_FIND", raising=False)


@pytest.fixture
def used(monkeypatch):
    """Returns a function that lowers a program and gives its choices by direction."""
    found, function = {}, primitive.function

    def noted(problem, choice, device):
        found[problem.direction] = choice
        return function(problem, choice, device)

    monkeypatch.setattr(primitive, "function", noted)

    def lower(fn=lambda x, w: kernels.convolution(x, w, padding=1)):
        found.clear()
        jax.jit(lambda x, w: fn(x, w)).lower(X, W)
        return dict(found)

    return lower


def remember(algorithm, config=(), problem=PROBLEM):
    version = OPERATION.solvers[algorithm].version
    entry = Entry(Choice(algorithm, config), 1.0, version, jax.__version__)
    database.store(CPU, {problem.key: entry})


def gradients(x, w):
    return jax.grad(lambda x, w: kernels.convolution(x, w, padding=1).sum() ** 2, (0, 1))(x, w)


def test_the_database_then_the_rules_each_direction_on_its_own(used, monkeypatch):
    plain = used(gradients)
    assert set(plain) == {"forward", "data", "weight"}
    remember("blocked", (("images", 1),))
    remember("winograd4", (("pieces", 3),), PROBLEM.in_direction("weight"))
    with pytest.warns(UserWarning, match="no configuration"):  # pieces are powers of two
        used(gradients)
    remember("winograd4", (("pieces", 1),), PROBLEM.in_direction("weight"))
    assert used(gradients) == plain | {
        "forward": Choice("blocked", (("images", 1),)),
        "weight": Choice("winograd4", (("pieces", 1),)),
    }
    monkeypatch.setenv("JAXATR_FIND", "none")
    assert used(gradients) == plain


def test_pinned_choices_hold_and_the_database_is_not_asked(used):
    remember("taps")
    with kernels.choices({PROBLEM.key: {"algorithm": "winograd", "config": {}}}) as pinned:
        assert used()["forward"] == Choice("winograd")
        assert kernels.choices(pinned).__enter__() == pinned
    with kernels.choices({}):
        assert used()["forward"] not in (Choice("taps"), Choice("winograd"))
    assert used()["forward"] == Choice("taps")


def test_a_choice_is_pinned_by_the_key_of_the_problem_as_it_was_posed(used):
    posed = dataclasses.replace(PROBLEM, stride=(3, 3))  # the last row of zeros is never read
    assert OPERATION.canonical(posed, CPU).key != posed.key
    choice = Choice("blocked", (("images", 1),))
    strided = partial(kernels.convolution, stride=3, padding=1)
    with kernels.choices({posed.key: choice}):
        assert used(strided) == {"forward": choice}
        np.testing.assert_allclose(jax.jit(strided)(X, W), strided(X, W, algorithm="xla"))


def test_a_jitted_function_is_traced_anew_under_other_choices():
    lowered = []

    @jax.jit
    def run(x, w):
        lowered.append(1)
        return kernels.convolution(x, w, padding=1)

    expected = run(X, W)
    with kernels.choices({PROBLEM.key: Choice("matmul")}):
        np.testing.assert_allclose(run(X, W), expected, rtol=1e-6)
        run(X, W)
    with kernels.choices({PROBLEM.key: {"algorithm": "matmul", "config": {}}}):  # the same
        run(X, W)
    run(X, W)
    assert len(lowered) == 2


def test_choices_pinned_while_tracing_hold_for_a_gradient_and_for_lowering(used, monkeypatch):
    found, function = [], primitive.function
    noted = lambda *given: found.append(given[1].algorithm) or function(*given)  # noqa: E731
    monkeypatch.setattr(primitive, "function", noted)
    key = PROBLEM.in_direction("weight").key
    with kernels.choices({PROBLEM.key: Choice("taps"), key: Choice("matmul")}):
        traced = jax.jit(jax.grad(lambda w: kernels.convolution(X, w, padding=1).sum())).trace(W)
    traced.lower()
    assert found == ["matmul"]  # the gradient of a sum needs no forward product


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"algorithm": "fft", "config": {}}, "cannot be used: 'fft' cannot compute it"),
        ({"algorithm": "gone", "config": {}}, "the algorithm 'gone' does not exist"),
        ({"algorithm": "matmul", "config": {"a": 1}}, "no configuration {'a': 1}"),
    ],
)
def test_a_pinned_choice_that_cannot_be_used_is_an_error(used, choice, message):
    with kernels.choices({PROBLEM.key: choice}), pytest.raises(ValueError, match=message):
        used()


def test_arrays_of_numpy_have_the_type_that_jax_gives_them(unchecked):
    """Without jax's 64-bit mode, float64 becomes float32, and so does the problem."""
    x, w = np.random.default_rng(0).normal(size=(2, 5, 5, 1)), np.ones((3, 3, 1, 1))
    network = kernels.recurrent.init(jax.random.key(0), "tanh", 1, 2)
    calls = [
        lambda x: kernels.convolution(x, w, padding=1),
        lambda x: kernels.transposed_convolution(x, w),
        lambda x: kernels.max_pool(x, 2),
        lambda x: contrib.local_response_norm(x),
        lambda x: kernels.rnn(network, x[0])[0],
    ]
    for call in calls:
        with kernels.collected() as collector:
            result = call(x)
        assert [key.split()[-1] for key in collector.problems] == ["float32"]
        np.testing.assert_array_equal(result, call(jnp.asarray(x)))


def test_bad_choices_are_named():
    with pytest.raises(ValueError, match="choices: k: got 'matmul', wanted an algorithm's name"):
        kernels.choices({"k": "matmul"}).__enter__()


def test_an_unknown_mode_is_named(used, monkeypatch):
    monkeypatch.setenv("JAXATR_FIND", "always")
    with pytest.raises(ValueError, match="JAXATR_FIND: got 'always', wanted one of none, db"):
        used()


@pytest.fixture
def finds(monkeypatch):
    asked = []

    def find(problem, **_):
        asked.append(problem)
        remember("matmul", problem=problem)
        return [kernels.Performance("matmul", (), 1.0, 0)]

    # By sys.modules, because the package's attribute "find" is the function.
    monkeypatch.setattr(sys.modules["jaxatr.kernels.find"], "find", find)
    monkeypatch.setattr(choosing._IMMEDIATE, "_measured", {})
    return asked


def test_search_measures_unknown_problems_and_enforce_everything_once(used, monkeypatch, finds):
    monkeypatch.setenv("JAXATR_FIND", "search")
    assert used()["forward"] == Choice("matmul") and finds == [PROBLEM]
    used()
    assert finds == [PROBLEM]
    monkeypatch.setattr(choosing._IMMEDIATE, "_measured", {})
    used()
    assert finds == [PROBLEM]  # the database knows it now
    monkeypatch.setattr(choosing._IMMEDIATE, "_measured", {})
    monkeypatch.setenv("JAXATR_FIND", "enforce")
    used()
    used()
    assert finds == [PROBLEM, PROBLEM]


def test_a_search_that_finds_nothing_leaves_it_to_the_rules(used, monkeypatch):
    plain = used()

    def find(problem, **_):
        raise RuntimeError("no solver can be used")

    monkeypatch.setattr(sys.modules["jaxatr.kernels.find"], "find", find)
    monkeypatch.setattr(choosing._IMMEDIATE, "_measured", {})
    monkeypatch.setenv("JAXATR_FIND", "enforce")
    with pytest.warns(UserWarning, match="the heuristic decides: .*no solver can be used"):
        assert used() == plain


def test_a_search_measures_while_a_program_is_traced(monkeypatch):
    monkeypatch.setenv("JAXATR_FIND", "search")
    x, w = jnp.ones((2, 2, 2, 1)), jnp.ones((1, 1, 1, 1))
    y = jax.jit(lambda x: 2 * kernels.convolution(x, w))(x)
    np.testing.assert_allclose(y, 2 * x)
    assert database.known(CPU)


@pytest.mark.parametrize("mode", ["db", "search"])
def test_a_free_batch_goes_by_the_rules(monkeypatch, finds, mode):
    """As in an exported program; for this first layer the heuristic cuts a known batch."""
    monkeypatch.setenv("JAXATR_FIND", mode)
    (batch,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((batch, 32, 32, 3), jnp.float32)
    w = jnp.ones((3, 3, 3, 8)) / 9

    def network(x):
        return kernels.max_pool(kernels.convolution(x, w, padding=1), 2)

    exported = jax.export.export(jax.jit(network))(x)
    assert not finds
    monkeypatch.setenv("JAXATR_FIND", "none")
    x = jax.random.normal(jax.random.key(0), (3, 32, 32, 3))
    np.testing.assert_allclose(exported.call(x), network(x), rtol=1e-5, atol=1e-5)


def test_freezing_measures_neither_a_free_batch_nor_another_platform(finds):
    (batch,) = jax.export.symbolic_shape("b")
    free = jax.ShapeDtypeStruct((batch, *X.shape[1:]), X.dtype)
    for x, platform in ((X, "cuda"), (free, "cpu")):

        def lower(x=x, platform=platform):
            fn = jax.jit(lambda x, w: kernels.convolution(x, w, padding=1))
            fn.trace(x, W).lower(lowering_platforms=(platform,))

        assert kernels.freeze(lower, measure=True).to_json() == {} and not finds


def test_freezing_uses_the_database_and_measures_the_rest_on_demand(monkeypatch, finds):
    def lower():
        jax.jit(lambda x, w: gradients(x, w)).lower(X, W)

    assert kernels.freeze(pytest.fail).to_json() == {}
    remember("taps")
    assert kernels.freeze(lower).to_json() == {PROBLEM.key: Choice("taps").to_json()}
    assert not finds
    seen = []
    frozen = kernels.freeze(lower, measure=True, watch=lambda keys: seen.extend(keys) or keys)
    assert {key: one["algorithm"] for key, one in frozen.to_json().items()} == {
        PROBLEM.key: "taps",
        PROBLEM.in_direction("data").key: "matmul",
        PROBLEM.in_direction("weight").key: "matmul",
    }
    assert sorted(seen) == sorted(problem.key for problem in finds) and len(seen) == 2
    monkeypatch.setenv("JAXATR_FIND", "none")
    assert kernels.freeze(pytest.fail).to_json() == {}


def test_a_frozen_program_is_not_lowered_again_and_reads_the_database_no_more(
    finds, compiler_events
):
    fn = jax.jit(lambda x, w: gradients(x, w))
    remember("taps")
    other = kernels.freeze(lambda: jax.jit(jnp.sin).lower(X))
    frozen = kernels.freeze(lambda: fn.lower(X, W))
    compiler_events.clear()
    with kernels.choices(frozen):
        fn(X, W)
    assert "jaxpr_to_mlir_module_duration" not in compiler_events
    with kernels.choices(other):
        fn(X, W)
    assert compiler_events.count("jaxpr_to_mlir_module_duration") == 1
    assert other.to_json() == {} and not finds
    assert frozen.to_json() == {PROBLEM.key: Choice("taps").to_json()}
