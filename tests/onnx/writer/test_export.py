"""Arguments, output and errors of the export."""

import importlib.metadata
from collections import OrderedDict
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

onnx = pytest.importorskip("onnx")

from jaxatr.onnx import FreeAxis, export, load  # noqa: E402
from jaxatr.onnx.writer import serialisation  # noqa: E402


class Pair(NamedTuple):
    total: jax.Array
    parts: dict[str, jax.Array]


def two(variables, left, right):
    product = left @ variables["w"] + right["offset"]
    return Pair(product.sum(1), {"product": product, "ratio": product / variables["scale"]})


VARIABLES = {"w": np.ones((3, 2), np.float32), "scale": np.float32(2), "unread": np.zeros(5)}
INPUTS = (np.ones((2, 3), np.float32), {"offset": np.ones((2, 2), np.float32)})


def names(values):
    return [value.name for value in values]


def sizes(value):
    return [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]


def test_names_come_from_parameters_and_fields(tmp_path):
    model = export(two, VARIABLES, INPUTS, tmp_path / "model.onnx")
    assert names(model.graph.input) == ["left", "right/offset"]
    assert names(model.graph.output) == ["total", "parts/product", "parts/ratio"]
    assert {"w", "scale"} <= set(names(model.graph.initializer))
    assert "unread" not in names(model.graph.initializer)
    assert sizes(model.graph.input[0]) == ["batch", 3]
    assert sizes(model.graph.output[0]) == ["batch"]


def test_requested_names_and_sizes(tmp_path):
    model = export(
        two,
        VARIABLES,
        INPUTS,
        tmp_path / "model.onnx",
        input_names=["a", "b"],
        output_names=["x", "y", "z"],
        dynamic_batch=False,
        opset=20,
    )
    assert names(model.graph.input) == ["a", "b"] and names(model.graph.output) == ["x", "y", "z"]
    assert sizes(model.graph.input[0]) == [2, 3] and sizes(model.graph.output[1]) == [2, 2]
    assert model.opset_import[0].version == 20


def test_nodes_are_named_after_the_layers(tmp_path):
    network = nn.Sequential([nn.Conv(4, (3, 3)), nn.relu])
    x = np.ones((2, 5, 5, 1), np.float32)
    model = export(network, network.init(jax.random.key(0), x), x, tmp_path / "model.onnx")
    assert [name for name in names(model.graph.node) if name.endswith("layers_0/Conv")]


def test_the_file_is_the_model_and_says_who_wrote_it(tmp_path):
    path = tmp_path / "model.onnx"
    model = export(two, VARIABLES, INPUTS, path, properties={"classes": "[]"})
    assert onnx.load(path) == model
    told = {entry.key: entry.value for entry in model.metadata_props}
    assert told.pop("classes") == "[]" and set(told) <= {"jaxatr.constants"}
    assert model.producer_name == "jaxatr"
    assert model.producer_version == importlib.metadata.version("jaxatr")
    assert sorted(tmp_path.iterdir()) == [path]


