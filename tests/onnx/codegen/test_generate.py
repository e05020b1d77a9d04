import ast
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")


from jaxatr.onnx import export, generate, load, load_weights, register  # noqa: E402
from jaxatr.onnx.ops.registry import restored  # noqa: E402

node = onnx.helper.make_node


def image(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def small(tmp_path_factory, networks, check, imported):
    """A network's proto, module, variables and source."""
    proto = networks.small()
    path = generate(proto, tmp_path_factory.mktemp("small"))
    check(path)
    variables = load_weights(path.with_name("weights.safetensors"))
    return proto, imported(path).Model(), variables, path.read_text()


def test_a_network(small, same):
    network, module, variables, text = small
    same(network, module, variables, image(2, 3, 8, 8))
    assert 'Conv(4, (3, 3), pads=(1, 1, 1, 1), use_bias=False, name="conv")' in text
    assert 'BatchNorm(momentum=0.75, name="bn")' in text
    assert 'Dense(5, transB=1, use_bias=False, name="fc")' in text
    assert variables["params"]["fc"]["kernel"].shape == (5, 64)
    assert set(variables["batch_stats"]["bn"]) == {"mean", "var"}


def test_the_batch_stays_free_under_jit(small, same):
    network, module, variables, _ = small
    for batch in (1, 3):
        same(network, module, variables, image(batch, 3, 8, 8))


def test_it_trains_as_the_model_does(small):
    network, module, variables, _ = small
    x, reference = image(4, 3, 8, 8), load(network)
    expected, state = jax.jit(partial(reference.apply, training=True))(reference.variables, x)
    trained = jax.jit(partial(module.apply, train=True, mutable=["batch_stats"]))
    outputs, changed = trained(variables, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    statistics = changed["batch_stats"]["bn"]
    np.testing.assert_allclose(statistics["mean"], state["batch_stats"]["bn.mean"], rtol=1e-6)
    np.testing.assert_allclose(statistics["var"], state["batch_stats"]["bn.var"], rtol=1e-6)


def test_its_gradient_is_the_model_s(small):
    network, module, variables, _ = small
    x, reference = image(2, 3, 8, 8), load(network)

    def loss(params):
        return jnp.sum(jnp.square(module.apply({**variables, "params": params}, x)))

    def reference_loss(params):
        return jnp.sum(jnp.square(reference.apply({"params": params}, x)))

    found = jax.jit(jax.grad(loss))(variables["params"])
    wanted = jax.jit(jax.grad(reference_loss))(reference.variables["params"])
    np.testing.assert_allclose(found["conv"]["kernel"], wanted["conv.weight"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["fc"]["kernel"], wanted["fc.weight"], rtol=1e-4, atol=1e-4)


def test_dropout_needs_training_and_a_key(small):
    _, module, variables, _ = small
    x = image(4, 3, 8, 8)

    @jax.jit
    def trained(**more):
        return module.apply(variables, x, train=True, mutable=["batch_stats"], **more)[0]

    one = trained(rngs={"dropout": jax.random.key(0)})
    assert np.array_equal(one, trained(rngs={"dropout": jax.random.key(0)}))
    assert not np.array_equal(one, trained(rngs={"dropout": jax.random.key(1)}))
    assert not np.array_equal(one, trained())


def test_it_starts_without_weights(small):
    _, module, variables, _ = small
    made = jax.jit(module.init)(jax.random.key(0), image(1, 3, 8, 8))
    wanted = {k: v for k, v in variables.items() if v}
    assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, wanted)
    assert jax.tree.map(lambda v: v.dtype, made) == jax.tree.map(lambda v: v.dtype, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name, size", [("resnet50", 32), ("densenet121", 64)])
def test_a_long_network_is_short(built, tmp_path, name, size, check, networks):
    model = getattr(networks, name)(built)
    path = generate(model, tmp_path)
    text = path.read_text()
    check(path)
    assert len(text.splitlines()) < 100
    assert "for i in range(" in text
    assert f"(n, 3, {size}, {size})".replace("n", '"n"') in text
    assert text.count("class ") <= 4
    if name != "resnet50":
        return
    # The names are the graph's.
    variables = load_weights(tmp_path / "weights.safetensors")
    block = variables["params"]["layer3_4"]
    assert set(block) == {f"{kind}{i}" for kind in ("conv", "bn") for i in (1, 2, 3)}
    assert set(variables["params"]["layer2_0"]) > {"downsample_0", "downsample_1"}
    assert 'name=f"layer3_{i}"' in text


@pytest.mark.slow
@pytest.mark.parametrize("name, size", [("resnet50", 32), ("densenet121", 64)])
def test_a_long_network_is_the_same(built, written, name, size, same, networks):
    model = getattr(networks, name)(built)
    module, variables, _ = written(model)
    same(model, module, variables, image(2, 3, size, size))


@pytest.mark.slow
def test_a_transformer_s_layers_are_a_loop(built, written, same, networks):
    model = networks.transformer(built, depth=3)
    module, variables, text = written(model)
    assert 'AttentionBlock(name=f"layers_{i}")' in text
    assert "for i in range(3):" in text
    assert 'Linear(8, name="attention_q")(x)' in text
    same(model, module, variables, np.random.default_rng(0).integers(0, 50, (2, 5)))


@pytest.mark.slow
@pytest.mark.parametrize("name, most", [("resnet50", 200), ("shufflenet", 200)])
def test_the_suite_s_light_models_are_short(tmp_path, name, most, check, imported):
    from pathlib import Path

    light = (
        Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    )
    path = generate(light, tmp_path)
    check(path)
    assert len(path.read_text().splitlines()) < most
    reference = load(light)
    x = image(*reference.inputs[0].shape)
    outputs = imported(path).Model().apply(load_weights(tmp_path / "weights.safetensors"), x)
    expected = reference.apply(reference.variables, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operator, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer(built, written, operator, gates, same):
    rng = np.random.default_rng(0)
    shapes = {"w": (2, 5 * gates, 3), "r": (2, 5 * gates, 5), "b": (2, 10 * gates)}
    weights = {f"rnn.{k}": rng.normal(size=v).astype(np.float32) for k, v in shapes.items()}
    one = node(operator, ["x", *weights], ["y", "h"], hidden_size=5, direction="bidirectional")
    model = built([one], {"x": ["t", "n", 3]}, ["y", "h"], weights)
    module, variables, text = written(model)
    assert f'{operator}(5, direction="bidirectional", outputs=2, name="rnn")' in text
    same(model, module, variables, image(4, 2, 3))


def test_a_branch_is_a_local_function(built, written, same):
    w = np.arange(4, dtype=np.float32)

    def branch(name, operator):
        results = [onnx.helper.make_tensor_value_info("r", 1, None)]
        nodes = [node(operator, ["x", "w"], ["s"]), node(operator, ["s", "w"], ["r"])]
        return onnx.helper.make_graph(nodes, name, [], results)

    then_branch, else_branch = branch("yes", "Add"), branch("no", "Mul")
    one = node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)
    model = built([one], {"x": [4], "c": ("bool", [])}, ["y"], {"w": w})
    module, variables, text = written(model)
    assert "def then_branch():" in text and "def else_branch():" in text
    for condition in (True, False):
        same(model, module, variables, image(4), np.array(condition))
        jitted = jax.jit(module.apply)(variables, image(4), np.array(condition))
        np.testing.assert_allclose(jitted, module.apply(variables, image(4), np.array(condition)))


def test_a_loop_s_body_is_a_local_function(built, written, same):
    make = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [
            node("Identity", ["going"], ["still"]),
            node("Add", ["total", "x"], ["more"]),
            node("Mul", ["more", "more"], ["square"]),
        ],
        "body",
        [make("i", 7, []), make("going", 9, []), make("total", 1, [3])],
        [make("still", 9, []), make("more", 1, [3]), make("square", 1, [3])],
    )
    weights = {"rounds": np.array(4), "start": np.zeros(3, np.float32)}
    one = node("Loop", ["rounds", "", "start"], ["sum", "squares"], body=body)
    model = built([one], {"x": [3]}, ["sum", "squares"], weights)
    module, variables, text = written(model)
    assert "def body(i_2, going, total):" in text  # i is a loop's own
    same(model, module, variables, image(3))


NAMES = ['"); import os #', "'''", '"""\nimport os', "\\", "class", "__init__", "ops", "nn", "self"]
NAMES += ["é", "变量", "x y", "1", "a.b/c:d", "train", "Conv", "name", "\u202e", "{i}", "%s", "np"]


def test_names_never_are_code(built, written, same):
    nodes, weights, last = [], {}, "ops.x"
    for index, name in enumerate(NAMES):
        weights[f"{name}.weight"] = np.full((2, 2, 1), index + 1, np.float32)
        nodes.append(node("Conv", [last, f"{name}.weight"], [name], f"n{name}"))
        last = name
    nodes.append(node("Relu", [last], ["import"]))
    model = built(nodes, {"ops.x": ['n"); import os #', 2, 5]}, ["import"], weights)
    model.graph.name = NAMES[0]
    model.graph.node[-1].doc_string = NAMES[0]
    module, variables, text = written(model)
    same(model, module, variables, image(1, 2, 5))
    called = {ast.unparse(n.func) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)}
    assert "os" not in {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    assert all(c.startswith(("ops.", "Conv", "self.", "entry", "range")) for c in called), called


def test_attributes_never_are_code(built, written, same):
    def probe(x, *, text="", texts=()):
        assert text == NAMES[0] and list(texts) == NAMES
        return x + len(text)

    with restored():
        register("Probe", domain="my.domain")(probe)
        one = node("Probe", ["x"], ["y"], domain="my.domain", text=NAMES[0], texts=NAMES)
        model = built([one], {"x": [2]}, ["y"], domains=["my.domain"])
        module, variables, text = written(model)
        assert 'probe = operator("Probe", "my.domain", 1)' in text
        same(model, module, variables, image(2))


def test_a_hook_that_is_gone_is_named(built, tmp_path, imported):
    with restored():
        register("Gone", domain="my.domain")(lambda x: x)
        model = built(
            [node("Gone", ["x"], ["y"], domain="my.domain")],
            {"x": [2]},
            ["y"],
            domains=["my.domain"],
        )
        path = generate(model, tmp_path)
    with pytest.raises(ValueError, match="nothing is registered for 'Gone' of 'my.domain'"):
        imported(path)


def test_large_constants_are_in_the_file_of_weights(built, written, same):
    table = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    large = onnx.numpy_helper.from_array(table)
    small = onnx.numpy_helper.from_array(np.array([0.1, np.inf, -3e-8], np.float32))
    nodes = [
        node("Constant", [], ["large"], value=large),
        node("Constant", [], ["small"], value=small),
        node("Add", ["x", "large"], ["a"]),
        node("Slice", ["a", "zero", "three", "axes"], ["b"]),
        node("Mul", ["b", "small"], ["y"]),
    ]
    ints = {"zero": [0], "three": [3], "axes": [1]}
    weights = {name: np.array(value, np.int64) for name, value in ints.items()}
    model = built(nodes, {"x": [40, 40]}, ["y"], weights)
    module, variables, text = written(model)
    assert 'held(self, "constants", "large", (40, 40), "float32")' in text
    assert 'array([0.1, float("inf"), -3e-08], "float32")' in text
    assert "ops.slice_(y, (0,), (3,), (1,))" in text
    assert np.array_equal(variables["constants"]["large"], table)
    same(model, module, variables, image(40, 40))


def test_a_weight_of_two_layers_is_fetched_once(built, written, same):
    weights = {"w": image(3, 3)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    model = built(nodes, {"x": [2, 3]}, ["y"], weights)
    module, variables, text = written(model)
    assert text.count("self.param(") == 1
    same(model, module, variables, image(2, 3))


def test_a_bias_that_is_broadcast_to_its_scale(built, written, same):
    weights = {"scale": image(4), "bias": image(1)}
    nodes = [node("LayerNormalization", ["x", "scale", "bias"], ["y"])]
    model = built(nodes, {"x": [2, 4]}, ["y"], weights)
    module, variables, _ = written(model)
    same(model, module, variables, image(2, 4))


def test_64_bits_stay(built, written):
    weights = {"w": np.array([2**40, 1], np.int64)}
    model = built([node("Add", ["x", "w"], ["y"])], {"x": ("int64", [2])}, ["y"], weights)
    module, variables, _ = written(model)
    result = module.apply(variables, np.array([1, 2**41]))
    assert result.dtype == jnp.int64 and result.tolist() == [2**40 + 1, 2**41 + 1]


def test_an_input_that_does_not_fit_is_named(small):
    _, module, variables, _ = small
    with pytest.raises(ValueError, match="input 'x': got shape"):
        module.apply(variables, image(2, 3, 9, 9))


def test_the_files_that_explain_themselves(network, tmp_path):
    generate(network, tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "from jaxatr.onnx import load_weights" in text
    assert "Model().apply(load_weights(" in text
    assert "| input | `x` | float32 | [n, 3, 8, 8] |" in text
    code = text.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line]) == 3


@pytest.mark.slow
def test_the_module_does_not_need_onnx(network, tmp_path):
    generate(network, tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np\n"
        "from jaxatr.onnx import load_weights\n"
        "from model import Model\n"
        "weights = load_weights(sys.argv[1] + '/weights.safetensors')\n"
        "Model().apply(weights, np.zeros((1, 3, 8, 8), 'float32'))\n"
        "assert 'onnx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_an_unknown_style_is_refused(network, tmp_path):
    with pytest.raises(ValueError, match="style: got 'nnx', wanted one of"):
        generate(network, tmp_path, style="nnx")


def test_files_without_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        load_weights(tmp_path / "missing")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        load_weights(tmp_path / "text")


@pytest.mark.parametrize(
    ("made", "x", "expected"),
    [
        # Only the first piece is read; a Split into fewer would have longer ones.
        (node("Split", ["x"], ["y0", "a", "b"]), [1, 2, 3, 4, 5, 6], [[1, 2]]),
        (node("Split", ["x"], ["y0", "a", ""]), [1, 2, 3, 4, 5, 6], [[1, 2]]),
        (node("LayerNormalization", ["x", "s"], ["y0", "y1"]), [1, 3], [[-1, 1], [2]]),
        (node("Unique", ["x"], ["y0", "y1"]), [3, 1, 3, 2], [[1, 2, 3], [1, 3, 0]]),
        (node("Unique", ["x"], ["y0", "", "y1"]), [3, 1, 3, 2], [[1, 2, 3], [2, 0, 2, 1]]),
    ],
)
def test_results_that_depend_on_the_number_of_outputs(built, written, made, x, expected):
    weights = {"s": np.ones(2, np.float32)} if "s" in made.input else {}
    outputs = [f"y{i}" for i in range(len(expected))]
    module, variables, _ = written(built([made], {"x": [len(x)]}, outputs, weights, opset=17))
    found = module.apply(variables, np.float32(x))
    for one, other in zip(found if len(expected) > 1 else (found,), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_loop_of_which_one_result_is_read(built, written, same):
    make = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [
            # The body declares its iteration number as [1], as old converters do.
            node("Squeeze", ["i", "axis"], ["row"]),
            node("Gather", ["x", "row"], ["slice"]),
            node("Add", ["total", "slice"], ["more"]),
            node("Identity", ["going"], ["still"]),
        ],
        "body",
        [make("i", 7, [1]), make("going", 9, []), make("total", 1, [2])],
        [make("still", 9, []), make("more", 1, [2]), make("slice", 1, [2])],
    )
    weights = {"n": np.array(3), "start": np.zeros(2, np.float32), "axis": np.array([0])}
    one = node("Loop", ["n", "", "start"], ["sum"], body=body)
    model = built([one], {"x": [3, 2]}, ["sum"], weights)
    module, variables, _ = written(model)
    x = image(3, 2)
    np.testing.assert_allclose(module.apply(variables, x), x.sum(0), rtol=1e-5)
    same(model, module, variables, x)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_an_initial_state_beside_the_weights_of_a_layer(built, written, operator, gates, same):
    rng = np.random.default_rng(0)
    shapes = {"W": (1, 5 * gates, 3), "R": (1, 5 * gates, 5), "B": (1, 10 * gates), "h": (1, 2, 5)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    one = node(operator, ["x", "W", "R", "B", "", "h"], ["y"], hidden_size=5)
    model = built([one], {"x": [4, 2, 3]}, ["y"], weights)
    module, variables, _ = written(model)
    assert set(variables["params"]) == {"W", "h"}
    same(model, module, variables, image(4, 2, 3))


def test_an_export_keeps_the_64_bits_of_the_source(written, built, tmp_path):
    onnxruntime, path = pytest.importorskip("onnxruntime"), tmp_path / "again.onnx"
    nodes = [
        node("ArgMax", ["x"], ["a"], axis=1, keepdims=0),
        node("OneHot", ["a", "depth", "values"], ["h"]),
        node("Gather", ["h", "places"], ["y"], axis=1),
    ]
    weights = {"depth": np.array(3), "values": np.float32([0, 2]), "places": np.array([-1, 0])}
    module, variables, _ = written(built(nodes, {"x": ["n", 2]}, ["y"], weights))
    x = np.float32([[1, 2], [2, 1]])
    for _ in "before its first call", "after it":
        export(module, variables, x, path, dynamic_batch=False)
        (found,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
        assert found.tolist() == [[0, 0], [0, 2]]
        assert np.array_equal(module.apply(variables, x), found)
