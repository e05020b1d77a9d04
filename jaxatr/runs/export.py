"""Exports a run as an ONNX file that takes recorded images and returns the predictions.

``jaxatr.runs`` does not import this module, because it needs the extra ``onnx``.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import training
from jaxatr.data.intake import Intake
from jaxatr.data.traced_chip import traced_chips
from jaxatr.files import Scratch
from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer.exporter import OPSET, FreeAxis, export
from jaxatr.onnx.writer.serialisation import write_model
from jaxatr.openset.graph import Precision
from jaxatr.runs.options import check_options
from jaxatr.training import Checkpoint, Exportable, TrainedRun
from jaxatr.typing import PyTree

Input = Literal["images", "chips"]
Layout = Literal["NHWC", "NCHW"]
_ARGUMENTS = {
    "takes": get_args(Input),
    "layout": get_args(Layout),
    "precision": get_args(Precision),
}


def export_run(
    workdir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    takes: Input = "images",
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "NHWC",
    checkpoint: Checkpoint = "latest",
    opset: int = OPSET,
    batch: int | None = None,
    score: str | None = None,
    source: str | None = None,
    precision: Precision = "float32",
) -> onnx.ModelProto:
    """Exports a trained run as an ONNX file.

    The input ``images`` is a batch of images of the same size, in the type and units of the
    training images. The graph includes the geometry that turns images into chips (crop, padding,
    resize with Pillow's filter) and the normalisation. It computes in float32, even for a run in
    bfloat16.

    The outputs of an open-set run are ``decision`` (index of the class, -1 for unknown),
    ``nearest`` (index of the most similar class), ``score``, ``threshold``,
    ``class_probabilities``, if available ``known_probability``, ``p_value`` and
    ``class_distances``, and the network's ``logits``, ``open_logits`` (if binary classifiers were
    trained) and ``features``. An embedding has the outputs ``embedding``, ``coarse_logits`` and
    ``fine_logits``; a surrogate has ``logits`` and ``saliency``. A network for tracks has a second
    input, ``lengths`` (int32): the number of images in each track. A detector takes scenes of
    ``size``, by default that of its tiles; its outputs are ``boxes``, ``scores``, ``valid``
    (whether there is such a target), ``decision`` and ``probabilities`` of a fixed number of
    targets.

    The file's metadata holds, as JSON, ``classes``, ``image_shape`` (rows, columns, channels of a
    chip), ``image_dtype``, ``bands`` (names of the images' bands, endings of their files, whether
    complex values become magnitude and phase), ``geometry``, ``takes``, ``layout``, ``mean``,
    ``std``, ``step`` and ``provenance`` (run, commit, data and its fingerprint, versions). An
    open-set run also has
    ``gamma``, ``fitted_gamma`` (if this checkpoint was evaluated), ``decides``, ``thresholds``
    (null: everything is accepted), ``guarantees`` (null: none), ``fitted_to``, ``probability_is``,
    ``class_from``, ``temperature``, ``tpr`` and ``validation_examples``.

    Args:
      workdir: the run's folder.
      path: the ONNX file to write.
      takes: ``"images"``: images of any size that the geometry allows; ``"chips"``: float32 chips
        of the size that the network was trained on, without geometry in the graph.
      size: rows and columns of the images if they are fixed; None for any size.
      channels: channels of the images, where gray and RGB are converted 1 or 3; None for those of
        the chips, or for all bands of which ``data.bands`` chooses some.
      layout: layout of the images: channels last (``"NHWC"``) or second (``"NCHW"``).
      checkpoint: ``"latest"``, ``"best"`` or a step.
      opset: version of the ONNX operator set.
      batch: fixed batch size; None for any. An imported ONNX backbone whose ``Shape`` nodes read
        the batch size needs a fixed one.
      score: the score that decides, for an open-set run; None for the run's own, ``"none"`` to
        export the network alone.
      source: present location of the training data, if the score has to be fitted first.
      precision: ``"int8"``: convolutions in 8 bits (:mod:`jaxatr.onnx.writer.quantisation`), with
        ranges measured on validation chips, and training chips that are searched in 8 bits
        (:mod:`jaxatr.openset.gallery.rounding`); ``"float16"``: weights, convolutions and these
        chips in 16 bits. The thresholds are fitted to the outputs of the converted network, which
        needs the extra ``onnxruntime`` and the training data. The metadata's ``precision`` says
        what the network lost. Only for recognisers of single images.

    Returns:
      The exported model.

    Raises:
      ValueError: there is no such run or checkpoint, an argument is invalid or incompatible with
        the geometry, or the kind of run, the backbone or the score cannot be exported.
    """
    _check(batch, takes=takes, layout=layout, precision=precision)
    run = training.load_run(workdir, checkpoint)
    run.config.model.dtype = "float32"  # ONNX's older operators do not take bfloat16
    options = {"score": score, "source": source}
    options["precision"] = None if precision == "float32" else precision
    options = {name: value for name, value in options.items() if value is not None}
    check_options(workdir, run.task.kind(), run.task.exportable, options)
    network = run.task.exportable(run, **options)
    intake = network.scenes or run.intake
    if network.scenes and size is not None:
        if max(size) > max(intake.shape[:2]):
            raise ValueError(
                f"size: got scenes of {size}, wanted sides of at most {max(intake.shape[:2])} "
                "pixels, as in a tile: longer scenes are cut into tiles, which a file does not do"
            )
        intake = intake._replace(shape=(*size, intake.shape[2]))
    example, free = _input(intake, takes, size, channels)
    tracks = bool(network.frames)
    shape = (batch or 1, *[network.frames] * tracks, *example.shape)
    images = np.zeros(shape, example.dtype)
    axes = {axis + 1 + tracks: one for axis, one in free.items()}
    if layout == "NCHW":
        images = np.moveaxis(images, -1, -3)
        axes = {axis + 1: one for axis, one in axes.items()}
    further = [np.repeat(array, batch or 1, axis=0) for array in network.further.values()]
    write = partial(
        export,
        _from_raw(run, network, intake, layout, takes),
        network.variables,
        [images, *further],
        opset=opset,
        dynamic_batch=batch is None,
        free_axes=[axes],
        input_names=["images", *network.further],
        output_names=list(network.outputs) or None,
        properties=_properties(run, network, intake, layout, takes),
    )
    if network.convert is None:
        return write(path)
    with Scratch() as scratch:
        model = network.convert(write(Path(scratch) / "network.onnx"))
    write_model(model, path)
    return model


def _check(batch: int | None, **named: str) -> None:
    """Raises an error if an argument is none of those that there are."""
    if batch is not None and batch < 1:
        raise ValueError(f"batch: got {batch}, wanted 1 or more")
    for name, value in named.items():
        if value not in (wanted := _ARGUMENTS[name]):
            raise ValueError(f"{name}: got {value!r}, wanted {' or '.join(map(repr, wanted))}")


def _properties(
    run: TrainedRun, network: Exportable, intake: Intake, layout: str, takes: Input
) -> dict[str, str]:
    """Returns the metadata of the file, as JSON."""
    properties = {
        "classes": network.classes,
        "image_shape": intake.shape,
        "image_dtype": intake.dtype,
        "bands": intake.bands.as_dict(),
        "takes": takes,
        "geometry": _geometry(intake),
        "layout": layout,
        "mean": run.mean.tolist(),
        "std": run.std.tolist(),
        "step": run.step,
        "provenance": provenance(run),
        **network.properties,
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in properties.items()}


def provenance(run: TrainedRun) -> dict[str, Any]:
    """Returns the recorded provenance of a run: its folder's name, code, data and versions."""
    record = run.record
    return {
        "run": run.workdir.resolve().name,
        "task": run.task.__name__,
        "fingerprint": record.get("fingerprint"),
        "code": record.get("code"),
        "dataset": record.get("dataset"),
        "split": record.get("split", {}).get("name"),
        "versions": record.get("versions"),
        "started": record.get("started"),
    }


