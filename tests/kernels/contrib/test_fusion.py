"""Fusion plans: the accepted sequences, and results against the separate operations in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.contrib.fusion import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionPlan,
    FusionProblem,
    Residual,
    supported_fusions,
)
from jaxatr.kernels.contrib.fusion.graph import refusal
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS, run_kernel
from jaxatr.kernels.device import Device
from jaxatr.kernels.pallas import kernel

SAME = ((1, 1), (1, 1))


def draw(name, shape, dtype="float32"):
    values = np.random.default_rng(sum(map(ord, name))).standard_normal(shape)
    values = abs(values) + 0.5 if name == "variance" else values
    return jnp.asarray(values / 4 if name == "w" else values, dtype)


def arguments_of(plan, problem):
    images = ("x", "w", "residual")
    return {
        name: draw(name, shape, problem.dtype if name in images else "float32")
        for name, shape in plan.arguments(problem).items()
    }


def separately(operations, arguments):
    """Applies each operation by its definition, in float64."""
    a = {name: np.asarray(array, np.float64) for name, array in arguments.items()}
    y = a["x"]
    for operation in operations:
        if isinstance(operation, Convolution):
            y = convolved(y, a["w"], operation)
        elif isinstance(operation, Bias):
            y = y + a["bias"]
        elif isinstance(operation, Residual):
            y = y + a["residual"]
        elif isinstance(operation, BatchNorm):
            axes = (0, 1, 2) if operation.mode == "spatial" else (0,)
            mean, variance = (
                (y.mean(axes), y.var(axes)) if operation.training else (a["mean"], a["variance"])
            )
            y = a["scale"] * (y - mean) / np.sqrt(variance + operation.epsilon) + a["shift"]
        else:
            y = ACTIVATED[operation.name](y)
    return y


ACTIVATED = {
    "abs": np.abs,
    "elu": lambda y: np.where(y > 0, y, np.expm1(np.minimum(y, 0))),
    "leaky_relu": lambda y: np.where(y > 0, y, 0.01 * y),
    "relu": lambda y: np.maximum(y, 0),
    "sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    "tanh": np.tanh,
}


def convolved(x, w, operation):
    x = np.pad(x, ((0, 0), *operation.padding, (0, 0)))
    (sy, sx), (kh, kw) = operation.stride, w.shape[:2]
    height, width = (x.shape[1] - kh) // sy + 1, (x.shape[2] - kw) // sx + 1
    return sum(
        x[:, i : i + (height - 1) * sy + 1 : sy, j : j + (width - 1) * sx + 1 : sx] @ w[i, j]
        for i, j in itertools.product(range(kh), range(kw))
    )


def error(y, wanted):
    return np.sqrt(np.mean((np.asarray(y, np.float64) - wanted) ** 2)) / abs(wanted).max()


TOLERANCE = {"float32": 1.5e-6, "float16": 8.2e-3, "bfloat16": 8 * 8.2e-3}
SEQUENCES = {
    "CBNA": [Convolution((2, 2), SAME), Bias(), BatchNorm(), Activation("relu")],
    "CBA": [Convolution(padding=SAME), Bias(), Activation("tanh")],
    "NA": [BatchNorm("per_activation", training=True), Activation("tanh")],
    "CBNRA": [
        Convolution(padding=SAME),
        Bias(),
        BatchNorm("per_activation"),
        Residual(),
        Activation("relu"),
    ],
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("letters", SEQUENCES)
def test_results_are_those_of_the_separate_operations(letters, dtype):
    plan = FusionPlan(SEQUENCES[letters])
    w_shape = (3, 3, 3, 4) if "C" in letters else None
    problem = FusionProblem((2, 6, 5, 3), w_shape, dtype)
    compiled = plan.compile(problem)
    assert plan.combination == letters and compiled.solver == "xla"
    for factor in (1, 2):  # compiled once, run with any values
        drawn = arguments_of(plan, problem).items()
        arguments = {k: jnp.asarray(np.asarray(v) * np.array(factor, v.dtype)) for k, v in drawn}
        y = compiled.execute(arguments)
        assert y.dtype == dtype
        assert error(y, separately(plan.operations, arguments)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("letters", ["CBNA", "CBA", "CBNRA"])
def test_the_form_that_cudnn_takes_as_one_call(letters, dtype):
    """The norm is folded into the kernel, and nothing after the convolution changes the type."""
    norm = [BatchNorm()] if "N" in letters else []
    residual = [Residual()] if "R" in letters else []
    plan = FusionPlan([Convolution((2, 2), SAME), Bias(), *norm, *residual, Activation("relu")])
    problem = FusionProblem((2, 6, 5, 3), (3, 3, 3, 4), dtype)
    compiled = plan.compile(problem, solver="xla_folded")
    assert plan.combination == letters and compiled.accuracy == "narrow"
    arguments = arguments_of(plan, problem)
    assert (
        error(compiled.execute(arguments), separately(plan.operations, arguments))
        < (TOLERANCE[dtype])
    )
    traced = jax.make_jaxpr(compiled.function)(arguments)
    after = str(traced).partition("conv")[2]
    assert dtype == "float32" or "convert_element_type[new_dtype=float32" not in after


def test_the_form_that_auto_stands_for():
    gpu, tpu = Device("gpu", "NVIDIA H100"), Device("tpu", "TPU v5 lite")
    problem = FusionProblem((2, 6, 5, 3), (3, 3, 3, 4), "bfloat16")
    assert FusionPlan(SEQUENCES["CBNA"]).choose(problem, gpu) == "xla_folded"
    assert FusionPlan(SEQUENCES["CBNA"]).choose(problem, tpu) == "xla"
    assert FusionPlan(SEQUENCES["CBNRA"]).choose(problem, gpu) == "xla"  # a norm per pixel
    assert FusionPlan(SEQUENCES["NA"]).choose(FusionProblem((2, 3, 3, 2)), gpu) == "xla"
    assert FusionPlan(SEQUENCES["CBA"]).compile(problem).accuracy == "wide"


@pytest.mark.parametrize("solver", ["xla", "xla_folded"])
def test_the_function_can_be_differentiated(solver):
    plan, problem = FusionPlan(SEQUENCES["CBNA"]), FusionProblem((2, 6, 5, 3), (3, 3, 3, 4))
    arguments = arguments_of(plan, problem)
    function = plan.compile(problem, solver=solver).function
    gradient = jax.jit(jax.grad(lambda a: (function(a) ** 2).sum()))(arguments)
    along = {k: np.random.default_rng(9).standard_normal(v.shape) for k, v in arguments.items()}
    slope = sum(np.vdot(np.float64(gradient[k]), along[k]) for k in along)

    def moved(step):
        changed = {k: np.float64(v) + step * along[k] for k, v in arguments.items()}
        return (separately(plan.operations, changed) ** 2).sum()

    np.testing.assert_allclose(slope, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-3)


def rows_of_the_tables():
    """Yields the operations and problems of each row of tables I and II."""
    norm = [BatchNorm("spatial"), BatchNorm("per_activation")]
    for dtype in ("float32", "float16"):
        for size, stride, mode in itertools.product((3, 5, 7, 9, 11), (1, 2), norm):
            convolution = Convolution((stride, stride), (((stride,) * 2),) * 2)
            operations = [convolution, Bias(), mode, Activation("elu")]
            yield operations, FusionProblem((2, 16, 16, 3), (size, size, 3, 4), dtype)
        for operations in (
            [Convolution(), Bias(), norm[0], Activation("abs")],
            [Convolution(), Bias(), Activation("sigmoid")],
        ):
            yield operations, FusionProblem((2, 16, 16, 3), (1, 1, 3, 4), dtype)
    for size, stride, name in itertools.product(range(1, 14), (1, 2), ("relu", "leaky_relu")):
        operations = [Convolution((stride, stride)), Bias(), Activation(name)]
        yield operations, FusionProblem((2, 16, 16, 18), (size, size, 18, 4))
    for mode, training in itertools.product(norm, (False, True)):
        operations = [BatchNorm(mode.mode, training), Activation("tanh")]
        yield operations, FusionProblem((2, 16, 16, 3))


def test_every_row_of_the_papers_tables_is_taken():
    rows = list(rows_of_the_tables())
    assert len(rows) > 90
    for operations, problem in rows:
        assert refusal(SOLVERS["xla"].edges, operations, problem) is None


def check_row(operations, problem):
    plan = FusionPlan(operations)
    arguments = arguments_of(plan, problem)
    y = plan.compile(problem).execute(arguments)
    wanted = separately(operations, arguments)
    assert y.shape == wanted.shape
    assert error(y, wanted) < TOLERANCE[problem.dtype], (operations, problem)


@pytest.mark.parametrize("index", [4, 13, 20, 21, 30, 60, -4])
def test_some_rows_equal_the_separate_operations(index):
    check_row(*list(rows_of_the_tables())[index])


@pytest.mark.slow
def test_every_row_equals_the_separate_operations():
    for operations, problem in rows_of_the_tables():
        check_row(operations, problem)


def test_the_list_equals_the_rows_of_the_graph():
    listed = {(f.combination, f.solver) for f in supported_fusions()}
    assert {("CBNA", "xla"), ("CBA", "xla"), ("NA", "xla"), ("CBNRA", "hopper")} <= listed
    assert ("NA", "hopper") not in listed and ("CA", "tpu") in listed
    samples = {
        "C": Convolution(),
        "B": Bias(),
        "N": BatchNorm(),
        "R": Residual(),
        "A": Activation(),
    }
    problem = FusionProblem((2, 8, 8, 128), (1, 1, 128, 128), "bfloat16")
    for name, solver in SOLVERS.items():
        for length in (2, 3, 4, 5):
            for letters in itertools.permutations("CBNRA", length):
                operations = [samples[letter] for letter in letters]
                taken = refusal(solver.edges, operations, problem) is None
                assert taken == (("".join(letters), name) in listed)


@pytest.mark.parametrize(
    ("operations", "options", "reason"),
    [
        ([Convolution()], {}, "xla does not take C: got 1 of the two or more operations"),
        ([Bias(), Convolution()], {}, "xla does not take BC: Bias is not possible at the start"),
        ([Convolution(), Activation(), Bias()], {}, "Bias is not possible after Activation"),
        ([Convolution(dilation=(2, 2)), Bias()], {"solver": "hopper"}, "needs dilation 1"),
        ([Convolution((2, 2), SAME), Bias()], {"solver": "tpu"}, "needs stride 1"),
        ([Convolution(), Bias()], {"solver": "hopper"}, "needs bfloat16, float16 or"),
        (
            [Convolution(), BatchNorm("per_activation")],
            {"solver": "tpu", "dtype": "bfloat16", "channels": 128},
            "needs mode spatial",
        ),
        (
            [Convolution(), Bias()],
            {"solver": "tpu", "dtype": "bfloat16", "channels": 128},
            "it does not run on .* cores",
        ),
    ],
)
def test_refusals(operations, options, reason):
    options = {"solver": "auto", "dtype": "float32", "channels": 3} | options
    n = options["channels"]
    problem = FusionProblem((2, 8, 8, n), (1, 1, n, n), options["dtype"])
    with pytest.raises(NotImplementedError, match=reason):
        FusionPlan(operations).compile(problem, solver=options["solver"])


def test_an_older_gpu_is_not_a_hopper():
    runs_on = SOLVERS["hopper"].runs_on
    assert runs_on(Device("gpu", "NVIDIA H100 80GB HBM3"))
    assert not runs_on(Device("gpu", "NVIDIA A100-SXM4-40GB"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 2}, r"stride: got 2, wanted \(rows, columns\)"),
        ({"stride": (0, 1)}, r"stride: got \(0, 1\), wanted an int or a pair of ints >= 1"),
        ({"dilation": [1, 1]}, r"dilation: got \[1, 1\], wanted \(rows, columns\)"),
        ({"padding": 1}, r"padding: got 1, wanted \(\(top, bottom\), \(left, right\)\)"),
        ({"padding": (1, 1)}, r"padding: got \(1, 1\), wanted \(\(top, bottom\)"),
        ({"padding": "SAME"}, "padding: got 'SAME', wanted"),
    ],
)
def test_a_geometry_that_is_not_written_out_is_named(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Convolution(**options)


def test_errors():
    plan, problem = FusionPlan(SEQUENCES["NA"]), FusionProblem((2, 3, 3, 2))
    with pytest.raises(ValueError, match="solver: got 'fast', wanted 'auto' or one of"):
        plan.compile(problem, solver="fast")
    compiled = plan.compile(problem)
    with pytest.raises(ValueError, match=r"arguments: got \['x'\], wanted"):
        compiled.execute({"x": jnp.zeros((2, 3, 3, 2))})
    with pytest.raises(ValueError, match=r"scale: got shape \(2,\), wanted \(3, 3, 2\)"):
        compiled.execute(
            {"x": jnp.zeros((2, 3, 3, 2)), "scale": jnp.ones(2), "shift": jnp.ones((3, 3, 2))}
        )
    with pytest.raises(NotImplementedError, match="needs w_shape in the problem"):
        FusionPlan(SEQUENCES["CBA"]).compile(problem)
    with pytest.raises(ValueError, match="dtype: got 'flat', wanted the name of a type"):
        FusionProblem((2, 3, 3, 2), dtype="flat")
    with pytest.raises(TypeError, match="float32.* and called with .*bfloat16"):
        compiled.execute({name: jnp.ones(s, "bfloat16") for name, s in compiled.shapes.items()})


@pytest.mark.parametrize(
    ("solver", "stride"),
    [("hopper", 2), pytest.param("hopper", 1, marks=pytest.mark.slow), ("tpu", 2)],
)
def test_a_kernel_takes_the_same_sequence(solver, stride, monkeypatch):
    """Interpreted, with the epilogue made from the operations, and a strided 1x1 kernel."""
    params = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret.params")
    zeros = {"out_of_bounds_reads": "uninitialized", "uninitialized_memory": "zero"}  # as TMA
    interpret = params.InterpretGPUParams(**zeros) if solver == "hopper" else True
    module = kernel(solver, "convolution")
    original = module.convolution
    monkeypatch.setattr(module, "convolution", lambda *a: original(*a, interpret=interpret))
    size = 3 if stride == 1 else 1
    padding = SAME if size == 3 else ((0, 0), (0, 0))
    operations = [
        Convolution((stride, stride), padding),
        Bias(),
        BatchNorm(),
        Residual(),
        Activation("relu"),
    ]
    plan = FusionPlan(operations)
    batch = 8 if solver == "hopper" else 2
    problem = FusionProblem((batch, 5, 6, 128), (size, size, 128, 128), "bfloat16")
    assert refusal(SOLVERS[solver].edges, operations, problem) is None
    arguments = arguments_of(plan, problem)
    y = run_kernel(solver, operations, arguments)
    assert error(y, separately(operations, arguments)) < TOLERANCE["bfloat16"]
