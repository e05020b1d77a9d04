"""A run's network as an ONNX file: raw pixels in, the network's answers out.

It stands by itself, as it alone of this package's ``runs`` needs the extra ``onnx``.
"""

import json
import os
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import training
from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer.exporter import OPSET, export
from jaxatr.runs.evaluation import check_options
from jaxatr.training import Checkpoint, Exportable, TrainedRun
from jaxatr.typing import PyTree


def export_run(
    workdir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    layout: Literal["NHWC", "NCHW"] = "NHWC",
    checkpoint: Checkpoint = "latest",
    opset: int = OPSET,
    batch: int | None = None,
    score: str | None = None,
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
    of an open-set run, ``gamma``, ``fitted_gamma``, ``decides`` and ``thresholds``.

    Args:
      workdir: the run's folder.
      path: of the file.
      layout: of the input: channels last or second.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      opset: version of ONNX's operators.
      batch: how many chips the file takes at once; None: any number. A backbone out of a file
        whose ``Shape`` nodes read the batch's size wants a number.
      score: of an open-set run, by which is decided in the graph: its outputs ``score`` and
        ``known`` say how known a chip is and whether that reaches the threshold of its class. None
        for the score that decides, ``"none"`` for no decision.

    Raises:
      ValueError: no run, no such checkpoint, no such layout, a batch below 1, or a kind of run, a
        backbone or a score that has no form in ONNX.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch: got {batch}, wanted 1 or more")
    if layout not in ("NHWC", "NCHW"):
        raise ValueError(f"layout: got {layout!r}, wanted 'NHWC' or 'NCHW'")
    run = training.load_run(workdir, checkpoint)
    run.config.model.dtype = "float32"  # ONNX's older operators do not take bfloat16
    if score is not None:
        check_options(workdir, run.task.__name__, run.task.exportable, {"score": score})
    network = run.task.exportable(run, **({} if score is None else {"score": score}))
    shape = run.intake.shape
    chip = np.zeros((batch or 1, *[network.frames] * bool(network.frames), *shape), np.float32)
    further = [np.repeat(array, batch or 1, axis=0) for array in network.further.values()]
    properties = {
        "classes": network.classes,
        "image_shape": shape,
        "image_dtype": run.intake.dtype,
        "layout": layout,
        "mean": run.mean.tolist(),
        "std": run.std.tolist(),
        "step": run.step,
        **network.properties,
    }
    return export(
        _from_raw(run, network, layout),
        network.variables,
        [chip if layout == "NHWC" else np.moveaxis(chip, -1, -3), *further],
        path,
        opset=opset,
        dynamic_batch=batch is None,
        input_names=["images", *network.further],
        output_names=list(network.outputs),
        properties={k: json.dumps(v, ensure_ascii=False) for k, v in properties.items()},
    )


def _from_raw(run: TrainedRun, network: Exportable, layout: str) -> Callable:
    def apply(variables: PyTree, images: jax.Array, *further: jax.Array) -> list[jax.Array]:
        if layout == "NCHW":
            images = jnp.moveaxis(images, -3, -1)
        return list(network.apply(variables, run.normalize(images), *further))

    return apply
