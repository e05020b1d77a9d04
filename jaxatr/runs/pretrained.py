"""Weights to begin with from a file or from another run."""

import os
from pathlib import Path
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import models, training
from jaxatr.training.folder import variables_of
from jaxatr.typing import PyTree


def backbone_variables(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Literal["same", "sum"] = "same",
) -> PyTree:
    """Returns the backbone's weights of a file or of another run's newest checkpoint.

    Args:
      path: a safetensors file, or a run's folder.
      model: as of :func:`jaxatr.models.pretrained.load`.
      in_channels: as there.
      channels: as there.

    Raises:
      ValueError: there are none, or they do not fit; what does not is listed under torchvision's
        names and shapes.
      training.CheckpointError: no checkpoint of the run is whole.
    """
    weights = read_weights(path, model, in_channels=in_channels, channels=channels)
    return jax.tree.map(jnp.asarray, weights.variables)


def read_weights(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Literal["same", "sum"] = "same",
) -> models.pretrained.Weights:
    """Returns what :func:`backbone_variables` does, with what a run records of its source."""
    if not Path(path).is_dir():
        return models.pretrained.read(path, model, in_channels=in_channels, channels=channels)
    snapshot = training.load_snapshot(path, "latest")
    backbone = {
        collection: tree["backbone"]
        for collection, tree in variables_of(snapshot).items()
        if "backbone" in tree
    }
    if not backbone:
        raise ValueError(f"{path}: the network of this run has no part 'backbone'")
    variables = models.pretrained.fit(
        models.pretrained.to_torch(backbone),
        model,
        in_channels=in_channels,
        channels=channels,
        title=str(path),
    )
    run = training.read_record(path)["fingerprint"]
    return models.pretrained.Weights(
        variables, {"path": str(path), "run": run, "step": snapshot.step}
    )
