"""A run as an ONNX file: images as they were recorded in, the answer out.

It stands by itself, as it alone of this package's ``runs`` needs the extra ``onnx``.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import training
from jaxatr.data.traced_chip import traced_chips
from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer.exporter import OPSET, FreeAxis, export
from jaxatr.runs.evaluation import check_options
from jaxatr.training import Checkpoint, Exportable, TrainedRun
from jaxatr.typing import PyTree

Input = Literal["images", "chips"]


def export_run(
    workdir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    takes: Input = "images",
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Literal["NHWC", "NCHW"] = "NHWC",
    checkpoint: Checkpoint = "latest",
    opset: int = OPSET,
    batch: int | None = None,
    score: str | None = None,
    source: str | None = None,
) -> onnx.ModelProto:
    """Writes a trained run as an ONNX file, and returns what it wrote.

    The input ``images`` takes images of one size in the type and the units of the training images:
    the geometry that makes chips of them (crop, padding, resize with Pillow's filter) and their
    normalisation are in the graph. The arithmetic is float32, that of a run in bfloat16 too.

    An open-set run gives its decision: ``decision`` (number of the class, -1 for unknown),
    ``nearest`` (of the class that it is most like), ``score`` and ``threshold``,
    ``class_probabilities``, what is there of ``known_probability``, ``p_value`` and
    ``class_distances``, and the network's ``logits``, ``open_logits`` (where there are trained
    binary classifiers) and ``features``. An embedding gives ``embedding``, ``coarse_logits`` and
    ``fine_logits``, a surrogate ``logits`` and ``saliency``. A network of tracks has a second
    input, ``lengths`` (int32): how many of its images each track has.

    The file's metadata has, as JSON, ``classes``, ``image_shape`` (rows, columns, channels of a
    chip), ``image_dtype``, ``geometry``, ``takes``, ``layout``, ``mean``, ``std``, ``step``,
    ``provenance`` and, of an open-set run, ``gamma``, ``fitted_gamma``, ``decides``,
    ``thresholds``, ``probability_is`` and what it was calibrated to.

    Args:
      workdir: the run's folder.
      path: of the file.
      takes: ``"images"`` of any size that the geometry takes, or ``"chips"``: float32 of the size
        that the network was trained on, without a geometry.
      size: rows and columns of the images, if all have the same; None: any.
      channels: of the images, 1 or 3; None: those of the chips.
      layout: of the input: channels last or second.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      opset: version of ONNX's operators.
      batch: how many images the file takes at once; None: any number. A backbone out of a file
        whose ``Shape`` nodes read the batch's size wants a number.
      score: of an open-set run, by which is decided; None for the one that decides, ``"none"`` for
        the network alone.
      source: where the training data is now, for a score that has to be fitted first.

    Raises:
      ValueError: no run, no such checkpoint, an argument that names nothing or does not go with
        the geometry, or a kind of run, a backbone or a score that has no form in ONNX.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch: got {batch}, wanted 1 or more")
    for name, value, wanted in (
        ("takes", takes, ("images", "chips")),
        ("layout", layout, ("NHWC", "NCHW")),
    ):
        if value not in wanted:
            raise ValueError(f"{name}: got {value!r}, wanted {wanted[0]!r} or {wanted[1]!r}")
    run = training.load_run(workdir, checkpoint)
    run.config.model.dtype = "float32"  # ONNX's older operators do not take bfloat16
    options = {"score": score, "source": source}
    options = {name: value for name, value in options.items() if value is not None}
    check_options(workdir, run.task.__name__, run.task.exportable, options)
    network = run.task.exportable(run, **options)
    example, free = _input(run, takes, size, channels)
    tracks = bool(network.frames)
    shape = (batch or 1, *[network.frames] * tracks, *example.shape)
    images = np.zeros(shape, example.dtype)
    axes = {axis + 1 + tracks: one for axis, one in free.items()}
    if layout == "NCHW":
        images = np.moveaxis(images, -1, -3)
        axes = {axis + 1: one for axis, one in axes.items()}
    further = [np.repeat(array, batch or 1, axis=0) for array in network.further.values()]
    properties = {
        "classes": network.classes,
        "image_shape": run.intake.shape,
        "image_dtype": run.intake.dtype,
        "takes": takes,
        "geometry": _geometry(run),
        "layout": layout,
        "mean": run.mean.tolist(),
        "std": run.std.tolist(),
        "step": run.step,
        "provenance": provenance(run),
        **network.properties,
    }
    return export(
        _from_raw(run, network, layout, takes),
        network.variables,
        [images, *further],
        path,
        opset=opset,
        dynamic_batch=batch is None,
        free_axes=[axes],
        input_names=["images", *network.further],
        output_names=list(network.outputs) or None,
        properties={k: json.dumps(v, ensure_ascii=False) for k, v in properties.items()},
    )


def provenance(run: TrainedRun) -> dict[str, Any]:
    """Lists where a run comes from: its folder's name, code, data and versions, as recorded."""
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
    run: TrainedRun, takes: Input, size: tuple[int, int] | None, channels: int | None
) -> tuple[np.ndarray, dict[int, FreeAxis]]:
    """Makes an example of the input, and says which of its axes are free."""
    intake = run.intake
    if takes == "chips":
        if size is not None or channels is not None:
            raise ValueError("size, channels: got one with takes='chips', which have a fixed shape")
        return np.zeros(intake.shape, np.float32), {}
    chip, own = intake.chip, intake.shape[2]
    channels = own if channels is None else channels
    if channels != own and not (chip.channels == own and channels in (1, 3)):
        raise ValueError(f"channels: got {channels}, wanted {own}, or 1 or 3 where that is one too")
    least = chip.center_crop or 1
    if size is not None and chip.output_shape((*size, channels)) != intake.shape:
        made = chip.output_shape((*size, channels))
        raise ValueError(f"size: {size} makes chips of {made}, the network takes {intake.shape}")
    example = np.zeros((*(size or np.maximum(intake.shape[:2], least)), channels), intake.dtype)
    if size is not None or not (chip.size or chip.center_crop):
        return example, {}  # nothing changes the size, and so it is the chip's
    return example, {0: FreeAxis("height", least), 1: FreeAxis("width", least)}


def _geometry(run: TrainedRun) -> dict[str, Any]:
    """Lists what is done to an image on its way to a chip."""
    chip = run.intake.chip
    found = {name: getattr(chip, name) for name in ("blank_center", "center_crop", "square")}
    return found | {"resize": chip.size, "filter": "Pillow's bilinear, with antialiasing"}


def _from_raw(run: TrainedRun, network: Exportable, layout: str, takes: Input) -> Callable:
    intake = run.intake

    def apply(variables: PyTree, images: jax.Array, *further: jax.Array) -> Any:
        if layout == "NCHW":
            images = jnp.moveaxis(images, -3, -1)
        if takes == "images":
            single = images.reshape(-1, *images.shape[-3:]) if network.frames else images
            chips = traced_chips(intake.chip, single, intake.shape)
            images = chips.reshape(*images.shape[:-3], *intake.shape)
        given = images if network.raw else run.normalize(images)
        found = network.apply(variables, given, *further)
        return OrderedDict(found) if isinstance(found, dict) else list(found)  # in its order

    return apply
