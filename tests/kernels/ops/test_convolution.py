"""Every algorithm in every direction, against plain loops and against XLA's own derivatives."""

import dataclasses
import math
from functools import cache, partial
from itertools import product

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import choices, convolution
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.dead_taps import without_dead_taps
from jaxatr.kernels.ops.convolution.heuristic import choose
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS, winograd
from jaxatr.kernels.ops.windows import edges

CPU = of_platform("cpu")

# Shapes of x and w, and the other arguments, with padding as ((top, bottom), (left, right)).
PROBLEMS = [
    ((2, 5, 6, 3), (3, 3, 3, 4), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 7, 5, 2), (3, 3, 2, 2), (1, 1), ((0, 2), (2, 1)), (1, 1), 1),
    ((2, 4, 3, 4), (3, 3, 2, 6), (1, 1), ((2, 2), (3, 0)), (1, 1), 2),
    ((2, 1, 1, 3), (3, 3, 3, 5), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 2, 2, 3), (3, 3, 3, 2), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 9, 8, 3), (7, 7, 3, 2), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    ((3, 4, 5, 2), (1, 1, 2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 5, 7, 2), (1, 1, 2, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 8, 9, 6), (3, 2, 2, 3), (2, 1), ((1, 0), (0, 2)), (2, 3), 3),
    ((2, 6, 6, 4), (3, 3, 1, 4), (1, 1), ((1, 1), (1, 1)), (2, 2), 4),
    ((1, 3, 2, 1), (2, 2, 1, 1), (4, 3), ((3, 2), (1, 4)), (1, 1), 1),
    ((1, 2, 2, 2), (2, 4, 2, 2), (1, 3), ((4, 3), (5, 4)), (3, 1), 1),
]


def loops(x, w, stride, padding, dilation, groups):
    """Computes the definition in float64, one product at a time."""
    (b, height, width, _), (kh, kw, depth, features) = x.shape, w.shape
    sizes = [
        (n + sum(pad) - (k - 1) * d - 1) // s + 1
        for n, pad, k, d, s in zip(
            (height, width), padding, (kh, kw), dilation, stride, strict=True
        )
    ]
    y = np.zeros((b, *sizes, features))
    ranges = [range(n) for n in (b, *sizes, features, kh, kw, depth)]
    for n, row, column, f, i, j, c in product(*ranges):
        r = row * stride[0] + i * dilation[0] - padding[0][0]
        s = column * stride[1] + j * dilation[1] - padding[1][0]
        if 0 <= r < height and 0 <= s < width:
            group = f // (features // groups)
            y[n, row, column, f] += float(x[n, r, s, group * depth + c]) * float(w[i, j, c, f])
    return y


