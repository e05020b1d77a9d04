r"""Euclidean distances whose gradient is finite, namely zero, where two points coincide.

:math:`\sqrt{x}` has no slope at 0, and the usual small constant under the root moves every distance
to avoid it. Here distances are exact and a coincident pair passes no gradient.
"""

import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Bool, Float


def root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the square root, with gradient 0 at 0.

    >>> [float(jax.grad(root)(jnp.float32(x))) for x in (0, 4)]
    [0.0, 0.25]
    """
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1)), 0)


def squared_l2(
    first: Float[ArrayLike, "b d"],
    second: Float[ArrayLike, "b d"],
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    """Returns the squared distance of each row of ``first`` to the same row of ``second``.

    Args:
      first: ``[b, d]``.
      second: ``[b, d]``.
      valid: ``[b]``; a row that is not gives 0 and no gradient, whatever it holds, NaN included.
    """
    difference = at_least_float32(first) - at_least_float32(second)
    if valid is not None:
        difference = jnp.where(jnp.asarray(valid)[:, None], difference, 0)
    return jnp.sum(jnp.square(difference), axis=-1)


def l2(
    first: Float[ArrayLike, "b d"],
    second: Float[ArrayLike, "b d"],
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    """Returns the distance of each row of ``first`` to the same row of ``second``.

    Args:
      first: ``[b, d]``.
      second: ``[b, d]``.
      valid: as :func:`squared_l2` has it.
    """
    return root(squared_l2(first, second, valid))


@jax.checkpoint
def pairwise_squared_l2(points: Float[Array, "b d"]) -> Float[Array, "b b"]:
    """Returns the squared distances between all rows: exactly symmetric, 0 on the diagonal.

    They are sums of squared differences, and so is the derivative: expanded into inner products
    both would lose, between close points, all the digits that a triplet is chosen by, and the root
    of so small a distance would make much of what is left. The differences are computed again for
    the derivative, where XLA sums them as they come: no ``[b, b, d]`` array is stored.
    """
    squared = jnp.sum(jnp.square(points[:, None] - points[None]), axis=-1)
    # XLA may compute what the points come from twice within the difference, and fuse a product of
    # one with the subtraction: then even a point's distance to itself is a rounding, not 0.
    return jnp.where(jnp.eye(len(points), dtype=bool), 0, squared)
