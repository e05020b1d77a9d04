"""Optimisers: SGD against the update of PyTorch, schedules, and optimisers of optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from ml_collections import ConfigDict

from jaxatr import config
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.optimizer import build_optimizer, steps_of


def fields(**values):
    optimizer = config.common().optimizer
    with optimizer.unlocked():  # optimizer.args is open
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
    both = rates(4, 1, learning_rate=0.4, schedule="steps", boundaries=(1.1, 1.3), factor=0.5)
    np.testing.assert_allclose(both, [0.4, 0.1, 0.1, 0.1], rtol=1e-6)
    warm = rates(6, 2, learning_rate=0.4, schedule="steps", boundaries=(2.0,), warmup_epochs=1.0)
    np.testing.assert_allclose(warm, [0.2, 0.3, 0.4, 0.4, 0.04, 0.04], rtol=1e-6)


@pytest.mark.parametrize("examples", [24, 16, 4])  # 1.5, 1 and .25 batches of 16
def test_epochs_of_no_whole_number_of_steps_count_as_they_are(examples):
    config = ConfigDict({"steps": 0, "epochs": 100, "batch_size": 16})
    steps, of_epoch = steps_of(config, examples)
    taken = rates(steps, of_epoch, learning_rate=1.0, schedule="steps", boundaries=(40, 60))
    ends = [40 * examples // 16, 60 * examples // 16]  # the training has 100 epochs
    expected = 0.1 ** np.searchsorted(ends, np.arange(100 * examples // 16), side="right")
    np.testing.assert_allclose(taken, expected, rtol=1e-6)
    warm = rates(steps, of_epoch, learning_rate=1.0, warmup_epochs=20.0)
    np.testing.assert_array_equal(np.flatnonzero(warm == 1)[0], 20 * examples // 16)


PARAMS = {"kernel": jnp.full((2, 2), 2.0), "bias": jnp.full((2,), 2.0)}
NOTHING = jax.tree.map(jnp.zeros_like, PARAMS)


def first_update(gradient, **values):
    """Returns the first update of a kernel and a bias that are all 2."""
    optimizer = build_optimizer(fields(**values), 10, 5)
    update, _ = optimizer.update(gradient, optimizer.init(PARAMS), PARAMS)
    return update


def same(tree, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), tree, other)


def test_the_state_of_sgd_is_that_of_earlier_checkpoints():
    state = build_optimizer(fields(), 10, 5).init(PARAMS)
    assert [type(part).__name__ for part in state] == [
        "EmptyState",
        "TraceState",
        "ScaleByScheduleState",
    ]


@pytest.mark.parametrize(
    ("values", "kernel", "bias"),
    [
        ({}, -0.02, -0.02),  # SGD adds 0.1 * 2 to every gradient, times the rate 0.1
        ({"decay": "kernels"}, -0.02, 0.0),
        ({"name": "adamw"}, -0.02, 0.0),  # decoupled: rate * decay * parameter
        ({"name": "adamw", "decay": "all"}, -0.02, -0.02),
        ({"name": "novograd"}, -0.02, 0.0),  # takes a decay and no mask
        ({"name": "muon"}, -0.02, 0.0),
        ({"name": "novograd", "decay": "all"}, -0.02, -0.02),
        ({"name": "sign_sgd"}, -0.1, 0.0),  # no decay of its own: the sign of the gradient
    ],
)
def test_parameters_that_decay(values, kernel, bias):
    update = first_update(NOTHING, learning_rate=0.1, weight_decay=0.1, **values)
    same(update, {"kernel": np.full((2, 2), kernel), "bias": np.full(2, bias)})


@pytest.mark.parametrize("name", ["adam", "lamb", "lion", "muon", "rmsprop"])
def test_any_of_optax_follows_the_schedule(name):
    """Without decay, the update is optax's with the rate of the schedule's first step."""
    make = getattr(optax, name, None) or getattr(optax.contrib, name)
    rng = np.random.default_rng(0)
    gradient = jax.tree.map(lambda p: jnp.float32(rng.normal(size=p.shape)), PARAMS)
    wanted = make(0.05, **({"weight_decay": 0.0} if name == "lion" else {}))
    expected, _ = wanted.update(gradient, wanted.init(PARAMS), PARAMS)
    options = {"learning_rate": 0.1, "warmup_epochs": 0.4, "weight_decay": 0.0}
    same(first_update(gradient, name=name, **options), expected)


def test_arguments_reach_the_optimiser():
    gradient = jax.tree.map(jnp.ones_like, PARAMS)
    options = {"name": "rmsprop", "learning_rate": 1.0, "weight_decay": 0.0}
    update = first_update(gradient, args=ConfigDict({"decay": 0.75, "eps": 0.0}), **options)
    same(update, jax.tree.map(lambda p: jnp.full_like(p, -2.0), PARAMS))  # 1 / sqrt(0.25)


def test_an_optimiser_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "jaxatr_test_optimizers.py").write_text(
        "import optax\n"
        "def mine(rate, scale=1.0):\n"
        "    return optax.chain(optax.scale(scale), optax.scale_by_learning_rate(rate))\n"
        "def none(rate):\n"
        "    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    gradient = jax.tree.map(jnp.ones_like, PARAMS)
    options = {"learning_rate": 0.5, "weight_decay": 0.0}
    update = first_update(
        gradient, name="jaxatr_test_optimizers:mine", args=ConfigDict({"scale": 3.0}), **options
    )
    same(update, jax.tree.map(lambda p: jnp.full_like(p, -1.5), PARAMS))
    with pytest.raises(ValueError, match="optimizer.name: .*no 'min'.*did you mean 'mine'"):
        first_update(gradient, name="jaxatr_test_optimizers:min")
    with pytest.raises(ValueError, match="optimizers:none with the arguments {} is not an opt"):
        first_update(gradient, name="jaxatr_test_optimizers:none")


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_large_gradient_is_clipped_and_a_small_one_is_not(name):
    large = {"kernel": jnp.full((2, 2), 4.0), "bias": jnp.full(2, 4.0)}  # its norm is 4 sqrt(6)
    unit = jax.tree.map(lambda leaf: leaf / (4 * np.sqrt(6)), large)
    options = {"name": name, "learning_rate": 0.1, "weight_decay": 0.3}
    same(first_update(large, clip_norm=1.0, **options), first_update(unit, **options))
    same(first_update(large, clip_norm=10.0, **options), first_update(large, **options))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "adamv"}, "optimizer.name: got 'adamv'.*did you mean 'adam"),
        ({"name": "sgdd"}, "optimizer.name: .*did you mean 'sgd'"),
        ({"name": "schedule_free_sgd"}, "optimizer.name: got 'schedule_free_sgd'"),
        ({"name": "lbfgs"}, "optimizer: lbfgs .* not an optimiser that takes only gradients"),
        ({"name": "galore"}, "optimizer: galore .*arrays without elements, which checkpoints"),
        ({"decay": "kernel"}, "optimizer.decay: got 'kernel', wanted 'all' or 'kernels'"),
        (
            {"name": "adamw", "args": ConfigDict({"eps_rot": 0.5})},
            "optimizer.args: got 'eps_rot', adamw takes b1, b2, .*did you mean 'eps_root'",
        ),
        (
            {"name": "adamw", "args": ConfigDict({"weight_decay": 0.5})},
            "optimizer.args: got 'weight_decay', which is set by a field of optimizer",
        ),
        ({"name": "adam", "args": ConfigDict({"b1": "x"})}, "optimizer: adam with the arguments"),
        ({"args": ConfigDict({"momentum": 0.5})}, "optimizer.args: got momentum; sgd takes only"),
    ],
)
def test_wrong_values_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        build_optimizer(fields(**values), 10, 5)


@pytest.mark.parametrize(("steps", "restarts"), [(20, 1), (21, 2)])
def test_cosine_with_restarts(steps, restarts):
    """Equation 5 of SGDR (Loshchilov and Hutter 2017), with periods of equal length."""
    taken = rates(steps, 4, learning_rate=0.8, schedule="cosine", restarts=restarts)
    period = steps / (restarts + 1)
    starts = [round(number * period) for number in range(restarts + 2)]
    expected = [
        0.4 * (1 + np.cos(np.pi * (step - start) / (end - start)))
        for start, end in zip(starts[:-1], starts[1:], strict=True)
        for step in range(start, end)
    ]
    np.testing.assert_allclose(taken, expected, rtol=1e-5, atol=1e-7)


def test_restarts_begin_after_the_warm_up():
    taken = rates(24, 4, learning_rate=1.0, schedule="cosine", restarts=1, warmup_epochs=1.0)
    np.testing.assert_allclose(taken[:5], [0.25, 0.4375, 0.625, 0.8125, 1.0], rtol=1e-6)
    np.testing.assert_allclose(taken[4:14], taken[14:], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"restarts": 1}, "restarts: got 1 and the schedule 'constant', wanted 'cosine'"),
        ({"restarts": 12, "schedule": "cosine"}, "restarts: got 12, wanted 0 to 9"),
    ],
)
def test_restarts_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=f"optimizer.{message}"):
        build_optimizer(fields(**values), 10, 5)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_backbone_learns_a_part_as_fast(name):
    own = {name: jnp.full((2, 2), 2.0) for name in ("stem", "attention")}
    params = {"backbone": own, "head": jnp.full((2, 2), 2.0)}
    gradient = jax.tree.map(jnp.ones_like, params)
    options = {"name": name, "learning_rate": 0.1, "weight_decay": 0.1}
    optimizer = build_optimizer(fields(backbone_factor=0.25, **options), 10, 5)
    state = optimizer.init(params)
    for _ in range(2):
        update, state = optimizer.update(gradient, state, params)
    np.testing.assert_allclose(update["backbone"]["stem"], 0.25 * update["head"], rtol=1e-6)
    np.testing.assert_allclose(update["backbone"]["attention"], update["head"], rtol=1e-6)
    plain = build_optimizer(fields(**options), 10, 5)
    state = plain.init(params)
    for _ in range(2):
        expected, state = plain.update(gradient, state, params)
    np.testing.assert_allclose(update["head"], expected["head"], rtol=1e-6)


def test_a_factor_of_no_backbone_is_refused():
    optimizer = build_optimizer(fields(backbone_factor=0.1), 10, 5)
    with pytest.raises(ValueError, match="optimizer.backbone_factor: got 0.1, but no backbone"):
        optimizer.init(PARAMS)


@pytest.mark.parametrize(
    "field, value",
    [("learning_rate", -0.1), ("momentum", 1.0), ("weight_decay", -0.1), ("warmup_epochs", -1.0)],
)
def test_values_that_spoil_a_training_are_refused(field, value):
    run = config.of_task()
    check_limits(run)
    run.optimizer[field] = value
    with pytest.raises(ValueError, match=f"optimizer.{field}: got {value}, wanted "):
        check_limits(run)
