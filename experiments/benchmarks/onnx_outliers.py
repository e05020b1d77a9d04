"""Times the kinds of ONNX models that were many times slower than in onnxruntime.

Trees of scikit-learn's and of boosted kinds, with and without ``ZipMap``, at three batch sizes; a
transformer that onnxruntime quantised dynamically to int8; a recurrent network whose steps are a
``Loop``, as TensorFlow's exporter writes it. All have random weights. The contenders run
alternately in one process, on all cores with their default settings: ``compiled`` is the loaded
model as it is called, ``eager`` the same node by node. A forest of about 200 MB is loaded in a
process of its own, whose memory is watched.

Run: python experiments/benchmarks/onnx_outliers.py [--repeats=20]
It needs ``pip install 'jaxatr[onnx]' onnxruntime``.
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before the import

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
from alternating import alternately
from clock import cores
from onnx import helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from recording import Recording, table

import jaxatr.onnx

OUTPUT = Path(__file__).parent / "results" / "onnx_outliers_cpu"
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
ML = "ai.onnx.ml"
BATCHES = (1, 100, 5000)


def grown(rng: np.random.Generator, trees: int, depth: int, features: int) -> dict[str, Any]:
    """Returns the nodes of random trees; most branches reach the depth."""
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    found: dict[str, Any] = {f"nodes_{name}": [] for name in names}
    for tree in range(trees):
        levels, count = [0], 1
        while levels:
            node = levels.pop(0)
            level = int(np.log2(node + 1)) if count < 2**depth else depth
            inner = level < depth and count < 2**depth and (level < 3 or rng.random() < 0.85)
            row = [tree, node, 0, 0.0, "LEAF", 0, 0]
            if inner:
                row[2:] = int(rng.integers(features)), float(rng.normal()), "BRANCH_LEQ"
                row[5:] = count, count + 1
                levels += [count, count + 1]
                count += 2
            for values, value in zip(found.values(), row, strict=True):
                values.append(value)
    return found


def trees(
    batch: int,
    *,
    count: int,
    depth: int,
    classes: int = 0,
    maps: bool = False,
    copies: int = 1,
) -> tuple[onnx.ModelProto, np.ndarray]:
    """Returns an ensemble that regresses, or classifies with named classes in a map."""
    rng, features = np.random.default_rng(0), 30
    nodes = {name: values * copies for name, values in grown(rng, count, depth, features).items()}
    own = np.array(nodes["nodes_treeids"]).reshape(copies, -1)
    nodes["nodes_treeids"] = (own + count * np.arange(copies)[:, None]).reshape(-1).tolist()
    leaves = [i for i, mode in enumerate(nodes["nodes_modes"]) if mode == "LEAF"]
    kind, width = ("class", classes) if classes else ("target", 1)
    said: dict[str, Any] = {
        f"{kind}_ids": list(range(width)) * len(leaves),
        f"{kind}_treeids": np.repeat(np.array(nodes["nodes_treeids"])[leaves], width).tolist(),
        f"{kind}_nodeids": np.repeat(np.array(nodes["nodes_nodeids"])[leaves], width).tolist(),
        f"{kind}_weights": (rng.random(width * len(leaves)) / count).tolist(),
    }
    outputs = [helper.make_tensor_value_info("scores", FLOAT, ["n", width])]
    if classes:
        labels: dict[str, Any] = {"classlabels_int64s": list(range(classes))}
        labels = {"classlabels_strings": list("abcdefgh"[:classes])} if maps else labels
        steps = [
            helper.make_node(
                "TreeEnsembleClassifier",
                ["x"],
                ["label", "scores"],
                domain=ML,
                **nodes | said | labels,
            )
        ]
        if maps:
            steps.append(helper.make_node("ZipMap", ["scores"], ["map"], domain=ML, **labels))
            pairs = helper.make_map_type_proto(
                onnx.TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, [])
            )
            outputs = [onnx.ValueInfoProto(name="map")]
            outputs[0].type.CopyFrom(helper.make_sequence_type_proto(pairs))
    else:
        steps = [
            helper.make_node(
                "TreeEnsembleRegressor", ["x"], ["scores"], domain=ML, n_targets=1, **nodes | said
            )
        ]
    x = helper.make_tensor_value_info("x", FLOAT, ["n", features])
    graph = helper.make_graph(steps, "trees", [x], outputs)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
    return proto, rng.normal(size=(batch, features)).astype(np.float32)


class Transformer(nn.Module):
    """Four blocks of attention and a perceptron, on vectors of 256."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes the last block's vectors of ``[b, t, 256]``."""
        for _ in range(4):
            y = nn.LayerNorm()(x)
            heads = [
                nn.Dense(256)(y).reshape(*y.shape[:2], 4, 64).transpose(0, 2, 1, 3)
                for _ in range(3)
            ]
            shares = nn.softmax(heads[0] @ heads[1].transpose(0, 1, 3, 2) / 8)
            mixed = (shares @ heads[2]).transpose(0, 2, 1, 3).reshape(x.shape)
            x = x + nn.Dense(256)(mixed)
            x = x + nn.Dense(256)(nn.gelu(nn.Dense(1024)(nn.LayerNorm()(x))))
        return x