def xla(x, w, stride, padding, dilation, groups):
    return jax.lax.conv_general_dilated(
        x,
        w,
        stride,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def draw(shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def problem_of(x_shape, w_shape, stride, padding, dilation, groups, direction="forward"):
    return ConvProblem(direction, x_shape, w_shape, stride, padding, dilation, groups, "float32")


def fits(algorithm, arguments):
    return algorithm == "auto" or SOLVERS[algorithm].applies(problem_of(*arguments), CPU)


# A few problems for each algorithm are enough for a quick run: plain, strided, grouped, cropped.
QUICK = {
    "auto": (0, 8),
    "xla": (8,),
    "blocked": (4,),
    "direct": (2,),
    "fft": (5,),
    "matmul": (5, 8),
    "taps": (3, 11),
    "winograd": (1,),
    "winograd4": (1,),
}
CASES = [
    pytest.param(
        algorithm,
        arguments,
        id=f"{algorithm}-{index}",
        marks=() if index in QUICK.get(algorithm, range(99)) else pytest.mark.slow,
    )
    for algorithm in ("auto", *SOLVERS)
    for index, arguments in enumerate(PROBLEMS)
    if fits(algorithm, arguments)
]


def run(algorithm, arguments, x, w):
    _, _, stride, padding, dilation, groups = arguments
    return convolution(
        x,
        w,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        algorithm=algorithm,
    )


@cache
def expected(arguments):
    """Returns the result by the definition, a cotangent, and XLA's gradients for it."""
    x_shape, w_shape, *rest = arguments
    x, w = draw(x_shape), draw(w_shape, 1)
    exact = loops(x, w, *rest)
    cotangent = draw(exact.shape, 2)
    pull = jax.jit(lambda x, w, dy: jax.vjp(lambda x, w: xla(x, w, *rest), x, w)[1](dy))
    return exact, cotangent, pull(x, w, cotangent)


@pytest.mark.parametrize(("algorithm", "arguments"), CASES)
def test_every_direction(algorithm, arguments):
    x_shape, w_shape, *_ = arguments
    x, w = draw(x_shape), draw(w_shape, 1)
    exact, cotangent, theirs = expected(arguments)

    @jax.jit
    def everything(x, w):
        y, pull = jax.vjp(lambda x, w: run(algorithm, arguments, x, w), x, w)
        return y, pull(cotangent)

    y, ours = everything(x, w)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)


def value_and_pullback(conv, x, w):
    y, pull = jax.vjp(conv, x, w)
    return y, *pull(y)


@cache
def in_single(dtype):
    """Returns XLA's float32 results for arguments of a narrower type."""
    arguments = PROBLEMS[0]
    x, w = draw(arguments[0], dtype=dtype), draw(arguments[1], 1, dtype)
    run = jax.jit(partial(value_and_pullback, lambda x, w: xla(x, w, *arguments[2:])))
    return x, w, run(x.astype(jnp.float32), w.astype(jnp.float32))


@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [
        *product(("xla", "matmul", "taps"), [jnp.bfloat16]),
        ("matmul", jnp.float16),
        pytest.param("auto", jnp.bfloat16, marks=pytest.mark.slow),
        pytest.param("winograd", jnp.bfloat16, marks=pytest.mark.slow),
        pytest.param("winograd4", jnp.bfloat16, marks=pytest.mark.slow),
        *(
            pytest.param(name, jnp.float16, marks=pytest.mark.slow)
            for name in ("auto", "xla", "taps", "winograd", "winograd4")
        ),
    ],
)
def test_half_precision(algorithm, dtype):
    x, w, theirs = in_single(dtype)
    ours = jax.jit(partial(value_and_pullback, partial(run, algorithm, PROBLEMS[0])))(x, w)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == dtype
        one, other = np.float32(one), np.asarray(other)
        error = np.max(np.abs(one - other)) / np.max(np.abs(other))
        assert error < (0.03 if dtype == jnp.bfloat16 else 0.005)


