"""Measures runs in int8, float16 and bfloat16 beside float32: decisions, accuracy, file, rate.

Each run is trained, exported in each precision with its decision inside, and run by onnxruntime on
its test examples. Rates are of batches of 32 chips without their geometry, measured alternately,
and so is the network alone, whose file has no gallery. ``exact`` is the share of int8's decisions
that are the same if onnxruntime is told not to saturate products, as processors without VNNI do.
These have a record of their own, and so have those with AMX. A run that is recorded is not measured
again, so that what was cut off goes on. Trainings are short; with ``--whole`` they take all steps
of their configuration, and the rows' names end with ``-whole``.

With ``--bfloat16``, the runs are not exported: JAX runs them, with and without oneDNN's kernels
(jax 0.11 and later), and in bfloat16. Rates are of whole predictions of batches of 32 chips, and of
the network alone.

    python -m experiments.onnx.precision --workdir=FOLDER [--only=PREFIX,…] [--whole] [--bfloat16]

Data is read from ``JAXATR_DATA`` (default ``../shared/data``), ImageNet's weights from
``JAXATR_WEIGHTS_DIR``.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime

from experiments.decisions import package
from jaxatr import config as configuration
from jaxatr import files, openset, training
from jaxatr.metrics import auroc
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs.export import export_run

RESULTS = Path(__file__).parent / "results"
PRECISIONS = ("float32", "int8", "float16")
RUNTIMES = ("jax", "onednn", "onednn:bfloat16")
BATCH, REPEATS = 32, 25
PAUSE = 0.05  # seconds

NETWORKS = ("resnet18", "mobilenet_v2", "efficientnet_lite0")
_CONFIGS = {"mstar": "cbc:mstar", "simulated": "cbc:default", "cifar10": "cbc:cifar10_strong"}
_SOURCES = {"mstar": "mstar10", "cifar10": "cifar10"}
# Short trainings without trials: what is compared is one network in three precisions.
_SHORT = {"open_set.trials": 0, "open_set.score": "consensus", "train.evaluate_every": 1e6}


def configured(network: str, data: str, folder: Path, whole: bool = False) -> Any:
    """Returns the configuration of a run, with all of its steps if `whole`."""
    config = package.configured(_CONFIGS[data], _SHORT)
    if not whole:
        config.train.steps = 400 if network == "resnet18" else 250
    if data in _SOURCES:
        config.data.source = str(folder / _SOURCES[data])
    if network != "resnet18":
        size, shift = config.data.size, config.augment.shift
        configuration.from_published(config, network)
        config.data.size, config.augment.shift = size, shift
        config.train.end_with_best = False
    return config


def tested(workdir: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """Returns a run's task, and its test chips with their labels."""
    task: Any = open_task(training.load_run(workdir, "latest"), {})
    batches = task.examples.eval_batches(task.parts["test"])
    chips = np.concatenate([one["image"][one["mask"]] for one in batches])
    return task, chips, task.parts["test"].labels


def measure(workdir: Path) -> dict[str, Any]:
    """Exports a trained run in each precision and measures the files on its test examples."""
    task, chips, labels = tested(workdir)
    chips, known = chips.astype(np.float32), labels != openset.UNKNOWN
    rows: dict[str, dict[str, Any]] = {}
    sessions: dict[str, Any] = {}
    for precision in PRECISIONS:
        path = workdir / f"{precision}.onnx"
        export_run(workdir, path, takes="chips", precision=precision)
        session = sessions[precision] = onnxruntime.InferenceSession(path)
        found = answers(session, chips)
        rows[precision] = {
            "megabytes": round(path.stat().st_size / 1e6, 2),
            "auroc": round(float(auroc(found["score"][known], found["score"][~known])), 4),
            "closed": round(float(np.mean(found["nearest"][known] == labels[known])), 4),
            "decision": found["decision"],
        }
        if precision == "int8":
            options = onnxruntime.SessionOptions()
            options.add_session_config_entry("session.x64quantprecision", "1")
            careful = answers(onnxruntime.InferenceSession(path, options), chips)
            same = np.mean(found["decision"] == careful["decision"])
            rows[precision]["exact"] = round(float(same), 4)
    for precision in PRECISIONS:
        path = workdir / f"network.{precision}.onnx"
        export_run(workdir, path, takes="chips", precision=precision, score="none")
        rows[precision]["network megabytes"] = round(path.stat().st_size / 1e6, 2)
        sessions[f"{precision}, network"] = onnxruntime.InferenceSession(path)
    batch = {"images": chips[:BATCH]}
    medians = timed({name: partial(one.run, None, batch) for name, one in sessions.items()})
    full = rows["float32"]["decision"]
    for name, row in rows.items():
        row["equal"] = round(float(np.mean(row.pop("decision") == full)), 4)
        row["rate"] = round(medians["float32"] / medians[name], 2)
        row["network rate"] = round(medians["float32, network"] / medians[f"{name}, network"], 2)
        row["milliseconds"] = round(medians[name] * 1e3, 1)
    return {"examples": len(labels), "score": task.config.open_set.score, "precisions": rows}


