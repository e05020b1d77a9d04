"""``predict`` and ``detect --engine``: predicts inputs into part files in a folder."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from tqdm import tqdm

from jaxatr import batch
from jaxatr.cli import command

_LINES = 30.0
"""Seconds between two lines of progress without a terminal."""


def main(
    arguments: Sequence[str], options: dict[str, Any], search: batch.Search | None = None
) -> int:
    """Predicts into the folder ``--out``; with ``search``, finds targets in scenes."""
    values = flags.FLAGS
    totals = batch.predict_parts(
        Path(values.out),
        [values.workdir] if search else values.workdir,
        arguments,
        engine=values.engine,
        size=values.shard,
        workers=values.workers,
        gallery_workers=0 if search else values.gallery_workers,
        options=options,
        search=search,
        source_name=values.source_name,
        say=_say,
        follow=_followed,
    )
    done = "searched" if search else "predicted"
    kept = f", {totals.kept} of them already there" if totals.kept else ""
    _say(
        f"{values.out}: {totals.predicted} {done}, {totals.failed} failed, "
        f"in {totals.parts} parts{kept}"
    )
    return 0 if totals.predicted else command.EXIT_USER_ERROR


def _say(line: str) -> None:
    """Prints a line to standard error, above the progress bar if there is one."""
    tqdm.write(line, file=sys.stderr)


def _followed(total: int, parts: Iterator[batch.Part]) -> Iterator[batch.Part]:
    """Shows the progress: a bar on a terminal, otherwise a line from time to time."""
    begin = last = time.monotonic()
    done = made = 0
    with tqdm(total=total, unit="input", unit_scale=True, dynamic_ncols=True, disable=None) as bar:
        for part in parts:
            bar.update(part.rows)
            done, made = done + part.rows, made + (0 if part.kept else part.rows)
            now = time.monotonic()
            if bar.disable and now - last > _LINES:
                last = now
                _say(f"{done} of {total} inputs, {made / (now - begin):.3g} inputs/s")
            yield part
