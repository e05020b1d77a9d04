"""One-dimensional and transposed convolutions against XLA, PyTorch and the definition."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import convolution, transposed_convolution


def draw(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def values_and_gradients(fn, x, w):
    """Returns the result, and the gradients for a cotangent that depends only on the result."""

    @jax.jit
    def everything(x, w):
        y, pull = jax.vjp(fn, x, w)
        return y, *pull(jnp.sin(y))

    return everything(x, w)


SEQUENCES = [  # x, w, stride, padding, dilation, groups
    ((2, 9, 3), (3, 3, 4), 1, (1, 1), 1, 1),
    ((1, 12, 4), (5, 2, 6), 2, (3, 0), 1, 2),
    ((2, 8, 2), (2, 1, 4), 1, (0, 2), 3, 2),
    ((3, 6, 5), (1, 5, 2), 3, (0, 0), 1, 1),
]


@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation", "groups"), SEQUENCES)
def test_a_sequence_is_convolved_as_by_xla(x, w, stride, padding, dilation, groups):
    def theirs(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            (stride,),
            (padding,),
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=groups,
        )

    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    given = draw(x), draw(w, 1)
    ours = values_and_gradients(partial(convolution, **options), *given)
    assert_same(ours, values_and_gradients(theirs, *given))
    named = [partial(convolution, **options, algorithm=name) for name in ("matmul", "xla")]
    for result in jax.jit(lambda *given: [fn(*given) for fn in named])(*given):
        assert_same([result], ours[:1])


def test_ways_to_write_the_padding_of_a_sequence(unchecked):
    x, w = draw((1, 7, 2)), draw((3, 2, 3), 1)
    same = convolution(x, w, stride=2, padding="SAME")
    assert same.shape == (1, 4, 3)
    for padding in (1, (1, 1)):
        np.testing.assert_array_equal(convolution(x, w, stride=2, padding=padding), same)
    with pytest.raises(ValueError, match=r"stride: got \(1, \(1, 2\)\)"):
        convolution(x, w, stride=(1, 2))


IMAGES = [  # x, w, stride, padding, output padding, dilation, groups
    ((2, 4, 5, 3), (3, 3, 4, 3), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 3, 4, 4), (4, 4, 3, 4), (2, 2), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 2, 4), (3, 2, 3, 4), (3, 2), (0, 1), (2, 1), (1, 1), 2),
    ((1, 4, 3, 6), (2, 3, 1, 6), (2, 1), (1, 2), (1, 0), (1, 2), 3),
    ((1, 5, 4, 2), (1, 1, 3, 2), (2, 3), (0, 0), (0, 2), (1, 1), 1),
]


def torchs(x, w, stride, padding, output_padding, dilation, groups):
    """Returns torch's result and both gradients, for channels-last arrays of any rank."""
    torch = pytest.importorskip("torch")
    rank = x.ndim - 2
    last = (0, *range(2, rank + 2), 1)
    inputs = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
    weight = np.moveaxis(w, (-1, -2), (0, 1)).copy()  # [c, f / groups, ...]
    kernel = torch.tensor(weight, requires_grad=True)
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    y = function(inputs, kernel, None, stride, padding, output_padding, groups, dilation)
    (y * torch.sin(y).detach()).sum().backward()
    back = (*range(2, rank + 2), 1, 0)
    return (
        y.detach().permute(last).numpy(),
        inputs.grad.permute(last).numpy(),
        kernel.grad.permute(back).numpy(),
    )


@pytest.mark.parametrize(("x", "w", *"spodg"), IMAGES)
def test_transposed_as_by_torch(x, w, s, p, o, d, g):
    given = draw(x), draw(w, 1)
    fn = partial(
        transposed_convolution, stride=s, padding=p, output_padding=o, dilation=d, groups=g
    )
    ours = values_and_gradients(fn, *given)
    assert_same(ours, torchs(*given, s, p, o, d, g))
    assert_same([jax.jit(partial(fn, algorithm="matmul"))(*given)], ours[:1])


