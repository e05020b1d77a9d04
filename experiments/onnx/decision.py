"""An exported run beside ``predict``, on 1,000 images each of four data sets.

    python -m experiments.onnx.decision [--only=mstar] [--chips=1000] [--run=mstar=DIR]
                                        [--data=DIR] [--workdir=DIR] [--list]

Trains a small network on each data set (or takes the run that ``--run`` names), exports it with
the score that decides, and asks onnxruntime and the run about the same image files, as they are. Of
each output the largest difference is recorded, in units of the value where that is above 1, and how
many classes and decisions differ; besides, the size of the file and the time of an image. What is
recorded in ``results/decision`` is not repeated; a training that was cut goes on. The simulated
data have no files: there the images are the test part's.
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
from jaxatr.runs.export import export_run, provenance
from jaxatr.tasks.open_set.predictor import Prediction, Recogniser

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "decision"
TOLERANCE = 1e-4


class Case(NamedTuple):
    """A data set and the small run on it.

    Attributes:
      config: file and variant, below ``configs/``.
      overrides: field to value.
      archive: in the data folder; None for simulated images.
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
    """Trains the case's run, unless it is trained already, and returns its folder."""
    own = workdir / name
    if (own / training.EVALUATION).is_file():  # which comes last
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
    """Yields test images, those of an archive as they lie there."""
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
    """Exports a run, and compares the file's answers with the recogniser's."""
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
        # How far predict differs from itself, by the size of its batches: 1 and 32.
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
    """Lists what ``predict`` says, under the names of the file's outputs."""
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
    """Returns the largest difference, in units of the value where that is above 1."""
    finite = np.isfinite(wanted)
    if not finite.any():
        return 0.0
    apart = np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)
    return float(apart[finite].max())


def page() -> str:
    """Returns the table of what is recorded."""
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
    header = ["data", "decides", "images", "classes / decisions that differ", "score"]
    header += ["score, predict with itself", "probabilities, threshold", "p-value", "file"]
    header += ["an image"]
    lines = [
        "# Exported decisions beside predict",
        "",
        "Largest differences between onnxruntime and `predict` on the same test images, in units",
        "of the value where that is above 1; the time is that of one image at a time. The networks",
        "are small and trained for a moment: two ways of computing are compared, not networks.",
        "Predict with itself: by batches of 1 and of 32. A p-value differs by one step where a",
        "score lies as close to that of a validation example.",
        "",
        *table(header, rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parses the flags, and carries out what is not recorded; 1 where one differs."""
    parser = argparse.ArgumentParser(description="Exported runs beside predict.")
    parser.add_argument("--only", default="", help="cases, by commas; default: all")
    parser.add_argument("--chips", type=int, default=1000, help="images of each")
    parser.add_argument("--run", action="append", default=[], help="CASE=DIR: a run to take")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/onnx_decision")
    parser.add_argument("--list", action="store_true", help="say what is done, and do nothing")
    flags = parser.parse_args()
    chosen = flags.only.split(",") if flags.only else list(CASES)
    if wrong := [name for name in chosen if name not in CASES]:
        parser.error(f"--only: there is no {wrong[0]!r}; there are {', '.join(CASES)}")
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
        # A p-value has steps: one is taken where a score lies as close to a validation example's.
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
