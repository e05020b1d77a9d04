"""Statistics of float16 and bfloat16, against the same ones of float32."""

import jax
import numpy as np
import pytest

from jaxatr.onnx import ops
from jaxatr.onnx.ops import fused

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


IMAGE = normal(2, 4, 9, 8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("operator", "arguments", "attributes"),
    [
        (ops.instance_normalization, (normal(4), normal(4)), {}),
        (ops.mean_variance_normalization, (), {}),
        (ops.lp_normalization, (), {}),
        (ops.lrn, (), {"size": 3}),
        (ops.reduce_l2, (np.array([2]),), {}),
        (ops.reduce_log_sum, (np.array([2, 3]),), {}),
        (ops.lp_pool, (), {"kernel_shape": (2, 2)}),
        (ops.global_lp_pool, (), {}),
        (fused.skip_layer_normalization, (IMAGE, normal(8), normal(8), normal(8)), {"outputs": 4}),
        (fused.skip_simplified_layer_normalization, (IMAGE, normal(8), normal(8)), {"outputs": 4}),
    ],
)
def test_sums_and_squares_of_sixteen_bits_do_not_overflow(operator, arguments, attributes, dtype):
    inputs = [np.asarray(v).astype(dtype) if v.dtype.kind == "f" else v for v in arguments]
    x = (1500 * abs(IMAGE)).astype(dtype)
    got = operator(x, *inputs, **attributes)
    wide = [v.astype("float32") if v.dtype == dtype else v for v in (x, *inputs)]
    for one, other in zip(*map(jax.tree.leaves, (got, operator(*wide, **attributes))), strict=True):
        assert one.dtype == dtype or one.shape[-1] == 1
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one.astype("float32"), other, rtol=0.02, atol=0.02)
