"""Open-set recognition: docs/results/open_set.md."""

import statistics

from charts import OTHER, OURS, PUBLISHED, Mark, Row, Section

from experiments.open_set_atr import deciding
from experiments.open_set_atr import tables as open_set
from experiments.open_set_atr.recorded import RUNS, beginning, over_all, percentages, some
from experiments.records import table
from result_pages.marks import BOTH, OWN, Figures, Tables, beside, ours


def by_range() -> list[Section]:
    """Table 1: CBC and SoftMax, by range and band."""
    sections = []
    for side, band in enumerate(open_set.BANDS):
        rows = []
        for place, name in enumerate(open_set.RANGES):
            label = name if name == "combined" else f"{name} m"
            for score in ("cbc", "softmax"):
                published = open_set.PAPER_TABLE1[score][place][side]
                values = percentages(open_set.protocol(name, band), score, "auroc")
                rows.append(beside(f"{label}, {open_set.ALL_NAMES[score]}", published, values))
        sections.append(Section(f"Table 1, {band}", rows, "AUROC, %"))
    return sections


def cifar10() -> list[Section]:
    """Table 3: CIFAR-10, with the PyTorch port of the paper's code."""
    rows = []
    for score, published in open_set.PAPER_TABLE3.items():
        row = beside(
            open_set.ALL_NAMES[score],
            published,
            percentages(["cifar10-paper-code-0"], score, "auroc"),
        )
        peer = open_set.PYTORCH_CIFAR10.get(score)
        marks = [*row.marks, *([Mark(OTHER, 100 * peer)] if peer else [])]
        rows.append(Row(row.label, marks, row.text))
    return [Section("Table 3, CIFAR-10", rows, "AUROC, %")]


def ablation() -> list[Section]:
    """Table 4: the losses, all ranges together."""
    kinds = {"bce-entropy": "BCE, entropy", "cbc": "CBC, no entropy", "full": "CBC, entropy"}
    sections = []
    for side, band in enumerate(open_set.BANDS):
        rows = []
        for kind, label in kinds.items():
            names = [f"table4-{kind}-{band}-{split}" for split in range(3)]
            runs = open_set.protocol("combined", band) if kind == "full" else names
            values = percentages(runs, "cbc", "auroc")
            rows.append(beside(label, open_set.PAPER_TABLE4[kind][side], values))
        sections.append(Section(f"Table 4, {band}", rows, "AUROC, %"))
    return sections


def mstar_scores() -> list[Section]:
    """All scores on the same MSTAR networks; a faint point for each run."""
    found = [
        (label, values)
        for score, label in open_set.ALL_NAMES.items()
        if (values := percentages(open_set.mstar_runs(), score, "auroc"))
    ]
    variant = beginning("mstar-auto-")
    galleries = [
        (score, values)
        for score in ("cbc", "mahalanobis", "spatial_stage2", "template", "fusion_template")
        if (values := percentages(variant, score, "auroc"))
    ]
    titles = ("MSTAR, the paper's method", "MSTAR, the variant cbc:mstar")
    sections = []
    for title, scores in zip(titles, (found, galleries), strict=True):
        scores.sort(key=lambda pair: -statistics.fmean(pair[1]))
        rows = [Row(label, *ours(values)) for label, values in scores]
        if rows:
            sections.append(Section(title, rows, "AUROC, %", reference=50.0))
    return sections


def mstar_peer() -> list[Section]:
    """The same recipe beside a PyTorch port, by split."""
    rows = []
    for score, label in open_set.NAMES.items():
        for split in range(3):
            values = percentages([f"mstar-{split}-cbc-{seed}" for seed in range(3)], score, "auroc")
            marks, text = ours(values)
            peer = Mark(OTHER, 100 * open_set.PYTORCH_MSTAR[score][split])
            rows.append(Row(f"{label}, split {split}", [peer, *marks], text))
    return [Section("MSTAR, beside a PyTorch port", rows, "AUROC, %")]


def default_run() -> list[Section]:
    """The default run: AUROC of the score that decides, by range."""
    results = [found for i in range(3) if (found := RUNS[f"default-{i}"].result(deciding.RESULTS))]
    groups = [] if not results else results[0]["evaluation"]["groups"]
    rows = []
    for group in groups:
        values = [
            100
            * one["evaluation"]["groups"][group]["scores"][one["evaluation"]["decides"]]["auroc"]
            for one in results
        ]
        rows.append(Row(group, *ours(values)))
    return [Section("The default run, three splits", rows, "AUROC, %")] if rows else []


def mstar_table() -> str:
    """The scores on MSTAR, the best first; not every score has a fixed threshold."""
    measures = {
        "auroc": "AUROC",
        "fpr_at_tpr": "FPR at 95 % TPR",
        "oscr": "OSCR",
        "open_accuracy": "open acc., fixed",
        "fitted_open_accuracy": "open acc., fitted",
    }
    runs = open_set.mstar_runs()
    evaluations = [found["scores"] for name in runs if (found := over_all(name))]
    rows = []
    for score, label in open_set.ALL_NAMES.items():
        known = {measure for one in evaluations for measure in one.get(score, {})}
        cells = [some(runs, score, measure) if measure in known else "" for measure in measures]
        rows.append([label, *cells])
    rows.sort(key=lambda row: -float(row[1].split()[0]) if row[1] else 0.0)
    return "\n".join(table(["score", *measures.values()], rows))


FIGURES: Figures = {
    "open_set_table1": (by_range, BOTH),
    "open_set_table3": (
        cifar10,
        {PUBLISHED: "published", OTHER: "PyTorch port", OURS: "jaxatr"},
    ),
    "open_set_table4": (ablation, BOTH),
    "open_set_mstar": (mstar_scores, OWN),
    "open_set_peer": (mstar_peer, {OTHER: "PyTorch port", **BOTH, PUBLISHED: ""}),
    "open_set_default": (default_run, OWN),
}
TABLES: Tables = {
    "default": deciding.default,
    "deciding": deciding.deciding,
    "decoys": deciding.held_out,
    "clutter": deciding.controls,
    "recipes": deciding.with_clutter(deciding.recipes),
    "calibrated": deciding.with_clutter(deciding.calibrated),
    "cifar10_recipes": deciding.cifar10_recipes,
    "cifar10_pretrained": open_set.cifar10_pretrained,
    "cifar10_consensus": open_set.cifar10_consensus,
    "cifar10_scratch": open_set.cifar10_scratch,
    "mstar": deciding.with_clutter(mstar_table),
    "against_softmax": open_set.against_softmax,
    "table1": open_set.table1,
    "table2": open_set.table2,
    "table4": open_set.table4,
}
