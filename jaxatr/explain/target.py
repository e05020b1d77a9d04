"""The network that is explained: that of a run, of an ONNX file or of a user's function."""

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
from jaxatr.training import Target, digest
from jaxatr.typing import ArrayLike, PyTree

_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[\w.]+")  # resolve's, with the colon


def load_target(source: str | os.PathLike) -> Target:
    """Loads the network that is explained.

    Args:
      source: a run's folder, whose closed-set classifier it is at its newest checkpoint; an ONNX
        file (:func:`onnx_target`); or ``"package.module:name"`` of a function that takes
        nothing and returns a :class:`Target`.

    Raises:
      ValueError: no run, file or function, or one whose network is no classifier of known classes.
    """
    if _DOTTED.fullmatch(os.fspath(source)) and not Path(source).exists():
        return _made_target(os.fspath(source))
    if not Path(source).exists():
        raise ValueError(
            f"distillation.target: there is nothing at {source}; if a run explains what was there, "
            "say where it is now by continuing that run: jaxatr train --workdir=DIR "
            "--config=… --config.distillation.target=PATH"
        )
    if Path(source).suffix == ".onnx":
        return onnx_target(source)
    run = training.load_run(source)
    return run.task.classifier(run)


def onnx_target(path: str | os.PathLike) -> Target:
    """Loads a classifier from an ONNX file.

    It takes images in their raw units; the model itself has to normalise them where its network
    needs that. Its metadata has, as JSON, the names of its ``classes``, and the ``layout`` of its
    images where that is not ``"NCHW"``; ``jaxatr convert export`` writes both. Of several
    outputs the one called ``logits`` counts.

    Args:
      path: of the file.

    Raises:
      ValueError: it cannot be read, names no classes, or has no such input or output.
    """
    from jaxatr.onnx.backbone import check_images
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
    check_images(path, model)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    logits = partial(_onnx_logits, Network(model, outputs.index(chosen), layout))
    source = {"workdir": str(path), "sha256": digest, "output": chosen}
    return Target(logits, model.variables, classes, source)


def _onnx_logits(network: Any, variables: PyTree, images: ArrayLike) -> jax.Array:
    return network.apply({}, images, variables)


def _made_target(path: str) -> Target:
    made = resolve(path)()
    if not isinstance(made, Target):
        raise ValueError(
            f"distillation.target: {path} returned {type(made).__name__}, wanted a "
            "jaxatr.explain.Target"
        )
    classes = tuple(map(str, made.classes))
    given = {name: value for name, value in made.source.items() if name != "workdir"}
    source = {"workdir": path, "variables": digest(made.variables), **given}
    return made._replace(classes=classes, source=source)
