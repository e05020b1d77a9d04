"""Compares exported runs with ``predict``, on 1,000 images each of four data sets.

    python -m experiments.onnx.decision [--only=mstar] [--chips=1000] [--run=mstar=DIR]
                                        [--data=DIR] [--workdir=DIR] [--list]

The script trains a small network on each data set (or takes the run given by ``--run``), exports it
with its decision, and runs onnxruntime and ``predict`` on the same original images. It records the
largest difference of each output, relative for values above 1; the numbers of different classes and
decisions; the size of the file; and the time per image. Results recorded in ``results/decision``
are not repeated, and an interrupted training is resumed. For the simulated data, which have no
image files, the images of the test part are used.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.records import table
from jaxatr import data, openset, runs, training
from jaxatr.recognition.prediction import Prediction
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs.export import export_run, provenance

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "decision"
TOLERANCE = 1e-4


class Case(NamedTuple):
    """A data set with the settings of its small run.

    Attributes:
      config: configuration file and variant below ``configs/``.
      overrides: values by configuration field.
      archive: archive in the data folder; None for simulated images.
    """

    config: str
    overrides: Mapping[str, Any]
    archive: str | None = None


CASES = {
    "mstar": Case(
        "cbc.py:mstar",
        {
            "model.width": 16,
            "train.epochs": 3,
            "open_set.trials": 0,
            "open_set.score": "fusion_template",
        },
        "mstar10.tar.gz",
    ),
    "cifar10": Case(
        "cbc.py:cifar10",
        {
            "model.width": 16,
            "train.steps": 150,
            "data.validation": 0.02,
            "open_set.score": "fusion",
            "open_set.test_flip_horizontal": True,
        },
        "cifar10.tar.gz",
    ),
    "simulated": Case(
        "cbc.py:default",
        {"model.width": 16, "train.epochs": 1, "data.options.turns": 1, "open_set.trials": 0},
    ),
    "folder": Case(
        "cbc.py:folder",
        {
            "model.width": 16,
            "train.epochs": 2,
            "data.size": 64,
            "data.square": True,
            "open_set.split": "random-60/21",
            "open_set.score": "nndr_stage2",
        },
        "grocery.tar.gz",
    ),
}


def trained(name: str, case: Case, workdir: Path, folder: Path) -> Path:
    """Trains the run of a case, unless it is trained already; returns its folder."""
    own = workdir / name
    if (own / training.EVALUATION).is_file():  # which is written last
        return own
    fields = dict(case.overrides)
    if case.archive:
        fields["data.source"] = str(folder / case.archive)
    command = [sys.executable, "-m", "jaxatr.train", f"--workdir={own}", "--noprogress"]
    command += [f"--config=configs/{case.config}"]
    command += [f"--config.{field}={value}" for field, value in fields.items()]
    subprocess.run(command, check=True, cwd=ROOT)
    return own


def images(case: Case, workdir: Path, folder: Path, scratch: str) -> Iterator[np.ndarray]:
    """Yields test images; those of an archive are not preprocessed."""
    if case.archive is None:
        task: Any = runs.make_task(training.load_config(workdir), workdir)
        for batch in task.examples.eval_batches("test"):
            yield from np.asarray(batch["image"])[np.asarray(batch["mask"])]
        return
    paths = data.image_paths(str(folder / case.archive), scratch).images
    tested = [path for path in paths if "/test/" in path.name]
    order = np.random.default_rng(0).permutation(len(tested))
    for place in order:
        yield data.read_image(tested[place].file)


def compare(workdir: Path, chips: list[np.ndarray]) -> dict[str, Any]:
    """Exports a run, and compares the file's outputs with the recogniser's."""
    import onnxruntime

    recogniser: Any = Recogniser.load(workdir)
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "model.onnx"
        export_run(workdir, path)
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        session.run(None, {"images": chips[0][None]})
        began = time.perf_counter()
        rows = [session.run(None, {"images": chip[None]}) for chip in chips]
        seconds = time.perf_counter() - began
        size = path.stat().st_size
    columns = map(np.concatenate, zip(*rows, strict=True))
    found = dict(zip(names, columns, strict=True))
    list(recogniser(chips[:1]))
    began = time.perf_counter()
    predictions = list(recogniser(chips))
    predicted = time.perf_counter() - began
    wanted = expected(recogniser, predictions)
    alone = expected(recogniser, list(recogniser(chips, batch_size=1)))
    run = training.load_run(workdir)
    return {
        "images": len(chips),
        "sizes": len({chip.shape for chip in chips}),
        "decides": recogniser.decision.score.name,
        "rejected": int(np.sum(wanted["decision"] < 0)),
        "differing": {
            name: int(np.sum(found[name] != wanted[name])) for name in ("decision", "nearest")
        },
        "difference": {
            name: difference(found[name], values)
            for name, values in wanted.items()
            if name not in ("decision", "nearest")
        },
        # The difference between predict with batches of 1 and of 32.
        "difference_of_predict": {
            name: difference(alone[name], values)
            for name, values in wanted.items()
            if name not in ("decision", "nearest")
        },
        "bytes": size,
        "milliseconds": 1e3 * seconds / len(chips),
        "milliseconds_predict_batch_32": 1e3 * predicted / len(chips),
        "threads": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "onnxruntime": metadata.version("onnxruntime"),
        "provenance": provenance(run),
    }


def expected(recogniser: Recogniser, predictions: list[Prediction]) -> dict[str, np.ndarray]:
    """Converts predictions to arrays, under the names of the file's outputs."""
    number = {name: place for place, name in enumerate(recogniser.classes)}
    number["unknown"] = openset.UNKNOWN
    found: dict[str, Any] = {
        "decision": [number[one.label] for one in predictions],
        "nearest": [number[one.nearest] for one in predictions],
        "class_probabilities": [list(one.probabilities.values()) for one in predictions],
    }
    for name in ("score", "threshold", "known_probability", "p_value"):
        values = [getattr(one, name) for one in predictions]
        if values[0] is not None:
            found[name] = values
    return {name: np.array(values) for name, values in found.items()}


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Computes the largest difference: absolute, but relative for values above 1."""
    finite = np.isfinite(wanted)
    if not finite.any():
        return 0.0
    apart = np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)
    return float(apart[finite].max())


def page() -> str:
    """Formats the table of the recorded results."""
    rows = []
    for name in CASES:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            rows.append([name, *["not run"] * 9])
            continue
        one = json.loads(path.read_text())
        apart, counts = one["difference"], one["differing"]
        rows.append(
            [
                name,
                f"{one['decides']}",
                f"{one['images']} ({one['sizes']} sizes, {one['rejected']} rejected)",
                f"{counts['nearest']} / {counts['decision']}",
                f"{apart['score']:.1e}",
                f"{one['difference_of_predict']['score']:.1e}",
                f"{max(v for key, v in apart.items() if key not in ('score', 'p_value')):.1e}",
                f"{apart.get('p_value', 0):.1e}",
                f"{one['bytes'] / 1e6:.1f} MB",
                f"{one['milliseconds']:.1f} ms",
            ]
        )
    header = ["data", "score", "images", "different classes / decisions", "difference: score"]
    header += ["score, predict by batches of 1 and 32", "probabilities, threshold", "p-value"]
    header += ["file", "time per image"]
    lines = [
        "# Exported decisions compared with predict",
        "",
        "Largest differences between onnxruntime and `predict` on the same test images, relative",
        "for values above 1. Images are processed one by one. The networks are small and briefly",
        "trained, because the two computations are compared, not the networks. For reference, the",
        "sixth column compares `predict` by batches of 1 and of 32. A p-value differs by one step",
        "if a score is that close to the score of a validation example.",
        "",
        *table(header, rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parses the flags, and runs unrecorded cases; returns 1 if any case differs."""
    parser = argparse.ArgumentParser(description="Compares exported runs with predict.")
    parser.add_argument("--only", default="", help="comma-separated cases; default: all")
    parser.add_argument("--chips", type=int, default=1000, help="images per case")
    parser.add_argument("--run", action="append", default=[], help="CASE=DIR: a run to use")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/onnx_decision")
    parser.add_argument("--list", action="store_true", help="list the cases, without running them")
    flags = parser.parse_args()
    chosen = flags.only.split(",") if flags.only else list(CASES)
    if wrong := [name for name in chosen if name not in CASES]:
        parser.error(f"--only: got {wrong[0]!r}, wanted some of {', '.join(CASES)}")
    taken = dict(one.partition("=")[::2] for one in flags.run)
    folder, failed = Path(flags.data).absolute(), False
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        case, path = CASES[name], RESULTS / f"{name}.json"
        asked = {
            "overrides": dict(case.overrides),
            "run": Path(taken[name]).name if name in taken else None,
        }
        before = json.loads(path.read_text()) if path.exists() else {}
        done = before.get("asked") == asked and before.get("images", 0) >= flags.chips
        if flags.list:
            print(f"{'done' if done else 'open'}  {name}")
        if done or flags.list:
            continue
        own = Path(taken.get(name) or trained(name, case, Path(flags.workdir).absolute(), folder))
        with tempfile.TemporaryDirectory() as scratch:
            chips = list(itertools.islice(images(case, own, folder, scratch), flags.chips))
        result = {"asked": asked, "config": case.config, **compare(own, chips)}
        path.write_text(json.dumps(result, indent=1) + "\n")
        # A p-value changes by a step if a score is that close to a validation example's score.
        others = {key: v for key, v in result["difference"].items() if key != "p_value"}
        apart = max(others.values())
        wrong = apart > TOLERANCE or any(result["differing"].values())
        failed |= wrong
        print(f"{'differs' if wrong else 'equal'}  {name}: {apart:.1e}", flush=True)
    if not flags.list:
        (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
