"""Shared argument validation of the methods: functions, images, classes."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxatr.jax_internals import Tracer
from jaxatr.typing import Array, ArrayLike, Float, Int

Function: TypeAlias = Callable[[Array], Array]
Baseline: TypeAlias = float | Float[ArrayLike, "..."]


def as_argument(function: Function) -> Partial:
    """Wraps a function as an argument of jitted code, which is compiled once per function.

    Arrays bound in a ``Partial`` become arguments too.
    """
    return function if isinstance(function, Partial) else Partial(function)


@jax.jit
def apply(function: Function, x: Array) -> Array:
    """Returns ``function(x)``, compiled."""
    return function(x)


def checked_images(images: Float[ArrayLike, "b h w c"]) -> Float[Array, "b h w c"]:
    """Converts images to a JAX array.

    Raises:
      ValueError: they are not floats ``[b, h, w, c]``, or there are none.
    """
    images = _taken(images)
    if np.ndim(images) != 4 or 0 in np.shape(images):
        raise ValueError(
            f"images: got shape {np.shape(images)}, wanted [b, h, w, c] without a size of 0"
        )
    if not jnp.issubdtype(jnp.result_type(images), jnp.floating):
        raise ValueError(
            f"images: got {jnp.result_type(images)}, wanted floats, in the unit of predict's input"
        )
    # Not by jnp.asarray, which compiles a program that returns a NumPy array as it is.
    return images if isinstance(images, jax.Array) else jax.device_put(images)


def _taken(values: ArrayLike) -> Array | np.ndarray:
    """Copies what is not jax's, such as a list, into a NumPy array of the machine's byte order.

    A copy, since jax reads the array while it computes, when the caller may have filled it anew.
    """
    if isinstance(values, jax.Array):
        return values
    array = np.asarray(values)
    return np.array(array, array.dtype.newbyteorder("="))


def checked_targets(
    predict: Partial,
    images: Float[Array, "b h w c"] | jax.ShapeDtypeStruct,
    targets: Int[ArrayLike, " b"] | None,
) -> Int[Array, " b"] | None:
    """Converts targets to a JAX array, or returns None for the predicted classes.

    Under a JAX transformation, the targets' values are not checked.

    Args:
      predict: maps images to logits.
      images: ``[b, h, w, c]``, or their shape and type.
      targets: ``[b]`` or None.

    Raises:
      ValueError: the logits are not ``[b, k]``, or the targets are not one class per image.
    """
    shape, count = apply.eval_shape(predict, images).shape, len(images)
    if len(shape) != 2 or shape[0] != count or not shape[1]:
        raise ValueError(f"logits: got shape {shape}, wanted one row per image, ({count}, k)")
    if targets is None:
        return None
    targets = _taken(targets)
    if not jnp.issubdtype(jnp.result_type(targets), jnp.integer):
        raise ValueError(f"targets: got {jnp.result_type(targets)}, wanted integers")
    if np.shape(targets) != (count,):
        raise ValueError(
            f"targets: got shape {np.shape(targets)}, wanted one per image, ({count},)"
        )
    if not isinstance(targets, Tracer):
        values = np.asarray(targets)
        bad = np.flatnonzero((values < 0) | (values >= shape[1]))
        if bad.size:
            raise ValueError(
                f"targets: got {values[bad[0]]} at {bad[0]}, wanted classes of the logits, "
                f"0 to {shape[1] - 1}"
            )
    return jnp.asarray(targets)


def target_classes(
    predict: Partial,
    images: Float[Array, "b h w c"],
    targets: Int[ArrayLike, " b"] | None,
    batch_size: int | None = None,
) -> Int[Array, " b"]:
    """Returns the classes to explain: the given ones, or else the predicted ones.

    Args:
      predict: maps images to logits.
      images: ``[b, h, w, c]``.
      targets: ``[b]`` or None.
      batch_size: number of images per batch; None for all at once.

    Raises:
      ValueError: as for :func:`checked_targets`.
    """
    given = checked_targets(predict, images, targets)
    if given is not None:
        return given
    size = batch_size or len(images)
    starts = range(0, len(images), size)
    classes = [jnp.argmax(apply(predict, images[start : start + size]), -1) for start in starts]
    return jnp.concatenate(classes)


def one_baseline(baseline: Baseline, images: Float[Array, "b h w c"]) -> Float[Array, "h w c"]:
    """Expands a baseline to an image.

    Args:
      baseline: a number, one per channel ``[c]``, or an image ``[h, w, c]``, in the images' unit.
      images: ``[b, h, w, c]``.

    Raises:
      ValueError: the baseline has another shape.
    """
    given, shape = jnp.asarray(baseline, images.dtype), images.shape[1:]
    if given.shape not in ((), shape[-1:], shape):
        raise ValueError(
            f"baseline: got shape {given.shape}, wanted a number, one per channel or an image, "
            f"{shape}"
        )
    return jnp.broadcast_to(given, shape)


def check_at_least(least: int, **values: int) -> None:
    """Checks that all given numbers are at least ``least``.

    Raises:
      ValueError: a number is below; the message has its name.
    """
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name}: got {value}, wanted at least {least}")
