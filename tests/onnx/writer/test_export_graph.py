"""Fusion of operators and removal of transpositions in exported graphs."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxatr import kernels
from jaxatr.onnx.ops import clip

pytest.importorskip("onnx")


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture
def operators(exported):
    """Exports a function of images, compares outputs, and returns the operators in order."""

    def found(function, *inputs):
        model = exported(lambda variables, *given: function(*given), {}, *inputs, apart=True)
        return [node.op_type for node in model.graph.node]

    return found


KERNEL = draw(3, 3, 4, 4, seed=1)
IMAGES = draw(3, 7, 6, 4)
TO_SECOND, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def conv(x):
    return kernels.convolution(x, jnp.asarray(KERNEL), padding=1)


def test_transposings_cancel_between_convolutions(operators):
    def function(x):
        return conv(jax.nn.relu(conv(x) * 2) + x)

    found = operators(function, IMAGES)
    assert found == ["Transpose", "Conv", "Mul", "Relu", "Add", "Conv", "Transpose"]


def test_an_input_is_transposed_before_it_is_normalised(operators):
    mean, scale = jnp.asarray(draw(4, seed=2)), 1 + jnp.arange(4.0)
    found = operators(lambda x: conv((x - mean) / scale), IMAGES)
    assert found == ["Transpose", "Sub", "Div", "Conv", "Transpose"]
    whole = (100 * draw(3, 7, 6, 4)).astype(np.uint8)
    found = operators(lambda x: conv(jnp.clip(x.astype(float) / 255, 0.1, 0.9)), whole)
    assert found == ["Transpose", "Cast", "Div", "Clip", "Conv", "Transpose"]
    found = operators(lambda x: {"y": conv(x - mean), "x": x * 2}, IMAGES)
    assert sorted(found) == ["Conv", "Mul", "Sub", "Transpose", "Transpose"]
    assert found[:2] == ["Transpose", "Sub"]
    found = operators(lambda x: conv(x[:, 1:, :5] - mean), IMAGES)
    assert found == ["Slice", "Transpose", "Sub", "Conv", "Transpose"]
    found = operators(lambda x: conv(conv(x)[:, 1:] - mean), IMAGES)  # transposed already
    assert found == ["Transpose", "Conv", "Slice", "Sub", "Conv", "Transpose"]
    found = operators(lambda x: conv(x * jnp.asarray(draw(7, 6, 4))), IMAGES)  # one for each place
    assert found == ["Transpose", "Mul", "Conv", "Transpose"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (conv(moved := x - 1), moved),  # the difference is a result
        lambda x: conv(x - 1) + (x - 1).reshape(x.shape[0], -1).sum(-1)[:, None, None, None],
        lambda x: conv(x - x.mean((1, 2), keepdims=True)),
    ],
)
def test_other_inputs_are_transposed_where_a_convolution_reads_them(operators, function):
    assert operators(function, IMAGES)[0] != "Transpose"


def test_channels_second_need_no_transposition(operators):
    def function(x):
        return conv(conv(x.transpose(TO_LAST))).transpose(TO_SECOND)

    assert operators(function, draw(3, 4, 7, 6)) == ["Conv", "Conv"]


AGNOSTIC = {
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))),
    "slice": lambda x: x[:, 1:, ::2, :3],
    "concatenate": lambda x: jnp.concatenate([x, x * 2], axis=-1),
    "reduce, kept": lambda x: x - x.mean((1, 2), keepdims=True),
    "maximum": lambda x: x.max(axis=-1, keepdims=True) + x,
    "gather": lambda x: x[:, jnp.array([2, 0, 1])],
    "vector": lambda x: x + jnp.arange(4.0),
    "row of numbers": lambda x: x * jnp.arange(6.0)[:, None],
    "map of numbers": lambda x: x * jnp.asarray(draw(7, 6, 4)),
    "new axis": lambda x: x[:, :, None, :, :1].max(2) * x,
    "choice": lambda x: jnp.where(x > 0, x, x.sum(-1, keepdims=True)),
    "resize": lambda x: jax.image.resize(x, (x.shape[0], 9, 8, 4), "bilinear"),
    "groups": lambda x: (x.reshape(*x.shape[:3], 2, 2) * jnp.arange(2.0)).max(-1),
    "groups, joined": lambda x: jnp.abs(x.reshape(*x.shape[:3], 2, 2)).reshape(x.shape),
    "places, joined": lambda x: jnp.abs(x.reshape(x.shape[0], 42, 4)).reshape(x.shape),
}


def test_operators_work_in_either_layout(operators):
    def function(x):
        return {name: f(conv(x)).transpose(TO_SECOND) for name, f in AGNOSTIC.items()}

    assert operators(function, IMAGES).count("Transpose") == 1  # of the images


def test_a_group_norm_transposes_only_its_means(exported):
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            return conv(nn.GroupNorm(2)(conv(jnp.asarray(x))))

    variables = Normed().init(jax.random.key(0), IMAGES)
    model = exported(Normed(), variables, IMAGES)
    graph = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type == "Transpose" and node.input[0] in graph:
            assert graph[node.input[0]].op_type in ("Mul", "Reshape") or node.output[0] == "output"


def test_operators_that_depend_on_the_layout_are_given_theirs(operators):
    found = operators(lambda x: conv(x).reshape(x.shape[0], -1), IMAGES)
    assert found == ["Transpose", "Conv", "Transpose", "Reshape"]
    found = operators(lambda x: conv(x).mean((1, 2)) @ jnp.ones((4, 2)), IMAGES)
    assert found == ["Transpose", "Conv", "ReduceMean", "MatMul"]
    found = operators(lambda x: conv(x).argmax(-1), IMAGES)
    assert found.count("Transpose") == 1 and found.count("ArgMax") == 2  # one for the first NaN


def test_layouts_inside_of_a_loop(operators):
    def function(x):
        return lax.fori_loop(0, 2, lambda _, c: conv(jax.nn.relu(conv(c))) + x, conv(x))

    assert operators(function, IMAGES).count("Scan") == 1


def test_a_mean_is_one_node_and_another_division_is_not_a_mean(operators):
    assert operators(lambda x: x.mean((1, 2)), IMAGES) == ["ReduceMean"]
    assert operators(lambda x: x.sum((1, 2)) * (1 / 42), IMAGES) == ["ReduceMean"]
    assert operators(lambda x: x.sum((1, 2)) / 41, IMAGES) == ["ReduceSum", "Div"]


def test_a_maximum_and_a_minimum_of_numbers_are_one_clip(operators):
    assert operators(lambda x: clip(x, min=-0.5, max=0.5), IMAGES) == ["Clip"]
    assert operators(lambda x: clip(x, max=0.5), IMAGES) == ["Clip"]
    assert operators(lambda x: clip(clip(x, max=0.5), min=-0.5), IMAGES) == ["Clip", "Clip"]
    assert operators(lambda x: jnp.minimum(0.5, jnp.maximum(x, -0.5)), IMAGES) == ["Clip"]
    assert operators(lambda x: jnp.maximum(x, x[:1]), IMAGES)[-1] == "Max"


def test_activations_are_short_and_their_parts_are_accurate(operators):
    assert operators(jax.nn.silu, IMAGES) == ["Sigmoid", "Mul"]
    assert "Sigmoid" not in operators(jax.nn.sigmoid, IMAGES)
    assert "Sigmoid" not in operators(lambda x: jax.nn.sigmoid(x) * x[:, ::-1], IMAGES)
    gelu = operators(lambda x: jax.nn.gelu(x, approximate=False), IMAGES)
    assert "Erf" in gelu and len(gelu) <= 6
    assert "Erf" not in operators(lambda x: 0.5 * lax.erfc(x), IMAGES)


def test_max_pool_of_taps(operators):
    found = operators(lambda x: kernels.max_pool(x, 3, 2, 1), IMAGES)
    assert found == ["Transpose", "MaxPool", "Transpose"]
    found = operators(lambda x: kernels.max_pool(x, 2, 2, 0), IMAGES)
    assert found == ["Transpose", "MaxPool", "Transpose"]


def test_whole_numbers_are_not_for_these_operators(operators):
    def largest(x):
        taps = [x[:, i : i + 3, j : j + 3] for i in (0, 1) for j in (0, 1)]
        return functools.reduce(jnp.maximum, taps)

    whole = np.arange(3 * 4 * 4 * 2, dtype=np.int32).reshape(3, 4, 4, 2)
    assert "MaxPool" not in operators(largest, whole)
    assert "MaxPool" in operators(largest, np.float32(whole))
    assert "MatMul" in operators(lambda x: x.sum((1, 2)) // 16, whole)


def test_taps_that_are_not_a_window(operators):
    def three(x):
        return jnp.maximum(jnp.maximum(x[:, :-1, :-1], x[:, 1:, 1:]), x[:, 1:, :-1])

    def finite_edge(x):
        return nn.relu(kernels.max_pool(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 2, 1, 0))

    assert "MaxPool" not in operators(three, IMAGES)
    assert "Pad" in operators(finite_edge, IMAGES)  # a zero is a value, and no edge


def normalized(x, mean, scale=None, axis=-1):
    shape = [1] * x.ndim
    shape[axis] = -1
    factor = lax.rsqrt(jnp.abs(mean) + 1e-3) * (1 if scale is None else scale)
    return (x - mean.reshape(shape)) * factor.reshape(shape)


def test_batch_norm_only_over_channels(exported, count):
    def function(variables, x):
        return normalized(x, variables["mean"]) + variables["bias"]

    def statistics(variables, x):
        x = (x - variables["mean"]) * (lax.rsqrt(variables["var"] + 1e-3) * variables["scale"])
        return x + variables["bias"]

    def over_rows(variables, x):
        return statistics(variables, x.swapaxes(1, 3)).swapaxes(1, 3)

    names = ("mean", "var", "scale", "bias")
    variables = {name: np.abs(draw(4, seed=i)) for i, name in enumerate(names)}
    model = exported(statistics, variables, IMAGES, apart=True)
    assert count(model, "BatchNormalization") == 1 and count(model) == 3
    model = exported(statistics, variables, draw(3, 4), apart=True)
    assert count(model) == 1  # of vectors
    # A variance that is computed is no weight; what is computed stays.
    assert count(exported(function, variables, IMAGES, apart=True), "BatchNormalization") == 0
    assert (
        count(exported(over_rows, variables, draw(3, 4, 5, 6), apart=True), "BatchNormalization")
        == 1
    )


def test_a_bias_joins_its_product_where_nobody_else_reads_it(exported, count):
    w, b = draw(4, 2), draw(2)

    def once(variables, x):
        return x @ variables["w"] + variables["b"]

    def twice(variables, x):
        y = x @ variables["w"]
        return y + variables["b"], y

    variables, x = {"w": w, "b": b}, draw(3, 4)
    assert count(exported(once, variables, x, apart=True), "Gemm") == 1
    assert count(exported(twice, variables, x, apart=True), "Gemm") == 0
    assert (
        count(exported(once, variables, draw(3, 5, 4), apart=True), "Gemm") == 0
    )  # not of matrices


def test_equal_nodes_are_merged_and_unread_ones_dropped(operators):
    def function(x):
        jnp.cos(x)
        return jnp.sin(x) + jnp.sin(x) * 2

    assert operators(function, IMAGES) == ["Sin", "Mul", "Add"]


def test_a_weight_in_two_layouts_is_stored_once(exported, count):
    def function(variables, x):
        return x @ variables["w"], x @ variables["w"].T

    model = exported(function, {"w": draw(4, 4)}, draw(3, 4))
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]
    assert count(model, "Transpose") == 1


def test_names_are_numbered_without_gaps(exported):
    def function(variables, x):
        with jax.named_scope("head"):
            return jnp.sin(jnp.sin(jnp.sin(x)) + 1)

    model = exported(function, {}, draw(3, 4))
    names = [node.name for node in model.graph.node]
    assert names == ["head/Sin", "head/Sin_1", "head/Add", "head/Sin_2"]
