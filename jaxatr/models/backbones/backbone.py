"""The declaration of a backbone."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn


class Backbone(NamedTuple):
    """A feature extractor that configurations and :func:`jaxatr.models.create` name.

    Attributes:
      build: constructor of the network, which maps ``(images, train)`` to features ``[b, d]``. It
        takes ``dtype``, ``axis_name``, ``frozen`` and ``attention``.
      fields: further fields of ``config.model`` that the constructor takes.
      openness: initial logit of the gates of attention (:class:`~jaxatr.models.cbam.CBAM`).
    """

    build: Callable[..., nn.Module]
    fields: tuple[str, ...] = ()
    openness: float = 0.0
