"""Fixtures that build small models in memory."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")


def build(nodes, inputs, outputs, weights=None, *, opset=18, domains=(), **more):
    """Builds a model proto.

    Args:
      nodes: the node protos.
      inputs: names to (type, shape), or to shapes of float32 tensors.
      outputs: names of the outputs.
      weights: names to arrays.
      opset: version of ONNX's standard domain.
      domains: other domains, all at version 1.
      **more: arguments of ``make_model``.
    """
    infos = []
    for name, kind in inputs.items():
        dtype, shape = kind if isinstance(kind, tuple) else ("float32", kind)
        number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        infos.append(onnx.helper.make_tensor_value_info(name, number, shape))
    results = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    tensors = [onnx.numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    graph = onnx.helper.make_graph(nodes, "test", infos, results, tensors)
    versions = [onnx.helper.make_opsetid("", opset)]
    versions += [onnx.helper.make_opsetid(domain, 1) for domain in domains]
    return onnx.helper.make_model(graph, opset_imports=versions, ir_version=8, **more)


def a_network(batch="n"):
    """Returns a network: convolution, batch norm, dropout, a computed reshape, a dense layer."""
    rng, node = np.random.default_rng(0), onnx.helper.make_node
    weights = {
        "conv.weight": rng.normal(size=(4, 3, 3, 3)),
        "bn.scale": rng.uniform(0.5, 1.5, 4),
        "bn.bias": rng.normal(size=4),
        "bn.mean": rng.normal(size=4),
        "bn.var": rng.uniform(0.5, 1.5, 4),
        "fc.weight": rng.normal(size=(5, 64)),
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    weights |= {"zero": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    nodes = [
        node("Conv", ["x", "conv.weight"], ["a"], "conv", pads=[1, 1, 1, 1]),
        node(
            "BatchNormalization",
            ["a"] + [f"bn.{n}" for n in ("scale", "bias", "mean", "var")],
            ["b"],
            "bn",
            momentum=0.75,
        ),
        node("Relu", ["b"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Dropout", ["d"], ["e"], "drop"),
        node("Shape", ["e"], ["f"]),
        node("Gather", ["f", "zero"], ["g"]),
        node("Concat", ["g", "rest"], ["h"], axis=0),
        node("Reshape", ["e", "h"], ["i"], "flatten"),
        node("Gemm", ["i", "fc.weight"], ["y"], "fc", transB=1),
    ]
    return build(nodes, {"x": [batch, 3, 8, 8]}, ["y"], weights)


@pytest.fixture(scope="session")
def small_network():
    """The function that builds the network."""
    return a_network


@pytest.fixture
def network():
    return a_network()


@pytest.fixture
def built():
    return build


@pytest.fixture(scope="session")
def onnxruntime():
    return pytest.importorskip("onnxruntime")
