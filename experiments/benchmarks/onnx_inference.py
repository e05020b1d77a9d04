"""Times inference of the suite's light models beside onnxruntime, alternately in one run.

ResNet-50, DenseNet-121 and SqueezeNet as :mod:`onnx` has them, jitted, at batches of 1 and 8. One
process, both on all cores; medians and their ratio. onnxruntime is in its default setting, which
its documentation gives as the fastest (all graph optimisations).

Run: python experiments/benchmarks/onnx_inference.py [--repeats=20]
It needs ``pip install 'jaxatr[onnx]' onnxruntime``.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
from alternating import alternately

import jaxatr.onnx

OUTPUT = Path(__file__).parent / "results" / "onnx_inference_cpu.json"
MODELS = ("light_resnet50", "light_densenet121", "light_squeezenet")
BATCHES = (1, 8)


def measured(name: str, batch: int, repeats: int) -> dict[str, Any]:
    """Returns both medians in milliseconds, their ratio and how long loading took."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    proto = onnx.load(folder / f"{name}.onnx")
    given = {value.name for value in proto.graph.initializer}
    (value,) = [value for value in proto.graph.input if value.name not in given]
    value.type.tensor_type.shape.dim[0].dim_value = batch
    data = proto.SerializeToString()
    sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
    images = np.random.default_rng(0).random(sizes, np.float32)
    started = time.perf_counter()
    model = jaxatr.onnx.load(data)
    loading = time.perf_counter() - started
    run = jax.jit(model.apply)
    session = onnxruntime.InferenceSession(data)
    outputs = [np.asarray(run(model.variables, images)), session.run(None, {value.name: images})[0]]
    seconds = alternately(
        {
            "jaxatr": lambda: run(model.variables, images),
            "onnxruntime": lambda: session.run(None, {value.name: images}),
        },
        repeats,
    )
    return {
        **{name: 1e3 * one for name, one in seconds.items()},
        "times onnxruntime": seconds["onnxruntime"] / seconds["jaxatr"],
        "loading": loading,
        "largest difference": float(np.abs(outputs[0] - outputs[1]).max()),
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
        "models": {},
    }
    for name in MODELS:
        for batch in BATCHES:
            found = record["models"][f"{name}, batch {batch}"] = measured(
                name, batch, flags.repeats
            )
            print(name, batch, json.dumps(found), flush=True)
            flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
