"""The normalisation of a run's images: by their statistics, or a published network's constants."""

import numpy as np

from jaxatr import models
from jaxatr.models.published import NETWORKS, PublishedNetwork
from jaxatr.resolve import nearest
from jaxatr.typing import Config, Float

DATA = "data"


def normalizing_network(config: Config) -> PublishedNetwork | None:
    """Returns the network by whose constants images are normalised; None for their statistics.

    Args:
      config: a run's.

    Raises:
      ValueError: ``data.normalize_by`` names no network.
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
    """Returns the mean and deviation of each channel by which a network's images are normalised.

    Args:
      network: which one.
      dtype: of the images.
      shape: of the chips, ``(h, w, c)``.

    Raises:
      ValueError: the images are not of 8 bits, which the constants are for.
    """
    if dtype != np.uint8:
        raise ValueError(
            f"data.normalize_by: the constants of {network.name} are for images of uint8, got "
            f"{np.dtype(dtype).name}: set --config.data.normalize_by=data"
        )
    return network.normalization(shape[-1])
