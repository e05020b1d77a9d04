"""Fuzz test of the ONNX importer: loading mutated models must not crash, hang or exhaust memory.

    python experiments/onnx/fuzz.py --count=20000

Each mutant is written to a file next to a file of weights, listed and loaded. If it loads, it is
traced with abstract inputs in inference and training mode, written as source code and, if its
values are not too large, applied to numbers. The only permitted exception is ValueError. Mutants
run in batches, each batch in a separate process. Each mutant has a time limit, and its peak memory,
as measured by Linux, is compared with the size of its file and its values. Violations are printed
with the mutant's seed, which reproduces it.
"""

import argparse
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

BATCH = 250
SECONDS = 10
MEGABYTES = 80
"""Memory allowed in addition to four times the mutant's file plus its values, for compiled code and
for up to 16 MB of constant folding."""

APPLIED = 1 << 24
"""A model is applied to numbers if its values have fewer bytes than this."""

ADDRESSES = 8 << 30
"""Additional address space of a process in bytes, as a safeguard; it is not the measured limit."""


def small_models():
    """Creates models of a few nodes that together cover the features of the file format."""
    rng = np.random.default_rng(0)

    def weight(name, *shape):
        return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)

    def ints(name, *values):
        return numpy_helper.from_array(np.array(values, np.int64), name)

    def model(nodes, inputs, outputs, weights, **more):
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(nodes, "small", infos, results, weights)
        versions = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=versions, **more)

    node = helper.make_node
    network = model(
        [
            node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"]),
            node("Relu", ["c"], ["d"]),
            node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Shape", ["e"], ["f"], end=1),
            node("Concat", ["f", "rest"], ["g"], axis=0),
            node("Reshape", ["e", "g"], ["h"]),
            node("Gemm", ["h", "k"], ["y"], transB=1),
        ],
        [("x", ["n", 3, 8, 8])],
        ["y"],
        [
            weight("w", 4, 3, 3, 3),
            *(weight(n, 4) for n in "sbmv"),
            weight("k", 5, 64),
            ints("rest", -1),
        ],
    )
    made = model(
        [
            node("ConstantOfShape", ["size"], ["a"]),
            node("Expand", ["a", "wide"], ["b"]),
            node("Tile", ["b", "times"], ["c"]),
            node("Range", ["start", "end", "step"], ["d"]),
            node("Gather", ["c", "d"], ["e"]),
            node("Slice", ["e", "start1", "end1"], ["f"]),
            node("Add", ["x", "f"], ["y"]),
        ],
        [("x", [1])],
        ["y"],
        [
            ints("size", 4, 1),
            ints("wide", 4, 3),
            ints("times", 2, 1),
            ints("start1", 0),
            ints("end1", 2),
        ]
        + [
            numpy_helper.from_array(np.array(v, np.int64), n)
            for n, v in (("start", 0), ("end", 6), ("step", 2))
        ],
    )
    branch = helper.make_graph(
        [node("Neg", ["x"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Twice", ["x"], ["z"], domain="own")],
        "else",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    twice = helper.make_function(
        "own",
        "Twice",
        ["p"],
        ["q"],
        [node("Add", ["p", "p"], ["q"])],
        [helper.make_opsetid("", 18)],
    )
    nested = model(
        [
            node("ReduceSum", ["x"], ["s"], keepdims=0),
            node("Cast", ["s"], ["t"], to=TensorProto.BOOL),
            node("If", ["t"], ["y"], then_branch=branch, else_branch=other),
        ],
        [("x", [3])],
        ["y"],
        [],
        functions=[twice],
    )
    return [network, made, nested, *more_models(model, weight, ints)]


def more_models(model, weight, ints):
    """Creates models with splits, nested functions, and external weights."""
    node = helper.make_node
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    pieces = model(
        [
            node("Split", ["x"], ["a", "b", "c"], num_outputs=3),
            node("Split", ["x", "sizes"], ["d", "e"], axis=0),
            node("Concat", ["a", "b", "c", "d", "e"], ["f"], axis=0),
            node("Dropout", ["f", "ratio"], ["g"], seed=1),
            node("Resize", ["g", "", "scales"], ["y"], mode="linear"),
        ],
        [("x", [6])],
        ["y"],
        [ints("sizes", 2, 4), numpy_helper.from_array(np.array(0.5, np.float32), "ratio")]
        + [numpy_helper.from_array(np.array([1.5], np.float32), "scales")],
    )
    functions = []
    for level in range(3):
        name, domain = (f"F{level - 1}", "own") if level else ("Mul", "")
        held = node("Constant", [], ["k"], value=weight("", 2))
        body = [held, node(name, ["p", "k"], ["r"], domain=domain)]
        body.append(node(name, ["r", "k"], ["q"], domain=domain))
        functions.append(
            helper.make_function("own", f"F{level}", ["p", "k0"], ["q"], body, versions)
        )
    functions_in_functions = model(
        [node("F2", ["x", "x"], ["y"], domain="own")], [("x", [2])], ["y"], [], functions=functions
    )
    elsewhere = model(
        [node("Gemm", ["x", "w", "b"], ["y"])],
        [("x", ["n", 3])],
        ["y"],
        [weight("w", 3, 2), weight("b", 2)],
    )
    for number, tensor in enumerate(elsewhere.graph.initializer):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", BESIDE),
            ("offset", 24 * number),
            ("length", 24 - 16 * number),
        ):
            tensor.external_data.add(key=key, value=str(value))
    return [pieces, functions_in_functions, elsewhere]


BESIDE = "weights.bin"
"""Name of the weights file next to every mutant."""


def mutant(seed):
    """Creates a mutated model; returns its bytes, which depend only on the seed."""
    rng = np.random.default_rng(seed)
    models = small_models()
    proto = models[rng.integers(len(models))]
    if rng.random() < 0.6:
        for _ in range(rng.integers(1, 4)):
            mutate_field(proto, rng)
        return proto.SerializeToString()
    raw = bytearray(proto.SerializeToString())
    for _ in range(rng.integers(1, 6)):
        if not raw:
            break
        at = int(rng.integers(len(raw)))
        kind = rng.integers(4)
        if kind == 0:
            raw[at] = int(rng.integers(256))
        elif kind == 1:
            del raw[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            raw[at:at] = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
        else:
            raw = raw[: max(at, 1)]
    return bytes(raw)


NAMES = ("", "x", "a", "y", "w", "-8", "99999999999", 'a"); import os #', "../x", "é" * 50, "Loop")
ODD = (0, 1, -1, 2, 7, -8, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**62))


def mutate_field(message: Any, rng: np.random.Generator) -> None:
    """Changes a random field of a message, or drops or repeats a part of it."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = fields[rng.integers(len(fields))]
    parts = None if isinstance(value, (int, float, str, bytes, Message)) else value
    at = 0 if not parts else int(rng.integers(len(parts)))
    if isinstance(value, Message):
        mutate_field(value, rng)
    elif parts and field.message_type is not None:
        kind = rng.integers(8)
        if kind == 0:
            del parts[at]
        elif kind == 1:
            parts.append(parts[at])
        else:
            mutate_field(parts[at], rng)
    elif parts:
        parts[at] = changed(parts[at], rng)
    elif parts is None:
        try:
            setattr(message, field.name, changed(value, rng))
        except (ValueError, TypeError):
            pass  # an enumeration, or a value out of the field's range


def changed(value: Any, rng: np.random.Generator) -> Any:
    """Returns an odd value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(ODD[rng.integers(len(ODD))])
    if isinstance(value, float):
        return float(rng.choice([0.0, -1.0, 1e30, np.inf, np.nan]))
    if isinstance(value, str):
        return str(rng.choice(NAMES))
    if rng.random() < 0.5:
        return rng.integers(0, 256, len(value), np.uint8).tobytes()
    return value[: len(value) // 2]


class Late(BaseException):
    """A mutant exceeded the time limit; a BaseException, so that no error handler catches it."""


def memory(field):
    """Reads the memory of the process in bytes: current (``VmRSS``) or peak (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def outcome(raw, apply=True):
    """Tries one model; returns "loaded", "refused", or a description of the failure.

    Args:
      raw: the model's bytes.
      apply: whether to apply it to numbers, which takes most of the time.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / BESIDE).write_bytes(np.arange(8, dtype=np.float32).tobytes())
        path = Path(folder) / "model.onnx"
        path.write_bytes(raw)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, values = memory("VmRSS"), []
        result = tried(path, values, apply)
        grown = memory("VmHWM") - before
        if grown > MEGABYTES * 2**20 + 4 * len(raw) + sum(values):
            return f"memory: {grown / 2**20:.0f} MB"
        return result


def tried(path, values, apply):
    """Tries one model; appends the sizes of its computed values to ``values``."""
    import jax

    from jaxatr.onnx import generate, layers, load

    def seen(_, results):
        values.extend(r.size * r.dtype.itemsize for r in results if isinstance(r, jax.Array))
        return results

    def late(*_):
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        try:
            layers(path)
        except ValueError:
            pass
        model = load(path)
        shapes = [
            jax.ShapeDtypeStruct([s if isinstance(s, int) else 2 for s in i.shape or ()], i.dtype)
            for i in model.inputs
            if i.dtype not in (None, "str")
        ]
        if len(shapes) == len(model.inputs):
            jax.eval_shape(partial(model.apply, each=seen), model.variables, *shapes)
            key = jax.random.key(0)
            jax.eval_shape(partial(model.apply, training=True, rngs=key), model.variables, *shapes)
            generate(path, path.parent / "source")
            if apply and sum(values) < APPLIED:
                numbers = [np.ones(s.shape, s.dtype) for s in shapes]
                jax.block_until_ready(model.apply(model.variables, *numbers))
        return "loaded"
    except ValueError:
        return "refused"
    except Late:
        return "late"
    except BaseException as error:  # not permitted
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)


def warm():
    """Runs the unmutated models, and returns the outcomes.

    Imports and other one-time allocations are thereby not attributed to a mutant.
    """
    return [outcome(proto.SerializeToString()) for proto in small_models()]


def child(first, count):
    """Runs a batch, and prints the outcome of each mutant."""
    warm()
    limit = memory("VmSize") + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for seed in range(first, first + count):
        result = outcome(mutant(seed))
        print(json.dumps({"seed": seed, "result": result}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--batch", action="store_true", help="run in this process, as a child")
    options = parser.parse_args()
    if options.batch:
        np.seterr(all="ignore")
        return child(options.first, options.count)
    started, counts, bad = time.monotonic(), {}, 0
    at, end = options.first, options.first + options.count
    while at < end:
        command = [sys.executable, "-W", "ignore", __file__, "--batch", f"--first={at}"]
        command.append(f"--count={min(BATCH, end - at)}")
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for line in lines:
            counts[line["result"]] = counts.get(line["result"], 0) + 1
            if line["result"] not in ("loaded", "refused"):
                bad += 1
                print(line)
        at += len(lines)
        if done.returncode:
            bad += 1
            print({"seed": at, "result": f"crash {done.returncode}", "error": done.stderr[-500:]})
            at += 1
    print(f"{options.count} mutants in {time.monotonic() - started:.0f} s: {counts}, {bad} bad")
    return bad > 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
