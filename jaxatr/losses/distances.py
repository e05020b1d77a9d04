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


@jax.custom_jvp
def pairwise_squared_l2(points: Float[Array, "b d"]) -> Float[Array, "b b"]:
    """Returns the squared distances between all rows: exactly symmetric, 0 on the diagonal.

    They are sums of squared differences: expanded into inner products they would lose, between
    close points, all the digits that a triplet is chosen by. The derivative has no such trouble and
    is taken through inner products, so that no ``[b, b, d]`` array is ever stored.
    """
    return jnp.sum(jnp.square(points[:, None] - points[None]), axis=-1)


@pairwise_squared_l2.defjvp
def _pairwise_squared_l2_jvp(primals, tangents):
    (points,), (change,) = primals, tangents
    # Distances do not depend on the origin; the rounding of inner products does.
    centred = points - jnp.mean(points, axis=0)
    inner = jnp.matmul(centred, change.T, precision=jax.lax.Precision.HIGHEST)
    own = jnp.sum(centred * change, axis=-1)
    return pairwise_squared_l2(points), 2 * (own[:, None] + own[None] - inner - inner.T)
