"""Trains the tasks of the benchmark and records their networks' outputs.

    python -m experiments.decisions.run --workdir=FOLDER [--only=small,mstar] [--list]

A task is a folder below ``FOLDER/outputs`` with an ``.npz`` file for each of its trainings:
``main``, ``trial-0`` … and ``fold-0`` …. A file that exists is not made again, so a run that was
cut off goes on. The files are large and are not part of the repository. Data is read from
``JAXATR_DATA`` (default ``../shared/data``), ImageNet's weights from ``JAXATR_WEIGHTS_DIR``.
"""

import argparse
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions import chips, package
from experiments.decisions.tasks import TASKS, DecisionTask


class Training(NamedTuple):
    """One training of a task.

    Attributes:
      name: name of its file of outputs.
      overrides: values by configuration field, beside the task's.
      parts: parts whose outputs are recorded.
      fold: the fold of the known chips that is left out, or None.
    """

    name: str
    overrides: dict[str, Any]
    parts: tuple[str, ...]
    fold: int | None = None


def trainings(task: DecisionTask) -> Iterator[Training]:
    """Lists the trainings of a task, the main one first."""
    yield Training("main", {}, ("train", "validation", "test", "box_off"))
    steps, known = task.overrides["train.steps"], known_classes(task)
    for turn in range(task.trials):
        held = {"open_set.hold_out": max(1, round(known / 3)), "open_set.hold_out_turn": turn}
        # Small tasks have few chips to compare with, so that more of them are held out.
        more = {"data.validation": 0.25} if task.name.startswith("small") else {}
        shorter = {"train.steps": round(task.trial_share * steps)}
        parts = ("train", "validation", "held_out")
        yield Training(f"trial-{turn}", {**held, **more, **shorter}, parts)
    for number in range(task.folds):
        # The test split of a fold's folder is the fold; unknown classes are not in it.
        yield Training(f"fold-{number}", {"data.validation": 0.0}, ("train", "test"), number)


def known_classes(task: DecisionTask) -> int:
    """Returns the number of known classes of a task."""
    split = str(task.overrides.get("open_set.split", "random-5/3"))
    if split.startswith("known:"):
        return len(split.split(","))
    return 6 if split.startswith("mstar") else 5


def chips_of(task: DecisionTask, one: Training, workdir: Path, data: Path) -> dict[str, str]:
    """Writes the folder of chips of a training if it has one; returns the field that names it."""
    if task.chips is None:
        return {}
    (workdir / "chips").mkdir(parents=True, exist_ok=True)
    folder = task.chips.write(data, workdir / "chips")
    if one.fold is not None:
        folder = chips.folds(folder, task.folds)[one.fold]
    return {"data.source": str(folder)}


def carry_out(task: DecisionTask, one: Training, workdir: Path, data: Path) -> None:
    """Carries out a training of a task, and records its outputs, unless they exist."""
    path = workdir / "outputs" / task.name / f"{one.name}.npz"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    started, run = time.monotonic(), workdir / "runs" / f"{task.name}-{one.name}"
    more = {} if task.box_off else {"data.box_error": 0.0}
    source = chips_of(task, one, workdir, data)
    config = package.configured(task.config, {**more, **task.overrides, **source, **one.overrides})
    package.train(config, run)
    trained = time.monotonic()
    arrays = package.record(run, one.parts)
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(unfinished, allow_pickle=False, **arrays)
    unfinished.rename(path)
    record = json.loads((run / "record.json").read_text())
    facts = {key: record.get(key) for key in ("code", "device", "split", "examples", "dataset")}
    facts["seconds"] = [round(trained - started), round(time.monotonic() - trained)]
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1))
    shutil.rmtree(run)
    print(f"{time.strftime('%H:%M:%S')} {task.name} {one.name} {facts['seconds']}", flush=True)


def main() -> int:
    """Carries out the tasks; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description="Trains the tasks of the benchmark of decisions.")
    parser.add_argument("--workdir", required=True, help="folder of chips, runs and outputs")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--only", default="", help="comma-separated prefixes of tasks")
    parser.add_argument("--list", action="store_true", help="list the tasks, without training")
    flags = parser.parse_args()
    chosen = [task for task in TASKS if task.name.startswith(tuple(flags.only.split(",")))]
    workdir, data = Path(flags.workdir).absolute(), Path(flags.data).absolute()
    if flags.list:
        print("\n".join(task.name for task in chosen))
        return 0
    failed = 0
    waiting = [(order, task, one) for order, task in enumerate(chosen) for one in trainings(task)]
    # Every task's network comes first, then those without classes, then those without folds.
    kinds = ("main", "trial", "fold")
    waiting.sort(key=lambda item: (kinds.index(item[2].name.partition("-")[0]), item[0]))
    for _, task, one in waiting:
        try:
            carry_out(task, one, workdir, data)
        except (ValueError, OSError, KeyError):  # the other trainings go on
            failed += 1
            print(f"failed  {task.name} {one.name}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
