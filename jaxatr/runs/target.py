"""The network of a run, of an ONNX file or of a function, as the target of an explanation."""

import hashlib
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import models, training
from jaxatr.resolve import resolve
from jaxatr.tasks.open_set.task import infer
from jaxatr.tasks.target import Target
from jaxatr.training.folder import load_config, takes_tracks, variables_of
from jaxatr.typing import ArrayLike, PyTree

_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[\w.]+")  # resolve's, with the colon


def load_target(source: str | os.PathLike) -> Target:
    """Returns the network that is explained.

    Args:
      source: a run's folder, whose closed-set classifier it is at its newest checkpoint; an ONNX
        file, as :func:`onnx_target` has it; or ``"package.module:name"`` of a function that takes
        nothing and returns a :class:`~jaxatr.tasks.target.Target`.

    Raises:
      ValueError: no run, file or function, or one whose network is no classifier of known classes.
    """
    if _DOTTED.fullmatch(os.fspath(source)) and not Path(source).exists():
        return _made_target(os.fspath(source))
    if not Path(source).exists():
        raise ValueError(
            f"distillation.target: there is nothing at {source}; if a run explains what was there, "
            "say where it is now by continuing that run: python -m jaxatr.train --workdir=DIR "
            "--config=… --config.distillation.target=PATH"
        )
    return (onnx_target if Path(source).suffix == ".onnx" else _run_target)(source)


def onnx_target(path: str | os.PathLike) -> Target:
    """Returns a classifier from an ONNX file.

    It takes images in their raw units: where a network wants them normalised, that has to be part
    of the model. Its metadata has, as JSON, the names of its ``classes``, and the ``layout`` of its
    images where that is not ``"NCHW"``; ``python -m jaxatr.convert export`` writes both. Of several
    outputs the one called ``logits`` counts.

    Args:
      path: of the file.

    Raises:
      ValueError: it cannot be read, names no classes, or has no such input or output.
    """
    from jaxatr.onnx.feature_maps import Network
    from jaxatr.onnx.reader.model import load  # which needs a package of its own

    model = load(path)
    metadata = {entry.key: entry.value for entry in model.proto.metadata_props}
    try:
        classes = tuple(map(str, json.loads(metadata["classes"])))
        layout = json.loads(metadata.get("layout", '"NCHW"'))
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: wanted the names of its classes as a JSON list in its metadata, under "
            "'classes', and the layout of its images under 'layout'"
        ) from error
    outputs = [value.name for value in model.outputs]
    chosen = "logits" if len(outputs) > 1 else outputs[0]
    if len(model.inputs) != 1 or chosen not in outputs:
        given = ", ".join(value.name for value in model.inputs)
        raise ValueError(
            f"{path}: wanted a model from images alone to logits, it takes {given} and gives "
            f"{', '.join(outputs)}"
        )
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    logits = partial(_onnx_logits, Network(model, outputs.index(chosen), layout))
    source = {"workdir": str(path), "sha256": digest, "output": chosen}
    return Target(logits, model.variables, classes, source)


def _onnx_logits(network: Any, variables: PyTree, images: ArrayLike) -> jax.Array:
    return network.apply({}, images, variables)


def _run_target(workdir: str | os.PathLike) -> Target:
    config, record = load_config(workdir), training.read_record(workdir)
    if "split" not in record or "coarse" in record or "target" in record:
        raise ValueError(f"{workdir}: wanted the run of a classifier (configs/cbc.py)")
    if takes_tracks(config, record):
        raise ValueError(f"{workdir}: wanted a classifier of single images, got one of tracks")
    snapshot = training.load_snapshot(workdir, "latest")
    classes = tuple(record["split"]["known"])
    module = models.build_open_set(config.model, len(classes))
    variables = variables_of(snapshot)
    source = {
        "workdir": str(workdir),
        "fingerprint": record.get("fingerprint"),
        "step": snapshot.step,
        "backbone": config.model.backbone,
        "width": config.model.width,
        "variables": _digest(variables),
    }
    logits = partial(
        _logits,
        module,
        mean=np.asarray(record["normalization"]["mean"]),
        std=np.asarray(record["normalization"]["std"]),
    )
    return Target(logits, variables, classes, source)


def _made_target(path: str) -> Target:
    made = resolve(path)()
    if not isinstance(made, Target):
        raise ValueError(
            f"distillation.target: {path} returned {type(made).__name__}, wanted a "
            "jaxatr.tasks.Target"
        )
    classes = tuple(map(str, made.classes))
    given = {name: value for name, value in made.source.items() if name != "workdir"}
    source = {"workdir": path, "variables": _digest(made.variables), **given}
    return made._replace(classes=classes, source=source)


def _digest(variables: PyTree) -> str:
    """Returns a hash of arrays and their shapes."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(variables):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _logits(module: Any, variables: PyTree, images: ArrayLike, *, mean, std) -> jax.Array:
    return infer(module, variables, images, mean, std).logits