def _input(
    intake: Intake, takes: Input, size: tuple[int, int] | None, channels: int | None
) -> tuple[np.ndarray, dict[int, FreeAxis]]:
    """Makes an example input; returns it and its axes of variable size."""
    if takes == "chips":
        if size is not None or channels is not None:
            raise ValueError("size, channels: not allowed with takes='chips', whose shape is fixed")
        return np.zeros(intake.shape, np.float32), {}
    chip = intake.chip
    trained = chip.choice.of if chip.choice else intake.shape[2]
    channels = trained if channels is None else channels
    if channels != trained and not (chip.channels == trained and channels in (1, 3)):
        wanted = "1 or 3" if chip.channels == trained else trained
        raise ValueError(f"channels: got {channels}, wanted {wanted}")
    least = chip.center_crop or 1
    if size is not None and chip.output_shape((*size, channels)) != intake.shape:
        made = chip.output_shape((*size, channels))
        raise ValueError(
            f"size: images of {size} give chips of {made}, but the network takes {intake.shape}"
        )
    example = np.zeros((*(size or np.maximum(intake.shape[:2], least)), channels), intake.dtype)
    if size is not None or not (chip.size or chip.center_crop or chip.square):
        return example, {}  # the size is fixed: given, or the chip's, as nothing changes it
    return example, {0: FreeAxis("height", least), 1: FreeAxis("width", least)}


def _geometry(intake: Intake) -> dict[str, Any]:
    """Describes the geometric operations that turn an image into a chip."""
    chip = intake.chip
    steps = {name: getattr(chip, name) for name in ("blank_center", "center_crop", "square")}
    if chip.choice is not None:
        steps["bands"] = [number + 1 for number in chip.choice.numbers]
    return steps | {"resize": chip.size, "filter": "Pillow's bilinear, with antialiasing"}


def _from_raw(
    run: TrainedRun, network: Exportable, intake: Intake, layout: str, takes: Input
) -> Callable:
    def apply(variables: PyTree, images: jax.Array, *further: jax.Array) -> Any:
        if layout == "NCHW":
            images = jnp.moveaxis(images, -3, -1)
        if takes == "images":
            single = images.reshape(-1, *images.shape[-3:]) if network.frames else images
            chips = traced_chips(intake.chip, single, intake.shape)
            images = chips.reshape(*images.shape[:-3], *intake.shape)
        given = images if network.raw else run.normalize(images)
        outputs = network.apply(variables, given, *further)
        # JAX sorts the keys of a dict, but keeps the order of an OrderedDict.
        return OrderedDict(outputs) if isinstance(outputs, dict) else list(outputs)

    return apply
