"""Old versions of operators that differ from the present ones."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
RNG = np.random.default_rng(0)


def test_tile_along_one_axis(built):
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    weights = {"tiles": np.int64(2), "axis": np.int64(1)}
    nodes = [node("Tile", ["x", "tiles", "axis"], ["y"])]
    model = importer.load(built(nodes, {"x": [2, 3]}, "y", weights, opset=5))
    np.testing.assert_array_equal(model.apply(model.variables, x), np.tile(x, (1, 2)))


@pytest.mark.parametrize("shape", [(4, 3, 2, 2), (4, 3)])
def test_batch_norm_of_every_place(built, shape, tmp_path):
    x = np.float32(RNG.normal(size=shape))
    weights = {name: np.float32(RNG.uniform(0.5, 1.5, shape[1:])) for name in "sbmv"}
    nodes = [node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0, momentum=0.75)]
    proto = built(nodes, {"x": ["n", *shape[1:]]}, "y", weights, opset=7)
    model = importer.load(proto)
    s, b, m, v = weights.values()
    wanted = (x - m) / np.sqrt(v + 1e-5) * s + b
    y = jax.jit(model.apply)(model.variables, x)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    y, state = jax.jit(partial(model.apply, training=True))(model.variables, x)
    wanted = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * s + b
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        state["batch_stats"]["m"], 0.75 * m + 0.25 * x.mean(0), rtol=1e-4, atol=1e-5
    )
    source = importer.generate(proto, tmp_path).read_text()
    assert "ops.batch_normalization" in source and "spatial=0" in source