def test_a_transposed_sequence_as_by_torch():
    given = draw((2, 5, 4)), draw((3, 3, 4), 1)
    fn = partial(transposed_convolution, stride=2, padding=1, output_padding=1, groups=2)
    assert_same(values_and_gradients(fn, *given), torchs(*given, 2, 1, 1, 1, 2))


@pytest.mark.parametrize("asymmetric", [((1, 0), (0, 2)), ((2, 1), (0, 0))])
def test_transposed_with_uneven_padding_is_the_gradient_of_xlas_convolution(asymmetric):
    w, y = draw((3, 4, 2, 3), 1), draw((2, 3, 4, 3))
    ours = transposed_convolution(y, w, stride=2, padding=asymmetric, output_padding=(1, 0))

    def forward(x):
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (2, 2), asymmetric, dimension_numbers=order)

    (theirs,) = jax.linear_transpose(forward, jnp.zeros(ours.shape))(y)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_transposed_is_xlas_conv_transpose():
    x, w = draw((2, 4, 3, 3)), draw((3, 3, 2, 3), 1)
    theirs = jax.lax.conv_transpose(
        x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), transpose_kernel=True
    )
    ours = transposed_convolution(x, w, stride=2, padding="VALID")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_transposed_by_hand():
    """Each pixel adds a copy of the kernel to the result, two pixels apart."""
    x, w = jnp.array([1.0, 10.0]).reshape(1, 2, 1), jnp.array([1.0, 2.0, 3.0]).reshape(3, 1, 1)
    y = transposed_convolution(x, w, stride=2)
    np.testing.assert_array_equal(y.ravel(), [1, 2, 3 + 10, 20, 30])
    y = transposed_convolution(x, w, stride=2, padding=(1, 0), output_padding=1)
    np.testing.assert_array_equal(y.ravel(), [2, 13, 20, 30, 0])


def test_vmap_and_second_derivative_of_transposed():
    x, w = draw((3, 1, 3, 2)), draw((3, 2, 2), 1)
    fn = partial(transposed_convolution, stride=2)
    single = jax.jit(fn)
    assert_same(jax.jit(jax.vmap(fn, (0, None)))(x, w), [single(one, w) for one in x])
    loss = lambda x: jnp.sum(fn(x, w) ** 3)  # noqa: E731
    gradient, step = jax.jit(jax.grad(loss)), np.float32(1e-2)
    second = jax.jit(lambda x: jax.jvp(gradient, (x,), (jnp.ones_like(x),))[1])(x[0])
    numeric = (gradient(x[0] + step) - gradient(x[0] - step)) / (2 * step)
    np.testing.assert_allclose(second, numeric, rtol=1e-3, atol=1e-2)


def test_transposed_is_found_as_the_data_gradient_of_a_convolution():
    x, w = draw((2, 4, 4, 3)), draw((3, 3, 2, 3), 1)
    with kernels.collected() as collector:
        jax.jit(partial(transposed_convolution, stride=2)).lower(x, w)
    (key,) = collector.problems
    assert key.startswith("convolution data 2x9x9x2 3x3x2x3 s2x2")


X, W = jnp.zeros((2, 4, 4, 6)), jnp.zeros((3, 3, 4, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_padding": 1}, r"output_padding: got \(1, 1\), wanted less than the stride"),
        ({"padding": "SAME"}, "padding: got 'SAME', wanted numbers or 'VALID'"),
        ({"padding": 3}, r"padding: got \(\(3, 3\), \(3, 3\)\), which leaves 0x0 pixels"),
        ({"groups": 4}, "groups: got 4, wanted a divisor"),
        ({"w": W[..., :5]}, "w: got 5 as its last axis, wanted x's 6 channels"),
        ({"w": W[0]}, r"w: got shape \(3, 4, 6\); wanted .* \[k, f / groups, c\]"),
        ({"x": X.astype(int), "w": W.astype(int)}, "x: got int32, wanted floating-point numbers"),
        ({"algorithm": "split"}, "'split' cannot compute"),
        ({"algorithm": "gemm"}, "algorithm: got 'gemm', wanted 'auto' or one of"),
    ],
)
def test_bad_input_is_named(change, message, unchecked):
    arguments = {"x": X, "w": W} | change
    with pytest.raises(ValueError, match=message):
        transposed_convolution(**arguments)
