"""Runs ONNX's node tests as generated source and writes what passes.

    python experiments/onnx/generated.py                  # all, into results/
    python experiments/onnx/generated.py --only=resize    # prints, writes nothing
    python experiments/onnx/generated.py --resume         # what is not recorded yet

Each test's model is written as a module, which is then imported from its file in a fresh namespace
and applied to the weights of its file. Every test counts: what the importer lacks has failed.
"""

import argparse
import collections
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from jaxatr.onnx import generate, load_weights
from jaxatr.onnx.scope import wide

sys.path.insert(0, str(Path(__file__).parent))

import conformance  # noqa: E402

RESULTS = Path(__file__).parent / "results"


class Written:
    """A model as a module that was read from its file."""

    def __init__(self, folder):
        """Imports the module in a fresh namespace."""
        spec = importlib.util.spec_from_file_location("generated_model", folder / "model.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} has no module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.model = module.Model()
        self.variables = load_weights(folder / "weights.safetensors")

    def run(self, inputs):
        """Returns the outputs as NumPy arrays."""
        with wide():  # 64-bit inputs are not to be narrowed on the way
            outputs = self.model.apply(self.variables, *inputs)
            outputs = outputs if type(outputs) is tuple else (outputs,)
            return [plain(output) for output in outputs]


def plain(value):
    """Returns an output as the suite compares it."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)


def prepare(model):
    """Returns a model, written into a file and read from it."""
    with tempfile.TemporaryDirectory() as folder:
        generate(model, folder)
        return Written(Path(folder))


def record(results, folder):
    """Writes the results as JSON, and the table of them as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(entry) for entry in results]
    (folder / "generated.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    (folder / "generated.md").write_text(table(results))


def table(results):
    """Returns the tables: by operator, and the failures with their reasons."""
    tests = collections.Counter(entry["operator"] for entry in results)
    passed = collections.Counter(e["operator"] for e in results if not e["reason"])
    text = [
        "# ONNX's node tests as generated source",
        "",
        f"{passed.total()} of {tests.total()} pass.",
        "",
        "| operator | passed | tests |",
        "|---|---|---|",
    ]
    text += [f"| {operator} | {passed[operator]} | {n} |" for operator, n in sorted(tests.items())]
    text += ["", "## Failures", "", "| test | reason |", "|---|---|"]
    failed = [entry for entry in results if entry["reason"]]
    text += [f"| {e['name']} | {e['reason'].replace('|', '¦')} |" for e in failed]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="tests whose name, or operator, matches this")
    parser.add_argument("--limit", type=int, default=60, help="seconds that a test may take")
    parser.add_argument("--resume", action="store_true", help="keep what is recorded")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = conformance.cases(("node",))
    names = conformance.operators(found)
    known = options.out / "generated.json"
    results = json.loads(known.read_text()) if options.resume and known.exists() else []
    done = {entry["name"] for entry in results}
    started = time.monotonic()
    for kind, test in found:
        operator = names[kind, test.name]
        wanted = re.search(options.only, test.name) or options.only == operator
        if test.name in done or not wanted:
            continue
        reason = conformance.run(test, limit=options.limit, prepare=prepare)
        results.append({"name": test.name, "operator": operator, "reason": reason})
        if options.only and reason:
            print(f"{test.name}: {reason}")
        if not options.only and len(results) % 100 == 0:
            record(results, options.out)
    passed = sum(not entry["reason"] for entry in results)
    print(f"{passed} of {len(results)} in {time.monotonic() - started:.0f} s")
    if not options.only:
        record(results, options.out)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    np.seterr(all="ignore")
    main()
