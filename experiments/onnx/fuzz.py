"""Mutates small models and loads them: no crash, no hang, no memory beyond what a file asks for.

    python experiments/onnx/fuzz.py --count=20000

Each mutant is loaded, listed and, where it loads, traced with abstract inputs; the only error that
may come out is ValueError. Mutants run in batches in a process of their own with a limit of memory,
and each with one of time. What ends otherwise is printed with its seed, which alone repeats it.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

BATCH = 250
SECONDS = 10
MEGABYTES = 256
"""Memory that a mutant may need beyond four times what its file and its tensors take."""


def small_models():
    """Returns models of a few nodes that together have all kinds of things that a file can have."""
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
    return [network, made, nested]


def mutant(seed):
    """Returns the bytes of one mutated model: a function of the seed."""
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


NAMES = ("", "x", "a", "y", "w", 'a"); import os #', "../x", "é" * 50, "Loop")
ODD = (0, 1, -1, 2, 7, -8, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**62))


def mutate_field(message: Any, rng: np.random.Generator) -> None:
    """Changes one field somewhere in a message, or drops or repeats a part of it."""
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
            pass  # an enumeration, or out of the field's range


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
    """A mutant took longer than the limit; no handler of errors takes it for one."""


def outcome(raw):
    """Returns what becomes of one model: loaded, refused, or the name of the error."""
    import jax

    from jaxatr.onnx import layers, load

    def late(*_):
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        try:
            layers(raw)
        except ValueError:
            pass
        model = load(raw)
        shapes = [
            jax.ShapeDtypeStruct([s if isinstance(s, int) else 2 for s in i.shape or ()], i.dtype)
            for i in model.inputs
            if i.dtype not in (None, "str")
        ]
        if len(shapes) == len(model.inputs):
            jax.eval_shape(model.apply, model.variables, *shapes)
        return "loaded"
    except ValueError:
        return "refused"
    except Late:
        return "late"
    except BaseException as error:  # what must not be
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)


def child(first, count):
    """Runs a batch; prints one line for each mutant that is not well treated, and the counts."""
    from jaxatr.onnx import load

    load(small_models()[0])  # what is loaded once is no mutant's memory
    counts = {}
    for seed in range(first, first + count):
        raw = mutant(seed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = outcome(raw)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        if grown > MEGABYTES + 4 * len(raw) / 2**20:
            result = f"memory: {grown:.0f} MB"
        counts[result] = counts.get(result, 0) + 1
        print(json.dumps({"seed": seed, "result": result}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--batch", action="store_true", help="run here, as a child does")
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