def quantised(batch: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Returns the transformer with dynamically quantised products, and 128 vectors a sequence."""
    x = np.random.default_rng(0).normal(size=(batch, 128, 256)).astype(np.float32)
    network = Transformer()
    variables = jax.jit(network.init)(jax.random.key(0), x)
    with tempfile.TemporaryDirectory() as folder:
        plain, narrow = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        jaxatr.onnx.export(network, variables, (x,), plain, dynamic_batch=False)
        quantize_dynamic(plain, narrow, weight_type=QuantType.QInt8)
        return onnx.load(narrow), x


def looped(batch: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Returns an LSTM of 128 units and 64 steps as a ``Loop`` of its operations."""
    rng, steps, units, width = np.random.default_rng(0), 64, 128, 64
    arrays = {
        "w": rng.normal(size=(width + units, 4 * units)).astype(np.float32) / 16,
        "b": rng.normal(size=4 * units).astype(np.float32),
        "sizes": np.array([units] * 4),
        "one": np.float32(1),
        "trips": np.array(steps),
        "true": np.array(True),
        "zero": np.zeros((batch, units), np.float32),
    }
    body = [
        ("Gather", "x i", "xi"),
        ("Concat", "xi h0", "both"),
        ("MatMul", "both w", "product"),
        ("Add", "product b", "gates"),
        ("Split", "gates sizes", "g0 g1 g2 g3"),
        ("Sigmoid", "g0", "into"),
        ("Tanh", "g1", "new"),
        ("Add", "g2 one", "biased"),
        ("Sigmoid", "biased", "keep"),
        ("Sigmoid", "g3", "out"),
        ("Mul", "keep c0", "kept"),
        ("Mul", "into new", "added"),
        ("Add", "kept added", "c1"),
        ("Tanh", "c1", "bounded"),
        ("Mul", "out bounded", "h1"),
        ("Identity", "h1", "y"),
        ("Identity", "more", "going"),
    ]
    axes: dict[str, Any] = {"Gather": {"axis": 0}, "Concat": {"axis": 1}, "Split": {"axis": 1}}
    nodes = [
        helper.make_node(kind, given.split(), made.split(), **axes.get(kind, {}))
        for kind, given, made in body
    ]
    info = helper.make_tensor_value_info
    state = [batch, units]
    states = [info(name, FLOAT, state) for name in ("h0", "c0", "h1", "c1", "y")]
    inner = helper.make_graph(
        nodes,
        "step",
        [info("i", INT64, []), info("more", BOOL, []), *states[:2]],
        [info("going", BOOL, []), *states[2:]],
    )
    loop = helper.make_node(
        "Loop", ["trips", "true", "zero", "zero"], ["h", "c", "all"], body=inner
    )
    graph = helper.make_graph(
        [loop],
        "lstm",
        [info("x", FLOAT, [steps, batch, width])],
        [info("all", FLOAT, [steps, *state])],
        [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return proto, rng.normal(size=(steps, batch, width)).astype(np.float32)


MODELS: dict[str, tuple[Callable[..., tuple[onnx.ModelProto, np.ndarray]], tuple[int, ...]]] = {
    "300 boosted trees of depth 6": (partial(trees, count=300, depth=6), BATCHES),
    "100 trees of depth 12, 5 classes": (partial(trees, count=100, depth=12, classes=5), BATCHES),
    "100 trees of depth 10, names and ZipMap": (
        partial(trees, count=100, depth=10, classes=3, maps=True),
        BATCHES,
    ),
    "transformer, dynamic int8": (quantised, (1, 4)),
    "LSTM as a Loop": (looped, (1, 16)),
}


def measured(proto: onnx.ModelProto, x: np.ndarray, repeats: int) -> dict[str, Any]:
    """Measures a model; times are in milliseconds, that of loading in seconds."""
    data = proto.SerializeToString()
    started = time.perf_counter()
    model = jaxatr.onnx.load(data)
    loading = time.perf_counter() - started
    options = onnxruntime.SessionOptions()
    # Without it, products of int8 saturate on processors without VNNI; with VNNI it has no effect.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (name,) = [value.name for value in session.get_inputs()]
    runs = {
        "onnxruntime": lambda: session.run(None, {name: x})[-1],
        "compiled": lambda: jax.block_until_ready(model(x)),
        "eager": lambda: jax.block_until_ready(model(x, eager=True)),
    }
    wanted = runs["onnxruntime"]()
    if isinstance(wanted, np.ndarray):
        for made in (runs["compiled"](), runs["eager"]()):
            scores = jnp.asarray(made[-1] if isinstance(made, tuple) else made)
            largest = float(np.abs(wanted - scores).max() / np.abs(wanted).max())
            if largest > 0.05:  # dynamic scales magnify rounding
                raise ValueError(f"the outputs differ by {largest:.1e} of the largest")
    seconds = alternately(runs, repeats, warm=True)
    return {
        "ms": {who: 1e3 * one for who, one in seconds.items()},
        "megabytes": len(data) / 1e6,
        "loading": loading,
    }


FOREST = {"model": "1,500 trees of depth 12"}
LOADED = """
import json, sys, threading, time
from pathlib import Path
import jaxatr.onnx
from jaxatr import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

jaxatr.onnx.load(Path(sys.argv[1]).read_bytes())  # what is imported late is not counted
before, most, done = resident(), 0, threading.Event()

def watch():
    global most
    while not done.wait(0.005):
        most = max(most, resident())

watcher = threading.Thread(target=watch)
watcher.start()
seconds = time.process_time()
model = jaxatr.onnx.load(sys.argv[2])
seconds = time.process_time() - seconds
done.set()
watcher.join()
memory.give_back()
print(json.dumps({"seconds": seconds, "most": most - before, "kept": resident() - before}))
"""


def forest() -> dict[str, Any]:
    """Loads 1,500 trees of depth 12; memory is in multiples of the file's size."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = (Path(folder) / name for name in ("small.onnx", "large.onnx"))
        onnx.save(trees(1, count=1, depth=3)[0], small)
        onnx.save(trees(1, count=20, depth=12, copies=75)[0], large)
        command = [sys.executable, "-c", LOADED, str(small), str(large)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found, size = json.loads(done.stdout), large.stat().st_size
    times = {name: found[name] / size for name in ("most", "kept")}
    return {"megabytes": size / 1e6, "seconds": found["seconds"], **times}


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield f"Made by `onnx_outliers.py`. {about['device']}, {about['cores']} cores; {versions}."
    yield ""
    header = ["model", "batch", "file, MB", "loading, s", "onnxruntime, ms"]
    forms = ("compiled", "eager")
    yield from table(
        [*header, *(f"{form}, ×" for form in forms)],
        *(
            [
                row["model"],
                str(row["batch"]),
                f"{row['megabytes']:.1f}",
                f"{row['loading']:.1f}",
                f"{row['ms']['onnxruntime']:.2f}",
                *(f"{row['ms'][form] / row['ms']['onnxruntime']:.1f}" for form in forms),
            ]
            for row in recording.rows
            if "batch" in row
        ),
    )
    for row in recording.rows:
        if "batch" not in row:
            yield ""
            yield (
                f"{row['model']}, a file of {row['megabytes']:.0f} MB: loaded in "
                f"{row['seconds']:.1f} processor seconds, with at most {row['most']:.1f} times the "
                f"file's size of memory on the way, {row['kept']:.1f} times kept."
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
        for name, (make, batches) in MODELS.items():
            for batch in batches:
                key = {"model": name, "batch": batch}
                if not recording.has(key):
                    recording.add(key, measured(*make(batch), flags.repeats))
                    print(key, recording.row(key)["ms"], flush=True)
                    jax.clear_caches()
    if not recording.has(FOREST):
        recording.add(FOREST, forest())
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
