r"""Energy minus the features' residual outside the principal subspace (Wang et al. 2022).

Few directions explain most of the variation of the known classes' features. The norm of a query's
residual outside these directions is scaled to a virtual logit,
:math:`\alpha \lVert x^{P^\perp} \rVert`, which competes with the other logits.

"ViM: out-of-distribution with virtual-logit matching".
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.head import Head
from jaxatr.openset.inputs import finite
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


class ViM(NamedTuple):
    """A fitted model.

    Attributes:
      origin: ``[d]``, the features whose logits are 0, or closest to 0.
      residual: ``[d, r]``, orthonormal directions outside the principal subspace.
      alpha: ``[]``, α, the factor between the residual's norm and the virtual logit.
    """

    origin: Float[ArrayLike, " d"]
    residual: Float[ArrayLike, "d r"]
    alpha: Float[ArrayLike, ""]


def fit(
    features: Float[ArrayLike, "n d"],
    logits: Float[ArrayLike, "n k"],
    head: Head,
    *,
    dimensions: int | None = None,
) -> ViM:
    """Computes the origin, the residual directions and α, in float64, and stores them in float32.

    Args:
      head: the last layer; the origin of one without a bias is 0.
      dimensions: D, dimension of the principal subspace. The default is the authors' choice for
        their networks, 1000 for at least 2048 features and 512 for at least 768, and half the
        number of features for fewer. If the features' rank does not exceed this, as after a long
        fine-tuning, the default is half the rank.

    Raises:
      ValueError: a value is not finite; ``dimensions`` is out of range; or the features lie within
        the principal subspace, so that there is no residual to scale.
    """
    features, logits = finite("features", features), finite("logits", logits)
    n, d = features.shape
    default = 1000 if d >= 2048 else 512 if d >= 768 else d // 2
    kept = default if dimensions is None else dimensions
    if not 1 <= kept < d:
        raise ValueError(f"dimensions: got {kept}, wanted 1 to {d - 1}, below the {d} features")
    matrix, k = np.asarray(head.kernel, np.float64), logits.shape[1]
    offset = np.zeros(k) if head.bias is None else np.asarray(head.bias, np.float64)
    chex.assert_shape([logits, matrix, offset], [(n, k), (d, k), (k,)])
    origin = -np.linalg.pinv(matrix).T @ offset
    centred = features - origin
    squares, vectors = np.linalg.eigh(centred.T @ centred)  # ascending
    rank = int(np.sum(squares > 1e-12 * squares[-1]))
    if dimensions is None and rank <= kept:
        kept = max(rank // 2, 1)
    residual = vectors[:, : d - kept]
    lengths = np.linalg.norm(centred @ residual, axis=1)
    if lengths.mean() <= 1e-6 * np.linalg.norm(centred, axis=1).mean():
        raise ValueError(f"dimensions: the features have no more than {kept}, wanted fewer")
    alpha = np.array(logits.max(axis=1).mean() / lengths.mean())
    return ViM(origin.astype(np.float32), residual.astype(np.float32), alpha)


@jax.jit
def score(
    model: ViM, features: Float[ArrayLike, "b d"], logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    r"""Computes :math:`\log \sum_i e^{z_i} - \alpha \lVert x^{P^\perp} \rVert`.

    It ranks in the opposite order of the paper's score, the softmax probability of the virtual
    logit, and has no ties at 0 and 1.
    """
    chex.assert_shape(features, (None, *np.shape(model.origin)))
    chex.assert_equal_shape_prefix([features, logits], 1)
    centred = jnp.asarray(features) - jnp.asarray(model.origin)[None]
    outside = jnp.dot(centred, jnp.asarray(model.residual), precision=jax.lax.Precision.HIGHEST)
    alpha = jnp.asarray(model.alpha)
    # Scaled before they are squared: squares of very small or large features leave the range.
    virtual = jnp.sign(alpha) * jnp.linalg.norm(alpha * outside, axis=-1)
    return jax.nn.logsumexp(jnp.asarray(logits), axis=-1) - virtual


PART = Score.of_arrays("vim", "ViM", score, fit, traced=score, model=ViM)
