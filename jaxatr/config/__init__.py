"""Configuration of runs: the fields common to all runs, and those that each task adds.

Each field is declared once, with its default and its meaning. ``docs/make_configuration.py``
generates the tables of the documentation from these declarations.
"""

from collections.abc import Callable, Mapping

from jaxatr.config.common import COMMON, OPEN_SET
from jaxatr.config.construction import built, fields_of, group_of, has
from jaxatr.config.field import Field, Fields, table
from jaxatr.config.fine_tuning import from_published
from jaxatr.config.simulated import simulated_vehicles
from jaxatr.config.upgrade import completed
from jaxatr.resolve import trust_names_in
from jaxatr.typing import Config

__all__ = [
    "COMMON",
    "OPEN_SET",
    "Field",
    "Fields",
    "check_complete",
    "common",
    "completed",
    "fields_of",
    "from_published",
    "of_task",
    "of_variant",
    "retasked",
    "simulated_vehicles",
    "table",
]


def common() -> Config:
    """Returns a configuration of the fields that every run has, at their defaults."""
    return built(COMMON)


def of_task(task: str = OPEN_SET) -> Config:
    """Returns the complete default configuration of a task, the start of a configuration file.

    Args:
      task: dotted path of the task, ``"package.module:Class"``.

    Raises:
      ValueError: there is no such task.
    """
    trust_names_in(task)  # the user's own
    config = built(fields_of(task))
    config.task = task
    return config


def of_variant(
    variants: Mapping[str, Callable[[Config], None]],
    variant: str,
    *,
    task: str = OPEN_SET,
    tasks: Mapping[str, str] | None = None,
) -> Config:
    """Returns a variant of a task's configuration; implements ``get_config``.

    Args:
      variants: maps each variant's name to a function that sets its fields.
      variant: name of the variant.
      task: dotted path of the task.
      tasks: dotted paths of the tasks of those variants that train a different one, by variant.

    Raises:
      ValueError: there is no such variant or task.
    """
    if variant not in variants:
        raise ValueError(f"variant: got {variant!r}, wanted one of {', '.join(variants)}")
    config = of_task((tasks or {}).get(variant, task))
    variants[variant](config)
    return config


def retasked(config: Config, task: str) -> Config:
    """Returns the configuration of another task, with the values of the fields they share.

    Args:
      config: the configuration to take the values from, which is not changed.
      task: dotted path of the other task.

    Raises:
      ValueError: there is no such task.
    """
    made, given = of_task(task), config.copy_and_resolve_references()
    for name in fields_of(task):
        group, last = group_of(made, name)
        if name != "task" and has(given, name):
            group[last] = group_of(given, name)[0][last]
    return made


def check_complete(config: Config) -> None:
    """Checks that a configuration has all fields of its task.

    Raises:
      ValueError: a field is missing, for example because only ``--config.task`` was changed.
    """
    missing = [name for name in fields_of(config.task) if not has(config, name)]
    if missing:
        raise ValueError(
            f"task: {config.task} needs {', '.join(missing)}, which this configuration does not "
            f"have: start from jaxatr.config.of_task({config.task!r})"
        )
