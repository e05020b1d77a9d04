"""The recipe of a run that begins with a published network."""

from jaxatr.typing import Config

DEFAULT = "efficientnet_lite0"


def from_published(config: Config, name: str = DEFAULT) -> None:
    """Sets the fields that keep what a pretrained network knows while it learns.

    At the heads' own rate the backbone's features are gone after a few steps, and at a tenth of it
    too; and batch norms that go by the statistics of small batches are another network at once.
    Chosen on a validation part and on held-out classes of photographs, at 96 pixels, in 60 steps.

    Args:
      config: to be changed.
      name: of the network (:mod:`jaxatr.models.published`).
    """
    config.model.pretrained = name
    config.model.freeze = "statistics"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.backbone_factor = 0.01
    config.train.end_with_best = True
    config.data.size, config.data.channels = 224, 3
    config.augment.shift = 14  # of 224 pixels
