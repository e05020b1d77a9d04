"""Times inference of ONNX's light models against onnxruntime, alternately in one process.

ResNet-50, DenseNet-121 and SqueezeNet from :mod:`onnx` are jitted and run at batch sizes 1 and 8,
both contenders on all cores. The record has medians and their ratio. onnxruntime has its default
settings, which its documentation calls the fastest (all graph optimisations). The glibc settings
for memory (docs/training.md) apply to both and are in the record.

Run: python experiments/benchmarks/onnx_inference.py [--repeats=20]
It needs ``pip install 'jaxatr[onnx]' onnxruntime``.
"""

import argparse
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
from alternating import alternately

import jaxatr.onnx

OUTPUT = Path(__file__).parent / "results" / "onnx_inference_cpu.json"
MODELS = ("light_resnet50", "light_densenet121", "light_squeezenet")
BATCHES = (1, 8)


def of_batch(name: str, batch: int) -> tuple[onnx.ModelProto, onnx.ValueInfoProto]:
    """Returns a light model for a batch size, and its input.

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
    return proto, value


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


def measured(name: str, batch: int, repeats: int) -> dict[str, Any]:
    """Returns both medians in milliseconds, their ratio and the time of loading."""
    proto, value = of_batch(name, batch)
    data = proto.SerializeToString()
    sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
    images = np.random.default_rng(0).random(sizes, np.float32)
    started = time.perf_counter()
    model = jaxatr.onnx.load(data)
    loading = time.perf_counter() - started
    run = jax.jit(partial(model.apply, model.variables))  # constant weights, as in onnxruntime
    session = onnxruntime.InferenceSession(data)
    outputs = [np.asarray(run(images)), session.run(None, {value.name: images})[0]]
    seconds = alternately(
        {
            "jaxatr": lambda: run(images),
            "onnxruntime": lambda: session.run(None, {value.name: images}),
        },
        repeats,
        warm=True,
    )
    return {
        **{name: 1e3 * one for name, one in seconds.items()},
        "times onnxruntime": seconds["onnxruntime"] / seconds["jaxatr"],
        "loading": loading,
        "largest difference": float(
            np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[1]).max()
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    record: dict[str, Any] = {
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores",
        "versions": {"jax": jax.__version__, "onnxruntime": onnxruntime.__version__},
        "repeats": flags.repeats,
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", ""),  # applies to both
        "models": {},
    }
    for name in MODELS:
        for batch in BATCHES:
            result = record["models"][f"{name}, batch {batch}"] = measured(
                name, batch, flags.repeats
            )
            print(name, batch, json.dumps(result), flush=True)
            flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