@pytest.mark.slow
def test_winograd_rounds_like_the_direct_product():
    x, w = draw((2, 12, 12, 64)), draw((3, 3, 64, 32), 1)
    problem = problem_of(x.shape, w.shape, (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    exact = OPERATION.reference(problem, (np.asarray(x), np.asarray(w)))
    names = ("winograd", "winograd4", "matmul")
    program = jax.jit(lambda *given: [convolution(*given, padding=1, algorithm=n) for n in names])
    results = zip(names, program(x, w), strict=True)
    errors = {name: np.sqrt(np.mean((np.asarray(y) - exact) ** 2)) for name, y in results}
    assert errors["winograd"] < 4 * errors["matmul"] + 1e-7
    assert errors["winograd4"] < 20 * errors["matmul"] + 1e-7


# In test_every_direction, the results of winograd-1 and winograd4-1 do not fill their tiles either.
QUICK_TILES = [("winograd", 6, ((2, 0), (0, 3)))]


@pytest.mark.parametrize(
    ("algorithm", "side", "padding"),
    [
        pytest.param(
            *case,
            marks=() if case in QUICK_TILES else pytest.mark.slow,
        )
        for case in product(("winograd", "winograd4"), (1, 6, 8), (1, ((2, 0), (0, 3))))
    ],
)
def test_tiles_that_the_result_does_not_fill(algorithm, side, padding):
    x, w = draw((2, side + 2, side + 2, 3)), draw((3, 3, 3, 5), 1)

    def slope(name):
        def energy(x, w):
            return jnp.sum(jnp.sin(convolution(x, w, padding=padding, algorithm=name)))

        return jax.jit(jax.grad(energy, (0, 1)))(x, w)

    for one, other in zip(slope(algorithm), slope("xla"), strict=True):
        assert np.max(np.abs(one - other)) < 1e-4 * np.max(np.abs(other))


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (2, ((2, 2), (2, 2))),
        ((1, 2), ((1, 1), (2, 2))),
        (((1, 0), (2, 3)), ((1, 0), (2, 3))),
        ("VALID", ((0, 0), (0, 0))),
    ],
)
def test_padding_as_numbers(padding, expected):
    x, w = draw((1, 6, 5, 2)), draw((3, 2, 2, 3), 1)
    ours = convolution(x, w, padding=padding)
    np.testing.assert_allclose(ours, xla(x, w, (1, 1), expected, (1, 1), 1), atol=1e-5)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding_is_xlas(size, stride):
    sizes, window = (size, size + 1), (3, 4)
    ours = edges("SAME", sizes, window, (stride, stride))
    assert list(ours) == jax.lax.padtype_to_pads(sizes, window, (stride, stride), "SAME")
    x, w = jnp.zeros((1, *sizes, 2)), jnp.zeros((*window, 2, 3))
    y = jax.eval_shape(partial(convolution, stride=stride, padding="SAME"), x, w)
    assert y.shape[1:3] == (math.ceil(size / stride), math.ceil((size + 1) / stride))


def test_same_padding_gives_xlas_values():
    x, w = draw((1, 5, 6, 2)), draw((3, 4, 2, 3), 1)
    ours = convolution(x, w, stride=2, padding="SAME")
    np.testing.assert_allclose(ours, xla(x, w, (2, 2), "SAME", (1, 1), 1), atol=1e-5)


def test_no_images_and_no_gradient_of_them():
    x, w = jnp.zeros((0, 4, 4, 2)), draw((3, 3, 2, 3))
    conv = partial(convolution, padding=1)
    y, dx, dw = jax.jit(partial(value_and_pullback, conv))(x, w)
    assert y.shape == (0, 4, 4, 3) and dx.shape == x.shape
    np.testing.assert_array_equal(dw, np.zeros(w.shape))


def test_problems_can_be_keys():
    one, other = problem_of(*PROBLEMS[0]), problem_of(*PROBLEMS[0])
    assert {one: "xla"}[other] == "xla"
    assert one.in_direction("data") != one


@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
@pytest.mark.parametrize("arguments", PROBLEMS)
def test_the_rule_names_an_algorithm_that_applies(arguments, direction):
    problem = without_dead_taps(problem_of(*arguments, direction=direction))
    assert SOLVERS[choose(problem)].applies(problem, CPU)


def test_taps_that_meet_only_padding_are_left_out():
    problem = without_dead_taps(problem_of(*PROBLEMS[3]))
    assert problem.w_shape == (1, 1, 3, 5) and problem.padding == ((0, 0), (0, 0))


def test_a_kernel_is_cut_where_that_saves_more_than_the_copy_costs():
    """In a strided layer on 2x2 images, four of the kernel's nine taps meet the images."""

    def taps(batch, **changes):
        strided = (batch, 2, 2, 8), (3, 3, 8, 8), (2, 2), ((1, 1), (1, 1)), (1, 1), 1
        problem = dataclasses.replace(problem_of(*strided), **changes)
        return math.prod(OPERATION.canonical(problem, CPU).w_shape[:2])

    assert taps(8) == 9 and taps(100) == 4
    assert taps(8, direction="data") == taps(8, direction="weight") == 4
    assert taps(1, x_shape=(1, 1, 1, 8), stride=(1, 1)) == 1
    (batch,) = jax.export.symbolic_shape("b")
    assert taps(8, x_shape=(batch, 2, 2, 8)) == 4


