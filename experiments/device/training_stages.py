"""The stages that run whole trainings: from disk, killed and resumed, and a long one."""

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rows import Rows, Unit

ROOT = Path(__file__).parents[2]


def jaxatr(command: str, *flags: str, log: Path, seconds: float | None = None) -> int:
    """Runs a command of the package; after ``seconds``, SIGTERM makes it save and exit."""
    arguments = [sys.executable, "-m", "jaxatr", command, *flags]
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=file, stderr=file)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            return process.wait()


def folder_of_images(path: Path, classes: int, each: int, side: int) -> Path:
    """Writes class folders of PNG files, unless they exist."""
    from PIL import Image

    if (path / "whole").is_file():
        return path
    draw = np.random.default_rng(0)
    for split, name in itertools.product(("train", "test"), range(classes)):
        folder = path / split / f"class{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(each if split == "train" else max(2, each // 10)):
            pixels = draw.integers(0, 64, (side, side, 3)) + 20 * name
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    (path / "whole").touch()
    return path


def few_images(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of a rehearsal: a narrow network and a few images."""
    return {
        "data.source": folder_of_images(options.out / "images", 4, 12, 32),
        "data.size": 32,
        "open_set.split": "first-2",
        "train.batch_size": 8,
        "model.width": 8,
    }


def disk(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "cbc:folder", partial(from_disk, options)


def from_disk(options: argparse.Namespace) -> dict[str, Any]:
    """Trains from image files; returns the median rate of all records but the first."""
    workdir = options.out / "disk"
    shutil.rmtree(workdir, ignore_errors=True)
    fields: dict[str, Any]
    if options.rehearse:
        fields = {"train.steps": 6, "train.log_every": 2, **few_images(options)}
    else:
        fields = {
            "data.source": folder_of_images(options.out / "images", 8, 1000, 64),
            "data.size": 64,
            "open_set.split": "first-4",
            "train.batch_size": 256,
            "train.steps": 200,
            "train.log_every": 10,
            "model.width": 64,
            "model.dtype": "bfloat16",
        }
    fields["train.evaluate_every"] = 1000.0
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    status = jaxatr(
        "train", "--config=cbc:folder", f"--workdir={workdir}", *flags, log=options.out / "log.txt"
    )
    if status:
        raise RuntimeError(f"jaxatr train ended with {status}; see log.txt")
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    rates = [line["images_per_second"] for line in lines if "images_per_second" in line]
    return {"batch": fields["train.batch_size"], "images_per_s": statistics.median(rates[1:])}


def resume(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "SIGKILL", partial(resumed, options)


def resumed(options: argparse.Namespace) -> dict[str, Any]:
    """Trains twice, once killed and resumed; the results must be identical to the bit."""
    fields: dict[str, Any] = {"train.steps": 60, "train.evaluate_every": 1000.0}
    fields |= {"train.checkpoint_every": 3, "train.log_every": 2}
    if options.rehearse:
        fields |= few_images(options)
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    folders = [options.out / "resume" / name for name in ("whole", "killed")]
    shutil.rmtree(options.out / "resume", ignore_errors=True)
    common = [f"--config=cbc:{'folder' if options.rehearse else 'smoke'}", *flags]
    log = options.out / "log.txt"
    status = jaxatr("train", *common, f"--workdir={folders[0]}", log=log)
    if status:
        raise RuntimeError(f"jaxatr train ended with {status}; see log.txt")
    command = [sys.executable, "-m", "jaxatr.train", *common, f"--workdir={folders[1]}"]
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        while process.poll() is None and not saved(folders[1]):
            time.sleep(0.05)
        process.kill()
        killed = process.wait() == -signal.SIGKILL
    at = max(saved(folders[1]), default=0)
    if status := jaxatr("train", *common, f"--workdir={folders[1]}", log=log):
        raise RuntimeError(f"the resumed jaxatr train ended with {status}; see log.txt")
    same = digests(folders[0]) == digests(folders[1])
    return {"killed_at": at, "killed": killed, "same_bits": same, "passed": bool(killed and same)}


def saved(workdir: Path) -> list[int]:
    from jaxatr import training

    return list(training.saved_steps(workdir)) if workdir.is_dir() else []


def digests(workdir: Path) -> str:
    """Hashes the variables of a finished run, in a process that does not use the device."""
    code = (
        "import sys; from jaxatr.training import load_run; "
        "from jaxatr.training.networks import digest; "
        "print(digest(load_run(sys.argv[1]).variables))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(workdir)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
    )
    return done.stdout.splitlines()[-1]


def long(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "cifar10", partial(trained_long, options)


def trained_long(options: argparse.Namespace) -> dict[str, Any]:
    """Trains for the rest of the time; the next call continues. A finished run is evaluated."""
    if options.rehearse:
        fields = {"train.steps": 4, **few_images(options)}
    elif not options.cifar10:
        return {"skipped": "--cifar10 is not given"}
    else:
        fields = {"model.dtype": "bfloat16", "data.source": options.cifar10}
    workdir, log = options.out / "cifar10", options.out / "log.txt"
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    flags.append(f"--workdir={workdir}")
    seconds = max(5.0, options.seconds - 30)  # leaves time for starting and saving
    if jaxatr("train", "--config=cbc:cifar10", *flags, log=log, seconds=seconds):
        return {"unfinished": True}
    if status := jaxatr("evaluate", f"--workdir={workdir}", log=log):
        raise RuntimeError(f"jaxatr evaluate ended with {status}; see log.txt")
    measured = json.loads((workdir / "evaluation.json").read_text())
    numbers = {k: v for k, v in measured.items() if isinstance(v, int | float)}
    return {"step": max(saved(workdir), default=0), **numbers}
