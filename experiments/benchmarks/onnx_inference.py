"""Times inference of ONNX models against onnxruntime, alternately in one process.

The models are ResNet-50, DenseNet-121 and SqueezeNet from :mod:`onnx`, three small networks written
by :func:`jaxatr.onnx.export`, and the files given on the command line, at batch sizes 1 and 8. The
contenders, all on all cores with their default settings:

- ``jaxatr``: the loaded model as it is called, ``model(images)``;
- ``engine``: the loaded model, traced and written by :func:`jaxatr.onnx.export` again, in
  onnxruntime: the path of ``runtime=onnxruntime``;
- ``onnxruntime``: the file in a plain session.

The record has medians, their ratios and the time of loading. As in the commands, freed memory is
kept (:mod:`jaxatr.memory`), for all contenders. Run again, an interrupted run continues.

Run: python experiments/benchmarks/onnx_inference.py [FILE ...] [--repeats=20]
It needs ``pip install 'jaxatr[onnx]' onnxruntime``.
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before the import

import flax.linen as nn
import jax
import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
from alternating import alternately
from clock import cores
from recording import Recording, geometric_mean, table

import jaxatr.onnx
from jaxatr.models.resnet import BasicBlock, ResNet
from jaxatr.onnx.sessions import open_session

OUTPUT = Path(__file__).parent / "results" / "onnx_inference_cpu"
LIGHT = ("light_resnet50", "light_densenet121", "light_squeezenet")
BATCHES = (1, 8)
PIXELS = 224
"""Size of the images for files with a free image size."""


class Perceptron(nn.Module):
    """Two hidden layers."""

    @nn.compact
    def __call__(self, x):
        """Computes the logits of vectors."""
        for width in (128, 64):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


class Convolutional(nn.Module):
    """Three convolutions with stride 2, and a mean."""

    @nn.compact
    def __call__(self, x):
        """Computes the logits of images."""
        for width in (8, 16, 32):
            x = nn.relu(nn.Conv(width, (3, 3), strides=2)(x))
        return nn.Dense(10)(x.mean(axis=(1, 2)))


SMALL: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "perceptron": (Perceptron(), (64,)),
    "convolutional": (Convolutional(), (32, 32, 1)),
    "residual": (ResNet((1, 1), BasicBlock, width=8, stem="3x3"), (32, 32, 1)),
}
"""Networks, and shapes of their images, that take onnxruntime less than a millisecond."""


class Case(NamedTuple):
    """A model at a batch size.

    Attributes:
      data: content of the ONNX file.
      shape: shape of the images.
    """

    data: bytes
    shape: tuple[int, ...]


def light(name: str, batch: int) -> Case:
    """Reads one of :mod:`onnx`'s light models and sets its batch size.

    The files are for a single image, and their weights are constants made by ``ConstantOfShape``;
    random weights replace them.
    """
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    proto = onnx.load(folder / f"{name}.onnx")
    graph, constants = proto.graph, {tensor.name: tensor for tensor in proto.graph.initializer}
    (value,) = [value for value in graph.input if value.name not in constants]
    for end in (value, *graph.output):
        end.type.tensor_type.shape.dim[0].dim_value = batch
    rng = np.random.default_rng(0)
    for node in list(graph.node):
        if node.op_type == "ConstantOfShape":
            shape = onnx.numpy_helper.to_array(constants[node.input[0]])
            array = drawn(
                rng, shape, [other for other in graph.node if node.output[0] in other.input]
            )
            graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
            graph.node.remove(node)
        elif node.op_type == "Reshape":
            shape = onnx.numpy_helper.to_array(constants[node.input[1]]).copy()
            shape[0] = 0  # 0 copies the input's size
            new = onnx.numpy_helper.from_array(shape, node.input[1])
            constants[node.input[1]].CopyFrom(new)
    used = {name for node in graph.node for name in node.input}
    values: Any
    for values in (graph.initializer, graph.input):
        for unused in [one for one in values if one.name not in used]:
            values.remove(unused)
    shape = tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
    return Case(proto.SerializeToString(), shape)


def drawn(rng: np.random.Generator, shape: np.ndarray, readers: list[Any]) -> np.ndarray:
    """Returns random weights that preserve the scale of activations; a norm's are near one."""
    if len(shape) > 1:
        fan = np.prod(shape[1:])
        return rng.normal(0, np.sqrt(2 / fan), shape).astype(np.float32)
    near = (
        1.0
        if any(n.op_type in ("BatchNormalization", "Mul", "Unsqueeze") for n in readers)
        else 0.0
    )
    return (near + rng.uniform(-0.1, 0.1, shape)).astype(np.float32)


