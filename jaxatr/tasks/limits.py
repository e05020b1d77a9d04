"""Validation of the values of configuration fields."""

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

from jaxatr.typing import Config


def check_limits(config: Config, **more: tuple[bool, str]) -> None:
    """Checks values that would otherwise fail during training or silently spoil it.

    Args:
      config: the run's configuration.
      **more: further fields, with ``__`` for the dot in their names. Each has whether its value is
        valid, and a description of valid values.

    Raises:
      ValueError: a value is invalid; the message names its field.
    """
    train, optimizer = config.train, config.optimizer
    validation_seed = config.data.validation_seed
    limits = {
        "seed": (config.seed >= 0, "0 or more"),
        "data.validation_seed": (validation_seed is None or validation_seed >= 0, "0 or more"),
        "train.batch_size": (train.batch_size >= 1, "at least 1"),
        "train.steps": (train.steps >= 0, "0 (off) or more"),
        "train.epochs": (train.steps > 0 or train.epochs > 0, "more than 0"),
        "train.evaluate_every": (train.evaluate_every > 0, "more than 0"),
        "train.checkpoint_every": (train.checkpoint_every >= 1, "at least 1"),
        "train.log_every": (train.log_every >= 1, "at least 1"),
        "train.keep": (train.keep >= 1, "at least 1"),
        "train.ema": (0 <= train.ema < 1, "a decay in [0, 1); 0 is off"),
        "optimizer.learning_rate": (optimizer.learning_rate >= 0, "0 or more"),
        "optimizer.momentum": (0 <= optimizer.momentum < 1, "a decay in [0, 1)"),
        "optimizer.weight_decay": (optimizer.weight_decay >= 0, "0 (off) or more"),
        "optimizer.warmup_epochs": (optimizer.warmup_epochs >= 0, "0 (off) or more"),
        "optimizer.boundaries": (are_numbers(optimizer.boundaries), "epochs, 0 or more"),
        "optimizer.clip_norm": (optimizer.clip_norm >= 0, "0 (off) or more"),
        "optimizer.backbone_factor": (optimizer.backbone_factor >= 0, "0 or more"),
        "augment.shift": (config.augment.shift >= 0, "0 (off) or more"),
        "augment.box_shift": (config.augment.box_shift >= 0, "0 (off) or a share"),
        "augment.box_scale": (0 <= config.augment.box_scale < 1, "a share in [0, 1); 0 is off"),
        "data.box_margin": (config.data.box_margin >= 0, "0 or a share"),
        "data.box_error": (0 <= config.data.box_error < 1, "a share in [0, 1); 0 is none"),
        "data.validation": (0 <= config.data.validation < 1, "a share in [0, 1)"),
        **{name.replace("__", "."): limit for name, limit in more.items()},
    }
    for name, (fits, wanted) in limits.items():
        if not fits:
            value: Any = reduce(getitem, name.split("."), config)
            raise ValueError(f"{name}: got {value}, wanted {wanted}")


def are_numbers(values: Sequence[Any], count: int | None = None) -> bool:
    """Returns whether all values are numbers of at least 0, and there are as many as wanted."""
    return count in (None, len(values)) and all(
        isinstance(value, int | float) and value >= 0 for value in values
    )


def check_choices(config: Config, **choices: tuple[str, ...]) -> None:
    """Checks that fields have one of their allowed values.

    Args:
      config: the run's configuration.
      **choices: allowed values of fields, with ``__`` for the dot in their names.

    Raises:
      ValueError: a value is invalid; the message names its field.
    """
    for name, wanted in choices.items():
        group, field = name.split("__")
        if config[group][field] not in wanted:
            raise ValueError(
                f"{group}.{field}: got {config[group][field]!r}, wanted {' or '.join(wanted)}"
            )
