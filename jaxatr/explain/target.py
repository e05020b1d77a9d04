"""Loads the network to explain from a run, an ONNX file or a user's function."""

import hashlib
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax

from jaxatr import training
from jaxatr.resolve import resolve
from jaxatr.training import Target, TrainedRun, digest
from jaxatr.typing import ArrayLike, PyTree

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[\w.]+")  # as resolve takes them, with the colon


def load_target(source: str | os.PathLike) -> Target:
    """Loads the network to explain.

    Args:
      source: a run's folder, whose closed-set classifier is loaded at its latest checkpoint; an
        ONNX file (:func:`onnx_target`); or the import path ``"package.module:name"`` of a function
        that takes no arguments and returns a :class:`Target`.

    Raises:
      ValueError: the source does not exist, or its network is not a classifier of known classes.
    """
    if _IMPORT_PATH.fullmatch(os.fspath(source)) and not Path(source).exists():
        return _from_function(os.fspath(source))
    if not Path(source).exists():
        raise ValueError(
            f"distillation.target: there is nothing at {source}; if the target of a run has moved, "
            "continue that run with the new path: jaxatr train --workdir=DIR "
            "--config=… --config.distillation.target=PATH"
        )
    if Path(source).suffix == ".onnx":
        return onnx_target(source)
    run = training.load_run(source)
    return run.task.classifier(run)


def check_surrogate(workdir: str | os.PathLike, run: TrainedRun) -> None:
    """Checks that a folder is that of the surrogate of a run's network, at its checkpoint.

    Raises:
      ValueError: it explains another network, or none.
    """
    source = run.task.classifier(run).source
    if not training.task_of(workdir).explains(training.read_record(workdir), source):
        raise ValueError(
            f"--surrogate: {workdir} does not explain {run.workdir} at step {run.step}"
        )


def onnx_target(path: str | os.PathLike) -> Target:
    """Loads a classifier from an ONNX file.

    The model takes images in their raw units, and has to normalise them itself if its network
    needs that. Its metadata must contain, as JSON, the names of its ``classes``, and the ``layout``
    of its images if it is not ``"NCHW"``; ``jaxatr convert export`` writes both. If the model has
    several outputs, the one named ``logits`` is used.

    Raises:
      ValueError: the file cannot be read, its metadata lacks the classes, or the model does not map
        a single input of images to logits.
    """
    from jaxatr.onnx.backbone import check_images
    from jaxatr.onnx.feature_maps import Network
    from jaxatr.onnx.reader.model import load  # needs the package onnx

    model = load(path)
    metadata = {entry.key: entry.value for entry in model.proto.metadata_props}
    try:
        names = json.loads(metadata.get("classes", "null"))
        layout = json.loads(metadata.get("layout", '"NCHW"'))
    except ValueError:
        names = layout = None
    if not isinstance(names, list) or layout not in ("NCHW", "NHWC"):
        raise ValueError(
            f"{path}: wanted metadata with the class names as a JSON list under 'classes', and "
            'the layout of the images, "NCHW" or "NHWC", under \'layout\''
        )
    outputs = [value.name for value in model.outputs]
    chosen = "logits" if len(outputs) > 1 else outputs[0]
    if len(model.inputs) != 1 or chosen not in outputs:
        inputs = ", ".join(value.name for value in model.inputs)
        raise ValueError(
            f"{path}: wanted a model with images as its only input and with logits, got inputs "
            f"{inputs} and outputs {', '.join(outputs)}"
        )
    check_images(path, model)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    logits = partial(_onnx_logits, Network(model, outputs.index(chosen), layout))
    source = {"workdir": str(path), "sha256": digest, "output": chosen}
    return Target(logits, model.variables, tuple(map(str, names)), source)


def _onnx_logits(network: Any, variables: PyTree, images: ArrayLike) -> jax.Array:
    return network.apply({}, images, variables)


def _from_function(path: str) -> Target:
    target = resolve(path)()
    if not isinstance(target, Target):
        raise ValueError(
            f"distillation.target: {path} returned {type(target).__name__}, wanted a "
            "jaxatr.explain.Target"
        )
    classes = tuple(map(str, target.classes))
    given = {name: value for name, value in target.source.items() if name != "workdir"}
    source = {"workdir": path, "variables": digest(target.variables), **given}
    return target._replace(classes=classes, source=source)
