"""The convolution under jax's transformations: derivatives, batches, devices, platforms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr.kernels import convolution


def draw(shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def reference(x, w, *, stride=1, padding=0, dilation=1, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        ((padding, padding), (padding, padding)),
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


PLAIN = {"padding": 1}
STRIDED = {"padding": 1, "stride": 2, "groups": 2}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("xla", STRIDED),
        *(
            pytest.param(name, options, marks=pytest.mark.slow)
            for name, options in (
                ("auto", PLAIN),
                ("auto", STRIDED),
                ("matmul", STRIDED),
                ("direct", STRIDED),
                ("taps", {"padding": 1, "stride": 2}),
                ("winograd", {"padding": 1, "groups": 2}),
                ("winograd4", PLAIN),
            )
        ),
    ],
)
def test_first_and_second_derivatives_in_both_modes(algorithm, options):
    with jax.enable_x64(True):
        depth = 2 // options.get("groups", 1)
        x, w = draw((1, 3, 2, 2), dtype=jnp.float64), draw((3, 3, depth, 2), 1, jnp.float64)
        fn = jax.jit(partial(convolution, algorithm=algorithm, **options))
        check_grads(fn, (x, w), order=2, modes=["fwd", "rev"], atol=1e-4, rtol=1e-4)


def test_hessian_vector_product_is_xlas():
    x, w, v = draw((2, 6, 6, 3)), draw((3, 3, 3, 4), 1), draw((3, 3, 3, 4), 2)

    def product(conv):
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(conv(x, w, padding=1))))
        return jax.jit(lambda w: jax.jvp(gradient, (w,), (v,))[1])(w)

    np.testing.assert_allclose(product(convolution), product(reference), rtol=1e-4, atol=1e-4)


def test_gradient_of_a_gradient_is_xlas():
    x, w = draw((2, 6, 6, 3)), draw((3, 3, 3, 4), 1)

    def penalty(conv):
        inner = jax.grad(lambda x, w: jnp.sum(jnp.tanh(conv(x, w, padding=1))))
        return jax.jit(jax.grad(lambda w: jnp.sum(inner(x, w) ** 2)))(w)

    np.testing.assert_allclose(penalty(convolution), penalty(reference), rtol=1e-4, atol=1e-4)


AXES = [(0, None), (None, 1), (2, 3)]


@pytest.mark.parametrize(
    ("axes", "algorithm"),
    [
        *((axes, "matmul") for axes in AXES),  # batching does not depend on the algorithm
        *(
            pytest.param(axes, name, marks=pytest.mark.slow)
            for name in ("auto", "xla", "winograd")
            for axes in AXES
        ),
    ],
)
def test_vmap_of_every_direction(axes, algorithm):
    groups, n = 2, 3
    x, w, y = (2, 4, 5, 4), (3, 3, 2, 6), (2, 4, 5, 6)
    x, w = (
        draw(shape if axis is None else (*shape[:axis], n, *shape[axis:]), seed)
        for seed, (shape, axis) in enumerate(zip((x, w), axes, strict=True))
    )
    cotangent = draw(y, 2)

    def everything(conv, x, w):
        value, pull = jax.vjp(partial(conv, padding=1, groups=groups), x, w)
        return value, *pull(cotangent), *pull(jnp.sin(value))

    named = partial(convolution, algorithm=algorithm)
    ours = jax.jit(jax.vmap(partial(everything, named), axes))(x, w)
    theirs = jax.jit(jax.vmap(partial(everything, reference), axes))(x, w)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_over_nothing(axes):
    shapes = (2, 4, 4, 2), (3, 3, 2, 3)
    given = [jnp.zeros((0,) * (a == 0) + shape) for shape, a in zip(shapes, axes, strict=True)]
    assert jax.jit(jax.vmap(convolution, axes))(*given).shape == (0, 2, 2, 2, 3)


@pytest.mark.parametrize("side", [1, 3])
def test_images_without_channels_give_zeros(side):
    x, w = jnp.zeros((2, 4, 4, 0)), jnp.zeros((side, side, 0, 3))
    np.testing.assert_array_equal(jax.jit(convolution)(x, w), np.zeros((2, 5 - side, 5 - side, 3)))


def test_pmap_with_a_gradient_reduced_over_the_devices():
    x, w = draw((1, 2, 6, 6, 3)), draw((3, 3, 3, 4), 1)

    def gradient(x, w):
        value = jax.grad(lambda w: jnp.sum(convolution(x, w, padding=1) ** 2))(w)
        return jax.lax.psum(value, "data")

    ours = jax.pmap(gradient, axis_name="data", in_axes=(0, None))(x, w)
    loss = lambda w, x: jnp.sum(reference(x, w, padding=1) ** 2)  # noqa: E731
    expected = jax.jit(jax.grad(loss))(w, x[0])
    np.testing.assert_allclose(ours[0], expected, rtol=1e-4, atol=1e-4)


def test_rematerialization_keeps_the_gradient():
    x, w = draw((1, 4, 4, 2)), draw((3, 3, 2, 2), 1)
    loss = lambda conv: lambda w: jnp.sum(jnp.sin(conv(x, w, padding=1)))  # noqa: E731
    plain = jax.jit(jax.grad(loss(convolution)))(w)
    again = jax.jit(jax.grad(jax.checkpoint(loss(convolution))))(w)
    np.testing.assert_allclose(again, plain, rtol=1e-6)


def lowered(platform, **options):
    x, w = jnp.zeros((2, 4, 4, 32)), jnp.zeros((3, 3, 32, 32))
    fn = jax.jit(jax.grad(lambda x, w: convolution(x, w, **PLAIN, **options).sum(), (0, 1)))
    return fn.trace(x, w).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_gpu_and_tpu_get_xlas_form(platform):
    text = lowered(platform)
    assert "stablehlo.convolution" in text and "stablehlo.dot_general" not in text
    assert "inlineable" not in text


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (2, 2)])
def test_taps_that_meet_nothing_leave_every_platform_its_shapes(platform, size, stride):
    """All three directions, on sizes of the last stages of a residual network on small images."""
    x, w = draw((2, size, size, 4)), draw((3, 3, 4, 5), 1)
    fn = jax.jit(jax.grad(lambda x, w: convolution(x, w, padding=1, stride=stride).sum(), (0, 1)))
    lowered = fn.trace(x, w).lower(lowering_platforms=(platform,))
    assert [one.shape for one in jax.tree.leaves(lowered.out_info)] == [x.shape, w.shape]
    forward = jax.jit(partial(convolution, padding=1, stride=stride))
    text = forward.trace(x, w).lower(lowering_platforms=(platform,)).as_text()
    assert "-> tensor<2x1x1x5xf32>" in text


def test_without_jit_it_is_the_same():
    x, w = draw((2, 4, 4, 3)), draw((3, 3, 3, 2), 1)
    fn = jax.value_and_grad(lambda w: (convolution(x, w, padding=1) ** 2).sum())
    jitted = jax.jit(fn)(w)
    with jax.disable_jit():
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), fn(w), jitted)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 32])
def test_a_free_batch_can_be_exported_with_its_gradients(groups):
    """The layer's weight gradient is cut into pieces of the batch if that is known."""
    (batch,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((batch, 6, 6, 32), jnp.float32)
    convolved = partial(convolution, padding=1, groups=groups)
    fn = jax.jit(jax.grad(lambda w, x: (convolved(x, w) ** 2).sum(), (0, 1)))
    w, images = draw((3, 3, 32 // groups, 32)), draw((3, 6, 6, 32), 1)
    exported = jax.export.export(fn)(w, x)
    for ours, wanted in zip(exported.call(w, images), fn(w, images), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-3)


def shards(fn, **options):
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((1,), ("data",), automatic, devices=jax.devices()[:1])
    data, whole = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()
    return jax.shard_map(fn, mesh=mesh, in_specs=(data, whole), out_specs=whole, **options)


def test_shards_whose_axes_are_followed_are_refused():
    """Otherwise the gradient of the shared kernel would silently be that of one device."""
    x, w = draw((2, 4, 4, 3)), draw((3, 3, 3, 2), 1)

    def loss(x, w):
        return jax.lax.psum((convolution(x, w, padding=1) ** 2).sum(), "data")

    with pytest.raises(NotImplementedError, match="convolution: got arrays that vary along data"):
        shards(loss)(x, w)
    total = shards(loss, check_vma=False)(x, w)
    np.testing.assert_allclose(total, (convolution(x, w, padding=1) ** 2).sum(), rtol=1e-5)


def test_cpu_gets_matrix_products():
    text = lowered("cpu")
    assert "stablehlo.dot_general" in text and "stablehlo.convolution" not in text


def test_an_algorithm_named_is_used_on_every_platform():
    assert "stablehlo.dot_general" in lowered("cuda", algorithm="matmul")
    assert "stablehlo.convolution" in lowered("cpu", algorithm="xla")


def test_exported_for_two_platforms_it_keeps_both_forms():
    x, w = draw((2, 4, 4, 32)), draw((3, 3, 32, 32), 1)
    fn = jax.jit(partial(convolution, **PLAIN))
    exported = jax.export.export(fn, platforms=["cpu", "cuda"])(x, w)
    text = exported.mlir_module()
    assert "stablehlo.convolution" in text and "stablehlo.dot_general" in text
    np.testing.assert_allclose(exported.call(x, w), fn(x, w), rtol=1e-5, atol=1e-5)


def test_int8_is_summed_in_int32():
    draw8 = np.random.default_rng(0).integers
    x, w = (draw8(-128, 128, shape).astype(np.int8) for shape in ((2, 5, 4, 3), (3, 3, 3, 2)))
    y = jax.jit(partial(convolution, padding=1))(jnp.asarray(x), jnp.asarray(w))
    assert y.dtype == jnp.int32
    exact = reference(jnp.asarray(x, jnp.float32), jnp.asarray(w, jnp.float32), padding=1)
    np.testing.assert_array_equal(y, exact)


def test_a_batch_that_a_named_algorithm_cannot_compute_is_xlas():
    x, w = (
        draw((3, 1, 4, 4, 2)),
        draw((3, 3, 3, 2, 2), 1),
    )  # becomes groups, which taps does not support
    ours = jax.jit(jax.vmap(partial(convolution, padding=1, algorithm="taps")))(x, w)
    theirs = jax.jit(jax.vmap(partial(reference, padding=1)))(x, w)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
