"""A run's network as an ONNX file: raw pixels in, what the network says out.

It stands by itself, as it alone of this package's ``runs`` needs the extra ``onnx``.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import models, training
from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer.exporter import OPSET, export
from jaxatr.runs.folder import load_config, takes_tracks, variables_of
from jaxatr.tasks.examples import normalize
from jaxatr.typing import Config, PyTree


class _Network(NamedTuple):
    """A trained network.

    Attributes:
      module: takes normalised images.
      variables: that it needs.
      outputs: which fields of what it returns are worth having, and what they are called.
      classes: of the columns of its logits.
      frames: chips of a track that it takes; 0 of one that takes single chips.
    """

    module: Any
    variables: PyTree
    outputs: Mapping[str, str]
    classes: tuple[str, ...]
    frames: int = 0


def export_run(
    workdir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    layout: Literal["NHWC", "NCHW"] = "NHWC",
    checkpoint: Literal["best", "latest"] | int = "latest",
    opset: int = OPSET,
    batch: int | None = None,
) -> onnx.ModelProto:
    """Writes the network that a run trained as an ONNX file, and returns what it wrote.

    The input ``images`` takes a batch of chips as float32, in the raw pixel values that the network
    was trained on: its normalisation is in the graph. The arithmetic is float32, that of a run in
    bfloat16 too. The outputs are ``logits``, ``open_logits`` (where there are trained binary
    classifiers) and ``features`` of an open-set run; ``embedding``, ``coarse_logits`` and
    ``fine_logits`` of an embedding; ``logits`` and ``saliency`` of a surrogate. A network of tracks
    has a second input, ``lengths`` (int32): how many of its chips each track has.

    The file's metadata has, as JSON, ``classes``, ``image_shape`` (rows, columns, channels),
    ``image_dtype`` (of the images it was trained on), ``layout``, ``mean``, ``std``, ``step`` and,
    of an open-set run, ``gamma`` and ``fitted_gamma``.

    Args:
      workdir: the run's folder.
      path: of the file.
      layout: of the input: channels last or second.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      opset: version of ONNX's operators.
      batch: how many chips the file takes at once; None: any number. A backbone out of a file
        whose ``Shape`` nodes read the batch's size wants a number.

    Raises:
      ValueError: no run, no such checkpoint, no such layout, a batch below 1, or a backbone that
        has no form in ONNX.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch: got {batch}, wanted 1 or more")
    if layout not in ("NHWC", "NCHW"):
        raise ValueError(f"layout: got {layout!r}, wanted 'NHWC' or 'NCHW'")
    config, record = load_config(workdir), training.read_record(workdir)
    config.model.dtype = "float32"  # half of it is not in what ONNX's older operators take
    snapshot = training.load_snapshot(workdir, checkpoint)
    network = _network(config, record, variables_of(snapshot))
    shape = tuple(record["image_shape"])
    chip = np.zeros((batch or 1, *[network.frames] * bool(network.frames), *shape), np.float32)
    inputs: list[np.ndarray] = [chip if layout == "NHWC" else np.moveaxis(chip, -1, -3)]
    if network.frames:
        inputs.append(np.ones(batch or 1, np.int32))
    return export(
        _from_raw(network, record["normalization"], layout),
        network.variables,
        inputs,
        path,
        opset=opset,
        dynamic_batch=batch is None,
        input_names=["images", "lengths"][: len(inputs)],
        output_names=list(network.outputs.values()),
        properties={
            name: json.dumps(value, ensure_ascii=False)
            for name, value in {
                "classes": network.classes,
                "image_shape": shape,
                "image_dtype": record["image_dtype"],
                "layout": layout,
                "mean": record["normalization"]["mean"],
                "std": record["normalization"]["std"],
                "step": snapshot.step,
                **_thresholds(config, record, snapshot.step, network),
            }.items()
        },
    )


def _network(config: Config, record: Mapping[str, Any], variables: PyTree) -> _Network:
    """Returns the network of a run of any task."""
    classes = tuple(record["split"]["known"])
    if "target" in record:
        own = {name: variables["params"][name] for name in ("student", "explainer")}
        return _Network(
            models.build_surrogate(config, len(classes)),
            {**variables, "params": own},
            {"logits": "logits", "saliency": "saliency"},
            classes,
        )
    if "coarse" in record:
        module = models.build_embedding(
            config.model,
            len(set(record["coarse"])),
            len(classes),
            dimension=config.embedding.dimension,
            unit_length=config.embedding.unit_length,
        )
        outputs = {"embeddings": "embedding"}
        outputs |= {name: name for name in ("coarse_logits", "fine_logits")}
        return _Network(module, variables, outputs, classes)
    if config.open_set.negatives:
        classes = (*classes, "unknown")  # what the negatives stand for
    fields = ["logits", "open_logits", "features"]
    if config.loss.open == "none":
        fields.remove("open_logits")  # nothing has trained them
    outputs = {name: name for name in fields}
    if takes_tracks(config, record):
        module = models.build_track(config.model, len(classes), config.track.hidden)
        return _Network(module, variables, outputs, classes, config.track.frames)
    return _Network(models.build_open_set(config.model, len(classes)), variables, outputs, classes)


def _from_raw(network: _Network, normalization: Mapping[str, Any], layout: str) -> Callable:
    mean, std = (np.asarray(normalization[name]) for name in ("mean", "std"))

    def run(variables: PyTree, images: jax.Array, *lengths: jax.Array) -> list[jax.Array]:
        if layout == "NCHW":
            images = jnp.moveaxis(images, -3, -1)
        images = normalize(images, mean, std)
        if lengths:
            result = network.module.apply(variables, images, lengths=lengths[0]).track
        else:
            result = network.module.apply(variables, images, train=False)
        return [getattr(result, name) for name in network.outputs]

    return run


def _thresholds(
    config: Config, record: Mapping[str, Any], step: int, network: _Network
) -> dict[str, float]:
    """Returns γ, and the one that an evaluation of this very checkpoint has fitted."""
    if "open_logits" not in network.outputs:
        return {}
    found = {"gamma": config.open_set.gamma}
    if record.get("fitted_gamma") is not None and record["fitted_gamma_step"] == step:
        found["fitted_gamma"] = record["fitted_gamma"]
    return found
