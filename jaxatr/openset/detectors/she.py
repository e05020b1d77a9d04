"""Inner product of the features with the predicted class's mean features (Zhang et al. 2023).

The stored pattern of a class is the mean features of its correctly classified training examples;
the score is the inner product of an example's features with the pattern of the predicted class.

"In-distribution data patterns memorization with Hopfield energy".
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int


class Patterns(NamedTuple):
    """A fitted model.

    Attributes:
      patterns: ``[k, d]``, patterns of the classes.
    """

    patterns: Float[ArrayLike, "k d"]


def fit(
    features: Float[ArrayLike, "n d"], logits: Float[ArrayLike, "n k"], labels: Int[ArrayLike, " n"]
) -> Patterns:
    """Averages the features of the correctly classified examples of each class.

    Raises:
      ValueError: a value is not finite, a label is not a known class, or no example of a class is
        classified correctly.
    """
    features, logits = finite("features", features), finite("logits", logits)
    classes = logits.shape[1]
    labels = known_labels(labels, len(features), classes)
    correct = logits.argmax(axis=1) == labels
    missing = np.setdiff1d(np.arange(classes), labels[correct])
    if missing.size:
        raise ValueError(f"labels: no example of class {missing[0]} is classified correctly")
    means = [features[correct & (labels == k)].mean(axis=0) for k in range(classes)]
    return Patterns(np.stack(means))


def score(
    model: Patterns, features: Float[ArrayLike, "b d"], logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    """Computes the inner product with the predicted class's pattern."""
    patterns = jnp.asarray(model.patterns)
    chex.assert_shape(features, (None, patterns.shape[1]))
    own = patterns[jnp.argmax(jnp.asarray(logits), axis=-1)]
    return jnp.sum(jnp.asarray(features) * own, axis=-1)


PART = Score.of_arrays("she", "SHE", score, fit, traced=score, model=Patterns)
