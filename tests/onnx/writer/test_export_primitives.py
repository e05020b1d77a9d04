"""Exported jax primitives, single and combined, give the same results in onnxruntime."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

pytest.importorskip("onnx")

KERNEL = np.random.default_rng(5).normal(size=(3, 2, 4, 6)).astype(np.float32)
NHWC = ("NHWC", "HWIO", "NHWC")


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check(exported, function, *inputs, **options):
    return exported(lambda variables, *given: function(*given), {}, *inputs, **options)


def check_all(exported, functions, *inputs, **options):
    """Checks several functions in one export, with one output named after each."""
    check(exported, lambda *given: {k: f(*given) for k, f in functions.items()}, *inputs, **options)


ELEMENTWISE = {
    "arithmetic": lambda x: (x + 1, 2 - x, x * x, x / 3, -x, x % 0.7, jnp.fmod(x, 0.3)),
    "powers": lambda x: (x**2, x**3, 1 / x, jnp.abs(x) ** 0.3, jnp.square(x), jnp.cbrt(x)),
    "roots": lambda x: (jnp.sqrt(jnp.abs(x)), lax.rsqrt(jnp.abs(x) + 1)),
    "exponentials": lambda x: (jnp.exp(x), jnp.exp2(x), jnp.expm1(x), jnp.expm1(1e-5 * x)),
    "logarithms": lambda x: (jnp.log(x * x), jnp.log1p(x * x), 1e5 * jnp.log1p(1e-6 * x)),
    "trigonometry": lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan(x), jnp.tanh(x)),
    "hyperbolic": lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x), jnp.arccos(jnp.tanh(x))),
    "errors": lambda x: (lax.erf(x), lax.erfc(x), jax.nn.sigmoid(x)),
    "comparisons": lambda x: (x > 0, x >= 0, x < 0, x <= 0, x == x, x != x, jnp.isfinite(1 / x)),
    "logic": lambda x: ((x > 0) & (x < 1), (x > 0) | (x < -1), ~(x > 0), (x > 0) ^ (x > 1)),
    "rounding": lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(2 * x) / 2, lax.round(x)),
    "signs": lambda x: (jnp.sign(x), jnp.abs(x), jnp.clip(x, -0.5, 0.5), lax.clamp(-1.0, x, 1.0)),
    "integers": lambda x: (_int(x) // 2, _int(x) % 3, _int(x) & 3, ~_int(x), jnp.abs(_int(x))),
    "choices": lambda x: (jnp.where(x > 0, x, -1), lax.select_n(_int(x) % 3, x, -x, 2 * x)),
    "activations": lambda x: (jax.nn.relu(x), jax.nn.gelu(x), jax.nn.elu(x), jax.nn.softplus(x)),
    "precision": lambda x: (lax.reduce_precision(x, 5, 10), x.astype(jnp.float16)),
    "gradients": lambda x: jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2))(x),
    "calls": lambda x: (jax.checkpoint(jnp.sin)(x), jax.jit(jnp.cos)(x), _dotted(x[..., 0])),
    "own gradients": lambda x: (_doubled(x), jax.grad(lambda x: _doubled(x).sum())(x)),
}


@jax.custom_vjp
def _doubled(x):
    return 2 * x


_doubled.defvjp(lambda x: (2 * x, x), lambda x, g: (3 * g * x,))


def _dotted(x):
    return jax.vmap(jnp.dot)(x, x)


def _int(x):
    return jnp.floor(4 * x).astype(jnp.int32)


def test_elementwise(exported):
    check_all(exported, ELEMENTWISE, draw(3, 4, 5), apart=True)


EDGES = {
    "rounding": lambda x: (lax.round(x), jnp.round(x), jnp.floor(x), jnp.ceil(x)),
    "errors": lambda x: (lax.erfc(x), jax.scipy.stats.norm.sf(x), jax.scipy.stats.norm.logcdf(x)),
    "exponentials": lambda x: (jnp.exp(x), jnp.expm1(x), jnp.log1p(x), jax.nn.softplus(x)),
    "sigmoid": lambda x: (
        jax.nn.sigmoid(x),
        jnp.log(jax.nn.sigmoid(jnp.maximum(x, -80))),
        jax.nn.log_sigmoid(x),
    ),
    "powers": lambda x: (x**3, x**5, x**-2, lax.rsqrt(x), jnp.cbrt(x), 1 / x, jnp.sqrt(x)),
    "integers": lambda x: [x.astype(t) for t in ("int8", "uint8", "int16", "int32", "uint32")],
    "precision": lambda x: (lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7)),
    "tests": lambda x: (jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x), jnp.sign(x), x > 0, x != x),
    "bounds": lambda x: (jnp.maximum(x, 0), jnp.minimum(x, 1), jnp.clip(x, -1, 2), jax.nn.relu6(x)),
    "bounds of NaN": lambda x: (jnp.maximum(x, jnp.nan), lax.clamp(-1.0, x, jnp.float32(jnp.nan))),
    "angles": lambda x: (jnp.arctan2(x, x[:, ::-1]), jnp.arctan2(x, -x), jnp.arctan2(-x, x[:1])),
    "scaled by infinity": lambda x: x * jnp.float32(jnp.inf) / jnp.float32(jnp.inf),
    "reductions": lambda x: (
        x.max(1),
        x.min(1),
        x.sum(1),
        x.argmax(1),
        x.argmin(1),
        (x > 0).all(1),
    ),
    "parts": lambda x: [(p.max(1), p.min(1), p.argmin(1)) for p in (x[:, :9], x[:, -3:])],
    "softmax": lambda x: (jax.nn.softmax(x[:, :-3]), jax.nn.logsumexp(x[:, :-3], 1)),
}


def test_edges_of_float32(exported):
    """Midway, tiny, huge and infinite numbers, and NaN, which a formula on paper may forget."""
    numbers = [0, 0.49999997, 0.5, 1.5, 2.5, 8388607.5, 8388609, 16777217, 2147483648, 4294967296]
    numbers += [2e-38, 1e-30, 1e-8, 1e-5, 6e-5, 0.3, 4.5, 9.2, 15, 17, 20, 80, 88, 100, 300, 1e30]
    edges = np.float32([*numbers, *(-number for number in numbers), np.inf, np.nan, -np.inf])
    check_all(exported, EDGES, np.stack([edges, edges[::-1], np.roll(edges, 7)]), atol=1e-37)


TYPES = {
    "choice": lambda x: (jnp.where(x > x[:, ::-1], x, x[:, ::-1]), jnp.where(x == x[:, :1], x, 1)),
    "several": lambda x: lax.select_n(_thirds(x), x, x[:, ::-1], x),
    "comparisons": lambda x: (x > 1, x <= x[:, ::-1], x == x[:, ::-1], x != x[:, :1]),
    "bounds": lambda x: (
        jnp.maximum(x, x[:, ::-1]),
        x.max(1),
        x.min(),
    ),
    "places": lambda x: (x.argmax(1), x.argmin(1), jnp.sort(x, 1), jnp.argsort(x, 1)),
    "moved": lambda x: (
        jnp.pad(x, ((0, 0), (1, 2))),
        jnp.tile(x, 2),
        jnp.roll(x, 1, 1),
        x[:, ::-1],
    ),
    "gathered": lambda x: jnp.take(x, jnp.array([0, 9, 2]), axis=1, mode="fill"),
    "logic": lambda x: (x & x[:, ::-1], x | x[:, ::-1], ~x, x ^ x[:, ::-1]),
    "sums": lambda x: (x.sum(1), jnp.cumsum(x, 1), jnp.prod(x, 1), x @ x[:1].T),
    "largest of a window": lambda x: nn.max_pool(x[:, :, None], (2,), (2,)),
    "loop": lambda x: lax.scan(lambda c, a: (jnp.maximum(c, a), c), x[:, 0], x.T),
    "condition": lambda x: lax.cond(x[0, 0] > x[0, 1], lambda: x, lambda: x[:, ::-1]),
}


def _thirds(x):
    return jnp.broadcast_to(jnp.arange(6) % 3, x.shape)


NUMBERS = {
    "arithmetic": lambda x: (x + x[:, ::-1], x - x[:, ::-1], x * x, -x, x**3, jnp.abs(x)),
    "bounds of numbers": lambda x: (lax.clamp(x[:, ::-1], x, x), jnp.clip(x, 1, 3)),
    "division": lambda x: (x // 3, x % 3, lax.div(x, x | 1), lax.rem(x, x | 1), jnp.sign(x)),
    "division by 0": lambda x: (lax.div(x, x & 1), lax.rem(x, x & 1), x // x[:, ::-1] & x),
    "written": lambda x: (x.at[:, 1].set(3), x.at[:, jnp.array([1, 1])].add(x[:, :2])),
    "running": lambda x: (lax.cummax(x, 1), lax.cummin(x, 1, reverse=True), lax.cumprod(x, 1)),
}


@pytest.mark.parametrize(
    "dtype", ["bool", "uint16", "int32", "uint32", pytest.param("int8", marks=pytest.mark.slow)]
)
def test_types_that_operators_lack(exported, dtype):
    """Operators of onnxruntime take few types; integers wrap as in jax."""
    bits = np.random.default_rng(0).integers(-(2**31), 2**31, (3, 6))
    given = bits % 2 == 0 if dtype == "bool" else bits.astype(dtype)
    check_all(exported, TYPES if dtype == "bool" else TYPES | NUMBERS, given)


def test_a_parameter_that_no_rule_reads_is_refused(tmp_path):
    from jaxatr.onnx import export

    newer = Primitive("neg")  # jax's own has no parameters
    newer.def_abstract_eval(lambda x, **params: x)
    x = np.ones((2, 3), np.float32)
    export(lambda variables, x: newer.bind(x, sharding=None), {}, x, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"neg: .* parameters .* not read: \['times'\], at "):
        export(lambda variables, x: newer.bind(x, times=3), {}, x, tmp_path / "model.onnx")


SHAPING = {
    "reshape": lambda x: (x.reshape(len_(x), -1), x.reshape(len_(x) * 2, -1), x.reshape(-1, 5)),
    "batch in two places": lambda x: x.transpose(1, 0, 2).reshape(2, 2, len_(x), 5),
    "transpose": lambda x: (x.T, x.swapaxes(1, 2), x[None], x[:, None, :, None]),
    "broadcast": lambda x: (
        jnp.ones((len_(x), 3)),
        jnp.broadcast_to(jnp.arange(5.0), x.shape),
        jnp.broadcast_to(x[:, :1], x.shape) + 0,
    ),
    "size as a number": lambda x: (x / x.shape[0], jnp.arange(x.shape[0]), x.size * x),
    "sizes computed": lambda x: (
        jnp.zeros((x.shape[0] // 2 + 1, 3 * x.shape[0] - 1)),
        jnp.zeros((-(-x.shape[0] // 2), 1)),
    ),
    "reshape in another order": lambda x: (
        lax.reshape(x, (20 * len_(x),), (2, 0, 1)),
        lax.reshape(x[:, :1], (5 * len_(x),), (2, 1, 0)),
        x.reshape(len_(x) * 4, 5, order="F"),
    ),
    "repeated": lambda x: (jnp.tile(x, (2, 1, 3)), jnp.repeat(x, 2, 1), jnp.stack([x, x], 1)),
    "concatenate": lambda x: [jnp.concatenate([y, 2 * y], 1) for y in (x, x[:, :0])],
    "split": lambda x: (*jnp.unstack(x, axis=1), *jnp.split(x, 2, 1), *jnp.split(x, [1, 4], 2)),
    "slices": lambda x: (x[:, 1], x[..., ::2], x[:, ::-1], x[:, -1:], x[:, 1:3, 0], x[0], x[-1]),
    "pad": lambda x: (
        jnp.pad(x, ((0, 0), (1, 2), (0, 0)), constant_values=7),
        jnp.pad(x, ((0, 0), (1, 2), (0, 0)), mode="edge"),
        jnp.pad(x, ((0, 0), (1, 2), (0, 0)), mode="reflect"),
        lax.pad(x, 0.0, ((0, 0, 0), (-1, 1, 0), (0, -2, 0))),
        lax.pad(x, 7.0, ((0, 0, 0), (1, -2, 1), (-1, 2, 3))),
    ),
    "flip": lambda x: (jnp.flip(x, 1), jnp.roll(x, 2, 1), jnp.tril(x)),
    "constants": lambda x: x + jnp.linspace(0, 1, 5) * jnp.eye(4, 5),
}


def len_(x):
    return x.shape[0]


def test_shaping(exported):
    check_all(exported, SHAPING, draw(3, 4, 5))


REDUCTIONS = {
    "sums": lambda x: (x.sum(), x.sum(0), x.sum(1, keepdims=True), x.mean((1, 2)), x.prod(1)),
    "extremes": lambda x: (x.max(), x.min(1), x.argmax(-1), x.argmin(1)),
    "logical": lambda x: ((x > 0).any(1), (x > -1).all(2)),
    "booleans": lambda x: (
        (x > 0).argmax(1),
        (x > 0).argmin(2),
        jnp.maximum(x > 0, x < 1),
        jnp.minimum(x > 0, x < 1),
        ((x > 0) < (x < 1), (x > 0) >= (x < 1), (x > 0) == (x < 1)),
    ),
    "no axes": lambda x: (x.sum(()), x.max(()), (x > 0).any(())),
    "statistics": lambda x: (x.std(1), jnp.linalg.norm(x, axis=-1), jnp.median(x, axis=1)),
    "running": lambda x: (
        (jnp.cumsum(x, 1), lax.cumsum(x, 2, reverse=True), lax.cumprod(x, 1)),
        (lax.cummax(x, 1), lax.cummin(x, 2, reverse=True), lax.cumlogsumexp(x, 2)),
        lax.associative_scan(jnp.add, x, axis=1),
    ),
    "sorted": lambda x: (*lax.top_k(x, 2), jnp.sort(x, 1), jnp.argsort(x, 2)),
    "softmax": lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, 1), jax.nn.logsumexp(x, 1)),
    "one hot": lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 5),
    "one number": lambda x: x.sum((1, 2)) / np.full((1, 1), 20.0, np.float32),
    "reshaped": lambda x: (x.reshape(len_(x), -1).mean(1), x.reshape(len_(x), 1, 20).max(1)),
}


def test_reductions(exported):
    check_all(exported, REDUCTIONS, draw(3, 4, 5))


INDEXING = {
    "rows": lambda x: (x[:, jnp.array([2, 0])], jnp.take(x, jnp.array([[0, 9], [1, 2]]), axis=1)),
    "clipped": lambda x: jnp.take(x, jnp.array([0, 9, 1]), axis=2, mode="clip"),
    "computed": lambda x: x[:, _int(x[0, 0, :2]) % 4],
    "beyond": lambda x: (
        x[:, _int(-9 * jnp.abs(x[0, 0]))],
        x[:, _int(-9 * jnp.abs(x[0, 0])), _int(-9 * jnp.abs(x[0, 1]))],
        jax.vmap(lambda one: one[_int(-9 * jnp.abs(one[0]))])(x),
        x[_int(9 * x[0, 0, 0])],
        slices(x, _int(9 * x[0, :, :2]), "promise_in_bounds"),
    ),
    "points": lambda x: (x[:, jnp.array([0, 1]), jnp.array([1, 2])], x[jnp.arange(len_(x)), 1]),
    "along": lambda x: jnp.take_along_axis(x, jnp.argmax(x, -1, keepdims=True), -1)[..., 0],
    "along some": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1)[:, :2], 1),
    "dynamic": lambda x: (
        lax.dynamic_slice_in_dim(x, _int(x[0, 0, 0]) % 4, 2, 1),
        lax.dynamic_index_in_dim(x, 7, 1),
    ),
    "updated": lambda x: (
        [lax.dynamic_update_slice_in_dim(x, -x[:, :2], start, 1) for start in (-9, 1, 9)],
        lax.dynamic_update_slice(x, -x[:, 1:3, :4], (0, _int(x[0, 0, 0]) % 4, _int(x[0, 0, 1]))),
        lax.dynamic_update_slice(x > 0, x[:1, :, :2] < 1, (len_(x), 0, _int(x[0, 0, 2]))),
        lax.dynamic_update_slice(x, -x, (2, 0, 0)),
    ),
    "slices": lambda x: (
        slices(x, _int(x[0, :, :2]), "clip"),
        slices(x, _int(x[0, :, :2]), "fill"),
        slices(x, _int(x[0, :, :2]) % 2, "promise_in_bounds"),
        jax.vmap(lambda one: slices(one[None], _int(one[:, :2]), "fill"))(x),
    ),
    "searched": lambda x: (
        jnp.searchsorted(jnp.arange(4.0), x),
        jnp.interp(x, jnp.arange(3.0), jnp.arange(3.0) ** 2),
    ),
}


def slices(x, at, mode):
    """Slices of 2 by 3 elements at several places of the last two axes."""
    numbers = lax.GatherDimensionNumbers((0, 2, 3), (), (1, 2))
    return lax.gather(x, at, numbers, (x.shape[0], 2, 3), mode=mode)


def test_indexing(exported):
    check_all(exported, INDEXING, draw(3, 4, 5))


def test_a_part_from_a_computed_start_is_compiled_when_it_is_read(tmp_path):
    from jaxatr.onnx import export, load

    def part(variables, x):
        return lax.dynamic_slice_in_dim(x, _int(jnp.abs(x[0, 0])), 3, 1)

    x = draw(2, 7)
    export(part, {}, x, tmp_path / "part.onnx")
    model = load(tmp_path / "part.onnx")
    np.testing.assert_array_equal(jax.jit(model.apply)(model.variables, x), part({}, x))


def _several(x):
    """Places on the second axis, of which some are out of bounds."""
    return _int(x[0, 0])


WRITING = {
    "places": lambda x: (
        x.at[:, 1].set(0.0),
        x.swapaxes(0, 1).at[1:3].add(1).swapaxes(0, 1),
        x.at[:, 1:3].set(7),
        x.at[:, 1:3, ::2].multiply(x[:, :2, :3]),
        x.at[jnp.arange(len_(x)), 1].set(x[:, 0]),
        x.at[:, jnp.array([1, 1, -1]), 2].add(x[:, :3, 0]),
        x.at[...].set(-x),
        (x > 0).at[:, 2].set(True),
        _int(x).at[:, :, 1].max(3),
    ),
    "computed": lambda x: (
        x.at[:, _several(x)].add(2 * x[:, 0, :, None]),
        x.at[:, _several(x)].min(-1, mode="clip"),
        x.at[:, _several(x) % 4].max(0.5, mode="promise_in_bounds"),
        x.at[:, _several(x)[0]].set(x[:, 3]),
        x.at[:, _int(x[0, :2]), _int(x[0, 2:])].multiply(2),
    ),
    "slices": lambda x: (
        written(x, _int(x[0, :, :2]), lax.scatter_add, "fill"),
        written(x, _int(x[0, :, :2]), lax.scatter_add, "clip"),
        written(x, jnp.array([[0, 1], [2, 3], [1, 0], [-1, 1]]), lax.scatter_add, "fill"),
        written(x, jnp.array([[0, 1], [2, 2], [1, 0], [0, 1]]), lax.scatter_max, "fill"),
    ),
    "each": lambda x: (
        jax.vmap(lambda one: one.at[_int(one[0])].add(one[:1]))(x),
        jax.vmap(lambda one: one.at[1, _int(one[0, :1])].set(9.0))(x),
    ),
    "counted": lambda x: (
        jax.ops.segment_sum(x.transpose(1, 0, 2), jnp.array([2, 0, 2, 1]), 3).transpose(1, 0, 2),
        jax.vmap(lambda one: jnp.bincount(_int(jnp.abs(one)).ravel(), length=6))(x),
        jax.vmap(lambda one: jnp.nonzero(one > 0, size=9)[1])(x),
    ),
    "gradients": lambda x: (
        jax.grad(lambda x: (x[:, jnp.array([0, 2, 2])] ** 2).sum())(x),
        jax.grad(lambda x: (jnp.sort(x, 1)[:, 1] ** 2).sum())(x),
        jax.grad(lambda x: (x[:, ::2, 1::3] ** 2).sum())(x),
    ),
}


def written(x, at, scatter, mode):
    """Writes 2 by 3 elements at several places of the last two axes."""
    numbers = lax.ScatterDimensionNumbers((1, 2, 3), (), (1, 2))
    new = jnp.broadcast_to(x[None, :, :2, :3], (4, len_(x), 2, 3)) * jnp.arange(4.0).reshape(
        4, 1, 1, 1
    )
    return scatter(x, at, new, numbers, mode=mode)


def test_writing_at_indices(exported):
    check_all(exported, WRITING, 2 * draw(3, 4, 5))


PRODUCTS = {
    "matrices": lambda x: (x @ jnp.ones((5, 2)), jnp.einsum("bij,jk->bki", x, _ones(5, 2))),
    "matrix first": lambda x: jnp.einsum("ki,bij->kbj", _ones(2, 4), x),
    "batched": lambda x: (jnp.einsum("bij,bkj->bik", x, x), jnp.einsum("bij,bij->b", x, x)),
    "two axes": lambda x: jnp.einsum("bij,ijk->bk", x, _ones(4, 5, 3)),
    "vectors": lambda x: (x @ jnp.arange(5.0), jnp.einsum("bij,i->bj", x, jnp.arange(4.0))),
    "no sum": lambda x: jnp.einsum("bij,k->bijk", x, jnp.arange(2.0)),
}


def _ones(*shape):
    return jnp.asarray(draw(*shape, seed=9))


def test_products(exported):
    check_all(exported, PRODUCTS, draw(3, 4, 5))


def convolved(x, rhs=KERNEL, **options):
    options = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC} | options
    return lax.conv_general_dilated(x, jnp.asarray(rhs), **options)


CONVOLUTIONS = {
    "strides": lambda x: convolved(x, window_strides=(2, 1)),
    "dilation": lambda x: convolved(x, rhs_dilation=(1, 2), padding=[(0, 1), (3, 2)]),
    "negative padding": lambda x: convolved(x, padding=[(-1, 1), (2, -1)]),
    "transposed": lambda x: lax.conv_transpose(x, KERNEL, (2, 2), "SAME", dimension_numbers=NHWC),
    "transposed, valid": lambda x: lax.conv_transpose(
        x, KERNEL, (3, 2), "VALID", dimension_numbers=NHWC
    ),
    "groups": lambda x: lax.conv_general_dilated(
        x, jnp.asarray(KERNEL[:, :, :2]), (1, 1), "SAME", None, None, NHWC, 2
    ),
    "transposed groups": lambda x: lax.conv_general_dilated(
        x, jnp.asarray(KERNEL[:, :, :2]), (1, 1), [(2, 1), (1, 2)], (2, 2), None, NHWC, 2
    ),
    "channels second": lambda x: lax.conv(
        x.transpose(0, 3, 1, 2), KERNEL.transpose(3, 2, 0, 1), (1, 1), "VALID"
    ),
    "of the gradient in groups": lambda x: jax.grad(
        lambda x: jnp.sum(convolved(x, rhs=KERNEL[:, :, :2], feature_group_count=2) ** 2)
    )(x),
    "of the gradient": lambda x: jax.grad(lambda x: jnp.sum(convolved(x) ** 2))(x),
    "rows alone": lambda x: lax.conv_general_dilated(
        x[:, 0], jnp.asarray(KERNEL[:, 0]), (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    ),
    "pooling": lambda x: (
        nn.max_pool(x, (2, 2), (2, 2)),
        nn.max_pool(x, (3, 2), (1, 2), "SAME"),
        nn.avg_pool(x, (3, 3), (1, 1), "SAME"),
        -nn.max_pool(-x, (2, 3)),
    ),
    "smallest": lambda x: lax.reduce_window(
        x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    ),
    "resized": lambda x: (
        jax.image.resize(x, (x.shape[0], 9, 4, 4), "bilinear"),
        jax.image.resize(x, (x.shape[0], 12, 10, 4), "nearest"),
    ),
}


def test_convolutions(exported):
    check_all(exported, CONVOLUTIONS, draw(3, 6, 5, 4), apart=True)


LAYERS = {
    "depthwise": nn.Conv(8, (3, 3), feature_group_count=4),
    "transposed": nn.ConvTranspose(3, (3, 3), strides=(2, 2)),
    "circular": nn.Conv(3, (3, 3), padding="CIRCULAR"),
    "dense": nn.Dense(3),
    "group norm": nn.GroupNorm(num_groups=2),
    "layer norm": nn.LayerNorm(),
    "batch norm": nn.BatchNorm(use_running_average=True),
    "batch norm, plain": nn.BatchNorm(use_running_average=True, use_bias=False, use_scale=False),
    "batch norm, shift": nn.BatchNorm(use_running_average=True, use_scale=False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(exported, count, name):
    x, layer = draw(3, 6, 5, 4), LAYERS[name]
    variables = jax.tree.map(lambda a: a + 0.5, jax.jit(layer.init)(jax.random.key(0), x))
    model = exported(layer, variables, x, apart=True)
    assert count(model, "BatchNormalization") == name.startswith("batch norm")
    assert count(model, "Conv") + count(model, "ConvTranspose") <= 1
    if name in ("depthwise", "transposed"):
        assert count(model, "Add") == 0  # the bias is the convolution's


CONTROL = {
    "scan": lambda x: lax.scan(
        lambda c, a: (c + a, c * a), jnp.zeros((x.shape[0], 5)), x.swapaxes(0, 1), reverse=True
    ),
    "scan of nothing": lambda x: lax.scan(lambda c, _: (c * 1.1, None), x, length=3)[0],
    "scan of no steps": lambda x: lax.scan(lambda c, _: (c * 1.1, c[:, 0] > 0), x, length=0),
    "for": lambda x: lax.fori_loop(0, 3, lambda i, c: c * i + x, x),
    "for each": jax.vmap(lambda a: lax.fori_loop(0, _int(a[0, 0]) % 4, lambda i, c: c + a * i, a)),
    "while": lambda x: lax.while_loop(
        lambda c: c[0] < 5.0, lambda c: (c[0] * 1.5 + 1, c[1] + x), (jnp.abs(x).sum() / 100, x)
    )[1],
    "cond": lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x),
    "switch": lambda x: lax.switch(
        jnp.argmax(x[0, 0]), [lambda x: x, lambda x: -x, lambda x: x @ jnp.ones((5, 5))], x
    ),
    "nested": lambda x: lax.scan(
        lambda c, a: (lax.cond(a.sum() > 0, lambda c: c + a, lambda c: c * x[0], c), ()),
        x[0],
        x.swapaxes(0, 1)[:, :1] * jnp.ones((4, 4, 5)),
    )[0],
}


def test_control(exported):
    check_all(exported, CONTROL, draw(3, 4, 5))


def test_ones_before_a_weight(exported):
    def function(variables, x):
        w = variables["w"]
        flat = w.reshape(3)
        return x + flat, flat * jnp.ones(3), w[0] + flat, flat, w[0, 1] * x, w.sum() + w[:, 0]

    exported(function, {"w": draw(1, 3)}, draw(3, 3))


def test_an_epsilon_with_more_axes_than_the_map_adds_them(exported):
    def function(variables, x):
        return (x - variables["mean"]) * lax.rsqrt(variables["var"] + jnp.full((1, 1, 1), 1e-3))

    exported(function, {"mean": draw(3), "var": draw(3) ** 2}, draw(2, 3))


def test_every_platform_gets_the_general_branch(exported, count):
    def function(x):
        return lax.platform_dependent(x, cuda=lambda x: x * 3, default=lambda x: x + 1)

    model = check(exported, function, draw(3, 2))
    assert [node.op_type for node in model.graph.node] == ["Add"]
    assert count(model, "If") == 0


def test_random_numbers_are_constants(exported, count):
    def function(x):
        return x + jax.random.normal(jax.random.key(0), x.shape[1:])

    assert count(check(exported, function, draw(3, 4))) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clips_of_infinite_numbers_and_after_a_relu(exported, dtype):
    functions = {
        "least": lambda x: jnp.maximum(x, 0.5),
        "most": lambda x: jnp.minimum(x, 0.5),
        "both": lambda x: jnp.minimum(jnp.maximum(x, -1), 6),
        "relu6": jax.nn.relu6,
        "more": lambda x: jnp.clip(jax.nn.relu(x), 0.5, 6),
    }
    with jax.enable_x64(True):
        check_all(exported, functions, np.array([[-np.inf, -2, 0.7, np.inf]] * 3, dtype))


@pytest.mark.parametrize(
    "numbers, total",
    [
        (np.array([2**31 - 1, 2, 5], np.int32), -(2**31) + 6),
        (np.array([2**32 - 1, 2, 5], np.uint32), 6),
        (np.array([2**60 + 1, 1, 1], np.int64), 2**60 + 3),
        (np.array([2**63 - 1, 1, 3], np.int64), -(2**63) + 3),
    ],
)
def test_sums_of_integers_are_exact_and_wrap(tmp_path, numbers, total):
    """onnxruntime's ReduceSum computes them as floats, and saturates 32 bits."""
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from jaxatr.onnx import export

    path, given = tmp_path / "sum.onnx", np.stack([numbers, numbers])
    with jax.enable_x64(numbers.itemsize == 8):
        export(lambda _, x: (x.sum(1), x.T.sum(0)), {}, (given,), path, dynamic_batch=False)
    session = onnxruntime.InferenceSession(path)
    for found in session.run(None, {session.get_inputs()[0].name: given}):
        assert found.dtype == numbers.dtype and found.tolist() == [total, total]
