"""The work of ``jaxatr monitor``: what has changed in tables of predictions, and a page of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from jaxatr import data, files, openset, runs, training
from jaxatr.cli import inputs
from jaxatr.cli.terminal import one_line
from jaxatr.recognition import drift, monitored_page, monitoring, sighted_tables
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.recognition.sighted_tables import Sighted
from jaxatr.reporting import monitor_page
from jaxatr.typing import Float


def main(arguments: Sequence[str]) -> None:
    """Prints what has changed, and writes the page."""
    values = flags.FLAGS
    files.check_page(values.out)
    if values.table:
        data.check_table(values.table)
        inputs.check_apart(values.table, *arguments)
        place = Path(values.table).resolve()
        if within := next((one for one in arguments if Path(one).resolve() in place.parents), None):
            raise ValueError(f"--table: {values.table} is in {within}, whose tables are read")
    left_out: list[str] = []

    def leave_out(line: str) -> None:
        left_out.append(line)
        print(f"warning: {one_line(line)}", file=sys.stderr)

    rows = sighted_tables.read(
        arguments, leave_out, time=values.time_column, source=values.source_column
    )
    of_runs = sighted_tables.by_run(rows)
    if values.workdir:
        of_runs = _of_run(values.workdir, of_runs, leave_out)
    elif len(of_runs) > 1:
        listed = ", ".join(
            f"{_title(_digest(key[0]), key[1])} ({len(one.time)} rows)"
            for key, one in of_runs.items()
        )
        leave_out(f"{len(of_runs)} runs or scores are compared by themselves: {listed}")
    parts, figures = [], []
    for (run, score), some in of_runs.items():
        reference = _reference(values.workdir, score, leave_out) if values.workdir else None
        seen = monitoring.look(some, by=values.by, reference=reference)
        names = [Path(workdir).resolve().name for workdir in values.workdir or ()]
        title = _title(" and ".join(names) or _digest(run), score)
        parts.append(monitored_page.part_of(seen, title))
        figures += monitored_page.table_of(seen)
        if len(of_runs) > 1:
            print(f"{title}:")
        for line in (seen.summary, *(one.sentence for one in seen.findings), *seen.facts):
            print(one_line(line))
    files.write_text(values.out, monitor_page.render(parts, left_out))
    if values.table:
        data.write_table(values.table, figures)
    print(f"page: {values.out}")


def _digest(run: str) -> str:
    return run and f"run {run}"


def _title(run: str, score: str) -> str:
    return " by ".join(filter(None, (run or "predictions", score)))


def _of_run(
    workdirs: Sequence[str],
    of_runs: Mapping[tuple[str, str], Sighted],
    leave_out: Callable[[str], None],
) -> dict[tuple[str, str], Sighted]:
    """Returns the predictions of a run; those that do not name their run are taken for its own.

    Raises:
      ValueError: there are none of this run.
    """
    for workdir in workdirs:
        if training.read_repeats(workdir) is None:
            training.task_of(workdir)  # raises an error for a folder that is not a run
    own, named = training.run_id(*workdirs), " and ".join(workdirs)
    kept = {key: rows for key, rows in of_runs.items() if key[0] in ("", own)}
    for (run, _), rows in of_runs.items():
        if run == "":
            leave_out(f"rows that do not name their run ({len(rows.time)}) are taken for {named}'s")
        elif run != own:
            leave_out(f"left out: {len(rows.time)} of the run {run}, and {named} is {own}")
    if not kept:
        raise ValueError(f"--workdir: the tables have no predictions of {named}")
    return kept


def _reference(
    workdirs: Sequence[str], score: str, leave_out: Callable[[str], None]
) -> Mapping[str, Float[np.ndarray, " n"]]:
    """Returns the values of the statistics in a run's training."""
    several = workdirs if len(workdirs) > 1 else workdirs[0]
    if len(workdirs) == 1 and training.read_repeats(workdirs[0]) is None:
        kind = training.predictor_class(training.task_of(workdirs[0]))
        if not issubclass(kind, OpenSetPredictor):  # which may have no option `score`
            leave_out(f"{workdirs[0]}: only recognisers are compared with their training")
            return {}
    options: dict[str, Any] = {"score": score} if score not in ("", openset.ENSEMBLE.name) else {}
    predictor = runs.load_predictor(several, **options)
    assert isinstance(predictor, OpenSetPredictor)
    reference = drift.reference_of(predictor)
    if reference.missing:
        leave_out(f"not everything is compared with the training: {reference.missing}")
    return reference.values
