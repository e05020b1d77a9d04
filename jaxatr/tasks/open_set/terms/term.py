"""The description of a loss term: its fields, its weight and its value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxatr.config import Field, Fields
from jaxatr.models import OpenSetOutput
from jaxatr.typing import Array, Batch, Config, Float, Int, PyTree

Share = tuple[Any, Any]
"""A loss's sum over one device's examples, and the number of those examples."""


class Option(NamedTuple):
    """A configuration field of a term.

    Attributes:
      field: its default and meaning.
      fits: returns whether a value is allowed.
      wanted: the allowed values, for the error message.
    """

    field: Field
    fits: Callable[[Any], bool] = lambda _: True
    wanted: str = ""


class Labels(NamedTuple):
    """Labels of a batch and their weights.

    Attributes:
      labels: ``[b]``; negative for outliers.
      weights: ``[b]``; 1 for images with a single label.
    """

    labels: Int[Array, " b"]
    weights: Float[Array, " b"]


class Copies(NamedTuple):
    """Changed copies of a batch's images, which also pass through the network.

    Attributes:
      images: ``[b, h, w, c]``.
      targets: ``[b]``, what is predicted of them.
    """

    images: Float[Array, "b h w c"]
    targets: Int[Array, " b"]


class Seen(NamedTuple):
    """One device's part of a step.

    Attributes:
      loss: the group ``loss`` of the configuration.
      params: parameters of the network, and of the terms' own.
      out: the network's outputs for the images.
      targets: labels of the images; two for mixed images.
      copies: features ``[b, d]`` of the term's copies and their targets ``[b]``, if it has any.
    """

    loss: Config
    params: PyTree
    out: OpenSetOutput
    targets: Sequence[Labels]
    copies: tuple[Float[Array, "b d"], Int[Array, " b"]] | None = None

    def over_known(self, values: Callable[[Int[Array, " b"]], Float[Array, " b"]]) -> Share:
        """Adds up a loss of the labels over the examples of known classes."""
        total, count = jnp.float32(0), jnp.float32(0)
        for labels, weights in self.targets:
            own = jnp.where(labels >= 0, weights, 0)
            total += jnp.sum(own * values(jnp.where(labels >= 0, labels, 0)))
            count += jnp.sum(own)
        return total, count


@dataclass(frozen=True)
class Term:
    """A loss that is added to equation 4, as its mean over all devices times its weight.

    Attributes:
      metric: name of the loss in the run's metrics.
      options: configuration fields by name; the first one is the weight.
      value: ``(seen) -> (sum, count)`` on one device.
      on: returns whether a configuration uses the term; by default, whether its weight is not 0.
      check: ``(config, image_shape) -> None`` raises ``ValueError`` for what the fields' own limits
        do not cover.
      copies: ``(key, images, batch) -> copies`` of the batch's images; None if there are none.
      init: ``(key, width) -> parameters`` of the term, for features of that width; None for none.
    """

    metric: str
    options: Mapping[str, Option]
    value: Callable[[Seen], Share]
    on: Callable[[Config], bool] | None = None
    check: Callable[[Config, tuple[int, int, int]], None] | None = None
    copies: Callable[[Array, Float[Array, "b h w c"], Batch], Copies] | None = None
    init: Callable[[Array, int], PyTree] | None = None

    @property
    def fields(self) -> Fields:
        """The term's configuration fields."""
        return {name: option.field for name, option in self.options.items()}

    def weight(self, config: Config) -> float:
        """Returns the term's weight in a run; 0 if the run does not use it."""
        group, name = next(iter(self.options)).split(".")
        weight = config[group].get(name, 0.0)  # runs on tracks have no further terms
        return 0.0 if self.on is not None and not self.on(config) else weight