@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_a_choice_is_the_program_of_its_name_where_nothing_is_cut(direction):
    problem = problem_of((2, 8, 8, 3), (1, 1, 3, 4), (2, 2), ((0, 0), (0, 0)), (1, 1), 1, direction)
    small = OPERATION.canonical(problem, CPU)
    assert small != problem  # which leaves out the last row and column: no window reads them
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    texts = set()
    with choices({small.key: {"algorithm": "matmul", "config": {}}}):
        for name in ("auto", "matmul"):
            program = jax.jit(partial(bind, problem=problem, algorithm=name))
            texts.add(program.lower(*arguments).as_text())
    assert len(texts) == 1


X, W = jnp.zeros((2, 4, 4, 6)), jnp.zeros((3, 3, 6, 8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X[0]}, r"x: got shape \(4, 4, 6\)"),
        ({"w": W[0]}, r"w: got shape \(3, 6, 8\)"),
        ({"w": W.astype(jnp.bfloat16)}, "w: got bfloat16, wanted the type of x, float32"),
        ({"w": W[:, :, :5]}, "w: got 5 input channels, wanted 6"),
        ({"groups": 2}, "w: got 6 input channels, wanted 3"),
        ({"groups": 4}, "groups: got 4, wanted a divisor of x's 6 channels"),
        ({"groups": 0}, "groups: got 0"),
        (
            {"algorithm": "gemm"},
            r"algorithm: got 'gemm', wanted 'auto' or one of \['blocked', 'direct'",
        ),
        (
            {"algorithm": "winograd", "stride": 2},
            r"'winograd' cannot .* \['blocked', 'matmul', 'taps', 'xla'\] can",
        ),
        ({"padding": "FULL"}, "padding: got 'FULL', wanted an int"),
        ({"padding": -1}, "padding: got -1"),
        ({"padding": (1, 2, 3)}, r"padding: got \(1, 2, 3\)"),
        ({"padding": None}, "padding: got None"),
        ({"stride": 0}, "stride: got 0, wanted an int or a pair of ints >= 1"),
        ({"stride": (1, 2, 3)}, r"stride: got \(1, 2, 3\)"),
        ({"dilation": 1.5}, "dilation: got 1.5"),
        (
            {"dilation": 2},
            "x: 4x4 pixels .* are too few for a 3x3 kernel of dilation .* would be empty",
        ),
    ],
)
def test_bad_input_is_named(change, message, unchecked):
    arguments = {"x": X, "w": W} | change
    with pytest.raises(ValueError, match=message):
        convolution(**arguments)


def test_batches_that_can_be_cut_give_the_same_in_every_direction():
    pad = ((1, 1), (1, 1))
    x, w = draw((12, 5, 4, 2)), draw((3, 3, 2, 3), 1)

    @jax.jit
    def both(x, w):
        cut = partial(convolution, padding=1, algorithm="split")
        whole = lambda x, w: xla(x, w, (1, 1), pad, (1, 1), 1)  # noqa: E731
        loss = lambda f: lambda x, w: jnp.sum(jnp.sin(f(x, w)))  # noqa: E731
        return [(f(x, w), *jax.grad(loss(f), (0, 1))(x, w)) for f in (cut, whole)]

    for ours, theirs in zip(*both(x, w), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "algorithm", ["winograd", pytest.param("winograd4", marks=pytest.mark.slow)]
)
def test_tiles_that_do_not_fit_the_cache_are_computed_in_pieces(algorithm, monkeypatch):
    x, w = draw((6, 7, 9, 4)), draw((3, 3, 4, 5), 1)

    def everything(x, w):
        y, pull = jax.vjp(lambda x, w: convolution(x, w, padding=1, algorithm=algorithm), x, w)
        return y, *pull(jnp.sin(y))

    whole = jax.jit(everything)(x, w)
    monkeypatch.setattr(winograd, "_CACHE", 1e4)
    monkeypatch.setattr(winograd, "_PIECE", 3e4)  # two or three examples
    jax.clear_caches()
    for ours, theirs in zip(jax.jit(everything)(x, w), whole, strict=True):
        # The sums of a tile are of the largest values' size, and so is their rounding.
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6 * np.abs(theirs).max())
    assert winograd._pieces(winograd.TWO, (6, 7, 9, 5), 4) in (2, 3)


