"""The optimiser against PyTorch's update written out by hand, and its schedules."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr import config
from jaxatr.tasks.optimizer import build_optimizer


def fields(**values):
    optimizer = config.common().optimizer
    optimizer.update(values)
    return optimizer


@pytest.mark.parametrize("nesterov", [False, True])
def test_update_is_pytorchs(nesterov):
    rate, momentum, decay = 0.1, 0.9, 0.01
    optimizer = build_optimizer(
        fields(learning_rate=rate, nesterov=nesterov, weight_decay=decay), 10, 5
    )
    rng = np.random.default_rng(0)
    x, gradients = rng.normal(size=3), rng.normal(size=(4, 3))
    params, expected, buffer = jnp.asarray(x, jnp.float32), x, np.zeros(3)
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(jnp.float32(gradient), state, params)
        params = optax.apply_updates(params, updates)
        with_decay = gradient + decay * expected
        buffer = momentum * buffer + with_decay
        expected = expected - rate * (with_decay + momentum * buffer if nesterov else buffer)
    np.testing.assert_allclose(params, expected, rtol=1e-5)


def rates(steps, steps_per_epoch, **values):
    optimizer = build_optimizer(
        fields(momentum=0.0, weight_decay=0.0, **values), steps, steps_per_epoch
    )
    params = jnp.zeros(())
    state, taken = optimizer.init(params), []
    for _ in range(steps):
        update, state = optimizer.update(jnp.ones(()), state, params)
        taken.append(-float(update))
    return np.array(taken)


def test_constant_schedule():
    np.testing.assert_allclose(rates(5, 2, learning_rate=0.3), 0.3)


def test_cosine_schedule_with_warm_up():
    taken = rates(20, 4, learning_rate=0.8, schedule="cosine", warmup_epochs=1.0)
    np.testing.assert_allclose(taken[:4], [0.2, 0.35, 0.5, 0.65], rtol=1e-6)
    cosine = 0.4 * (1 + np.cos(np.pi * np.arange(16) / 16))
    np.testing.assert_allclose(taken[4:], cosine, rtol=1e-5, atol=1e-7)


def test_warm_up_leaves_room_for_training():
    taken = rates(4, 100, learning_rate=1.0, warmup_epochs=1.0)
    np.testing.assert_allclose(taken, [0.5, 0.75, 1.0, 1.0])


def test_unknown_schedule_is_named():
    with pytest.raises(ValueError, match="optimizer.schedule: got 'step'"):
        build_optimizer(fields(schedule="step"), 1, 1)


def test_the_rate_falls_in_steps():
    taken = rates(8, 2, learning_rate=0.4, schedule="steps", boundaries=(1.0, 3.0), factor=0.5)
    np.testing.assert_allclose(taken, [0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1])
    warm = rates(6, 2, learning_rate=0.4, schedule="steps", boundaries=(2.0,), warmup_epochs=1.0)
    np.testing.assert_allclose(warm, [0.2, 0.3, 0.4, 0.4, 0.04, 0.04], rtol=1e-6)
