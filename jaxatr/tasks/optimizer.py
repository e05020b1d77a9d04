"""The optimiser of a phase, from optax or defined by a user, and its learning-rate schedule."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from jaxatr.kernels import outlined
from jaxatr.resolve import nearest, resolve
from jaxatr.typing import Config, PyTree

_DECAYS = ("weight_decay", "weight_decay_rate")
_MASKS = ("mask", "weight_decay_mask")
# Excluded: components of optimisers, and optimisers whose parameters for evaluation differ from
# those that they train.
_NO_OPTIMIZER = ("scale_by_", "schedule_free")


def steps_of(config: Config, examples: int) -> tuple[int, float]:
    """Returns the steps of a training, and those of an epoch, which may be no whole number.

    Args:
      config: the ``train`` group: ``steps``, or else ``epochs``, and ``batch_size``.
      examples: number of training examples.
    """
    steps = config.steps or round(config.epochs * examples / config.batch_size)
    return steps, examples / config.batch_size


def build_optimizer(
    config: Config, steps: int, steps_per_epoch: int | float
) -> optax.GradientTransformation:
    """Builds the optimiser of a configuration.

    ``"sgd"`` is stochastic gradient descent with momentum, equivalent to PyTorch's. Other names are
    functions of optax or ``optax.contrib``; ``"my.module:function"`` takes the learning-rate
    schedule and ``args``, and returns an ``optax.GradientTransformation``.

    The weight decay is decoupled (Loshchilov and Hutter, 2019) if the optimiser has one, and
    otherwise added to the gradient.

    Args:
      config: the ``optimizer`` group. ``name``; ``args``, further arguments except for SGD;
        ``learning_rate``; ``momentum`` and ``nesterov`` of SGD; ``weight_decay``; ``decay``, the
        parameters that decay, ``"all"`` (the default for SGD) or ``"kernels"`` (those with two or
        more axes, the default otherwise); ``clip_norm``, the maximum global norm of gradients, 0
        for no limit; ``backbone_factor``, a multiplier of the backbone's updates; ``schedule``:
        ``"constant"``, ``"cosine"`` to zero, with ``restarts`` warm restarts at equal intervals, or
        ``"steps"``, which multiplies the rate by ``factor`` after each epoch in ``boundaries``; and
        ``warmup_epochs`` of linear warm-up, from the rate divided by the number of warm-up steps.
        The schedule starts after the warm-up; boundaries count from the start of the training.
      steps: length of the training.
      steps_per_epoch: converts epochs of the warm-up and the boundaries to steps.

    Raises:
      ValueError: there is no such optimiser, argument or schedule, or the optimiser needs more than
        gradients and parameters; the message names the field.
    """
    if config.decay not in (None, "all", "kernels"):
        raise ValueError(f"optimizer.decay: got {config.decay!r}, wanted 'all' or 'kernels'")
    rate = rate_schedule(config, steps, steps_per_epoch)
    if config.name == "sgd":
        if config.args:
            raise ValueError(
                f"optimizer.args: got {', '.join(config.args)}; sgd takes only momentum and "
                "nesterov, which are fields"
            )
        decays = _kernels if config.decay == "kernels" else None
        optimizer = optax.chain(
            optax.add_decayed_weights(config.weight_decay, decays),
            _momentum(config.momentum, config.nesterov),
            optax.scale_by_learning_rate(rate),
        )
    else:
        optimizer = _other(config, rate)
    if config.backbone_factor != 1:
        optimizer = optax.chain(optimizer, _backbone_times(config.backbone_factor))
    return clipped(optimizer, config.clip_norm)


def _backbone_times(factor: float) -> optax.GradientTransformation:
    """Returns a transformation that multiplies the backbone's updates by a factor.

    A student's attention modules are not multiplied: no pretrained weights contain them.
    """

    def is_backbone(path: Any) -> bool:
        names = [getattr(key, "key", None) for key in path]
        return "backbone" in names and "attention" not in names

    def init(params: PyTree) -> optax.EmptyState:
        if not any(is_backbone(path) for path, _ in jax.tree.leaves_with_path(params)):
            raise ValueError(
                f"optimizer.backbone_factor: got {factor}, but no backbone parameters are trained"
            )
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        scale = lambda path, leaf: leaf * factor if is_backbone(path) else leaf  # noqa: E731
        return jax.tree.map_with_path(scale, updates), state

    return optax.GradientTransformation(init, update)


def clipped(
    optimizer: optax.GradientTransformation, clip_norm: float
) -> optax.GradientTransformation:
    """Returns an optimiser with gradient clipping by global norm.

    Args:
      optimizer: an optimiser.
      clip_norm: maximum norm over all trained parameters; 0 for no limit.
    """
    if not clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(clip_norm), optimizer)


def _other(config: Config, rate: optax.Schedule) -> optax.GradientTransformation:
    """Returns an optimiser of optax or of a user, with weight decay."""
    make = _maker(config.name)
    takes, args = inspect.signature(make).parameters, config.args.to_dict()
    decays = None if config.decay == "all" else _kernels
    decay, mask = (
        next((name for name in names if name in takes), None) for names in (_DECAYS, _MASKS)
    )
    _check_args(config.name, args, takes, {decay, mask})
    # Muon uses Adam for parameters that are not matrices, with a separate weight decay, unmasked.
    if decay == "weight_decay" and mask and "adam_weight_decay" not in takes:
        return _made(make, config.name, rate, {decay: config.weight_decay, mask: decays}, args)
    own = {decay: 0.0} if decay == "weight_decay" else {}
    optimizer = _made(make, config.name, rate, own, args)
    if not config.weight_decay:
        return optimizer
    if decay:
        scale = lambda count: -config.weight_decay * rate(count)  # noqa: E731
        return optax.chain(optimizer, optax.add_decayed_weights(scale, decays))
    return optax.chain(optax.add_decayed_weights(config.weight_decay, decays), optimizer)


def _maker(name: str) -> Callable[..., Any]:
    """Returns the optimiser function of a name."""
    if ":" in name:
        try:
            return resolve(name)
        except ValueError as error:
            raise ValueError(f"optimizer.name: {error}") from error
    known = {
        each: function
        for module in (optax.contrib, optax)
        for each, function in vars(module).items()
        if inspect.isfunction(function)
        and not each.startswith(_NO_OPTIMIZER)
        and "learning_rate" in inspect.signature(function).parameters
    }
    if name not in known:
        raise ValueError(
            f"optimizer.name: got {name!r}, wanted 'sgd', an optax optimiser or "
            f"'my.module:function'{nearest(name, ['sgd', *known])}"
        )
    return known[name]


def _check_args(
    name: str, args: Mapping[str, Any], takes: Mapping[str, Any], own: Collection[str | None]
) -> None:
    """Checks that an optimiser accepts the arguments, and that no field sets any of them."""
    first = next(iter(takes), None)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        return
    left = [each for each in takes if each != first and each not in own]
    for each in args:
        if each in own or each == first:
            raise ValueError(f"optimizer.args: got {each!r}, which is set by a field of optimizer")
        if each not in left:
            raise ValueError(
                f"optimizer.args: got {each!r}, {name} takes {', '.join(left) or 'none'}"
                f"{nearest(each, left)}"
            )


def _made(
    make: Callable[..., Any],
    name: str,
    rate: optax.Schedule,
    own: Mapping[str, Any],
    args: Mapping[str, Any],
) -> optax.GradientTransformation:
    """Constructs an optimiser, and checks it by tracing an update of a matrix and a bias."""
    like = jax.ShapeDtypeStruct
    params = {"kernel": like((2, 2), jnp.float32), "bias": like((2,), jnp.float32)}
    try:
        optimizer = make(rate, **own, **args)
        if not all(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(optimizer.init, params))):
            raise ValueError("its state has arrays without elements, which checkpoints cannot hold")
        jax.eval_shape(
            lambda params: optimizer.update(params, optimizer.init(params), params), params
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"optimizer: {name} with the arguments {dict(args)} is not an optimiser that takes "
            f"only gradients and parameters: {error}"
        ) from error
    return optimizer


def _kernels(params: PyTree) -> PyTree:
    """Masks the parameters with two or more axes, which excludes biases and norm parameters."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _momentum(decay: float, nesterov: bool) -> optax.GradientTransformation:
    """Returns ``optax.trace``, with the new average computed only once on CPU.

    Otherwise XLA:CPU recomputes it in the update of the parameters. That needs the old average and
    the old parameters, whose buffers are donated, so that both are copied first, which takes a
    quarter of the time of a small step.
    """

    @outlined
    def average(gradient, old):
        return gradient + decay * old

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        new = jax.tree.map(average, updates, state.trace)
        ahead = jax.tree.map(lambda gradient, m: gradient + decay * m, updates, new)
        return ahead if nesterov else new, optax.TraceState(new)

    return optax.GradientTransformation(optax.trace(decay).init, update)