def test_arguments_are_checked(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="opset: got 17, wanted 18 to "):
        export(two, VARIABLES, INPUTS, path, opset=17)
    with pytest.raises(ValueError, match=r"input_names: got \['a', 'a'\], wanted 2 different"):
        export(two, VARIABLES, INPUTS, path, input_names=["a", "a"])
    with pytest.raises(ValueError, match=r"output_names: got \['a'\], wanted 3 different"):
        export(two, VARIABLES, INPUTS, path, output_names=["a"])
    uneven = (INPUTS[0], {"offset": np.ones((3, 2), np.float32)})
    with pytest.raises(ValueError, match=r"sizes \[2, 3\], wanted the same"):
        export(two, VARIABLES, uneven, path)
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        export(two, VARIABLES, INPUTS, tmp_path / "nowhere" / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_everything_without_a_rule_is_listed_with_its_place(tmp_path):
    def function(variables, x):
        y = lax.nextafter(x, 1 + x)
        y = jax.jit(lambda y: lax.lgamma(y))(y)
        return lax.sort((y, -y), num_keys=2)

    with pytest.raises(ValueError, match="cannot be written as ONNX") as error:
        export(function, {}, np.ones((2, 3), np.float32), tmp_path / "model.onnx")
    lines = str(error.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["nextafter", "lgamma", "sort"]
    assert all("test_export.py:" in line for line in lines)
    assert "by more than one key" in lines[2]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "combine", "padding", "reason"),
    [
        ("float32", lax.add, (2, 0), "with padding .* not smaller than the window"),
        ("int32", lax.add, (0, 0), "of int32"),
    ],
)
def test_windows_that_onnx_cannot_pool(tmp_path, dtype, combine, padding, reason):
    def function(variables, x):
        pads = ((0, 0), (0, 0), padding)
        return lax.reduce_window(x, np.array(0, dtype), combine, (1, 1, 2), (1, 1, 1), pads)

    with pytest.raises(ValueError, match=f"reduce_window_sum: {reason}.*test_export.py:"):
        export(function, {}, np.ones((2, 3, 4), dtype), tmp_path / "model.onnx")


def test_a_size_that_a_function_of_jax_cannot_use_is_explained(tmp_path):
    with pytest.raises(ValueError, match="the function needs the batch size as a number"):
        export(jnp.add, *np.ones((2, 2, 3), np.float32), tmp_path / "model.onnx")


def test_a_node_that_needs_a_free_size_as_a_number_is_named(tmp_path):
    scales = onnx.numpy_helper.from_array(np.float32([1, 2]), "s")
    node = onnx.helper.make_node("Resize", ["x", "", "s"], ["y"])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", "n"])
        for name in "xy"
    ]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [scales])
    model = load(onnx.helper.make_model(graph))
    given = model.variables, np.ones((2, 3), np.float32), tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="needs the batch size as a number .*node 'y' .Resize"):
        export(model.apply, *given, free_axes=[{1: FreeAxis("n")}])


def test_a_batch_size_that_is_needed_as_a_number(tmp_path):
    def counted(variables, x):
        return x * np.arange(len(x))[:, None]

    def assumed(variables, x):
        return x + np.ones((2, 3), np.float32)

    x = np.ones((2, 3), np.float32)
    for function, place in ((counted, "np.arange"), (assumed, "np.ones")):
        with pytest.raises(ValueError, match="or export with dynamic_batch=False") as error:
            export(function, {}, x, tmp_path / "model.onnx")
        assert "test_export.py:" in str(error.value) and place in str(error.value)
        model = export(function, {}, x, tmp_path / "fixed.onnx", dynamic_batch=False)
        assert sizes(model.graph.input[0]) == [2, 3]


def test_a_fault_of_the_function_is_its_own(tmp_path):
    def wrong(variables, x):
        return x + variables["missing"]

    with pytest.raises(KeyError, match="missing"):
        export(wrong, {}, np.ones((2, 3), np.float32), tmp_path / "model.onnx")


def test_constants_of_a_function_are_stored(exported):
    table = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    model = exported(lambda variables, x: x @ table, {}, np.ones((3, 3), np.float32))
    (tensor,) = model.graph.initializer
    assert tensor.name == "constant"
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), table)


def test_an_output_may_be_an_input_a_weight_or_twice_the_same(exported):
    def function(variables, x):
        y = jnp.sin(x)
        return OrderedDict(a=x, b=y, c=y, d=variables["w"], e=jnp.ones((x.shape[0], 2)))

    exported(function, {"w": np.arange(3.0, dtype=np.float32)}, np.ones((3, 2), np.float32))


def test_inputs_of_other_types(exported):
    def function(variables, image, which):
        return (image.astype(jnp.float32) / 255)[:, 0] * which, which > 1, which

    image = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    exported(function, {}, image, np.arange(3, dtype=np.int32)[:, None])


