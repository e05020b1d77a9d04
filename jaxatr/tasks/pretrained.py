"""The weights that a network's backbone begins with: a file's, or those of another run."""

import os
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import models, training
from jaxatr.models.pretrained import Weights, put_into
from jaxatr.typing import Config, PyTree

Channels = Literal["same", "sum"]
"""The stem keeps its channels, or is summed over them to fit images with others."""


class Pretrained:
    """Weights that ``config.model.pretrained`` names, in the place of freshly drawn ones.

    Attributes:
      record: what a result must state of it; empty where nothing is named, or was read.
    """

    def __init__(self, fields: Config, backbone: nn.Module, in_channels: int):
        """Reads the weights.

        Args:
          fields: ``config.model``.
          backbone: what they are for.
          in_channels: of its images.

        Raises:
          ValueError: the weights cannot be read, or do not fit the backbone.
        """
        self._weights: Weights | None = None
        if fields.pretrained:
            self._weights = read_weights(
                fields.pretrained,
                backbone,
                in_channels=in_channels,
                channels=fields.pretrained_channels,
            )
        self.record: dict[str, Any] = (
            {} if self._weights is None else {"pretrained": self._weights.source}
        )

    def put_into(self, params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
        """Replaces the variables of a network's part ``backbone`` by these.

        Attention in the backbone keeps the variables that were drawn for it.
        """
        if self._weights is None:
            return params, model_state
        variables = {"params": params, **model_state}
        for collection, loaded in self._weights.variables.items():
            variables[collection] = put_into(variables[collection], {"backbone": loaded})
        params = variables.pop("params")
        return params, variables


def backbone_variables(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Channels = "same",
) -> PyTree:
    """Reads a backbone's weights from a file or from another run's newest checkpoint.

    Args:
      path: a safetensors file, or a run's folder.
      model: the backbone that they are for.
      in_channels: of its images.
      channels: ``"same"``, or ``"sum"`` for a stem that is adapted to the images' channels.

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
    channels: Channels = "same",
) -> Weights:
    """Reads weights as :func:`backbone_variables` does, with a record of their source."""
    if not Path(path).is_dir():
        return models.pretrained.read(path, model, in_channels=in_channels, channels=channels)
    snapshot = training.load_snapshot(path, "latest")
    backbone = {
        collection: tree["backbone"]
        for collection, tree in training.variables_of(snapshot).items()
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
    return Weights(variables, {"path": str(path), "run": run, "step": snapshot.step})
