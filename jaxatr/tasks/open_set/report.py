"""The report of open-set recognition."""

from jaxatr.reporting import calibration, explorer, figures, overview, recorded_sets
from jaxatr.reporting.kind import Report
from jaxatr.reporting.recorded_run import RecordedRun, read_run
from jaxatr.reporting.tables import open_set_table

SECTIONS = (
    (1900, overview.sets),
    (2000, overview.scores),
    (2040, overview.enrolled),
    (2050, overview.outside),
    (2100, figures.curves),
    (2200, explorer.explorer),
    (2250, calibration.decision),
    (2300, figures.ranges),
    (2400, overview.confusion),
)
"""Sections of runs that separate known from unknown by a score."""


def introduce(run: RecordedRun) -> str:
    """Returns the numbers of classes and test examples, for the top of the page."""
    return (
        f"{len(run.classes)} known and {len(run.evaluation['unknown'])} unknown classes, "
        f"{len(run.labels)} test examples."
    )


REPORT = Report(
    title="open-set recognition",
    read=lambda folder, name: read_run(folder, name=name),
    introduce=introduce,
    settings=overview.thresholds,
    sections=SECTIONS,
    text=open_set_table,
    data=explorer.script_data,
    read_set=lambda folder, name, place: read_run(folder, name=name, place=place),
    figures=recorded_sets.figures,
)