def test_a_batch_that_cannot_be_cut_is_refused(unchecked):
    with pytest.raises(ValueError, match="'split' cannot compute"):
        convolution(X, W, padding=1, algorithm="split")


@pytest.mark.parametrize(
    ("arguments", "direction", "expected"),
    [
        (((32, 64, 64, 3), (7, 7, 3, 64), (2, 2), ((3, 3), (3, 3)), (1, 1), 1), "forward", "split"),
        (((32, 64, 64, 3), (7, 7, 3, 64), (2, 2), ((3, 3), (3, 3)), (1, 1), 1), "weight", "turned"),
        (
            ((32, 64, 64, 3), (7, 7, 3, 64), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
            "data",
            "space_to_depth",
        ),
        (
            ((32, 16, 16, 128), (3, 3, 128, 128), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
            "weight",
            "turned",
        ),
        (
            ((32, 8, 8, 256), (3, 3, 256, 512), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
            "weight",
            "matmul",
        ),
        (((8, 2, 2, 256), (3, 3, 256, 512), (2, 2), ((1, 1), (1, 1)), (1, 1), 1), "data", "taps"),
        (
            ((32, 16, 16, 64), (3, 3, 64, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
            "data",
            "winograd",
        ),
        (
            ((32, 16, 16, 64), (3, 3, 64, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
            "weight",
            "winograd4",
        ),
        (
            ((32, 28, 28, 64), (3, 3, 64, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
            "forward",
            "winograd4",
        ),
        (((32, 2, 2, 64), (3, 3, 64, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 1), "weight", "taps"),
        (((32, 8, 8, 64), (3, 3, 64, 64), (2, 2), ((1, 1), (1, 1)), (1, 1), 1), "data", "taps"),
        (
            ((32, 16, 16, 64), (1, 1, 64, 128), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
            "data",
            "taps",
        ),
        (
            ((32, 16, 16, 64), (1, 1, 64, 128), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
            "forward",
            "matmul",
        ),
        (
            ((32, 4, 4, 256), (3, 3, 256, 512), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
            "forward",
            "taps",
        ),
        (
            ((8, 32, 32, 128), (3, 3, 4, 128), (1, 1), ((1, 1), (1, 1)), (1, 1), 32),
            "weight",
            "matmul",
        ),
        (
            ((8, 32, 32, 64), (3, 3, 1, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 64),
            "forward",
            "direct",
        ),
        (
            ((32, 224, 224, 3), (7, 7, 3, 64), (2, 2), ((3, 2), (3, 2)), (1, 1), 1),
            "weight",
            "turned",
        ),
        (
            ((64, 224, 224, 3), (7, 7, 3, 64), (2, 2), ((3, 2), (3, 2)), (1, 1), 1),
            "weight",
            "blocked",  # the patches of all images are too large
        ),
        (
            ((32, 56, 56, 64), (3, 3, 64, 128), (2, 2), ((1, 0), (1, 0)), (1, 1), 1),
            "weight",
            "blocked",
        ),
        (
            ((1, 2048, 2048, 3), (7, 7, 3, 64), (2, 2), ((3, 2), (3, 2)), (1, 1), 1),
            "weight",
            "xla",  # a single image
        ),
        (
            ((16, 28, 28, 192), (5, 5, 192, 32), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
            "weight",
            "xla",
        ),
    ],
)
def test_rules_that_keep_xla_from_its_cliffs(arguments, direction, expected):
    assert choose(without_dead_taps(problem_of(*arguments, direction=direction))) == expected
