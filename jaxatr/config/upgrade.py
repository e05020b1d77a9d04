"""Upgrading the configurations of earlier runs to their task's current fields."""

import math
from collections.abc import Mapping
from typing import Any

from jaxatr.config.common import COMMON
from jaxatr.config.construction import built, fields_of, group_of, locked
from jaxatr.config.field import Field, Fields
from jaxatr.typing import Config

# Configurations once had the fields of all tasks, so older runs have these groups whichever task
# they train.
_ONCE_COMMON = (
    *("loss", "open_set", "track", "gan"),
    *("embedding", "quadruplet", "mining"),
    *("surrogate", "distillation", "explanation"),
)
_ONCE_COMMON_FIELDS = ("data.coarse",)


# Types that stand for each other in JSON; booleans are numbers, too.
_KINDS = (str, (int, float), (list, tuple), Mapping)

# The values, by data set and option, that describe its chips from before the option existed.
_ONCE_SILENT = {name: {"crop": "window"} for name in ("simulated", "simulated_tracks")}


def completed(recorded: Mapping[str, Any]) -> Config:
    """Returns a recorded configuration with the fields that its task has today.

    Fields that were added later get their default, or the value that describes the earlier
    behaviour. The fields of other tasks, which every run once recorded, had no effect and are
    dropped.

    Raises:
      ValueError: the task cannot be imported, or a field has a value of another type.
    """
    if not isinstance(task := recorded.get("task", ""), str):
        raise ValueError(f"task: got {task!r}, wanted a string")
    fields = fields_of(task) if "task" in recorded else COMMON
    for name, field in fields.items():
        _check_type(recorded, name, field)
    config = built(fields)
    for name, field in fields.items():
        if field.earlier is not None:
            group, last = group_of(config, name)
            group[last] = field.earlier
    with config.unlocked(), config.ignore_type():
        config.update(_without_other_tasks(recorded, fields))
        if "box_shift" not in recorded.get("augment", {}):  # recorded before boxes existed
            config.data.options = _ONCE_SILENT.get(config.data.name, {}) | dict(config.data.options)
    if "name" not in recorded.get("optimizer", {}):  # recorded before ``None`` meant "unset"
        for name, field in fields.items():
            group, last = group_of(config, name)
            if field.formerly is not None and group[last] == field.formerly:
                group[last] = None
    return locked(config, fields)


def _check_type(recorded: Mapping[str, Any], name: str, field: Field) -> None:
    """Checks that the recorded value of a field, if any, is of the type of the field's default."""
    *groups, last = name.split(".")
    for depth, part in enumerate(groups, 1):
        recorded = recorded.get(part, {})
        if not isinstance(recorded, Mapping):
            raise ValueError(f"{'.'.join(groups[:depth])}: got {recorded!r}, wanted an object")
    if field.default is None or last not in recorded:
        return
    unset = name in COMMON and COMMON[name].default is None
    if unset and recorded[last] is None:  # a task may redeclare a field with a default
        return
    wanted = next(kinds for kinds in _KINDS if isinstance(field.default, kinds))
    value = recorded[last]
    is_right = isinstance(value, wanted) and isinstance(value, bool) == isinstance(
        field.default, bool
    )
    if is_right and isinstance(value, float):  # JSON in Python has NaN; counts are whole numbers
        is_right = value.is_integer() if isinstance(field.default, int) else not math.isnan(value)
    if not is_right:
        raise ValueError(f"{name}: got {value!r}, wanted a value such as {field.default!r}")


def _without_other_tasks(recorded: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    kept = {
        group: {name: leaf for name, leaf in value.items() if f"{group}.{name}" in fields}
        if group in _ONCE_COMMON
        else value
        for group, value in recorded.items()
        if group not in _ONCE_COMMON or any(name.startswith(f"{group}.") for name in fields)
    }
    for field in set(_ONCE_COMMON_FIELDS) - set(fields):
        group, name = field.split(".")
        if name in kept.get(group, {}):
            kept[group] = {other: leaf for other, leaf in kept[group].items() if other != name}
    return kept
