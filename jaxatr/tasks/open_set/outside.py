"""Images of other data as further unknown ones of an evaluation, in groups such as near and far.

Near and far groups: Yang et al. (2022), "OpenOOD: Benchmarking Generalized Out-of-Distribution
Detection".
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, openset
from jaxatr.tasks.open_set.scored import Scored
from jaxatr.tasks.parts import Part
from jaxatr.typing import Config

PART = "outside_"
"""Prefix of the names of the parts."""

_TAKEN = "all"  # the group of the run's own test examples


class Outside(NamedTuple):
    """The images of a group.

    Attributes:
      part: the images, all labelled ``openset.UNKNOWN``.
      record: JSON values that say where they come from.
    """

    part: Part
    record: dict[str, Any]


def parse(text: str) -> dict[str, str]:
    """Returns group to source of ``"near=SOURCE,far=SOURCE"``.

    Raises:
      ValueError: it is written in another way, or a name is taken.
    """
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, _, source = item.partition("=")
        if not name.isidentifier() or not source:
            raise ValueError(
                f"open_set.outside: got {item!r}, wanted NAME=SOURCE, such as near=FOLDER"
            )
        if name in found or name == _TAKEN:
            raise ValueError(f"open_set.outside: the name {name!r} is taken: choose another")
        found[name] = source
    return found


def check(config: Config) -> None:
    """Refuses sources that are not there.

    Raises:
      ValueError: as :func:`parse`, or there is no such source.
    """
    for name, source in parse(config.open_set.get("outside", "")).items():
        try:
            data.check_others(source, data_dir=config.data.data_dir or None)
        except ValueError as error:
            raise ValueError(f"open_set.outside: {name}: {error}") from error


def read(task: Scored, given: str | None = None) -> dict[str, Outside]:
    """Reads the images of every group, by its name.

    Args:
      task: of the run.
      given: groups in place of the configured ones.

    Raises:
      ValueError: as :func:`check`, or a source has no image that can be used.
    """
    fields, found = task.config.open_set, {}
    text = fields.get("outside", "") if given is None else given
    intake = data.Intake.of_run(task.config, task.record)
    for name, source in parse(text).items():
        try:
            others = data.read_others(
                source,
                intake,
                most=fields.outside_most,
                seed=fields.split_seed,
                data_dir=task.config.data.data_dir or None,
            )
        except ValueError as error:
            raise ValueError(f"open_set.outside: {name}: {error}") from error
        if others.left_out:
            (image, reason), count = others.left_out[0], len(others.left_out)
            first = reason if image in reason else f"{image}: {reason}"
            warnings.warn(
                f"open_set.outside: {name}: left out of {source}: {count} that cannot be used, "
                f"such as {first}",
                stacklevel=2,
            )
        count = len(others.chips)
        labels = np.full(count, openset.UNKNOWN, np.int32)
        part = Part(others.split(name), np.arange(count), labels, data.Chip())
        record = {"source": source, "images": count, "left_out": len(others.left_out)}
        found[name] = Outside(part, record)
    return found


def against(known: openset.Outputs, outside: openset.Outputs) -> openset.Outputs:
    """Joins the known test examples and a group's images, without what further scores need."""
    bare = (outputs._replace(more={}) for outputs in (known, outside))
    return openset.concatenated(list(bare))
