"""Images of other data as additional unknown examples of an evaluation, in groups.

Groups such as near and far follow Yang et al. (2022), "OpenOOD: Benchmarking Generalized
Out-of-Distribution Detection".
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, openset
from jaxatr.tasks.open_set.checks import parse_sources
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import Part

PART = "outside_"
"""Prefix of the parts' names."""


class Outside(NamedTuple):
    """The images of a group.

    Attributes:
      part: the images, all labelled ``openset.UNKNOWN``.
      record: JSON values that describe their source.
    """

    part: Part
    record: dict[str, Any]


def read(task: OpenSet, given: str | None = None) -> dict[str, Outside]:
    """Reads the images of all groups, by name.

    Args:
      task: the run's task.
      given: groups to use instead of the configured ones.

    Raises:
      ValueError: the syntax is invalid, a source does not exist, or has no usable images.
    """
    fields, groups = task.config.open_set, {}
    text = fields.get("outside", "") if given is None else given
    intake = data.Intake.of_run(task.config, task.record)
    for name, source in parse_sources(text).items():
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
                f"open_set.outside: {name}: skipped {count} unusable images of {source}, such as "
                f"{first}",
                stacklevel=2,
            )
        count = len(others.chips)
        labels = np.full(count, openset.UNKNOWN, np.int32)
        part = Part(others.split(name), np.arange(count), labels, data.Chip())
        record = {"source": source, "images": count, "left_out": len(others.left_out)}
        groups[name] = Outside(part, record)
    return groups


def against(known: openset.Outputs, outside: openset.Outputs) -> openset.Outputs:
    """Concatenates the outputs for known test examples and a group, without further needs."""
    bare = (outputs._replace(more={}) for outputs in (known, outside))
    return openset.concatenated(list(bare))
