"""The weights that a network's backbone begins with, where a configuration names some."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn

from jaxatr.models.pretrained import Weights, put_into
from jaxatr.typing import Config, PyTree

Reader = Callable[..., Weights]


class Pretrained:
    """What ``config.model.pretrained`` names, put in the place of freshly drawn weights.

    Attributes:
      record: what a result must state of it; empty where nothing is named, or was read.
    """

    def __init__(self, fields: Config, backbone: nn.Module, in_channels: int, read: Reader | None):
        """Reads the weights.

        Args:
          fields: ``config.model``.
          backbone: what they are for.
          in_channels: of its images.
          read: as :func:`jaxatr.models.pretrained.read`. ``None`` for a network whose weights come
            from a checkpoint: then nothing is read, and the file may be gone.

        Raises:
          ValueError: the weights cannot be read, or do not fit the backbone.
        """
        self._path = fields.pretrained
        self._weights: Weights | None = None
        if self._path and read is not None:
            self._weights = read(
                self._path, backbone, in_channels=in_channels, channels=fields.pretrained_channels
            )
        self.record: dict[str, Any] = (
            {} if self._weights is None else {"pretrained": self._weights.source}
        )

    def put_into(self, params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
        """Returns a network's variables with these as those of its part ``backbone``.

        Attention in the backbone keeps the variables that were drawn for it.

        Raises:
          ValueError: weights are named, and the network was made without reading them.
        """
        if not self._path:
            return params, model_state
        if self._weights is None:
            raise ValueError(
                f"model.pretrained: {self._path} was not read: make the task with "
                "read=jaxatr.models.pretrained.read"
            )
        variables = {"params": params, **model_state}
        for collection, loaded in self._weights.variables.items():
            variables[collection] = put_into(variables[collection], {"backbone": loaded})
        params = variables.pop("params")
        return params, variables
