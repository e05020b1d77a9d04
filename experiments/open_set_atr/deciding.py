"""Formats the tables of the default run, of the score that decides, and of training recipes."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from experiments.open_set_atr.recorded import (
    NAMES,
    RUNS,
    beginning,
    markdown,
    percentages,
    some,
)
from experiments.open_set_atr.run import RESULTS
from experiments.records import NOT_RUN
from jaxatr import metrics

CLUTTER = "MSTAR, only clutter: the vehicles are blanked"
GROUPS = {
    "simulated, the default": "default-",
    "MSTAR, reference splits": "mstar-auto-",
    "MSTAR, reference splits, strong variant": "mstar-strong-",
    "MSTAR, fresh splits": "mstar-fresh-",
    CLUTTER: "mstar-blanked-",
    "CIFAR-10 from ImageNet's weights": "cifar10-pretrained-",
    "CIFAR-10 from random weights, half the width": "cifar10-scratch-",
    "CIFAR-10 from random weights": "cifar10-long-",
}
"""The runs of this package's own recipes: labels in tables, and how the runs' names begin."""

FIELD_MEASURES = {
    "known_accepted": "known accepted",
    "unknown_accepted": "unknown accepted",
    "open_accuracy": "open acc.",
    "class_probability_error": "ECE of the class",
    "known_probability_error": "ECE of known, at even odds",
}
"""Measures of field.py, with their columns."""
FIELD_CHANGES = {
    "known_accepted": "known chips accepted",
    "unknown_accepted": "unknown chips accepted",
    "open_accuracy": 'accuracy over known classes and "unknown"',
}
"""Measures whose change is stated in a sentence."""


def default() -> str:
    """Formats the default run: its time, and its figures by range, over three splits."""
    found = [result for i in range(3) if (result := RUNS[f"default-{i}"].result(RESULTS))]
    if not found:
        return NOT_RUN
    rows = []
    for group in found[0]["evaluation"]["groups"]:
        measured = [(one["evaluation"]["groups"][group], one) for one in found]
        closed = metrics.summarize(one["closed_accuracy"] for one, _ in measured)
        deciding = metrics.summarize(
            one["scores"][result["evaluation"]["decides"]]["auroc"] for one, result in measured
        )
        aurocs = [
            metrics.summarize(one["scores"][score]["auroc"] for one, _ in measured)
            for score in NAMES
        ]
        rows.append([group, *(f"{figures:.3f}" for figures in (closed, deciding, *aurocs))])
    header = ["test data", "closed acc.", "AUROC, the deciding score"]
    header += [f"AUROC {name}" for name in NAMES.values()]
    times = ", ".join(f"{result['seconds']} s" for result in found)
    names = ", ".join(sorted({result["evaluation"]["decides"] for result in found}))
    device = found[0]["record"]["device"]["kind"]
    return (
        f"{len(found)} of 3 splits into known and unknown vehicles; {times} from the start of the "
        f"command to its table, on {device}. The score that decides: {names}.\n\n"
        f"{markdown(header, rows)}"
    )


def deciding() -> str:
    """Formats the figures of the score that decides, and their difference to the best score.

    The best is that of the scores that were measured on the test data, not of all candidates.
    """
    rows: list[list[str]] = []
    differences: list[float] = []
    for label, prefix in GROUPS.items():
        names = beginning(prefix)
        results = [found for name in names if (found := RUNS[name].result(RESULTS))]
        if not results:
            rows.append([label, *[NOT_RUN] * 8])
            continue
        decisions: list[dict[str, Any]] = [result["evaluation"]["decision"] for result in results]
        tested = [decision["test"] for decision in decisions]
        scores = [result["evaluation"]["groups"]["all"]["scores"] for result in results]
        chosen = [result["evaluation"]["decides"] for result in results]
        shared = set.intersection(*map(set, scores))
        mean = {
            name: metrics.summarize(one[name]["auroc"] for one in scores).mean for name in shared
        }
        best = max(mean, key=lambda name: mean[name])
        auroc = metrics.summarize(one["auroc"] for one in tested)
        by_name = all(decision["by"] == "name" for decision in decisions)
        if not by_name:
            differences.append(auroc.mean - mean[best])
        rates = [
            one[name]["fpr_at_tpr"] for one, name in zip(scores, chosen, strict=True) if name in one
        ]
        rows.append(
            [
                label,
                f"{len(results)} of {len(names)}",
                ", ".join(sorted(set(chosen))),
                "the configuration" if by_name else "`auto`",
                f"{auroc:.3f}",
                f"{metrics.summarize(rates):.3f}" if rates else "",
                f"{metrics.summarize(one['closed_accuracy'] for one in tested):.3f}",
                f"{best} {mean[best]:.3f}",
                f"{auroc.mean - mean[best]:+.3f}",
            ]
        )
    header = ["data", "runs", "decides", "chosen by", "AUROC", "FPR at 95 % TPR", "closed acc."]
    formatted = markdown([*header, "best measured score", "difference to it"], rows)
    if not differences:
        return formatted
    overall = metrics.summarize(differences).mean
    about = f"Mean difference of the {len(differences)} rows in which `auto` chose: {overall:+.3f}."
    return f"{formatted}\n\n{about}"


def clutter() -> str:
    """States how much of an MSTAR table the clutter alone explains: its control, in a sentence."""
    names = beginning(GROUPS[CLUTTER])

    def measured(score: str, measure: str) -> str:
        values = percentages(names, score, measure)
        return f"{metrics.summarize(values):.1f} %" if values else NOT_RUN

    scores = ("cbc", "mahalanobis", "fusion_template")
    aurocs = ", ".join(f"{measured(score, 'auroc')} by `{score}`" for score in scores)
    return (
        "Control: with the vehicles blanked, the clutter around them still names "
        f"{measured('cbc', 'closed_accuracy')} of the test chips of known classes right; AUROC "
        f"{aurocs}."
    )


def with_clutter(make: Callable[[], str]) -> Callable[[], str]:
    """Makes a table that ends with the control."""
    return lambda: f"{make()}\n\n{clutter()}"


def controls() -> str:
    """Formats how much the clutter around MSTAR's vehicles reveals of their classes."""
    shown = ("cbc", "mahalanobis", "spatial_stage2", "template", "fusion_template")
    labels = {
        "auto": "centre of 64 px (the variant)",
        "centre": "centre of 48 px",
        "blanked": "80 px with a blank centre of 48 px (only clutter)",
    }
    return _compared(
        {label: beginning(f"mstar-{kind}-") for kind, label in labels.items()},
        shown,
    )


