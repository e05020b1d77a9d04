"""Fixtures that generate and import source, and networks in the form that exporters write."""

import ast
import importlib.util
import itertools
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr.onnx import generate, load, load_weights  # noqa: E402

node = onnx.helper.make_node
numbers = itertools.count()


def read(path):
    """Executes a file and returns its namespace."""
    spec = importlib.util.spec_from_file_location(f"generated_{next(numbers)}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def written(tmp_path):
    """Generates source for a model; returns the module, its variables and the source."""

    def write(model):
        path = generate(model, tmp_path / "out")
        looked_over(path)
        variables = load_weights(path.with_name("weights.safetensors"))
        return read(path).Model(), variables, path.read_text()

    return write


def looked_over(path):
    """Checks that a file is formatted, and has only the allowed imports."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Import):
            assert {a.name for a in statement.names} == {"jax.numpy"}
        if isinstance(statement, ast.ImportFrom):
            assert statement.module in ("flax", "jaxatr.onnx", "jaxatr.onnx.nn")
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(sys.prefix) + "/bin")
    if ruff is None:
        return
    options = ["--isolated", "--line-length=100", str(path)]
    done = subprocess.run([ruff, "format", "--diff", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    rules = "--select=E,F,UP,B"
    done = subprocess.run([ruff, "check", rules, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def compare(model, module, variables, *inputs):
    reference = load(model)
    expected = jax.jit(reference.apply)(reference.variables, *inputs)
    outputs = jax.jit(module.apply)(variables, *inputs)
    assert jax.tree.structure(outputs) == jax.tree.structure(expected)
    for got, wanted in zip(jax.tree.leaves(outputs), jax.tree.leaves(expected), strict=True):
        sizes = np.abs(np.asarray(wanted, np.float64))
        scale = max(1.0, float(sizes[np.isfinite(sizes)].max(initial=0)))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * scale)
        assert got.dtype == wanted.dtype


@pytest.fixture(scope="session")
def imported():
    """The function that executes a file and returns its namespace."""
    return read


@pytest.fixture(scope="session")
def check():
    """The function that checks the format and the imports of a file."""
    return looked_over


@pytest.fixture
def same():
    """The function that compares a generated module with the loaded model."""
    return compare


@pytest.fixture(scope="session")
def networks(small_network):
    return SimpleNamespace(
        small=small_network, resnet50=resnet50, densenet121=densenet121, transformer=transformer
    )


class Builder:
    """Collects nodes and random weights."""

    def __init__(self, build):
        self.build, self.nodes, self.weights = build, [], {}
        self.rng = np.random.default_rng(0)

    def weight(self, name, *shape, least=-0.5):
        self.weights[name] = self.rng.uniform(least, least + 1, shape).astype(np.float32)
        return name

    def add(self, operator, inputs, name, **attributes):
        output = f"/{name.replace('.', '/')}_output_0"
        self.nodes.append(node(operator, inputs, [output], f"/{name}", **attributes))
        return output

    def conv(self, x, name, channels, features, size=1, stride=1):
        w = self.weight(f"{name}.weight", features, channels, size, size)
        pads = [size // 2] * 4
        return self.add(
            "Conv", [x, w], name, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads
        )

    def norm(self, x, name, channels):
        kinds = {"weight": 0.5, "bias": -0.5, "running_mean": -0.5, "running_var": 0.5}
        held = [self.weight(f"{name}.{k}", channels, least=v) for k, v in kinds.items()]
        return self.add("BatchNormalization", [x, *held], name)

    def relu(self, x, name):
        return self.add("Relu", [x], name)

    def linear(self, x, name, channels, features):
        w = self.weight(f"{name}.weight", channels, features)
        b = self.weight(f"{name}.bias", features)
        product = self.add("MatMul", [x, w], f"{name}.MatMul")
        return self.add("Add", [b, product], f"{name}.Add")

    def layer_norm(self, x, name, channels):
        scale, bias = self.weight(f"{name}.weight", channels), self.weight(f"{name}.bias", channels)
        return self.add("LayerNormalization", [x, scale, bias], name, axis=-1)

    def model(self, inputs, output):
        self.nodes.append(node("Identity", [output], ["logits"], "out"))
        return self.build(self.nodes, inputs, ["logits"], self.weights)


def resnet50(build, width=4):
    """Returns the ResNet-50 of He et al. with ``width`` features in place of 64."""
    b = Builder(build)
    x = b.relu(b.norm(b.conv("image", "conv1", 3, width, 7, 2), "bn1", width), "relu")
    x = b.add("MaxPool", [x], "maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, depth in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for block in range(depth):
            scope, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = b.norm(b.conv(x, f"{scope}.conv1", channels, inner), f"{scope}.bn1", inner)
            y = b.conv(b.relu(y, f"{scope}.relu"), f"{scope}.conv2", inner, inner, 3, stride)
            y = b.relu(b.norm(y, f"{scope}.bn2", inner), f"{scope}.relu_1")
            y = b.norm(b.conv(y, f"{scope}.conv3", inner, 4 * inner), f"{scope}.bn3", 4 * inner)
            if not block:
                x = b.conv(x, f"{scope}.downsample.0", channels, 4 * inner, 1, stride)
                x = b.norm(x, f"{scope}.downsample.1", 4 * inner)
            x = b.relu(b.add("Add", [y, x], f"{scope}.Add"), f"{scope}.relu_2")
            channels = 4 * inner
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "avgpool")], "Flatten", axis=1)
    w, bias = b.weight("fc.weight", 10, channels), b.weight("fc.bias", 10)
    x = b.add("Gemm", [x, w, bias], "fc", transB=1)
    return b.model({"image": ["n", 3, 32, 32]}, x)


def densenet121(build, growth=4):
    """Returns the DenseNet-121 of Huang et al. with growth rate ``growth``."""
    b = Builder(build)
    channels = 2 * growth
    x = b.norm(b.conv("image", "features.conv0", 3, channels, 7, 2), "features.norm0", channels)
    x = b.relu(x, "features.relu0")
    x = b.add("MaxPool", [x], "features.pool0", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, depth in enumerate((6, 12, 24, 16), 1):
        parts = [x]
        for layer in range(1, depth + 1):
            scope = f"features.denseblock{number}.denselayer{layer}"
            y = b.add("Concat", parts, f"{scope}.Concat", axis=1)
            y = b.relu(b.norm(y, f"{scope}.norm1", channels), f"{scope}.relu1")
            y = b.conv(y, f"{scope}.conv1", channels, 4 * growth)
            y = b.relu(b.norm(y, f"{scope}.norm2", 4 * growth), f"{scope}.relu2")
            parts.append(b.conv(y, f"{scope}.conv2", 4 * growth, growth, 3))
            channels += growth
        x = b.add("Concat", parts, f"features.denseblock{number}.Concat", axis=1)
        if number < 4:
            scope = f"features.transition{number}"
            x = b.relu(b.norm(x, f"{scope}.norm", channels), f"{scope}.relu")
            x = b.conv(x, f"{scope}.conv", channels, channels // 2)
            channels //= 2
            x = b.add("AveragePool", [x], f"{scope}.pool", kernel_shape=[2, 2], strides=[2, 2])
    x = b.relu(b.norm(x, "features.norm5", channels), "relu")
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "avgpool")], "Flatten", axis=1)
    w, bias = b.weight("classifier.weight", 10, channels), b.weight("classifier.bias", 10)
    x = b.add("Gemm", [x, w, bias], "classifier", transB=1)
    return b.model({"image": ["n", 3, 64, 64]}, x)


def transformer(build, depth=4, width=8, heads=2):
    """Returns a transformer encoder (Vaswani et al.) with attention as elementary operators."""
    b = Builder(build)
    b.weights["split"] = np.array([0, 0, heads, width // heads], np.int64)
    b.weights["join"] = np.array([0, 0, width], np.int64)
    scale = onnx.numpy_helper.from_array(np.array((width // heads) ** -0.5, np.float32))
    b.nodes.append(node("Constant", [], ["scale"], "scale", value=scale))
    table = b.weight("embedding.weight", 50, width)
    x = b.add("Gather", [table, "tokens"], "embedding.Gather")
    for i in range(depth):
        scope = f"layers.{i}"
        parts = []
        for kind, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            part = b.linear(x, f"{scope}.attention.{kind}", width, width)
            part = b.add("Reshape", [part, "split"], f"{scope}.attention.{kind}.Reshape")
            parts.append(b.add("Transpose", [part], f"{scope}.attention.{kind}.T", perm=order))
        y = b.add("MatMul", parts[:2], f"{scope}.attention.MatMul")
        y = b.add("Mul", [y, "scale"], f"{scope}.attention.Mul")
        y = b.add("Softmax", [y], f"{scope}.attention.Softmax", axis=-1)
        y = b.add("MatMul", [y, parts[2]], f"{scope}.attention.MatMul_1")
        y = b.add("Transpose", [y], f"{scope}.attention.T", perm=[0, 2, 1, 3])
        y = b.add("Reshape", [y, "join"], f"{scope}.attention.Reshape")
        y = b.linear(y, f"{scope}.attention.out", width, width)
        x = b.layer_norm(b.add("Add", [x, y], f"{scope}.Add"), f"{scope}.norm1", width)
        y = b.linear(x, f"{scope}.linear1", width, 2 * width)
        y = b.linear(b.relu(y, f"{scope}.relu"), f"{scope}.linear2", 2 * width, width)
        x = b.layer_norm(b.add("Add", [x, y], f"{scope}.Add_1"), f"{scope}.norm2", width)
    return b.model({"tokens": ("int64", ["n", "t"])}, x)
