"""The weights that a network's backbone begins with: published ones, a file's or another run's."""

import copy
import os
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import models, training
from jaxatr.models.pretrained import Weights, put_into
from jaxatr.models.published.finding import tensors_of
from jaxatr.resolve import nearest
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
                folder=fields.weights_dir,
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


def begun(config: Config) -> Config:
    """Returns the configuration by which a run is used once its weights are in a checkpoint.

    The weights that it began with may be gone, and are not read. Of a published network remains
    what it is, and how images are brought to it.

    Args:
      config: the run's, which stays as it is.
    """
    config = copy.deepcopy(config)
    if (network := models.published.named(config.model.pretrained)) is not None:
        config.model.backbone = models.backbone_name(config.model)
        if config.data.normalize:
            config.data.normalize_by = config.data.normalize_by or network.name
    config.model.pretrained = ""
    if config.open_set.get("continues"):
        config.open_set.continues = ""
    return config


def backbone_variables(
    path: str | os.PathLike,
    model: nn.Module,
    *,
    in_channels: int = 3,
    channels: Channels = "same",
) -> PyTree:
    """Reads a backbone's weights: published ones, a file's, or of another run's newest checkpoint.

    Args:
      path: the name of a published network (:mod:`jaxatr.models.published`), a safetensors file or
        one of PyTorch's, or a run's folder.
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
    folder: str = "",
) -> Weights:
    """Reads weights as :func:`backbone_variables` does, with a record of their source.

    Args:
      path: as there.
      model: as there.
      in_channels: as there.
      channels: as there.
      folder: of the files of published networks; by default ``$JAXATR_WEIGHTS_DIR``.

    Raises:
      ValueError: as there.
    """
    if (network := models.published.named(str(path))) is not None:
        tensors, source = tensors_of(network, folder)
        variables = models.pretrained.fit(
            models.pretrained.of_backbone(tensors, model),
            model,
            in_channels=in_channels,
            channels=channels,
            title=source["path"],
        )
        return Weights(variables, source)
    if not Path(path).exists() and Path(path).name == str(path) and not Path(path).suffix:
        known = models.published.NETWORKS
        raise ValueError(
            f"model.pretrained: got {str(path)!r}, which is no file; the networks with a name are "
            f"{', '.join(known)}{nearest(str(path), known)}"
        )
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
        models.pretrained.to_torch(backbone, model),
        model,
        in_channels=in_channels,
        channels=channels,
        title=str(path),
    )
    run = training.read_record(path)["fingerprint"]
    return Weights(variables, {"path": str(path), "run": run, "step": snapshot.step})
