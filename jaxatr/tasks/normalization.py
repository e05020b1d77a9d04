"""The normalisation of images by their statistics or by a published network's constants."""

import numpy as np

from jaxatr import models
from jaxatr.models.published import NETWORKS, PublishedNetwork
from jaxatr.resolve import nearest
from jaxatr.typing import Config, Float

DATA = "data"


def normalizing_network(config: Config) -> PublishedNetwork | None:
    """Returns the network whose constants normalise images; None to use the images' statistics.

    Raises:
      ValueError: ``data.normalize_by`` is not the name of a network.
    """
    by = config.data.normalize_by
    if not config.data.normalize:
        if by:
            raise ValueError(f"data.normalize_by: got {by!r} with data.normalize=False")
        return None
    if not by:
        return models.published.named(config.model.pretrained)
    if by != DATA and by not in NETWORKS:
        known = (DATA, *NETWORKS)
        raise ValueError(
            f"data.normalize_by: got {by!r}, wanted one of {', '.join(known)}{nearest(by, known)}"
        )
    return models.published.named(by)


def constants_of(
    network: PublishedNetwork, dtype: np.dtype, shape: tuple[int, int, int]
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Returns the mean and standard deviation of each channel that a network expects.

    Args:
      network: the network.
      dtype: dtype of the images.
      shape: shape of the chips, ``(h, w, c)``.

    Raises:
      ValueError: the images are not uint8, for which the constants are defined.
    """
    if dtype != np.uint8:
        raise ValueError(
            f"data.normalize_by: the constants of {network.name} are for uint8 images, got "
            f"{np.dtype(dtype).name}: set --config.data.normalize_by=data"
        )
    return network.normalization(shape[-1])
