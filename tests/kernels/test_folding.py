"""A function specialised to its weights: what is joined, and that the results stay."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels.folding import Specialised

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(2, 9, 9, 4)), "float32")


def drawn(*shape):
    return jnp.asarray(RNG.normal(size=shape), "float32")


W, F, B = drawn(3, 3, 4, 8) / 6, drawn(8), drawn(8)


def xla(x, w, **more):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", **more)


def nhwc(x, w, **more):
    return xla(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def ours(x, w):
    return kernels.convolution(x, w, padding=1)


def specialised(function, weights, x=X):
    """Specialises a function, and checks its results against the function's own."""
    weights, traceable = tuple(weights), jax.jit(function)
    found = Specialised(traceable.trace(weights, x), weights)
    held = Specialised(jax.jit(lambda _, x: function(weights, x)).trace((), x), ())
    assert held.joined == found.joined  # arrays that a function holds are weights too
    wanted = traceable(weights, x)
    results = jax.jit(found.function())(x)
    assert jax.tree.structure(results) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        limit = (2e-2 if found.narrow else 1e-5) * np.max(np.abs(other), initial=0)
        wide = (np.asarray(array, "float64") for array in (one, other))
        np.testing.assert_allclose(*wide, rtol=0, atol=limit)
    return found


class Norms(nn.Module):
    """Convolutions with and without bias and norm, a shortcut, and a map that is also an output."""

    @nn.compact
    def __call__(self, x):
        norm = nn.BatchNorm(use_running_average=True, name="n1")
        x = nn.relu(norm(nn.Conv(8, (3, 3), name="c1")(x)))  # a bias and a norm
        y = nn.Conv(8, (3, 3), use_bias=False, strides=2, name="c2")(x)
        y = nn.BatchNorm(use_running_average=True, use_scale=False, name="n2")(y)
        y = nn.relu(y) + nn.Conv(8, (1, 1), strides=2, name="c3")(x)
        shown = nn.Conv(8, (3, 3), use_bias=False, name="c4")(y)
        return nn.BatchNorm(use_running_average=True, name="n4")(shown), shown


def test_the_norms_of_a_flax_network_are_joined():
    network = Norms()
    variables = jax.tree.map(lambda a: drawn(*a.shape), jax.eval_shape(network.init, key(), X))
    stats = variables["batch_stats"]
    for norm in stats.values():
        norm["var"] = jnp.abs(norm["var"]) + 0.5
    leaves, tree = jax.tree.flatten(variables)
    found = specialised(lambda given, x: network.apply(tree.unflatten(given), x), leaves)
    assert found.joined == 4 + 3 + 1  # c1: bias, mean, factor, offset; c2; the bias of c3; not c4


def key():
    return jax.random.key(0)


@pytest.mark.parametrize("convolve", [nhwc, ours])
@pytest.mark.parametrize(
    "after, joined",
    [
        (lambda y, f, b: (y - b) * f + b, 3),
        (lambda y, f, b: b - y / f, 2),
        (lambda y, f, b: jnp.float32(2) * y, 1),
        (lambda y, f, b: f / y, 0),
        (lambda y, f, b: y * y, 0),
        (lambda y, f, b: (y + b, y), 0),
        (lambda y, f, b: y + jnp.mean(y), 0),
        (lambda y, f, b: y + jnp.full(y.shape[1:3] + (1,), 2.0), 0),  # of each pixel
        (lambda y, f, b: jax.nn.relu(y + b) * f, 1),
    ],
)
def test_steps_by_known_numbers_of_each_feature_are_joined(convolve, after, joined):
    found = specialised(lambda given, x: after(convolve(x, given[0]), *given[1:]), (W, F, B))
    assert found.joined == joined


def test_features_may_lie_on_any_axis():
    def channels_first(given, x):
        y = xla(jnp.moveaxis(x, -1, 1), given[0])
        return y * given[1].reshape(-1, 1, 1) + given[2].reshape(1, -1, 1, 1)

    found = specialised(channels_first, (drawn(8, 4, 3, 3), F, B))
    assert found.joined == 2
    # As many columns as features: a number for each column is none for each feature.
    wide = drawn(2, 8, 8, 4)
    other = specialised(
        lambda given, x: nhwc(x, given[0]) + given[1].reshape(1, 1, 8, 1), (W, F), wide
    )
    assert other.joined == 0


@pytest.mark.parametrize("convolve", [nhwc, ours])
def test_transposes_on_the_way_are_passed(convolve):
    def after(given, x):
        y = jnp.transpose(convolve(x, given[0]) + given[2], (0, 3, 1, 2))
        y = jnp.transpose(y * given[1].reshape(-1, 1, 1), (0, 2, 3, 1)) - given[2]
        return jnp.transpose(y, (1, 0, 3, 2))

    assert specialised(after, (W, F, B)).joined == 3


def test_a_batch_norm_is_joined_if_its_features_are_the_convolution_s():
    norms = (F, B, drawn(8), jnp.abs(F) + 0.5)
    found = specialised(
        lambda given, x: kernels.batch_norm(ours(x, given[0]), *given[1:]), (W, *norms)
    )
    assert found.joined == 3
    wide = drawn(2, 8, 8, 4)  # as many columns as features
    other = specialised(
        lambda given, x: kernels.batch_norm(jnp.swapaxes(ours(x, given[0]), 2, 3), *given[1:]),
        (W, *norms),
        wide,
    )
    assert other.joined == 0