def test_bfloat16_is_computed_in_float32_and_rounded(exported):
    def function(variables, x):
        x = x.astype(jnp.bfloat16)
        y = lax.conv(x, jnp.full((1, 1, 2, 2), 1 / 3, jnp.bfloat16), (1, 1), "SAME")
        return (jnp.tanh(y) + x).astype(jnp.float32)

    # Compiled by jax for a CPU, a sum is not rounded before it is added to.
    x = np.linspace(-2, 2, 48, dtype=np.float32).reshape(3, 1, 4, 4)
    exported(function, {}, x, atol=2**-6)


def test_a_type_that_no_operator_has(tmp_path):
    def function(variables, x):
        return lax.conv(x, jnp.ones((1, 1, 2, 2), np.int32), (1, 1), "SAME")

    with pytest.raises(ValueError, match="needs ONNX's Conv of int32, .*test_export.py:"):
        export(function, {}, np.ones((2, 1, 4, 4), np.int32), tmp_path / "model.onnx")


def test_an_invalid_model_leaves_no_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"what was there")
    model = export(two, VARIABLES, INPUTS, tmp_path / "other.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ValueError, match="would not be valid: .*NoSuchOperator"):
        serialisation.write_model(model, path)
    assert path.read_bytes() == b"what was there"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "other.onnx"]


def test_large_weights_lie_beside_the_file(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(serialisation, "LARGEST", 1000)
    w = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
    path, x = tmp_path / "model.onnx", np.ones((2, 30), np.float32)
    export(lambda variables, x: x @ variables["w"], {"w": w}, x, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert path.stat().st_size < 1000
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(found, x @ w, rtol=1e-5)


def test_a_batch_without_examples(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")

    def halved(row):
        return lax.while_loop(lambda r: r.max() > 1, lambda r: r / 2, row)

    def run(function):
        export(lambda _, x: function(x), {}, np.ones((2, 3), np.float32), tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        return session.run(None, {"x": np.zeros((0, 3), np.float32)})

    some, every, one = run(lambda x: ((x > 0).any(0), (x > 0).all(0), (x > 0).any()))
    assert not some.any() and every.all() and not one
    assert run(jax.vmap(halved))[0].shape == (0, 3)  # no round, which would be endless ones


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_over_fixed_keys_draws_as_in_jax(exported, reverse):
    draw, keys = jax.random.normal, jax.random.split(jax.random.key(0), 3)

    def noised(value, key):
        return value + draw(key, (4,)), value

    def split(carried, row):
        key, own = jax.random.split(carried[0])
        return (key, carried[1] + row), draw(own, (4,)) * row

    def function(variables, x):
        rows = jnp.arange(8.0).reshape(2, 4)
        (_, total), drawn = jax.lax.scan(split, (keys[0], x), rows, reverse=reverse)
        return jax.lax.scan(noised, x, keys, reverse=reverse), total, drawn

    exported(function, {}, np.ones((3, 4), np.float32))


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda v, x: x + jax.random.normal(v["key"], (4,)), "inputs or results: got key<fry>"),
        (lambda v, x: (x, jax.random.key(0)), "inputs or results: got key<fry>"),
        (
            lambda v, x: jax.random.normal(jax.lax.cond(x[0, 0] > 0, _key_of(1), _key_of(2))),
            "cond: needs a random key in the file",
        ),
    ],
)
def test_random_keys_are_refused_by_name(tmp_path, function, message):
    variables = {"key": jax.random.key(0)} if "key" in function.__code__.co_consts else {}
    with pytest.raises(ValueError, match=message):
        export(function, variables, np.ones((3, 4), np.float32), tmp_path / "model.onnx")


def _key_of(seed):
    return lambda: jax.random.key(seed)


@pytest.mark.parametrize("function", [jnp.tan, jnp.sinh, jnp.arctan, jnp.arcsinh, jax.lax.erf])
def test_operators_that_onnxruntime_lacks_in_64_bits_are_named(tmp_path, function):
    with jax.enable_x64(True), pytest.raises(ValueError, match="of float64, which runtimes do not"):
        export(lambda v, x: function(x), {}, np.ones((2, 3)), tmp_path / "model.onnx")
