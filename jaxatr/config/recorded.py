"""Configurations of earlier runs, completed to what their task has today."""

from collections.abc import Mapping
from typing import Any

from jaxatr.config.building import built, fields_of, group_of, locked
from jaxatr.config.common import COMMON
from jaxatr.config.field import Fields
from jaxatr.typing import Config

# Runs that were recorded when one base had the fields of all tasks have these groups, whatever they
# train.
_ONCE_COMMON = (
    *("loss", "open_set", "track", "gan"),
    *("embedding", "quadruplet", "mining"),
    *("surrogate", "distillation", "explanation"),
)
_ONCE_COMMON_FIELDS = ("data.coarse",)


# Options that once had one value, which no configuration named: data set to option to value.
_ONCE_SILENT = {name: {"crop": "window"} for name in ("simulated", "simulated_tracks")}


def completed(recorded: Mapping[str, Any]) -> Config:
    """Returns a recorded configuration with the fields that its task has today.

    Fields that came later have their defaults, or what stood for them before. The fields of other
    tasks, which every run once recorded, took no part and are left out.

    Args:
      recorded: the content of a run's ``config.json``.

    Raises:
      ValueError: its task is not on the import path.
    """
    fields = fields_of(recorded["task"]) if "task" in recorded else COMMON
    config = built(fields)
    for name, field in fields.items():
        if field.earlier is not None:
            group, last = group_of(config, name)
            group[last] = field.earlier
    with config.unlocked(), config.ignore_type():
        config.update(_without_other_tasks(recorded, fields))
        if "box_shift" not in recorded.get("augment", {}):  # from before there were boxes
            config.data.options = _ONCE_SILENT.get(config.data.name, {}) | dict(config.data.options)
    if "name" not in recorded.get("optimizer", {}):  # from before "unset" had a value of its own
        for name, field in fields.items():
            group, last = group_of(config, name)
            if field.formerly is not None and group[last] == field.formerly:
                group[last] = None
    return locked(config, fields)


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
