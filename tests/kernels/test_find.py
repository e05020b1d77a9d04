"""The find step on an operation with a few solvers, some of which are slow, wrong or broken."""

import dataclasses
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import benchmark, database, solver
from jaxatr.kernels.benchmark import Bench, relative_error
from jaxatr.kernels.device import describe, of_platform
from jaxatr.kernels.find import _Race, found_choice
from jaxatr.kernels.ops.convolution import ConvProblem as Convolution
from jaxatr.kernels.solver import Choice, Operation, Solver

CPU = of_platform("cpu")


@dataclasses.dataclass(frozen=True)
class Sines:
    """The problem of computing the sines of some numbers."""

    size: int

    @property
    def key(self):
        return f"sines {self.size}"


class Plain(Solver):
    name = "plain"

    def applies(self, problem, device):
        return True

    def workspace_bytes(self, problem):
        return 0

    def build(self, problem, config):
        return jnp.sin


class Slow(Plain):
    name = "slow"

    def configs(self, problem):
        return [(("times", 3000),), (("times", 1),)]

    def build(self, problem, config):
        def run(x):
            total = jnp.zeros_like(x)
            for _ in range(dict(config)["times"] // 1000):
                total += jnp.sort(jnp.cos(x + total))
            return jnp.sin(x) + 0 * total

        return run


class Tuned(Plain):
    name = "tuned"

    def configs(self, problem):
        return [(("block", block),) for block in (4, 1, 2, 8)]

    def workspace_bytes(self, problem):
        return 1000


class Wrong(Plain):
    name = "wrong"

    def build(self, problem, config):
        return lambda x: jnp.sin(x) + 1e-3


class Broken(Plain):
    name = "broken"

    def build(self, problem, config):
        raise NotImplementedError("no such instruction")


class Inapplicable(Broken):
    name = "inapplicable"

    def applies(self, problem, device):
        return False


def operation(*solvers):
    return Operation(
        name="sines",
        solvers={one.name: one for one in solvers},
        heuristic=lambda problem, device: Choice("plain"),
        function=lambda problem, choice, device: {one.name: one for one in solvers}[
            choice.algorithm
        ].build(problem, choice.config),
        arguments=lambda problem, generator: (generator.standard_normal(problem.size, np.float32),),
        reference=lambda problem, arguments: np.sin(arguments[0].astype(np.float64)),
        tolerance=lambda problem, device: 1e-6,
        canonical=lambda problem, device: problem,
    )


@pytest.fixture(autouse=True)
def own_database(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    monkeypatch.delenv("JAXATR_FIND", raising=False)


@pytest.fixture
def registered(monkeypatch):
    def register(*solvers):
        made = operation(*solvers)
        monkeypatch.setitem(solver._OPERATIONS, Sines, made)
        return made

    return register


def test_every_good_candidate_is_timed_and_the_best_is_kept(registered):
    made = registered(Plain(), Tuned(), Inapplicable())
    found = kernels.find(Sines(1000))
    assert {(one.algorithm, one.config) for one in found} == {
        ("plain", ()),
        *(("tuned", (("block", block),)) for block in (1, 2, 4, 8)),
    }
    times = [one.milliseconds for one in found]
    assert times[:3] == sorted(times[:3]) and min(times) > 0
    assert {one.algorithm: one.workspace_bytes for one in found} == {"plain": 0, "tuned": 1000}
    best = Choice(found[0].algorithm, found[0].config)
    assert database.lookup(made, Sines(1000), CPU) == best


def test_a_wrong_or_failing_solver_is_named_and_never_wins(registered):
    registered(Plain(), Wrong(), Broken())
    with pytest.warns(UserWarning, match="sines 100: left out") as told:
        found = kernels.find(Sines(100))
    text = str(told[0].message)
    assert re.search(r"wrong is wrong by .*e-0\d, allowed 1.00e-06", text)
    assert "broken failed with NotImplementedError: no such instruction" in text
    assert [one.algorithm for one in found] == ["plain"]


def test_no_good_candidate_is_an_error_that_lists_the_failures(registered):
    registered(Wrong(), Broken())
    with pytest.raises(RuntimeError, match="wrong is wrong by .*no such instruction"):
        kernels.find(Sines(100))
    registered(Tuned())
    with pytest.raises(RuntimeError, match=r"no solver can be used, among \[\]"):
        kernels.find(Sines(100), workspace_limit=10)


def test_a_hopeless_solver_has_no_further_configuration_tried(registered):
    registered(Plain(), Slow())
    found = kernels.find(Sines(20000))
    assert [(one.algorithm, one.config) for one in found] == [
        ("plain", ()),
        ("slow", (("times", 3000),)),
    ]


def test_a_limit_on_the_workspace_is_kept_and_its_result_is_not(registered):
    made = registered(Plain(), Tuned())
    found = kernels.find(Sines(100), workspace_limit=999)
    assert [one.algorithm for one in found] == ["plain"]
    assert database.lookup(made, Sines(100), CPU) is None


def test_defaults_are_tried_when_the_budget_is_spent(registered):
    registered(Plain(), Tuned())
    found = kernels.find(Sines(100), budget_seconds=1e-9)
    assert {(one.algorithm, one.config) for one in found} == {
        ("plain", ()),
        ("tuned", (("block", 4),)),
    }


def test_the_slower_half_is_dropped_in_each_round(registered, monkeypatch):
    made = registered(Plain(), Tuned())
    race = _Race(made, Sines(10), jax.devices()[0], 10**9, 60.0)
    speed = {f"c{i}": 100.0 + i for i in range(12)}
    runs = dict.fromkeys(speed, 0)

    def milliseconds(choice):
        runs[choice.algorithm] += 1
        return speed[choice.algorithm]

    monkeypatch.setattr(race._bench, "milliseconds", milliseconds)
    race._times = {Choice(name): [milliseconds(Choice(name))] for name in speed}
    race._halve()
    assert [choice.algorithm for choice in race._ranked()] == ["c0", "c1", "c2"]
    assert [choice.algorithm for choice in race._out] == [f"c{i}" for i in range(3, 12)]
    assert runs["c11"] == 2 and runs["c4"] == 4 and runs["c2"] == 4 + 9


def test_a_hopeless_solver_has_a_single_turn(registered, monkeypatch):
    race = _Race(registered(Plain(), Tuned()), Sines(10), jax.devices()[0], 10**9, 60.0)
    speed = {"slow": 31.0, "near": 29.0, "best": 10.0}
    monkeypatch.setattr(race._bench, "error", lambda choice: 0.0)
    monkeypatch.setattr(race._bench, "milliseconds", lambda choice: speed[choice.algorithm])
    for name in speed:
        race._enter(Choice(name))
    race._leave_out_hopeless()
    race._halve()
    assert [choice.algorithm for choice in [*race._ranked(), *race._out]] == [
        "best",
        "near",
        "slow",
    ]
    assert [len(race._times[Choice(name)]) for name in speed] == [1, 10, 10]


@pytest.mark.parametrize(("each", "count"), [(2**-6, 1), (2**-8, 1 + 3 + 3), (2**-11, 1 + 21 + 21)])
def test_a_turn_of_short_runs_has_many(registered, monkeypatch, each, count):
    """One run, and if it is short, 10 ms of warm-up and 10 ms of timed runs."""
    bench = Bench(registered(Plain()), Sines(10), jax.devices()[0])
    clock, runs = [0.0], []

    def run(choice, times):
        runs.append(times)
        clock[0] += each

    monkeypatch.setattr(bench, "run", run)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: clock[0])
    assert bench.milliseconds(Choice("plain")) == 1e3 * each
    assert runs == [1] * count


def test_an_accelerator_is_given_short_runs_many_at_once(registered, monkeypatch):
    """Each run takes 1 ms, and each synchronization 4 ms."""
    bench = Bench(registered(Plain()), Sines(10), jax.devices()[0])
    clock, given = [0.0], []

    def run(choice, times):
        given.append(times)
        clock[0] += 4e-3 + 1e-3 * times

    monkeypatch.setattr(bench, "run", run)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: clock[0])
    assert bench.milliseconds(Choice("plain")) == pytest.approx(5.0)
    assert set(given) == {1}
    given.clear()
    monkeypatch.setattr(bench, "_queued", True)
    for _ in range(2):
        assert bench.milliseconds(Choice("plain")) == pytest.approx(3.0)
    assert set(given) == {1, 2}