def answers(session: Any, chips: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the outputs of a file for all chips."""
    names = [one.name for one in session.get_outputs()]
    parts = [
        session.run(None, {"images": chips[start : start + BATCH]})
        for start in range(0, len(chips), BATCH)
    ]
    return dict(zip(names, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def measure_own(workdir: Path) -> dict[str, Any]:
    """Measures a trained run in JAX, by oneDNN and in bfloat16, on its test examples."""
    task, chips, labels = tested(workdir)
    known, rows, calls = labels != openset.UNKNOWN, dict[str, Any](), dict[str, Any]()
    for runtime in RUNTIMES:
        recogniser = Recogniser.load(workdir, runtime=runtime)
        predict = partial(recogniser.answers, batch_size=BATCH)
        found = list(predict(chips))
        scores = np.array([one.score for one in found])
        nearest = np.array([recogniser.classes.index(one.nearest) for one in found])
        rows[runtime] = {
            "auroc": round(float(auroc(scores[known], scores[~known])), 4),
            "closed": round(float(np.mean(nearest[known] == labels[known])), 4),
            "form": [form.name for form in recogniser.forms.values()],
            "decision": [one.label for one in found],
        }
        calls[runtime] = lambda predict=predict: list(predict(chips[:BATCH]))
        calls[f"{runtime}, network"] = partial(recogniser.session.batch, chips[:BATCH], count=BATCH)
    medians = timed(calls)
    plain = np.array(rows[RUNTIMES[0]]["decision"])
    for name, row in rows.items():
        row["equal"] = round(float(np.mean(np.array(row.pop("decision")) == plain)), 4)
        row["rate"] = round(medians["jax"] / medians[name], 2)
        row["network rate"] = round(medians["jax, network"] / medians[f"{name}, network"], 2)
        row["milliseconds"] = round(medians[name] * 1e3, 1)
    return {"examples": len(labels), "score": task.config.open_set.score, "runtimes": rows}


def timed(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Returns the median seconds of each call, measured alternately with pauses."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            time.sleep(PAUSE)  # the threads of the last session still wait for work on a core
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    """Trains and measures the runs that are not recorded yet."""
    parser = argparse.ArgumentParser(description="Measures runs in int8 and float16.")
    parser.add_argument("--workdir", required=True, help="folder of the runs")
    parser.add_argument("--only", default="", help="comma-separated prefixes of DATA-NETWORK")
    parser.add_argument("--whole", action="store_true", help="train with all configured steps")
    parser.add_argument("--bfloat16", action="store_true", help="measure bfloat16 in JAX")
    flags = parser.parse_args()
    folder = Path(os.environ.get("JAXATR_DATA", "../shared/data")).absolute()
    record: dict[str, Any] = {"runs": {}}
    own = processor()["instructions"]
    kind = "_amx" if "amx_int8" in own else "" if "vnni" in own else "_no_vnni"
    output = RESULTS / ("bfloat16_cpu.json" if flags.bfloat16 else f"precision_cpu{kind}.json")
    if output.is_file():
        record = files.read_json(output)
    for data, network in itertools.product(_CONFIGS, NETWORKS):
        name = f"{data}-{network}" + "-whole" * flags.whole
        if name in record["runs"] or not name.startswith(tuple(flags.only.split(","))):
            continue
        workdir = Path(flags.workdir).absolute() / name
        package.train(configured(network, data, folder, flags.whole), workdir)
        record["runs"][name] = (measure_own if flags.bfloat16 else measure)(workdir)
        engines = f"jax {jax.__version__}", f"onnxruntime {onnxruntime.__version__}"
        record["engine"] = engines[not flags.bfloat16]
        record["processor"] = processor()
        record["batch"] = BATCH
        output.write_text(json.dumps(record, indent=1) + "\n")
        print(name, json.dumps(record["runs"][name]), flush=True)


def processor() -> dict[str, Any]:
    """Returns the processor's name and which of the instructions for narrow products it has."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    lines = dict(line.split(":", 1) for line in facts.splitlines() if ":" in line)
    lines = {key.strip(): value.strip() for key, value in lines.items()}
    return {
        "name": lines.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "instructions": [
            name
            for name in ("vnni", "avx512_bf16", "amx_int8", "amx_bf16")
            if name in lines.get("flags", "")
        ],
    }


if __name__ == "__main__":
    main()
