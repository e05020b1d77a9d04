"""A network from an ONNX file as a backbone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr import bundled, models, parallel, runs, training  # noqa: E402
from jaxatr import config as configuration  # noqa: E402 (what needs the package comes after it)
from jaxatr.cli import configuration as flags_of_configurations  # noqa: E402
from jaxatr.cli import convert  # noqa: E402
from jaxatr.explain import load_target  # noqa: E402
from jaxatr.onnx.backbone import OnnxBackbone, until  # noqa: E402
from jaxatr.onnx.reader.model import load  # noqa: E402
from jaxatr.onnx.writer.exporter import export  # noqa: E402
from jaxatr.recognition.recogniser import Recogniser  # noqa: E402
from jaxatr.runs.export import export_run  # noqa: E402

SLOW = pytest.mark.slow

CONFIGS = bundled.folder()


def a_model(channels=1, output="map"):
    """Returns a model of gray images: convolution, batch norm, ReLU, global average pooling."""
    rng, node = np.random.default_rng(0), onnx.helper.make_node
    weights = {
        "stem/conv.weight": rng.normal(size=(6, channels, 3, 3)),
        "scale": rng.uniform(0.5, 1.5, 6),
        "bias": rng.normal(size=6),
        "mean": 0.1 * rng.normal(size=6),
        "var": rng.uniform(0.5, 1.5, 6),
        "dense": rng.normal(size=(6, 4)),
    }
    nodes = [
        node("Conv", ["x", "stem/conv.weight"], ["a"], "stem/conv", strides=[2, 2]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"], "norm"),
        node("Relu", ["b"], ["map"], "relu"),
        node("GlobalAveragePool", ["map"], ["pooled"], "pool"),
        node("Flatten", ["pooled"], ["flat"], "flatten"),
        node("MatMul", ["flat", "dense"], ["y"], "dense"),
    ]
    tensors = [
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in weights.items()
    ]
    info = onnx.helper.make_tensor_value_info
    inputs = [info("x", onnx.TensorProto.FLOAT, ["n", channels, "h", "w"])]
    outputs = [info("y", onnx.TensorProto.FLOAT, ["n", 4])]
    graph = onnx.helper.make_graph(nodes, "small", inputs, outputs, tensors)
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    onnx.save(a_model(), path)
    return str(path)


@pytest.fixture
def images():
    return np.random.default_rng(1).normal(size=(3, 24, 24, 1)).astype(np.float32)


def test_a_checkpoint_that_trained_a_constant_of_a_formula_keeps_its_value(tmp_path, images):
    model = a_model()
    graph = model.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.5), "half"))
    graph.node.append(onnx.helper.make_node("Mul", ["y", "half"], ["z"]))
    graph.output[0].name = "z"
    onnx.save(model, tmp_path / "halved.onnx")
    module = OnnxBackbone(str(tmp_path / "halved.onnx"))
    variables = module.init(jax.random.key(0), images)
    assert "weight:half" not in variables["params"]  # version 0.2 trained it
    earlier = {**variables, "params": {**variables["params"], "weight:half": np.float32(0.75)}}
    once, before = (module.apply(given, images) for given in (variables, earlier))
    np.testing.assert_allclose(before, once * 1.5, rtol=1e-6)


def test_a_part_of_a_model(path, images):
    whole = load(path)
    nchw = images.transpose(0, 3, 1, 2)
    by_value, by_node = until(whole, "map"), until(whole, "relu")
    assert set(by_value.variables["params"]) == {"stem/conv.weight", "scale", "bias"}
    maps = jax.jit(by_value.apply)(by_value.variables, nchw)
    np.testing.assert_array_equal(jax.jit(by_node.apply)(by_node.variables, nchw), maps)
    dense = np.asarray(maps).mean((2, 3)) @ np.asarray(whole.variables["params"]["dense"])
    np.testing.assert_allclose(jax.jit(whole.apply)(whole.variables, nchw), dense, atol=1e-5)
    with pytest.raises(ValueError, match="the model has no 'mop'.*'map'"):
        until(whole, "mop")


@pytest.mark.parametrize("output", ["", "relu"])
def test_features_are_the_models_values(path, images, output):
    backbone = OnnxBackbone(path, output)
    variables = jax.jit(backbone.init)(jax.random.key(0), images)
    features = jax.jit(backbone.apply)(variables, images)
    model = until(load(path), output) if output else load(path)
    wanted = np.asarray(jax.jit(model.apply)(model.variables, images.transpose(0, 3, 1, 2)))
    wanted = wanted.mean((2, 3)) if output else wanted
    np.testing.assert_allclose(features, wanted, atol=1e-5)
    assert features.dtype == jnp.float32


def test_devices_share_their_running_statistics(path):
    images = np.random.default_rng(2).normal(size=(2, 4, 24, 24, 1)).astype(np.float32)
    backbone = OnnxBackbone(path, "relu")
    variables = jax.jit(backbone.init)(jax.random.key(0), images[0])

    @jax.jit
    def step(images):
        _, new = backbone.apply(variables, images, train=True, mutable=["batch_stats"])
        return new["batch_stats"]

    found = jax.vmap(step, axis_name=parallel.AXIS)(images)
    alone = [jax.vmap(step, axis_name=parallel.AXIS)(part[None]) for part in images]
    for name, value in found.items():
        mean = (alone[0][name][0] + alone[1][name][0]) / 2
        np.testing.assert_allclose(value, np.stack([mean, mean]), rtol=1e-5)
        assert np.abs(value[0] - variables["batch_stats"][name]).max() > 1e-3


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    """The folder of a run whose backbone is the network, stored in another folder."""
    config, workdir = small_config.copy_and_resolve_references(), tmp_path_factory.mktemp("run")
    config.model.onnx, config.model.output = str(workdir / "small.onnx"), "flatten"
    config.train.steps, config.train.evaluate_every = 12, 100.0
    config.open_set.score = "cbc"
    onnx.save(a_model(), config.model.onnx)
    runs.train_run(config, workdir, progress=False)
    return workdir


@pytest.mark.slow
def test_it_trains_by_the_one_loop_and_is_used(run):
    state = training.load_snapshot(run, "latest").state
    trained = state["params"]["backbone"]["weight:stem|conv.weight"]
    begun = load(run / "small.onnx").variables["params"]["stem/conv.weight"]
    assert trained.shape == begun.shape and np.abs(trained - begun).max() > 1e-3
    losses = [record["loss"] for record in training.read_metrics(run) if "loss" in record]
    assert losses[-1] < losses[0]
    recogniser = Recogniser.load(run)
    (prediction,) = recogniser([np.zeros((24, 24, 1), np.uint8)])
    assert set(prediction.probabilities) == set(recogniser.classes)


def with_sizes():
    """Returns the model with a Reshape, to a size from a Shape, in place of its Flatten."""
    model, node = a_model(), onnx.helper.make_node
    place = [n.op_type for n in model.graph.node].index("Flatten")
    nodes = [
        node("Shape", ["pooled"], ["shape"], "shape"),
        node("Gather", ["shape", "first"], ["batch"]),
        node("Concat", ["batch", "rest"], ["sizes"], axis=0),
        node("Reshape", ["pooled", "sizes"], ["flat"], "flatten"),
    ]
    del model.graph.node[place]
    for count, made in enumerate(nodes):
        model.graph.node.insert(place + count, made)
    for name, value in (("first", 0), ("rest", 6)):
        array = np.array([value], np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def test_a_run_goes_out_again(run, flags_of, tmp_path):
    """A Flatten allows any batch size, a Shape in the file only one."""
    runtime = pytest.importorskip("onnxruntime")
    target, out = load_target(run), tmp_path / "out.onnx"
    images = np.random.default_rng(0).integers(0, 255, (5, 24, 24, 1), np.uint8)
    wanted = target.logits(target.variables, images)

    def same():
        (found,) = runtime.InferenceSession(out).run(["logits"], {"images": images})
        np.testing.assert_allclose(found, wanted, atol=1e-4)

    export_run(run, out)
    same()
    onnx.save(with_sizes(), run / "small.onnx")
    with pytest.raises(ValueError, match=r"node 'shape' \(Shape\): .* --batch=N"):
        export_run(run, out)
    convert.main(flags_of(convert, "export", f"--workdir={run}", f"--out={out}", "--batch=5"))
    same()
    with pytest.raises(ValueError, match="batch: got 0, wanted 1 or more"):
        export_run(run, out, batch=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        pytest.param("", set(), marks=SLOW),
        pytest.param("statistics", {"mean", "var"}, marks=SLOW),
        pytest.param("backbone", {"stem|conv.weight", "scale", "bias", "mean", "var"}, marks=SLOW),
        ("stem/conv", {"stem|conv.weight", "mean", "var"}),
        pytest.param("scale,bias", {"scale", "bias", "mean", "var"}, marks=SLOW),
    ],
)
def test_the_frozen_layers_of_a_file(small_config, path, tmp_path, freeze, frozen):
    """The running statistics are frozen as soon as any part is."""
    config = small_config.copy_and_resolve_references()
    config.model.onnx, config.model.output, config.model.freeze = path, "flatten", freeze
    config.train.steps, config.train.evaluate_every = 2, 100.0
    config.optimizer.backbone_factor = 1.0 if freeze == "backbone" else 0.5
    config.open_set.score = "cbc"
    runs.train_run(config, tmp_path, progress=False)
    state = training.variables_of(training.load_snapshot(tmp_path, "latest"))
    begun = until(load(path), "flatten").variables
    for group in ("params", "batch_stats"):
        for name, value in begun[group].items():
            own = name.replace("/", "|")
            ended = state[group]["backbone"]["weight:" + own]
            assert (np.asarray(ended) == value).all() == (own in frozen), name


def test_a_part_that_a_file_has_not_is_named(small_config, path, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.model.onnx, config.model.output, config.model.freeze = path, "flatten", "stem/cow"
    with pytest.raises(ValueError, match="model.freeze: got 'stem/cow', .* such as .*stem|conv"):
        runs.train_run(config, tmp_path, progress=False)


@pytest.mark.parametrize("name", ["cbc", "quadruplet"])
def test_the_flags_of_both_configurations(name, path):
    given = (f"--config.model.onnx={path}", "--config.model.output=relu")
    config, _ = flags_of_configurations.read(f"{CONFIGS / name}.py:folder", given)
    model = config.model
    if name == "cbc":
        network = models.build_open_set(model, 3)
    else:
        network = models.build_embedding(model, 2, 3, dimension=4, unit_length=True)
    assert network.backbone == OnnxBackbone(path, "relu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cbc", "quadruplet"])
def test_both_configurations_train(name, path, levels, tmp_path):
    fields = {
        "model.onnx": path,
        "model.output": "relu",
        "data.source": levels,
        "data.data_dir": tmp_path / "prepared",
        "open_set.split": "random-3/1",
        "train.batch_size": 8,
        "train.steps": 2,
        "train.evaluate_every": 100.0,
    }
    given = [f"--config.{field}={value}" for field, value in fields.items()]
    config, _ = flags_of_configurations.read(f"{CONFIGS / name}.py:folder", given)
    runs.train_run(config, tmp_path / "run", progress=False)
    state = training.load_snapshot(tmp_path / "run", "latest").state
    trained = state["params"]["backbone"]
    begun = load(path).variables["params"]
    assert set(trained) == {"weight:stem|conv.weight", "weight:scale", "weight:bias"}
    assert np.abs(trained["weight:scale"] - begun["scale"]).max() > 0


def test_a_part_of_a_model_goes_out_as_a_function_alone(path, tmp_path):
    part = until(load(path), "relu")
    with pytest.raises(ValueError, match="got part of a loaded model"):
        export(part, part.variables, (), tmp_path / "part.onnx")
    assert not list(tmp_path.iterdir())
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    made = export(
        lambda v, x: part.apply(v, x, keep_64_bit=False), part.variables, x, tmp_path / "part.onnx"
    )
    assert [node.op_type for node in made.graph.node] == ["Conv", "BatchNormalization", "Relu"]


def test_unsuitable_backbones_are_refused(path, images, tmp_path):
    with pytest.raises(ValueError, match="model.onnx: there is no file '.*none.onnx'"):
        OnnxBackbone(str(tmp_path / "none.onnx")).init(jax.random.key(0), images)
    model = configuration.common().model
    model.output = "relu"
    with pytest.raises(ValueError, match="model.output: got 'relu' without a model.onnx"):
        models.build_open_set(model, 3)
    whole = configuration.of_task("jaxatr.tasks.distillation:Distillation")
    whole.model.onnx = path
    with pytest.raises(ValueError, match="model.onnx: a student needs attention"):
        models.build_surrogate(whole, 3)
    two = a_model()
    two.graph.output.append(onnx.helper.make_value_info("flat", onnx.TypeProto()))
    onnx.save(two, tmp_path / "two.onnx")
    with pytest.raises(
        ValueError, match="model.output: .* has several outputs, choose one: y, flat"
    ):
        OnnxBackbone(str(tmp_path / "two.onnx")).init(jax.random.key(0), images)
    onnx.save(a_model(channels=3), tmp_path / "colour.onnx")
    with pytest.raises(ValueError, match="input 'x': got shape"):
        OnnxBackbone(str(tmp_path / "colour.onnx")).init(jax.random.key(0), images)