def test_runs_that_are_queued_are_all_run(registered, monkeypatch):
    bench, runs = Bench(registered(Plain()), Sines(10), jax.devices()[0]), []
    monkeypatch.setattr(benchmark, "program", lambda *_: lambda x: (runs.append(x), jnp.sin(x))[1])
    np.testing.assert_allclose(bench.run(Choice("plain"), 3), np.sin(runs[0]), rtol=1e-6)
    assert len(runs) == 3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_convolution_of_another_type_on_a_device_that_is_named(dtype):
    edges = ((1, 1), (0, 1))
    problem = Convolution("data", (2, 6, 5, 3), (3, 2, 3, 4), (1, 1), edges, (1, 1), 1, dtype)
    found = kernels.find(problem, device=jax.devices("cpu")[0], budget_seconds=0.5)
    assert {"matmul", "taps", "xla"} <= {one.algorithm for one in found}
    assert problem.key in database.entries(database.user_file(CPU))
    assert not jax.config.jax_enable_x64


def test_a_reference_that_does_not_fit_the_memory_leaves_the_problem_to_the_rules(
    registered, monkeypatch
):
    def reference(problem, arguments):
        raise MemoryError("Unable to allocate 1.00 PiB")

    made = dataclasses.replace(registered(Plain()), reference=reference)
    monkeypatch.setitem(solver._OPERATIONS, Sines, made)
    with pytest.warns(UserWarning, match="sines 9: .*heuristic decides: MemoryError.*1.00 PiB"):
        assert found_choice(Sines(9)) is None


