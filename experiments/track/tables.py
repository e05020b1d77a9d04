"""Writes tables that compare tracks with single chips to ``results/README.md``.

    python -m experiments.track.tables

The script reads ``results/*.json`` only. Cells without a recorded run are "not run". The number of
runs follows mean and standard deviation in parentheses.
"""

from typing import Any

from experiments.records import NOT_RUN, cell, commits, other_settings, recorded, table
from experiments.track.run import RESULTS, SPLITS, all_runs
from jaxatr import openset
from jaxatr.reporting import score_record

ROWS = {  # kind of run and group of the evaluation, by title
    "tracks: LSTM": ("lstm", "all"),
    "tracks: mean over chips, heads trained with the LSTM": ("lstm", "mean over chips"),
    "tracks: mean over chips, separate network": ("chips", "all"),
    "single chips, separate network": ("chips", "single chips"),
}
MEASURES = ("auroc", "oscr")


def group(row: str, split: int) -> dict[str, Any] | None:
    """Reads the measures of a row on one split; returns None if it was not run."""
    kind, name = ROWS[row]
    run = recorded(RESULTS, f"{kind}-{split}")
    return run and run["evaluation"]["groups"][name]


def figures(row: str, score: str, measure: str) -> list[float]:
    """Returns a measure of a score on each recorded split, in percent."""
    groups = (group(row, split) for split in SPLITS)
    return [100 * found["scores"][score][measure] for found in groups if found]


def accuracies(row: str) -> list[float]:
    """Returns the closed-set accuracy on each recorded split, in percent."""
    groups = (group(row, split) for split in SPLITS)
    return [100 * found["closed_accuracy"] for found in groups if found]


def means() -> list[str]:
    """Formats every row's mean over the splits."""
    rows = [
        [
            title,
            cell(accuracies(title)),
            *(cell(figures(title, score, m)) for m in MEASURES for score in openset.DEFAULT),
        ]
        for title in ROWS
    ]
    names = [
        f"{m.upper()} {score_record.shown(score).title}"
        for m in MEASURES
        for score in openset.DEFAULT
    ]
    return table(["", "closed acc.", *names], rows)


def gains() -> list[str]:
    """Formats the difference between the AUROC of the LSTM and of the means, by split."""
    ours, *others, _ = ROWS
    rows = []
    for other in others:
        for score in openset.DEFAULT:
            cells = []
            for split in SPLITS:
                pair = [group(row, split) for row in (ours, other)]
                values = [found["scores"][score]["auroc"] for found in pair if found]
                lacks = len(values) < 2
                cells.append(NOT_RUN if lacks else f"{100 * (values[0] - values[1]):+.1f}")
            rows.append([other.removeprefix("tracks: "), score_record.shown(score).title, *cells])
    return table(["compared with", "score", *(f"split {split}" for split in SPLITS)], rows)


def page() -> str:
    lines = [
        "# Tracks: an LSTM compared with the mean over single chips",
        "",
        "Simulated tracks of 4 to 8 chips, 192 of each vehicle, 5 vehicles known and 3 unknown, in",
        "percent; mean ± standard deviation over the splits (number of runs). All networks have",
        "the same small ResNet-18 (width 16). The network on single chips is trained for 20 epochs",
        "from random weights. The network with the LSTM, and the heads trained with it, start from",
        "these weights and are trained for 10 more epochs, with the same number of chips per",
        "batch. The mean score of a track is the mean of its chips' scores; its class is the one",
        "with the largest mean logit.",
        "",
        commits(RESULTS),
        "",
        *other_settings(all_runs(), RESULTS),
        *means(),
        "",
        "## AUROC gain of the LSTM by split, in percentage points",
        "",
        *gains(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    print(RESULTS / "README.md")