@pytest.mark.parametrize("batch, side", [(2, 1), (2, 2), (16, 2), (2, 3)])
def test_images_of_fewer_pixels_than_taps_agree(batch, side):
    images = drawn(batch, side, side, 4)
    found = specialised(lambda given, x: ours(x, given[0]) + given[1], (W, B), images)
    assert found.joined == 1
    text = jax.jit(found.function()).lower(images).as_text()
    assert ("stablehlo.convolution" in text) == (batch == 2)
    assert ("optimization_barrier" in text) == ((batch, side) == (2, 2))


def test_a_small_image_whose_last_columns_no_tap_meets_agrees():
    def function(given, x):  # five rows of taps meet one row; no tap meets the fourth column
        y = kernels.convolution(x, given[0], stride=(1, 2), padding=((4, 4), (0, 0)))
        return y + given[1]

    assert specialised(function, (drawn(5, 1, 4, 8), B), drawn(1, 1, 4, 4)).joined == 1


@pytest.mark.parametrize("side", [1, 2, 9])
def test_gradients_agree(side):
    def function(given, x):
        gradients = jax.grad(lambda x, w: jnp.sin(ours(x, w)).sum(), (0, 1))
        up = kernels.transposed_convolution(x, given[1], stride=2, padding=1, output_padding=1)
        return gradients(x, given[0]), up

    specialised(function, (W, drawn(3, 3, 8, 4)), drawn(2, side, side, 4))


def test_no_features_at_all_agree():
    none = specialised(lambda given, x: ours(x, given[0]) + given[1], (drawn(3, 3, 4, 0), drawn(0)))
    assert none.multiplications == 0


def test_a_sum_in_a_wider_type_is_not_joined():
    def function(given, x):
        return nhwc(x, given[0], preferred_element_type="float64") * given[1].astype("float64")

    with jax.enable_x64(True):
        assert specialised(function, (W, F)).joined == 0


def test_kernels_that_depend_on_the_input_stay():
    found = specialised(lambda given, x: ours(x, given[0] * x.mean()) + given[1], (W, B))
    assert found.joined == 0


def test_an_image_may_be_a_weight_too():
    image = drawn(*X.shape)  # convolved late, because the result is larger than image and kernel
    found = specialised(lambda given, x: ours(*given[:2]) + given[2] + x.mean(), (image, W, F))
    assert found.joined == 1


def test_functions_inside_and_what_passes_through_are_kept():
    def function(given, x):
        inner = jax.jit(lambda x, w: ours(x, w) * 2)
        y = jax.lax.cond(x.sum() > 0, lambda: inner(x, given[0]), lambda: -inner(x, given[0]))
        return {"y": y, "x": x, "w": given[0], "of weights": given[1] + given[2], "one": 1.0}

    assert specialised(function, (W, F, B)).joined == 0


def test_grouped_and_transposed_convolutions_agree():
    def function(given, x):
        deep = kernels.convolution(x, given[0], padding=1, groups=4) * given[1]
        return kernels.transposed_convolution(deep, given[2], stride=2)

    found = specialised(function, (drawn(3, 3, 1, 4), drawn(4), drawn(2, 2, 6, 4)))
    assert found.joined == 1


@pytest.mark.parametrize("convolve", [nhwc, ours])
@pytest.mark.parametrize(
    "after, joined",
    [
        (lambda y, f, b: ((y.astype("float32") - b) * f + b).astype("bfloat16"), 3),
        (lambda y, f, b: (y.astype("float32") - b) * f, 2),
        (lambda y, f, b: y * f.astype("bfloat16"), 1),
        (lambda y, f, b: y.astype("int32").astype("float32") * f, 0),
    ],
)
def test_steps_in_float32_are_joined_to_a_convolution_in_bfloat16(convolve, after, joined):
    def function(given, x):
        y = convolve(x.astype("bfloat16"), given[0].astype("bfloat16"))
        return after(y, *given[1:])

    assert specialised(function, (W, F, B)).joined == joined


def test_kernels_in_bfloat16_are_rounded_once():
    """1 + 1/256 is 1 in bfloat16, and 1.5 times it is 1.5, but 1.5 (1 + 1/256) is 1.5078125."""

    def function(given, x):
        y = nhwc(x.astype("bfloat16"), given[0].astype("bfloat16")).astype("float32")
        return y * given[1]

    weights = jnp.full((1, 1, 1, 1), 1 + 1 / 256), jnp.full(1, 1.5)
    image = jnp.ones((1, 2, 2, 1))
    found = Specialised(jax.jit(function).trace(weights, image), weights).function()(image)
    assert function(weights, image).max() == 1.5 and found.min() == found.max() == 1.5078125


def test_only_depthwise_convolutions_in_bfloat16_are_computed_in_float32():
    def function(given, x):
        x, *kernels_ = (a.astype("bfloat16") for a in (x, *given))
        found = [kernels.convolution(x, w, groups=4 // w.shape[2]) for w in kernels_]
        return [y.astype("float32") + 1 for y in found]

    weights = (W, drawn(3, 3, 2, 8), drawn(3, 3, 1, 8))
    text = jax.jit(specialised(function, weights).function()).lower(X).as_text()
    computed = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert ["xbf16>" in line.split("->")[1] for line in computed] == [True, True, False]


def test_multiplications_are_those_in_float32_and_bfloat16():
    program = jax.jit(lambda given, x: ours(x, given[0]))
    found = Specialised(program.trace((W,), X), (W,))
    assert found.multiplications == 2 * 9 * 9 * 8 * 3 * 3 * 4
    assert not found.narrow
    for dtype, counted in (("bfloat16", found.multiplications), ("float16", 0)):
        w, x = W.astype(dtype), X.astype(dtype)
        half = Specialised(program.trace((w,), x), (w,))
        assert half.multiplications == counted and half.narrow == (dtype == "bfloat16")
    assert "0.1234" not in found.text and "jaxatr_convolution" in found.text
