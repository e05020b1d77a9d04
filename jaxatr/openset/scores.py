"""Scores that say how known an example is: array to array, jittable, higher = more known."""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float


def softmax_score(logits: Float[ArrayLike, "b k"], *, log: bool = False) -> Float[Array, " b"]:
    """Returns the largest class probability (Hendrycks & Gimpel 2017).

    Args:
      logits: ``[b, k]``, of the closed-set classifier.
      log: return its logarithm. The order is the same, but a float32 probability is 1.0 for every
        confident example: those ties cost the score part of its AUROC, the logarithm does not.

    >>> float(softmax_score(jnp.array([[0.0, 0.0]]))[0])
    0.5
    """
    best = jnp.max(jax.nn.log_softmax(jnp.asarray(logits)), axis=-1, keepdims=True)
    if not log:
        return jnp.exp(best[:, 0])
    # log p = -log(1 + Σ_{i≠best} exp(z_i - z_best)), which keeps its digits where p is nearly 1.
    z = jnp.asarray(logits) - jnp.max(logits, axis=-1, keepdims=True)
    others = ~jax.nn.one_hot(jnp.argmax(z, axis=-1), z.shape[-1], dtype=bool)
    return -jnp.log1p(jnp.sum(jnp.exp(z), axis=-1, where=others))


def max_logit_score(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    """Returns the largest logit (Vaze et al. 2022, "a good closed-set classifier is all you need").

    Args:
      logits: ``[b, k]``, of the closed-set classifier.
    """
    return jnp.max(jnp.asarray(logits), axis=-1)


def energy_score(
    logits: Float[ArrayLike, "b k"], *, temperature: float = 1.0
) -> Float[Array, " b"]:
    r"""Returns minus the energy, :math:`T \log \sum_i e^{z_i / T}` (Liu et al. 2020, equation 4).

    Args:
      logits: ``[b, k]``, of the closed-set classifier.
      temperature: T.

    Raises:
      ValueError: ``temperature`` is not positive.

    >>> round(float(energy_score(jnp.array([[0.0, 0.0]]))[0]), 4)  # log 2
    0.6931
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, wanted a positive number")
    return temperature * jax.nn.logsumexp(jnp.asarray(logits) / temperature, axis=-1)


def cbc_score(
    logits: Float[ArrayLike, "b k"], open_logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    """Returns the logit of the predicted class's binary classifier (section 2.3).

    The logit and not its sigmoid: a float32 sigmoid is 1.0 from 17 on, which makes ties.

    Args:
      logits: ``[b, k]``, of the closed-set classifier; its argmax (the lower index on ties)
        chooses the binary classifier.
      open_logits: ``[b, k]``, one logit per binary classifier.

    >>> float(cbc_score(jnp.array([[2.0, 1.0]]), jnp.array([[-3.0, 5.0]]))[0])
    -3.0
    """
    predicted = jnp.argmax(jnp.asarray(logits), axis=-1, keepdims=True)
    return jnp.take_along_axis(jnp.asarray(open_logits), predicted, axis=-1)[:, 0]
