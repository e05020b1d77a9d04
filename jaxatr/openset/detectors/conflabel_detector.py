"""Logit of a small detector network on each layer's gradient norm (Lee and AlRegib 2021).

The detector of "Open-Set Recognition With Gradient-Based Representations". Its inputs are the
squared norms of the gradient under the confounding label, one per layer, as in
:mod:`~jaxatr.openset.detectors.conflabel`.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import OwnTraining, Score
from jaxatr.typing import Array, ArrayLike, Float, Key

_SMALLEST = 1e-30  # lower bound of squared norms, for their logarithms


class NormDetector(NamedTuple):
    """A network of two layers on the logarithms of squared gradient norms.

    Attributes:
      mean: ``[l]``, mean of the logarithms on known examples.
      std: ``[l]``, their standard deviation.
      hidden_kernel: ``[l, h]``.
      hidden_bias: ``[h]``.
      out_kernel: ``[h, 1]``.
      out_bias: ``[1]``.
    """

    mean: Float[ArrayLike, " l"]
    std: Float[ArrayLike, " l"]
    hidden_kernel: Float[ArrayLike, "l h"]
    hidden_bias: Float[ArrayLike, " h"]
    out_kernel: Float[ArrayLike, "h 1"]
    out_bias: Float[ArrayLike, "1"]


def fit(
    known: Float[ArrayLike, "n l"],
    unknown: Float[ArrayLike, "m l"],
    *,
    key: Key,
    width: int = 64,
    steps: int = 500,
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-3,
) -> NormDetector:
    """Trains the detector to distinguish known from unknown examples.

    It is trained by AdamW in full batches; known and unknown examples have the same total weight.

    Args:
      known: ``[n, l]``, squared norms of known examples that the network was not trained on.
      unknown: ``[m, l]``, squared norms of examples of classes that the network was not trained on.
        In an open-set evaluation, these are known classes that were held out of the training, never
        unknown classes of the test.
      key: random key of the initial weights.
      width: width of the hidden layer.
      steps: number of training steps.
      learning_rate: learning rate of AdamW.
      weight_decay: weight decay of AdamW.

    Raises:
      ValueError: one kind is missing.
    """
    if not len(np.asarray(known)) or not len(np.asarray(unknown)):
        raise ValueError(
            f"got {len(np.asarray(known))} known and {len(np.asarray(unknown))} unknown examples, "
            "wanted some of both"
        )
    inside, outside = _logarithms(known), _logarithms(unknown)
    keys, layers = jax.random.split(key), inside.shape[-1]
    initial = NormDetector(
        *_moments(inside),
        hidden_kernel=_he(keys[0], (layers, width)),
        hidden_bias=jnp.zeros(width),
        out_kernel=_he(keys[1], (width, 1)),
        out_bias=jnp.zeros(1),
    )
    optimizer = optax.adamw(learning_rate, weight_decay=weight_decay)
    return _trained(initial, inside, outside, steps, optimizer)


def adapted(detector: NormDetector, known: Float[ArrayLike, "n l"]) -> NormDetector:
    """Adapts the detector to another network with the same layers.

    The scale of gradients varies between trainings, so the inputs are standardised again. The
    weights, which have learned how gradients of known and unknown examples differ, are kept.

    Args:
      detector: from :func:`fit`, on a network that was trained without some known classes.
      known: ``[n, l]``, squared norms of the other network on known examples, preferably ones that
        it was not trained on.

    Raises:
      ValueError: the networks differ in their number of layers.
    """
    layers = np.shape(detector.mean)[0]
    if np.shape(known)[1] != layers:
        raise ValueError(f"known: got the norms of {np.shape(known)[1]} layers, wanted {layers}")
    mean, std = _moments(_logarithms(known))
    return detector._replace(mean=mean, std=std)


def score(model: NormDetector, norms: Float[ArrayLike, "b l"]) -> Float[Array, " b"]:
    """Computes the detector's logit; higher is more known."""
    chex.assert_shape(norms, (None, *np.shape(model.mean)))
    return _logit(model, _logarithms(norms))


def _logarithms(norms: Float[ArrayLike, "n l"]) -> Float[Array, "n l"]:
    return jnp.log(jnp.maximum(jnp.asarray(norms), _SMALLEST))


def _moments(logs: Float[Array, "n l"]) -> tuple[Float[Array, " l"], Float[Array, " l"]]:
    return jnp.mean(logs, axis=0), jnp.maximum(jnp.std(logs, axis=0), 1e-6)


def _trained(
    initial: NormDetector, known: Array, unknown: Array, steps: int, optimizer
) -> NormDetector:
    moments, first = initial[:2], initial[2:]

    def loss(weights):
        detector = NormDetector(*moments, *weights)
        wrong = [
            jax.nn.softplus(-_logit(detector, known)),
            jax.nn.softplus(_logit(detector, unknown)),
        ]
        return jnp.mean(wrong[0]) + jnp.mean(wrong[1])

    @jax.jit
    def train(weights):
        def step(carry, _):
            weights, state = carry
            updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
            return (optax.apply_updates(weights, updates), state), None

        return jax.lax.scan(step, (weights, optimizer.init(weights)), None, steps)[0][0]

    return NormDetector(*moments, *train(first))


def _logit(detector: NormDetector, logs: Array) -> Array:
    x = (logs - detector.mean) / detector.std
    x = jax.nn.relu(x @ detector.hidden_kernel + detector.hidden_bias)
    return (x @ detector.out_kernel + detector.out_bias)[:, 0]


def _he(key: Key, shape: tuple[int, int]) -> Array:
    return jax.random.normal(key, shape) * np.sqrt(2 / shape[0])


def _adapt(detector: NormDetector, validation: Outputs) -> NormDetector:
    return adapted(detector, validation.more["gradient_norms"])


PART = Score.of_arrays(
    "conflabel_detector",
    "ConfLabel",
    score,
    arrays={"norms": "gradient_norms"},
    training=OwnTraining(
        baseline="conflabel",
        train="jaxatr.runs.baselines.conflabel:train",
        leaves="detector.npz",
        model=NormDetector,
        adapt=_adapt,
    ),
)
