"""Gradients of the explained class's logit with respect to the images."""

from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp

from jaxatr.explain.inputs import Function
from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, Float, Int

Channels: TypeAlias = Literal["sum", "abs_of_sum", "sum_of_abs"]


def target_gradient(
    predict: Function, images: Float[Array, "b h w c"], targets: Int[Array, " b"] | None
) -> Float[Array, "b h w c"]:
    """Computes the gradient of each image's target logit, in at least float32.

    Args:
      predict: maps images to logits.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
    """
    logits, pull = jax.vjp(predict, images)
    if targets is None:
        targets = jnp.argmax(logits, axis=-1)
    (gradient,) = pull(jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype))
    return at_least_float32(gradient)


def check_channels(channels: str) -> None:
    """Checks the name of a reduction over channels.

    Raises:
      ValueError: the name is unknown.
    """
    if channels not in get_args(Channels):
        raise ValueError(f"channels: got {channels!r}, wanted one of {get_args(Channels)}")


def over_channels(values: Float[Array, "b h w c"], channels: Channels) -> Float[Array, "b h w"]:
    """Reduces channels to their sum, its absolute value, or the sum of absolute values."""
    if channels == "sum_of_abs":
        return jnp.sum(jnp.abs(values), axis=-1)
    total = jnp.sum(values, axis=-1)
    return jnp.abs(total) if channels == "abs_of_sum" else total
