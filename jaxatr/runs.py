"""A run from its configuration to its evaluation, as the commands do it and as a program can."""

import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from jaxatr import config as configuration
from jaxatr import training
from jaxatr.resolve import resolve
from jaxatr.typing import Config, PyTree

EVALUATION = "evaluation.json"
SCORES = "scores.npz"
THUMBNAILS = "thumbnails.npz"


def train_run(config: Config, workdir: str | os.PathLike, *, progress: bool = True) -> None:
    """Trains what ``config`` describes, or continues the run in ``workdir``; does not evaluate it.

    Args:
      config: a full configuration (``jaxatr.config.base`` with overrides).
      workdir: the run's folder, created where missing.
      progress: show a progress bar.

    Raises:
      ValueError: the configuration is wrong, is not that of the run in ``workdir``, or the data
        has changed since that run began.
      training.NonFiniteLoss: the training diverged.
      training.Preempted: the run was told to stop, and has saved.
    """
    training.check_config(workdir, config, free=_FREE)  # before any data is prepared for nothing
    task = resolve(config.task)(config)
    _refuse_changed_data(workdir, task.record)
    training.record_config(workdir, config, free=_FREE)
    training.update_record(workdir, **task.record)
    training.train(
        task,
        workdir=workdir,
        config=config,
        evaluate_every=max(1, round(config.train.evaluate_every * task.steps_per_epoch)),
        checkpoint_every=config.train.checkpoint_every,
        log_every=config.train.log_every,
        keep=config.train.keep,
        seed=config.seed,
        progress=progress,
        free_fields=_FREE,
    )


_FREE = ("data.source",)  # what counts is the data's fingerprint, not where it lies


def _refuse_changed_data(workdir: str | os.PathLike, record: dict[str, Any]) -> None:
    recorded = training.read_record(workdir).get("dataset")
    if recorded is not None and recorded != record["dataset"]:
        raise ValueError(
            f"{workdir} holds a run on other data: recorded {recorded}, now {record['dataset']}"
        )


def load_config(workdir: str | os.PathLike) -> Config:
    """Returns the configuration that a run was trained with.

    A field that did not exist yet when the run was trained has its default.

    Raises:
      ValueError: ``workdir`` is no run folder.
    """
    path = Path(workdir) / "config.json"
    if not path.is_file():
        raise ValueError(f"{workdir} is no run folder: there is no {path.name} in it")
    config = configuration.base()
    with config.unlocked(), config.ignore_type():
        config.update(json.loads(path.read_text(encoding="utf-8")))
    return config


def evaluate_run(
    workdir: str | os.PathLike,
    *,
    checkpoint: Literal["best", "latest"] | int = "latest",
    data: dict[str, Any] | None = None,
    scores: str | Collection[str] | None = None,
) -> dict[str, Any]:
    """Evaluates a run on its test data, and records the result in its folder.

    Writes ``evaluation.json`` (what is returned), ``scores.npz`` (the network's outputs, from which
    every figure can be computed again), ``thumbnails.npz`` (the most confident mistakes, to look
    at), and the fitted γ into the run's record.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation part) or a step.
      data: fields of ``config.data`` to change, where the data has moved.
      scores: names of open-set scores, or ``"all"``; by default, the task's.

    Raises:
      ValueError: no run, no such checkpoint, or other data than the run was trained on.
    """
    config = load_config(workdir)
    config.data.update(data or {})
    task = resolve(config.task)(config)
    _refuse_changed_data(workdir, task.record)
    snapshot = training.load_snapshot(workdir, checkpoint)
    chosen = {} if scores is None else {"scores": scores}
    measured, arrays = task.test(variables_of(snapshot), **chosen)
    result = {"checkpoint": {"which": checkpoint, "step": snapshot.step}, **measured}
    folder = Path(workdir)
    thumbnails = task.thumbnails(measured, arrays)
    _write(folder / SCORES, lambda file: np.savez_compressed(file, **arrays))
    _write(folder / THUMBNAILS, lambda file: np.savez_compressed(file, **thumbnails))
    text = json.dumps(result, indent=2) + "\n"
    _write(folder / EVALUATION, lambda file: file.write(text.encode()))
    training.update_record(
        workdir, fitted_gamma=measured["fitted_gamma"], fitted_gamma_step=snapshot.step
    )
    return result


def variables_of(snapshot: training.Snapshot) -> PyTree:
    """Returns what a network's ``apply`` takes, from a checkpoint."""
    return {"params": snapshot.state["params"], **snapshot.state["model_state"]}


def _write(path: Path, write: Callable[[Any], object]) -> None:
    if jax.process_index():
        return  # every process has the result, one writes it
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        write(file)
    partial.replace(path)
