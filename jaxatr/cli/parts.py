"""``predict --engine``: any number of chips into the parts of a folder."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from tqdm import tqdm

from jaxatr import batch
from jaxatr.cli import command

SHARD = 10_000
"""Inputs of a part."""

_LINES = 30.0
"""Seconds between two lines of progress, where there is no terminal."""


def define_flags() -> None:
    """Defines the flags beside those of ``predict``."""
    flags.DEFINE_enum(
        "engine",
        None,
        sorted(batch.ENGINES),
        "Predict into the parts of a folder, --out, and go on there after a failure: by this "
        "process (local), or by the workers of a cluster (ray).",
    )
    flags.DEFINE_integer("shard", SHARD, "Of --engine: inputs of a part.", 1)
    flags.DEFINE_integer(
        "workers", None, "Of --engine=ray; default: one on each accelerator, else on each node.", 1
    )
    flags.DEFINE_integer(
        "gallery_workers",
        0,
        "Of --engine=ray: so many more workers share the gallery of a score, which each model has "
        "whole without them.",
        0,
    )


def check_flags() -> None:
    """Refuses flags that do not go together.

    Raises:
      ValueError: two of them do not.
    """
    values = flags.FLAGS
    if values.engine is None:
        for name in ("shard", "workers", "gallery_workers"):
            if values[name].present:
                raise ValueError(f"--{name} is of --engine, which is not given")
        return
    if not values.out:
        raise ValueError("--engine needs --out=FOLDER, where its parts are written")
    for name in ("jsonl", "explain"):
        if values[name].present:
            raise ValueError(f"--{name} does not go with --engine, which writes Parquet alone")


def main(arguments: Sequence[str], options: dict[str, Any]) -> int:
    """Predicts into the folder ``--out``.

    Args:
      arguments: the inputs.
      options: of the predictor.
    """
    values = flags.FLAGS
    totals = batch.predict_parts(
        Path(values.out),
        values.workdir,
        arguments,
        engine=values.engine,
        size=values.shard,
        workers=values.workers,
        gallery_workers=values.gallery_workers,
        options=options,
        say=_say,
        follow=_followed,
    )
    kept = f", {totals.kept} of them were there" if totals.kept else ""
    _say(
        f"{values.out}: {totals.predicted} predicted, {totals.failed} not, "
        f"in {totals.parts} parts{kept}"
    )
    return 0 if totals.predicted else command.EXIT_USER_ERROR


def _say(line: str) -> None:
    """Prints a line on standard error, above the bar if there is one."""
    tqdm.write(line, file=sys.stderr)


def _followed(total: int, parts: Iterator[batch.Part]) -> Iterator[batch.Part]:
    """Shows how many inputs are done: a bar at a terminal, now and then a line elsewhere."""
    begin = last = time.monotonic()
    done = made = 0
    with tqdm(total=total, unit="chip", unit_scale=True, dynamic_ncols=True, disable=None) as bar:
        for part in parts:
            bar.update(part.rows)
            done, made = done + part.rows, made + (0 if part.kept else part.rows)
            now = time.monotonic()
            if bar.disable and now - last > _LINES:
                last = now
                _say(f"{done} of {total} chips, {made / (now - begin):.0f} chips/s")
            yield part