def small(name: str, batch: int) -> Case:
    """Writes one of the small networks, with random weights."""
    network, shape = SMALL[name]
    images = np.zeros((batch, *shape), np.float32)
    variables = jax.jit(network.init)(jax.random.key(0), images)
    with tempfile.TemporaryDirectory() as folder:
        proto = jaxatr.onnx.export(network, variables, images, Path(folder) / "small.onnx")
    return Case(proto.SerializeToString(), images.shape)


def given(file: Path, batch: int) -> Case:
    """Reads a file whose batch and image sizes are free."""
    return Case(file.read_bytes(), (batch, 3, PIXELS, PIXELS))


def cases(files: list[Path]) -> Iterator[tuple[dict[str, Any], Callable[[], Case]]]:
    """Yields the fields that identify each row, and a function that makes its case."""
    makers = {name.removeprefix("light_"): partial(light, name) for name in LIGHT}
    makers |= {name: partial(small, name) for name in SMALL}
    makers |= {file.stem: partial(given, file) for file in files}
    for name, make in makers.items():
        for batch in BATCHES:
            yield {"model": name, "batch": batch}, partial(make, batch)


def measured(case: Case, repeats: int) -> dict[str, Any]:
    """Measures a case; times are in milliseconds, that of loading in seconds."""
    images = np.random.default_rng(0).random(case.shape, np.float32)
    started = time.perf_counter()
    model = jaxatr.onnx.load(case.data)
    loading = time.perf_counter() - started
    session = onnxruntime.InferenceSession(case.data, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traced.onnx"
        jaxatr.onnx.export(
            lambda variables, x: model.apply(variables, x),
            model.variables,
            images,
            path,
            dynamic_batch=False,
        )
        engine = open_session("onnxruntime", path)
    (name,) = [value.name for value in session.get_inputs()]
    runs = {
        "jaxatr": lambda: model(images),
        "engine": lambda: next(iter(engine(images).values())),
        "onnxruntime": lambda: session.run(None, {name: images})[0],
    }
    outputs = {who: np.asarray(run()) for who, run in runs.items()}
    seconds = alternately(runs, repeats, warm=True)
    largest = np.abs(outputs["onnxruntime"]).max()
    return {
        "ms": {who: 1e3 * one for who, one in seconds.items()},
        "times onnxruntime": {
            who: seconds["onnxruntime"] / seconds[who] for who in ("jaxatr", "engine")
        },
        "largest difference": {
            who: float(np.abs(outputs[who] - outputs["onnxruntime"]).max() / largest)
            for who in ("jaxatr", "engine")
        },
        "loading": loading,
    }


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield f"Made by `onnx_inference.py`. {about['device']}, {about['cores']} cores; {versions}."
    yield ""
    header = ["model", "batch", "jaxatr, ms", "engine, ms", "onnxruntime, ms"]
    rows = [
        [
            row["model"],
            str(row["batch"]),
            *(f"{row['ms'][who]:.2f}" for who in ("jaxatr", "engine", "onnxruntime")),
            *(f"{row['times onnxruntime'][who]:.2f}" for who in ("jaxatr", "engine")),
        ]
        for row in recording.rows
    ]
    yield from table([*header, "jaxatr: ratio", "engine: ratio"], *rows)
    yield ""
    for who in ("jaxatr", "engine"):
        for label, of_small in (("small networks", True), ("the others", False)):
            ratios = [
                row["times onnxruntime"][who]
                for row in recording.rows
                if (row["model"] in SMALL) == of_small
            ]
            yield f"- {who}, {label}: geometric mean {geometric_mean(ratios)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="ONNX files with one input of images")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    flags = parser.parse_args()
    recording = Recording(
        flags.output,
        {
            "device": jax.devices()[0].device_kind,
            "cores": cores(),
            "versions": {"jax": jax.__version__, "onnxruntime": onnxruntime.__version__},
            "repeats": flags.repeats,
        },
    )
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAXATR_CACHE"] = cache  # nothing is remembered from earlier runs
        for key, make in cases(flags.files):
            if not recording.has(key):
                recording.add(key, measured(make(), flags.repeats))
                print(key, recording.row(key)["times onnxruntime"], flush=True)
                jax.clear_caches()
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