def rate_schedule(config: Config, steps: int, steps_per_epoch: int | float) -> optax.Schedule:
    """Returns the learning rate by step of a configuration (:func:`build_optimizer`)."""
    warmup = min(round(config.warmup_epochs * steps_per_epoch), steps // 2)
    if config.restarts and config.schedule != "cosine":
        raise ValueError(
            f"optimizer.restarts: got {config.restarts} and the schedule {config.schedule!r}, "
            "wanted 'cosine'"
        )
    if config.schedule == "constant":
        after = optax.constant_schedule(config.learning_rate)
    elif config.schedule == "cosine":
        after = _cosines(config.learning_rate, max(1, steps - warmup), config.restarts + 1)
    elif config.schedule == "steps":
        falls: dict[int, float] = {}
        for epoch in config.boundaries:  # several may be rounded to the same step
            step = max(0, round(epoch * steps_per_epoch) - warmup)
            falls[step] = falls.get(step, 1.0) * config.factor
        after = optax.piecewise_constant_schedule(config.learning_rate, falls)
    else:
        raise ValueError(
            f"optimizer.schedule: got {config.schedule!r}, wanted 'constant', 'cosine' or 'steps'"
        )
    if not warmup:
        return after
    rise = optax.linear_schedule(config.learning_rate / warmup, config.learning_rate, warmup)
    return optax.join_schedules([rise, after], [warmup])


def _cosines(rate: float, steps: int, parts: int) -> optax.Schedule:
    """Returns a schedule of consecutive cosine decays to zero, of equal length."""
    if not 1 <= parts <= steps:
        raise ValueError(f"optimizer.restarts: got {parts - 1}, wanted 0 to {steps - 1}")
    ends = [round(steps * part / parts) for part in range(parts + 1)]
    falls = [
        optax.cosine_decay_schedule(rate, end - start)
        for start, end in zip(ends[:-1], ends[1:], strict=True)
    ]
    return falls[0] if parts == 1 else optax.join_schedules(falls, ends[1:-1])
