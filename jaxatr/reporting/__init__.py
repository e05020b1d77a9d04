"""Tables, reports and model cards of runs, made from recorded files only."""

from jaxatr.reporting.card import (
    Exported,
    check_card,
    check_evaluations,
    check_repeats,
    write_card,
)
from jaxatr.reporting.kind import Report, Section, report_of
from jaxatr.reporting.overlay import overlay, sheet
from jaxatr.reporting.page import render_report, write_report
from jaxatr.reporting.recorded_repeats import results_text, shown, summary_of
from jaxatr.reporting.recorded_sets import text as sets_table
from jaxatr.reporting.tables import (
    guarantee_lines,
    open_set_table,
    percent,
    text_table,
    worst_confusions,
)

__all__ = [
    "Exported",
    "Report",
    "Section",
    "check_card",
    "check_evaluations",
    "check_repeats",
    "guarantee_lines",
    "open_set_table",
    "overlay",
    "percent",
    "render_report",
    "report_of",
    "results_text",
    "sets_table",
    "sheet",
    "shown",
    "summary_of",
    "text_table",
    "worst_confusions",
    "write_card",
    "write_report",
]
