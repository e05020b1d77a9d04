"""Building configurations from declared fields."""

from collections.abc import Mapping
from typing import cast

from ml_collections import ConfigDict, config_dict

from jaxatr.config.common import COMMON
from jaxatr.config.field import Fields
from jaxatr.resolve import resolve
from jaxatr.typing import Config


def fields_of(task: str) -> Fields:
    """Returns all fields of a task's runs, the common ones first.

    Args:
      task: dotted path of the task. Its class method ``fields`` declares the task's own fields,
        and can redeclare common ones to change their defaults.

    Raises:
      ValueError: there is no such task.
    """
    try:
        found = resolve(task)
    except ValueError as error:
        raise ValueError(f"task: {error}") from error
    if not isinstance(found, type):
        raise ValueError(f"task: {task} is not a class, wanted a jaxatr.training.Task")
    return {**COMMON, **getattr(found, "fields", dict)()}


def built(fields: Fields) -> Config:
    """Builds a configuration of the given fields, at their defaults."""
    config = cast(Config, ConfigDict())
    for name, field in fields.items():
        group = config
        *groups, last = name.split(".")
        for part in groups:
            if part not in group:
                group[part] = ConfigDict()
            group = group[part]
        if field.default is None:
            group[last] = config_dict.placeholder(field.kind)
        else:
            is_open = isinstance(field.default, Mapping)
            group[last] = ConfigDict(field.default) if is_open else field.default
    return locked(config, fields)


def locked(config: Config, fields: Fields) -> Config:
    """Locks a configuration, so that a misspelt field is an error; open groups accept any name."""
    config.lock()
    for name, field in fields.items():
        if isinstance(field.default, Mapping):
            group, last = group_of(config, name)
            group[last].unlock()
    return config


def group_of(config: Config, name: str) -> tuple[Config, str]:
    """Returns the group that holds a field, and the field's name in it."""
    *groups, last = name.split(".")
    for part in groups:
        config = config[part]
    return config, last


def has(config: Config, name: str) -> bool:
    """Returns whether a configuration has a field."""
    *groups, last = name.split(".")
    for part in groups:
        if part not in config:
            return False
        config = config[part]
    return last in config
