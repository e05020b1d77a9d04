"""Tables, reports and model cards of runs, made from recorded files only."""

from typing import TYPE_CHECKING

from jaxatr import lazy
from jaxatr.reporting.overlay import overlay, sheet  # at once: the module has the same name

if TYPE_CHECKING:
    from jaxatr.reporting.card import (
        Exported,
        check_card,
        check_evaluations,
        check_repeats,
        write_card,
    )
    from jaxatr.reporting.kind import Report, Section, report_of
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

__getattr__ = lazy.attributes(
    __name__,
    {
        "Exported": "jaxatr.reporting.card",
        "Report": "jaxatr.reporting.kind",
        "Section": "jaxatr.reporting.kind",
        "check_card": "jaxatr.reporting.card",
        "check_evaluations": "jaxatr.reporting.card",
        "check_repeats": "jaxatr.reporting.card",
        "guarantee_lines": "jaxatr.reporting.tables",
        "open_set_table": "jaxatr.reporting.tables",
        "percent": "jaxatr.reporting.tables",
        "render_report": "jaxatr.reporting.page",
        "report_of": "jaxatr.reporting.kind",
        "results_text": "jaxatr.reporting.recorded_repeats",
        "sets_table": "jaxatr.reporting.recorded_sets:text",
        "shown": "jaxatr.reporting.recorded_repeats",
        "summary_of": "jaxatr.reporting.recorded_repeats",
        "text_table": "jaxatr.reporting.tables",
        "worst_confusions": "jaxatr.reporting.tables",
        "write_card": "jaxatr.reporting.card",
        "write_report": "jaxatr.reporting.page",
    },
)
