r"""Euclidean lengths and distances whose gradient is zero where they are zero.

:math:`\sqrt{x}` has no derivative at 0, and the usual small constant under the root changes every
distance. Here distances are exact, and a coincident pair passes no gradient.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Bool, Float


def root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes the square root, with gradient 0 at 0.

    >>> [float(jax.grad(root)(jnp.float32(x))) for x in (0, 4)]
    [0.0, 0.25]
    """
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1)), 0)


def unit(rows: Float[Array, "b d"]) -> Float[Array, "b d"]:
    """Scales each row to length 1; a row of zeros stays zero, with zero gradient.

    >>> [round(x, 4) for x in unit(jnp.array([[3e30, 4e30]]))[0].tolist()]
    [0.6, 0.8]
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(rows), axis=-1, keepdims=True))
    some = largest > 0
    rows = rows / jnp.where(some, largest, 1)  # so squares neither overflow nor vanish
    squared = jnp.sum(jnp.square(rows), axis=-1, keepdims=True)
    return rows / jnp.where(some, jnp.sqrt(jnp.where(some, squared, 1)), jnp.inf)


def squared_l2(
    first: Float[ArrayLike, "b d"],
    second: Float[ArrayLike, "b d"],
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    """Computes the squared distance of each row of ``first`` to the same row of ``second``.

    Args:
      first: ``[b, d]``.
      second: ``[b, d]``.
      valid: ``[b]``; an invalid row gives 0 and no gradient, even if it contains NaN.
    """
    difference = at_least_float32(first) - at_least_float32(second)
    if valid is not None:
        chex.assert_shape(valid, (len(difference),))
        difference = jnp.where(jnp.asarray(valid)[:, None], difference, 0)
    return jnp.sum(jnp.square(difference), axis=-1)


def l2(
    first: Float[ArrayLike, "b d"],
    second: Float[ArrayLike, "b d"],
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    """Computes the distance of each row of ``first`` to the same row of ``second``.

    Args:
      first: ``[b, d]``.
      second: ``[b, d]``.
      valid: ``[b]``; an invalid row gives 0 and no gradient, even if it contains NaN.
    """
    return root(squared_l2(first, second, valid))


@jax.checkpoint
def pairwise_squared_l2(points: Float[Array, "b d"]) -> Float[Array, "b b"]:
    """Computes the squared distances between all rows: exactly symmetric, 0 on the diagonal.

    Both the distances and their derivatives are computed from differences. Expanding them into
    inner products would lose the digits of close points on which the choice of triplets depends,
    and the root would amplify the error. The differences are recomputed for the derivative, where
    XLA fuses them with the sum, so that no ``[b, b, d]`` array is stored.
    """
    squared = jnp.sum(jnp.square(points[:, None] - points[None]), axis=-1)
    # XLA may recompute the points inside the difference and fuse only one of the two products with
    # the subtraction, so that even a point's distance to itself is a rounding error instead of 0.
    return jnp.where(jnp.eye(len(points), dtype=bool), 0, squared)