def held_out() -> str:
    """Formats the comparison of amounts of decoys, by AUROC of two held-out known vehicles."""
    shown = ("cbc", "mls", "vim", "nearest", "spatial_stage2", "fusion_cbc")
    labels = {"none": "no decoys", "half": "decoys, weight 0.5", "more": "decoys, weight 1.5"}
    return _compared(
        {
            label: [f"held-out-{kind}-{split}" for split in range(2)]
            for kind, label in labels.items()
        },
        shown,
    )


def recipes() -> str:
    """Formats the comparison of MSTAR's recipes, by AUROC of two held-out known vehicles."""
    shown = (
        "cbc",
        "mahalanobis",
        "spatial_stage1",
        "spatial_stage2",
        "template",
        "fusion_template",
    )
    labels = {
        "plain": "the variant",
        "speckle": "speckle, 4 looks",
        "rotate": "rotation by up to 5°",
        "background": "background suppressed in half of the chips",
        "smoothing": "label smoothing 0.1",
        "supcon": "SupCon, weight 0.5",
        "centre": "centre of 48 px",
        "strong": "centre of 48 px, rotation by up to 5° (the strong variant)",
    }
    return _compared(
        {label: [f"recipe-{kind}-{split}" for split in range(3)] for kind, label in labels.items()},
        shown,
        rates=("fusion_template",),
    )


def cifar10_recipes() -> str:
    """Formats the comparison of recipes for fine-tuning on CIFAR-10, without test images."""
    labels = {
        "plain": "EfficientNet-Lite0 on 96 pixels, backbone at 0.01 of the heads' rate",
        "faster": "at 0.03",
        "longer": "at 0.1, four times as many steps",
        "outliers": "at 0.01, twice as many steps, CIFAR-100 as outliers",
        "larger": "at 0.01, EfficientNet-Lite2 on 128 pixels",
    }
    return _compared(
        {label: [f"cifar10-recipe-{kind}-0"] for kind, label in labels.items()},
        ("softmax", "mls", "cbc", "rmds", "vim", "knn", "nearest"),
    )


def _compared(
    runs: dict[str, list[str]], shown: tuple[str, ...], rates: tuple[str, ...] = ()
) -> str:
    """Formats closed accuracy and the AUROC of some scores, for trainings of several runs.

    Args:
      runs: names of the runs by training.
      shown: scores whose AUROC is given.
      rates: scores whose false-positive rate is given, at 95 % accepted.
    """
    rows = [
        [
            label,
            some(names, "cbc", "closed_accuracy"),
            *(some(names, score, "auroc") for score in shown),
            *(some(names, score, "fpr_at_tpr") for score in rates),
        ]
        for label, names in runs.items()
    ]
    header = ["training", "closed acc.", *(f"AUROC {score}" for score in shown)]
    return markdown([*header, *(f"FPR at 95 % TPR {score}" for score in rates)], rows)


def calibrated() -> str:
    """Formats MSTAR before and after calibration to a few chips of the test's depression angle."""
    names = beginning("mstar-auto-")
    paths = [path for name in names if (path := RESULTS / f"field-{name}.json").exists()]
    every = [row for path in paths for row in json.loads(path.read_text())["rows"]]
    if not every:
        return NOT_RUN
    scores = dict.fromkeys(row["score"] for row in every)
    counts = sorted({row["chips"] for row in every})
    rows = []
    for score, chips in product(scores, (0, *counts)):
        figures = [_field(every, score, chips, measure) for measure in FIELD_MEASURES]
        cells = ["" if found is None else f"{found:.1f}" for found in figures]
        rows.append([score, str(chips) if chips else "none", *cells])
    decides, most = next(iter(scores)), counts[-1]
    changes = [
        f"{words} from {before.mean:.0f} to {after.mean:.0f} %"
        for measure, words in FIELD_CHANGES.items()
        if (before := _field(every, decides, 0, measure))
        and (after := _field(every, decides, most, measure))
    ]
    draws = len({row["draw"] for row in every})
    about = (
        f"{len(paths)} of {len(names)} runs, {draws} draws of chips for each; measured on the "
        f"other chips. With {most} chips of each class, the decision by `{decides}` changes: "
        f"{', '.join(changes)}."
    )
    return f"{about}\n\n{markdown(['score', 'chips per class', *FIELD_MEASURES.values()], rows)}"


def _field(
    rows: list[dict[str, Any]], score: str, chips: int, measure: str
) -> metrics.Summary | None:
    """Summarises a measure in percent after calibration to some chips; 0 chips: before it.

    Returns None if no row has the measure.
    """
    own = (row for row in rows if row["score"] == score and chips in (0, row["chips"]))
    measured = (row["after" if chips else "before"] for row in own)
    values = [100 * found[measure] for found in measured if measure in found]
    return metrics.summarize(values) if values else None
