"""The fields of a run's configuration: those that every run has, and how a task's own join them.

A field is declared once, with its default and its meaning; the tables in the documentation are made
from the declarations (``docs/make_configuration.py``).
"""

from collections.abc import Callable, Mapping

from jaxatr.config.building import built, fields_of, group_of, has
from jaxatr.config.common import COMMON, OPEN_SET
from jaxatr.config.field import Field, Fields, table
from jaxatr.config.published import from_published
from jaxatr.config.recorded import completed
from jaxatr.config.simulated import simulated_vehicles
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
    """Returns the fields that every run has, at their defaults."""
    return built(COMMON)


def of_task(task: str = OPEN_SET) -> Config:
    """Returns the whole configuration of a task, at its defaults: where configuration files start.

    Args:
      task: its dotted path, ``"package.module:Class"``.

    Raises:
      ValueError: there is no such task.
    """
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
    """Returns a task's configuration as a variant changes it: all that a ``get_config`` has to do.

    Args:
      variants: name to the function that sets its fields.
      variant: which of them.
      task: dotted path of what is trained.
      tasks: of the variants that train something else, by their names.

    Raises:
      ValueError: there is no such variant or task.
    """
    if variant not in variants:
        raise ValueError(f"variant: got {variant!r}, wanted one of {', '.join(variants)}")
    config = of_task((tasks or {}).get(variant, task))
    variants[variant](config)
    return config


def retasked(config: Config, task: str) -> Config:
    """Returns the configuration of another task, with the values of the fields that both have."""
    made, given = of_task(task), config.copy_and_resolve_references()
    for name in fields_of(task):
        group, last = group_of(made, name)
        if name != "task" and has(given, name):
            group[last] = group_of(given, name)[0][last]
    return made


def check_complete(config: Config) -> None:
    """Refuses a configuration that lacks fields of its task.

    Raises:
      ValueError: a field is missing, as where ``--config.task`` alone is another.
    """
    missing = [name for name in fields_of(config.task) if not has(config, name)]
    if missing:
        raise ValueError(
            f"task: {config.task} needs {', '.join(missing)}, which this configuration does not "
            f"have: it has to start from jaxatr.config.of_task({config.task!r})"
        )