def test_the_kept_solver_was_run_several_times_even_late(registered, monkeypatch):
    made = registered(Plain(), Tuned())
    race = _Race(made, Sines(10), jax.devices()[0], 10**9, 1e-9)
    found = {Choice("plain"): 2.0, Choice("tuned"): 1.0}
    monkeypatch.setattr(race._bench, "milliseconds", found.__getitem__)
    race._times = {choice: [value] for choice, value in found.items()}
    race._halve()
    assert [len(times) for times in race._times.values()] == [1 + 3, 1 + 3]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([3.0, 4.0], 0.0),
        ([3.0, 4.4], 0.4 / 2**0.5 / 4),
        ([3.0, float("nan")], float("inf")),
        ([3.0], float("inf")),
    ],
)
def test_the_error_is_the_rms_over_the_largest_value(result, expected):
    found = relative_error(np.array(result), np.array([3.0, 4.0]))
    assert found == pytest.approx(expected)


def test_bad_arguments_are_named(registered):
    with pytest.raises(ValueError, match="problem: got 3, wanted one of .*Problem"):
        kernels.find(3)
    registered(Plain())
    with pytest.raises(ValueError, match="budget_seconds: got 0.0"):
        kernels.find(Sines(1), budget_seconds=0.0)


def test_the_kind_of_a_cpu_says_more_than_cpu():
    device = describe(jax.devices("cpu")[0])
    assert device.platform == "cpu" and "cores" in device.kind
    assert of_platform("tpu").kind == ""


def test_the_budget_ends_the_runs(registered):
    registered(Plain(), Tuned(), Slow())
    start = time.monotonic()
    kernels.find(Sines(1000), budget_seconds=0.01)
    assert time.monotonic() - start < 10
