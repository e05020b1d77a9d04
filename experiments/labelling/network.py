"""A small network for gray chips, trained from random weights in seconds."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

from jaxatr.inference import stacked_batches

STEPS, BATCH, RATE, SHIFT = 600, 32, 1e-3, 4
ABOUT = (
    "four convolutions, 16 to 64 channels, and 64 features, trained from random weights in each "
    f"round: {STEPS} steps of {BATCH} chips by Adam, rate {RATE} falling as a cosine, shifts of "
    f"{SHIFT} pixels"
)
_CHIPS = 128  # chips of a batch of outputs


class Network(nn.Module):
    """Four convolutions with strides of two, 64 features, and a linear layer on them.

    Attributes:
      classes: k, number of classes.
    """

    classes: int

    @nn.compact
    def __call__(self, chips: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the logits ``[b, k]`` and the features ``[b, 64]`` of chips ``[b, h, w, 1]``."""
        x = chips
        for width, side in ((16, 5), (32, 3), (64, 3), (64, 3)):
            x = nn.Conv(width, (side, side), (2, 2), use_bias=False)(x)
            x = nn.relu(nn.GroupNorm(8)(x))
        features = nn.relu(nn.Dense(64)(x.reshape(len(x), -1)))
        return nn.Dense(self.classes)(features), features


def train(chips: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> Any:
    """Trains the network on chips ``[n, h, w, 1]`` of uint8, and returns its variables."""
    rng = np.random.default_rng(seed)
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))
    variables = Network(classes).init(jax.random.key(seed), _scaled(chips[:1]))
    state = optimiser.init(variables)
    padded = np.pad(chips, [(0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)], mode="reflect")
    high, wide = chips.shape[1:3]
    order = np.zeros(0, int)
    for _ in range(STEPS):
        while len(order) < BATCH:
            order = np.concatenate([order, rng.permutation(len(chips))])
        rows, order = order[:BATCH], order[BATCH:]
        y, x = rng.integers(0, 2 * SHIFT + 1, 2)
        batch = _scaled(padded[rows, y : y + high, x : x + wide])
        variables, state = _step(variables, state, batch, labels[rows], classes)
    return variables


@partial(jax.jit, static_argnums=4)
def _step(variables: Any, state: Any, chips: jax.Array, labels: jax.Array, classes: int) -> Any:
    def loss(own: Any) -> jax.Array:
        logits, _ = Network(classes).apply(own, chips)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))
    updates, state = optimiser.update(jax.grad(loss)(variables), state)
    return optax.apply_updates(variables, updates), state


def outputs(variables: Any, chips: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits ``[n, k]`` and the features ``[n, 64]`` of chips."""
    parts = [
        _outputs(variables, _scaled(batch), classes)
        for batch, _ in stacked_batches(chips, _CHIPS, full=True)
    ]
    logits, features = (np.concatenate([part[i] for part in parts])[: len(chips)] for i in (0, 1))
    return logits, features


@partial(jax.jit, static_argnums=2)
def _outputs(variables: Any, chips: jax.Array, classes: int) -> Any:
    return Network(classes).apply(variables, chips)


def _scaled(chips: np.ndarray) -> np.ndarray:
    return chips.astype(np.float32) / 64 - 1
