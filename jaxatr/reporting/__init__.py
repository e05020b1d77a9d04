"""Tables and reports; they read recorded files only."""

from jaxatr.reporting.overlay import overlay
from jaxatr.reporting.page import render_report, write_report
from jaxatr.reporting.tables import evaluation_table, open_set_table, text_table

__all__ = [
    "evaluation_table",
    "open_set_table",
    "overlay",
    "render_report",
    "text_table",
    "write_report",
]
