"""Draws figures of the tables from the recorded runs; needs the extra ``dev``.

python -m experiments.open_set_atr.figures
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from experiments.open_set_atr import recorded, tables


def mstar() -> Figure:
    """Draws every score's AUROC on MSTAR: a point for each run, a line for the mean."""
    scores = [
        (label, values)
        for score, label in tables.ALL_NAMES.items()
        if (values := recorded.percentages(tables.mstar_runs(), score, "auroc"))
    ]
    scores.sort(key=lambda pair: np.mean(pair[1]))
    figure, axes = plt.subplots(figsize=(7, 0.4 * len(scores) + 1), layout="constrained")
    for row, (_, values) in enumerate(scores):
        axes.plot(values, [row] * len(values), "o", color="tab:blue", alpha=0.5)
        axes.plot([np.mean(values)] * 2, [row - 0.3, row + 0.3], color="black")
    axes.set_yticks(range(len(scores)), [f"{name} ({len(v)} runs)" for name, v in scores])
    axes.set_xlabel("AUROC known against unknown, MSTAR, three splits (%)")
    axes.axvline(50, color="gray", linewidth=0.8)
    return figure


def by_range() -> Figure:
    """Draws table 1: AUROC by range and band, ours (simulated) and published (DSIAC)."""
    ranges = list(tables.RANGES)
    figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for side, (band, axes) in enumerate(zip(tables.BANDS, panels, strict=True)):
        for place, (score, published) in enumerate(tables.PAPER_TABLE1.items()):
            colour, found = f"C{place}", []
            for name in ranges:
                values = recorded.percentages(tables.protocol(name, band), score, "auroc")
                found.append(np.mean(values) if values else np.nan)
            axes.plot(ranges, found, "o-", color=colour, label=tables.ALL_NAMES[score])
            theirs = [row[side] for row in published]
            axes.plot(ranges, theirs, "x:", color=colour, alpha=0.6)
        axes.set_title(f"{band}: solid ours (simulated), dotted published (DSIAC)", fontsize=9)
        axes.set_xlabel("range (m)")
    panels[0].set_ylabel("AUROC (%)")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right upper", fontsize=8)
    return figure


def main() -> None:
    """Writes the figures."""
    cells = [tables.protocol(name, band) for name in tables.RANGES for band in tables.BANDS]
    drawn = {"mstar": mstar}
    if all(recorded.percentages(runs, "cbc", "auroc") for runs in cells):
        drawn["table1"] = by_range
    for name, draw in drawn.items():
        draw().savefig(tables.RESULTS / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
