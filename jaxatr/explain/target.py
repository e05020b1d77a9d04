"""The network that is explained: that of a run, of an ONNX file or of a user's function."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import training
from jaxatr.resolve import resolve
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, PyTree

_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[\w.]+")  # resolve's, with the colon


class Target(NamedTuple):
    """A trained classifier, which is to be explained.

    Attributes:
      logits: ``(variables, images) -> [b, k]`` of float32 images ``[b, h, w, c]`` in their raw
        units; pure, and differentiable in the images.
      variables: a pytree of arrays.
      classes: names of the k classes.
      source: facts that identify the network in results, as JSON values.
    """

    logits: Callable[..., jax.Array]
    variables: PyTree
    classes: tuple[str, ...]
    source: Mapping[str, Any]


class Surrogate(NamedTuple):
    """A trained network that explains another one in a single pass.

    Attributes:
      target: the network that it explains.
      saliency: from images ``[b, h, w, c]`` in their raw units to maps ``[b, h, w]`` in [0, 1].
    """

    target: Target
    saliency: Callable[[ArrayLike], jax.Array]


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
    return classifier_of(training.load_run(source))


def classifier_of(run: TrainedRun) -> Target:
    """Takes the classifier of known classes out of a run.

    Raises:
      ValueError: the run is of another kind.
    """
    config, record = run.config, run.record
    if "split" not in record or "coarse" in record or "target" in record:
        raise ValueError(f"{run.workdir}: wanted the run of a classifier (configs/cbc.py)")
    if training.takes_tracks(config, record):
        raise ValueError(f"{run.workdir}: wanted a classifier of single images, got one of tracks")
    source = {
        "workdir": str(run.workdir),
        "fingerprint": record.get("fingerprint"),
        "step": run.step,
        "backbone": config.model.backbone,
        "width": config.model.width,
        "variables": _digest(run.variables),
    }
    module = run.module

    def logits(variables: PyTree, images: ArrayLike) -> jax.Array:
        return module.apply(variables, run.normalize(images), train=False).logits

    return Target(logits, run.variables, run.classes, source)


def surrogate_of(run: TrainedRun) -> Surrogate | None:
    """Takes the surrogate out of a run, with the network that it explains.

    Returns:
      ``None`` where the run is of another kind.

    Raises:
      ValueError: the network is not to be found, or is another one now.
    """
    before = run.record.get("target")
    if before is None:
        return None
    target = load_target(run.config.distillation.target)
    if not training.explains(run.record, target.source):
        raise ValueError(
            f"distillation.target: {run.workdir} explains another network: recorded {before}, now "
            f"{target.source}"
        )
    # The run keeps its target's variables.
    params = dict(run.variables["params"])
    target, module = target._replace(variables=params.pop("target")), run.module

    @jax.jit
    def saliency(variables: PyTree, images: ArrayLike) -> jax.Array:
        return module.apply(variables, run.normalize(images), train=False).saliency

    return Surrogate(target, partial(saliency, {**run.variables, "params": params}))


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
