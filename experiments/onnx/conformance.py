"""Runs ONNX's own test suite through the importer, and records the results by operator.

    python experiments/onnx/conformance.py                      # all kinds, into results/
    python experiments/onnx/conformance.py --only=resize        # prints, writes nothing
    python experiments/onnx/conformance.py --resume             # only unrecorded tests
    python experiments/onnx/conformance.py --kind=real          # only these again

Unsupported tests, and tests that exceed the time limit, count as failures. The comparison and its
tolerances are the suite's own.
"""

import argparse
import collections
import json
import os
import re
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.loader as suite
from onnx.backend.test.runner import Runner

from jaxatr.onnx import backend

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
RESULTS = Path(__file__).parent / "results"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def cases(kinds=KINDS):
    """Lists the suite's tests as (kind, test)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the suite overflows on purpose
        return [(kind, test) for kind in kinds for test in suite.load_model_tests(kind=kind)]


def plain(item):
    """Converts a value of the suite to an array, or to a list of arrays."""
    if isinstance(item, onnx.TensorProto):
        return onnx.numpy_helper.to_array(item)
    if isinstance(item, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(item)
    if isinstance(item, onnx.OptionalProto):
        return onnx.numpy_helper.to_optional(item)
    return item


def from_file(path, info):
    """Reads a value from one of the suite's files, with the type that the model declares."""
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    proto = kinds.get(info.type.WhichOneof("value"), onnx.TensorProto)()
    proto.ParseFromString(Path(path).read_bytes())
    return plain(proto)


def data_of(test):
    """Loads a test's model, and its pairs of inputs and expected outputs."""
    if test.model is not None:
        sets = [([plain(i) for i in ins], [plain(o) for o in outs]) for ins, outs in test.data_sets]
        return test.model, sets
    if test.url and "/light/" in test.url:
        path = LIGHT / Path(test.url).name
        model = onnx.load(path)
        listed = {tensor.name for tensor in model.graph.initializer}
        inputs = [v for v in model.graph.input if v.name not in listed]
        outputs = [
            path.with_name(f"{path.stem}_output_{i}.pb") for i in range(len(model.graph.output))
        ]
        expected = [from_file(p, v) for p, v in zip(outputs, model.graph.output, strict=True)]
        return path, [([Runner.generate_dummy_data(v) for v in inputs], expected)]
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    listed = {tensor.name for tensor in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in listed]
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        ins = [
            from_file(data / f"input_{i}.pb", v)
            for i, v in enumerate(inputs)
            if (data / f"input_{i}.pb").exists()
        ]
        outs = [from_file(data / f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]
        sets.append((ins, outs))
    return folder / "model.onnx", sets


class Late(Exception):
    """A test took longer than the limit."""


def run(test, *, limit=180, prepare=backend.prepare):
    """Runs a test; returns the reason of a failure, or "" if it passes."""

    def late(*_):
        raise Late(f"longer than {limit} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        model, sets = data_of(test)
        prepared = prepare(model)
        for inputs, expected in sets:
            Runner.assert_similar_outputs(expected, prepared.run(inputs), test.rtol, test.atol)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.alarm(0)
    return ""


def operators(found):
    """Returns the operator that each test covers, by kind and name."""
    plain_tests = {
        test.name: test.model.graph.node[-1].op_type
        for kind, test in found
        if kind == "node" and "_expanded" not in test.name
    }
    names = {}
    for kind, test in found:
        base = re.sub(r"_expanded.*", "", test.name)
        names[kind, test.name] = plain_tests.get(base, kind) if kind == "node" else kind
    return names


def record(results, path, title):
    """Writes the results as JSON, and their tables as Markdown next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(entry) for entry in results]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    path.with_suffix(".md").write_text(table(results, title))


def table(results, title):
    """Formats the tables: counts by kind, failures with their reasons, and counts by operator."""
    kinds, by_operator = collections.Counter(), collections.Counter()
    kinds_passed, operators_passed = collections.Counter(), collections.Counter()
    for entry in results:
        kinds[entry["kind"]] += 1
        kinds_passed[entry["kind"]] += not entry["reason"]
        if entry["kind"] == "node":
            by_operator[entry["operator"]] += 1
            operators_passed[entry["operator"]] += not entry["reason"]
    text = [f"# {title}", "", "| kind | passed | tests |", "|---|---|---|"]
    text += [f"| {kind} | {kinds_passed[kind]} | {count} |" for kind, count in kinds.items()]
    text += ["", "## Failures", "", "| kind | test | reason |", "|---|---|---|"]
    text += [
        f"| {e['kind']} | {e['name']} | {e['reason'].replace('|', '¦')} |"
        for e in results
        if e["reason"]
    ]
    text += ["", "## Node tests by operator", "", "| operator | passed | tests |", "|---|---|---|"]
    text += [f"| {o} | {operators_passed[o]} | {n} |" for o, n in sorted(by_operator.items())]
    return "\n".join(text) + "\n"


def main(description, name, title, kinds, *, prepare=backend.prepare, limit=180):
    """Parses the flags, runs the tests and records the results.

    Args:
      description: description for ``--help``.
      name: name of the result files.
      title: title of the tables.
      kinds: kinds of tests.
      prepare: converts a model to an object that runs it.
      limit: default of ``--limit``.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kind", choices=kinds, action="append", help="default: all")
    parser.add_argument("--only", default="", help="pattern of test names, or an operator")
    parser.add_argument("--limit", type=int, default=limit, help="time limit per test in seconds")
    parser.add_argument("--resume", action="store_true", help="run only unrecorded tests")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = cases(options.kind or kinds)
    names = operators(found)
    known = options.out / f"{name}.json"
    keeps = known.exists() and (options.resume or not options.only)
    before = json.loads(known.read_text()) if keeps else []
    if not options.resume:  # the other kinds stay
        chosen = options.kind or kinds
        before = [entry for entry in before if entry["kind"] not in chosen]
    done = {(entry["kind"], entry["name"]) for entry in before}
    results = list(before)
    started = time.monotonic()
    for kind, test in found:
        operator = names[kind, test.name]
        wanted = re.search(options.only, test.name) or options.only == operator
        if (kind, test.name) in done or not wanted:
            continue
        reason = run(test, limit=options.limit, prepare=prepare)
        results.append({"kind": kind, "name": test.name, "operator": operator, "reason": reason})
        if options.only and reason:
            print(f"{test.name}: {reason}")
        if not options.only and len(results) % 100 == 0:
            record(results, known, title)
    passed = sum(not entry["reason"] for entry in results)
    print(f"{passed} of {len(results)} in {time.monotonic() - started:.0f} s")
    if not options.only:
        record(sorted(results, key=lambda entry: kinds.index(entry["kind"])), known, title)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    np.seterr(all="ignore")
    main(__doc__, "conformance", f"ONNX {onnx.__version__}'s own suite", KINDS)
