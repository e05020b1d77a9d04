"""Initial weights of a backbone, from a published network, a file or another run."""

import copy
import os
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import models, training
from jaxatr.models.pretrained import Weights, put_into
from jaxatr.models.published_files import tensors_of
from jaxatr.resolve import nearest
from jaxatr.typing import Config, PyTree

Channels = Literal["same", "sum"]
"""``"same"`` requires matching channels; ``"sum"`` adapts the stem to the images' channels."""


class Pretrained:
    """The weights named by ``config.model.pretrained``, which replace the initial ones.

    Attributes:
      record: provenance of the weights, for the run's record; empty if there are none.
    """

    def __init__(self, fields: Config, backbone: nn.Module, in_channels: int):
        """Reads the weights.

        Raises:
          ValueError: the weights cannot be read, or do not fit the backbone.
        """
        self._weights: Weights | None = None
        channels = fields.pretrained_channels
        if models.published.named(fields.pretrained) and in_channels not in (1, 3):
            channels = "sum"  # published networks are of RGB, which such images never have
        if fields.pretrained:
            self._weights = read_weights(
                fields.pretrained,
                backbone,
                in_channels=in_channels,
                channels=channels,
                folder=fields.weights_dir,
            )
        self.record: dict[str, Any] = (
            {} if self._weights is None else {"pretrained": self._weights.source}
        )

    def put_into(self, params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
        """Replaces the variables of a network's ``backbone`` by these weights.

        Attention modules in the backbone keep their initial variables.
        """
        if self._weights is None:
            return params, model_state
        variables = {"params": params, **model_state}
        for collection, loaded in self._weights.variables.items():
            variables[collection] = put_into(variables[collection], {"backbone": loaded})
        params = variables.pop("params")
        return params, variables


def begun(config: Config) -> Config:
    """Returns a configuration for using a run that has checkpoints.

    It does not read the initial weights, which may no longer exist. For a published network it
    keeps the backbone and the normalisation.

    Args:
      config: the run's configuration, which is not changed.
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
    """Loads a backbone's weights from a published network, a file, or a run's latest checkpoint.

    Args:
      path: the name of a published network (:mod:`jaxatr.models.published`), a safetensors or
        PyTorch file, or a run's folder.
      model: the backbone.
      in_channels: channels of its images.
      channels: ``"same"``, or ``"sum"`` to adapt the stem to the images' channels.

    Raises:
      ValueError: there are no such weights, or they do not fit the backbone; mismatches are listed
        with torchvision's names and shapes.
      training.CheckpointError: all checkpoints of the run are corrupt.
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
    """Loads a backbone's weights and their provenance.

    Args:
      path: the name of a published network (:mod:`jaxatr.models.published`), a safetensors or
        PyTorch file, or a run's folder.
      model: the backbone.
      in_channels: channels of its images.
      channels: ``"same"``, or ``"sum"`` to adapt the stem to the images' channels.
      folder: folder of published networks' files; by default ``$JAXATR_WEIGHTS_DIR``.

    Raises:
      ValueError: there are no such weights, or they do not fit the backbone.
      training.CheckpointError: all checkpoints of the run are corrupt.
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
            f"model.pretrained: got {str(path)!r}, which is not a file; the published networks are "
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
