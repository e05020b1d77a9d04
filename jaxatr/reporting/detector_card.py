"""The texts and tables of a model card's sections that a detector has of its own."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxatr.reporting import card_sections
from jaxatr.reporting.card_sections import MISSING, CardRun, Exported, line, listed, percent

COLUMNS = {
    "ap": "AP",
    "ap50": "AP50",
    "ap75": "AP75",
    "ap_small": "small",
    "ap_medium": "medium",
    "ap_large": "large",
    "ar100": "AR100",
}
"""COCO's measures in tables of detectors."""


def is_detector(run: CardRun) -> bool:
    """Returns whether a run is a detector's, by its evaluation or its thresholds."""
    return "average_precision" in run.evaluation or "detection" in run.record


def use(run: CardRun, exported: Exported) -> str:
    """Describes the intended use."""
    classes = listed(exported.metadata.get("classes", ()))
    return (
        "finding targets in scenes, each with a box and one of these classes, or unknown if it is "
        f"of none of them: {classes}"
    )


def factors(run: CardRun) -> list[str]:
    """Lists the factors that were measured separately, and those that were not tested."""
    measured = run.evaluation
    ranges = [f"{metres} m" for metres in measured.get("ranges", {})]
    return [
        f"Measured separately: {listed([*measured.get('classes', {}), *ranges])}",
        "Other sensors, other backgrounds, weather and seasons: not tested",
    ]


def decision_metrics(exported: Exported) -> list[str]:
    """Explains the figures and the thresholds of the exported decision."""
    metadata = exported.metadata
    least, gamma = (
        f"{value:.4g}" if (value := metadata.get(name)) is not None else MISSING
        for name in ("threshold", "gamma")
    )
    return [
        "AP and AR are COCO's average precision and recall, over IoUs from .5 to .95, AP50 at .5; "
        "small targets have less than 32 x 32 pixels, large ones more than 96 x 96. All in percent",
        f"A target has a score of at least {least}; it is unknown if no class has a probability of "
        f"at least {gamma}",
        "Guarantee: none. The least score is fitted to the validation scenes, to a rate of false "
        "alarms, and γ to a share of their known targets",
    ]


def figures(
    runs: Sequence[CardRun], exported: Exported
) -> tuple[list[str], list[tuple[str, list[str]]], list[str]]:
    """Makes the table of average precision; see :func:`card_sections.figures`."""
    about = card_sections.about_runs(runs, exported)
    if not runs[0].evaluation:
        return [], [], about
    found: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "targets, whatever their class": lambda measured: measured["targets"],
        "known classes": lambda measured: measured.get("classes", {}),
        "known classes, with γ": lambda measured: measured.get("open", {}).get("known", {}),
        "unknown targets, with γ": lambda measured: measured.get("open", {}).get("unknown", {}),
    }
    rows = []
    for name, part in found.items():
        values = [part(run.evaluation["average_precision"]) for run in runs]
        if all(values):
            rows.append((name, [percent([one.get(key) for one in values]) for key in COLUMNS]))
    return list(COLUMNS.values()), rows, about


def analyses(runs: Sequence[CardRun], exported: Exported) -> list[str]:
    """Lists recall at rates of false alarms, and the figures of the decision."""
    first = runs[0].evaluation
    lines = [
        f"Recall at {line(rate)} false alarms per scene: "
        f"{percent([run.evaluation['recall'].get(rate) for run in runs])} %"
        for rate in first.get("recall", {})
    ]
    for name, row in first.get("classes", {}).items():
        kind = "known" if row["known"] else "not known"
        at = list(row["recall"])[-1]
        shares = [
            run.evaluation["classes"].get(name, {"recall": {}})["recall"].get(at) for run in runs
        ]
        lines.append(
            f"Recall of {line(name)} ({kind}) at {at} false alarms per scene: {percent(shares)} %"
        )
    decided = [run.evaluation.get("decision", {}) for run in runs]
    fitted, file = decided[0].get("threshold"), exported.metadata.get("threshold")
    if fitted is not None and file is not None and abs(fitted - file) > 1e-6:
        return [*lines, "The file has another least score than the evaluated run: its recall and "
                "false alarms are missing"]  # fmt: skip
    for key, title in (
        ("recall", "Recall at the file's least score"),
        ("known_named_right", "Known targets found that are accepted and named right"),
        ("unknown_accepted", "Unknown targets found that are given a known class"),
    ):
        if key in decided[0]:
            lines.append(f"{title}: {percent([one.get(key) for one in decided])} %")
    return lines


def caveats(run: CardRun, runs: Sequence[CardRun], exported: Exported) -> list[str]:
    """Lists the caveats and recommendations."""
    lines = card_sections.common_caveats(run, runs)
    scenes = run.record.get("examples", {}).get("validation", "no")
    return [
        *lines,
        f"The least score is valid for scenes like the {scenes} validation scenes, with as much "
        "ground and as many things that resemble targets.",
    ]
