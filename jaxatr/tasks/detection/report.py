"""The report of a detector's results."""

from collections.abc import Mapping
from typing import Any

from jaxatr.reporting import plain
from jaxatr.reporting.kind import Report
from jaxatr.reporting.tables import percent, text_table


def text(evaluation: Mapping[str, Any]) -> str:
    """Formats recall by class at rates of false alarms, and the decision's figures."""
    rates = list(evaluation["recall"])
    header = ["class", "known", "targets", *(f"recall at {rate} a scene" for rate in rates)]
    total = [str(evaluation["targets"]), *(percent(evaluation["recall"][rate]) for rate in rates)]
    rows = [["all", "", *total]]
    for name, row in evaluation["classes"].items():
        figures = [percent(row["recall"][rate]) for rate in rates]
        rows.append([name, "yes" if row["known"] else "no", str(row["targets"]), *figures])
    parts = [_averages(evaluation["average_precision"]), text_table(header, rows)]
    if evaluation.get("ranges"):
        rows = [
            [f"{metres} m", str(row["targets"]), percent(row["recall"])]
            for metres, row in evaluation["ranges"].items()
        ]
        parts.append(text_table(["range", "targets", "recall"], rows))
    return "\n\n".join([*parts, _decision(evaluation["decision"])])


def _averages(measured: Mapping[str, Any]) -> str:
    """Formats COCO's measures of targets, of the known classes, and with γ."""
    names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar100")
    header = ["average precision", "AP", "AP50", "AP75", "small", "medium", "large", "AR100"]
    found = {"targets": measured["targets"], "known classes": measured["classes"]}
    if "open" in measured:
        found |= {"known, with γ": measured["open"]["known"]}
        found |= {"unknown, with γ": measured["open"]["unknown"]}
    rows = [[title, *(percent(row[name]) for name in names)] for title, row in found.items()]
    for name, row in measured["classes"]["by_class"].items():
        rows.append([name, percent(row["ap"]), percent(row["ap50"]), *[""] * 5])
    return text_table(header, rows)


def _decision(row: Mapping[str, Any]) -> str:
    """Describes how targets are found and named at the fitted thresholds."""
    lines = [
        f"targets from a score of {row['threshold']:.4g}: recall {percent(row['recall'])}, "
        f"{row['false_alarms']:.3g} false alarms a scene",
        f"known from γ = {row['gamma']:.4g}: of the known targets found, "
        f"{percent(row['known_accepted'])} accepted, {percent(row['known_named_right'])} accepted "
        f"and named right; {percent(row['named_right'])} named right whatever γ",
    ]
    if row["unknown_found"]:
        lines.append(
            f"of {row['unknown_found']} unknown targets found, {row['open_set_errors']} are given "
            f"a known class ({percent(row['unknown_accepted'])})"
        )
    return "\n".join(lines)


REPORT = Report(
    title="detection",
    read=plain.read,
    introduce=lambda run: (
        f"{run.evaluation['targets']} targets in {run.evaluation['scenes']} scenes, step "
        f"{run.evaluation['checkpoint']['step']}."
    ),
    settings=lambda run: {"known classes": ", ".join(run.evaluation["known"])},
    sections=((1000, plain.figures),),
    text=text,
)
