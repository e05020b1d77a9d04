"""The recurrent algorithms in the find step: reference, choice and database."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import database
from jaxatr.kernels.benchmark import Bench
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.ops import recurrent
from jaxatr.kernels.ops.recurrent.operation import OPERATION, SOLVERS
from jaxatr.kernels.ops.recurrent.problem import CELLS, RecurrentProblem
from jaxatr.kernels.solver import Choice

CPU = of_platform("cpu")
SHAPES = {"steps": 5, "batch": 3, "inputs": 4, "hidden": 4, "dtype": "float32"}


def problem(cell, direction="backward", **options):
    return RecurrentProblem(
        cell=cell, direction=direction, **({"skip": False, "masked": False} | SHAPES | options)
    )


PROBLEMS = [
    *(problem(cell, masked=True) for cell in CELLS),
    problem("lstm", skip=True),
    problem("gru", reset_after=False, masked=True),
]


@pytest.mark.parametrize("one", PROBLEMS, ids=lambda one: one.key)
def test_the_reference_gradient_is_the_slope_of_the_reference(one):
    rng = np.random.default_rng(1)
    *given, cotangent = OPERATION.arguments(one, rng)
    gradients = OPERATION.reference(one, (*given, cotangent))
    *varied, mask = jax.tree.map(lambda a: np.asarray(a, np.float64), given[:3]), given[3]
    (varied,) = varied
    leaves, tree = jax.tree.flatten(tuple(varied))
    along = [rng.standard_normal(leaf.shape) for leaf in leaves]
    forward = dataclasses.replace(one, direction="forward")

    def score(step):
        moved = [leaf + step * a for leaf, a in zip(leaves, along, strict=True)]
        results = OPERATION.reference(forward, (*jax.tree.unflatten(tree, moved), mask))
        pairs = zip(jax.tree.leaves(results), jax.tree.leaves(cotangent), strict=True)
        return sum(np.vdot(result, weight) for result, weight in pairs)

    slope = (score(1e-6) - score(-1e-6)) / 2e-6
    wanted = sum(np.vdot(g, a) for g, a in zip(jax.tree.leaves(gradients), along, strict=True))
    np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("cell", "direction", "count"),  # of configurations
    [
        ("lstm", "forward", 1),
        ("tanh", "backward", 1),
        pytest.param("tanh", "forward", 3, marks=pytest.mark.slow),
        pytest.param("lstm", "backward", 3, marks=pytest.mark.slow),
        pytest.param("gru", "backward", 2, marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_equals_the_reference(cell, direction, count):
    one = problem(cell, direction, masked=True)
    bench, tried = Bench(OPERATION, one, jax.devices()[0]), []
    for name, solver in SOLVERS.items():
        if solver.applies(one, CPU):
            for config in solver.configs(one)[:count]:
                assert bench.error(Choice(name, config)) <= OPERATION.tolerance(one, CPU), name
            tried.append(name)
    assert tried == ["gemm", "scan", "step", "step_gemm"]


def test_only_applicable_solvers_are_tried():
    before = problem("gru", reset_after=False)
    assert [n for n, solver in SOLVERS.items() if solver.applies(before, CPU)] == ["scan"]
    forward, backward = (
        problem("lstm", direction, inputs=64, hidden=64, dtype="bfloat16")
        for direction in ("forward", "backward")
    )
    hopper, h100 = SOLVERS["hopper"], Device("gpu", "NVIDIA H100 80GB HBM3")
    assert hopper.applies(forward, h100) and not hopper.applies(backward, h100)
    for other in (Device("gpu", "NVIDIA A100-SXM4-40GB"), CPU):
        assert not hopper.applies(forward, other)


@pytest.fixture
def own_database(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    monkeypatch.delenv("JAXATR_FIND", raising=False)


def test_auto_asks_for_each_layer_and_direction_and_can_be_pinned():
    params = recurrent.init(jax.random.key(0), "tanh", 4, 4, layers=2, bidirectional=True)
    x = jnp.ones((3, 5, 4))
    fn = lambda params, x: kernels.rnn(params, x)[0].sum()  # noqa: E731
    with kernels.collected() as collector:
        jax.jit(fn).lower(params, x)
    keys = [f"recurrent forward tanh t5 b3 d{inputs} h4 float32" for inputs in (4, 8)]
    assert list(collector.problems) == keys  # the same for both directions of a layer
    with kernels.collected() as collector:
        jax.jit(jax.grad(fn)).lower(params, x)
    assert list(collector.problems) == [key.replace("forward", "backward") for key in keys]

    def program(name, unroll):
        choice = {"algorithm": name, "config": {"unroll": unroll}}
        with kernels.choices(dict.fromkeys(keys, choice)):
            return jax.jit(fn).lower(params, x).as_text()

    assert len({program("gemm", 1), program("step", 1), program("step", 4)}) == 3


def test_auto_uses_the_choice_of_find(own_database):
    one = problem("tanh", "forward")
    best = kernels.find(one, budget_seconds=1e-9)[0]  # the defaults alone
    assert database.lookup(OPERATION, one, CPU) == Choice(best.algorithm, best.config)


@pytest.mark.slow
def test_search_measures_while_a_program_is_traced(own_database, monkeypatch):
    monkeypatch.setenv("JAXATR_FIND", "search")
    params = recurrent.init(jax.random.key(0), "tanh", 4, 4)
    x = jnp.ones((3, 5, 4))
    plain = kernels.rnn(params, x, algorithm="scan")[0]
    gradient = jax.jit(jax.grad(lambda p: kernels.rnn(p, x)[0].sum()))(params)
    np.testing.assert_allclose(jax.jit(kernels.rnn)(params, x)[0], plain, atol=1e-6)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)
    kept = database.entries(database.user_file(CPU))
    assert {key.split()[1] for key in kept} == {"forward", "backward"}
