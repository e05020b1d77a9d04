"""Makes the open-set paper's tables from the recorded runs; writes ``results/README.md``.

    python -m experiments.open_set_atr.tables

Reads ``results/*.json`` only. A cell of which no run is recorded says "not run", as does one whose
runs were recorded with other settings (simulated chips of a window, not by the box); behind mean
and deviation stands, in parentheses, of how many runs they are.
"""

import json
from collections.abc import Callable, Iterable

from experiments.open_set_atr.run import RESULTS, all_runs
from experiments.records import NOT_RUN, commits, table
from jaxatr import metrics

RUNS = {run.name: run for run in all_runs()}

# Measured once with a PyTorch port: lr 1e-2 with a cosine schedule, one run a split.
PYTORCH_MSTAR = {
    "closed": (0.967, 0.910, 0.983),
    "softmax": (0.874, 0.610, 0.862),
    "mls": (0.885, 0.594, 0.810),
    "cbc": (0.876, 0.621, 0.863),
    "plain closed": (0.974, 0.923, 0.982),
    "plain softmax": (0.859, 0.624, 0.822),
    "plain mls": (0.819, 0.565, 0.801),
}
PYTORCH_CIFAR10 = {"closed": 0.862, "softmax": 0.744, "mls": 0.765, "cbc": 0.749}
PAPER_CIFAR10 = {"softmax": 67.7, "mls": 69.7, "cbc": 73.6}
PAPER_DSIAC = {  # AUROC in percent, table 1: (visible, thermal)
    "1000": {"mls": (95.71, 94.59), "softmax": (96.10, 94.33), "cbc": (98.61, 96.27)},
    "2000": {"mls": (90.83, 93.50), "softmax": (89.41, 94.94), "cbc": (93.28, 96.17)},
    "3000": {"mls": (87.68, 83.73), "softmax": (89.71, 86.07), "cbc": (92.03, 87.52)},
    "combined": {"mls": (91.74, 88.81), "softmax": (94.66, 92.04), "cbc": (94.89, 92.93)},
}
PAPER_TABLE1 = {  # AUROC in percent: mean and deviation, (visible, thermal) of each range
    "conflabel_detector": ((72.05, 74.29), (70.69, 72.88), (69.27, 71.39), (68.78, 63.60)),
    "mls": ((95.71, 94.59), (90.83, 93.50), (87.68, 83.73), (91.74, 88.81)),
    "softmax": ((96.10, 94.33), (89.41, 94.94), (89.71, 86.07), (94.66, 92.04)),
    "openmax": ((94.74, 93.85), (90.04, 93.41), (91.57, 87.00), (93.92, 90.80)),
    "cbc": ((98.61, 96.27), (93.28, 96.17), (92.03, 87.52), (94.89, 92.93)),
}
PAPER_TABLE2 = {  # accuracy over six classes in percent: ranges 1000, 3000, combined
    "conflabel_detector": ((61.2, 61.7), (57.3, 57.5), (59.4, 55.2)),
    "mls": ((82.3, 73.8), (74.6, 75.8), (74.8, 72.1)),
    "softmax": ((85.3, 82.8), (79.7, 77.7), (81.1, 78.1)),
    "openmax": ((83.2, 83.2), (81.8, 81.6), (81.6, 81.4)),
    "cbc": ((91.7, 88.6), (81.2, 83.3), (86.3, 86.4)),
}
PAPER_TABLE3 = {"mls": 69.7, "softmax": 67.7, "gopenmax": 67.5, "openmax": 69.5, "cbc": 73.6}
PAPER_TABLE4 = {"bce-entropy": (90.71, 91.60), "cbc": (94.21, 91.88), "full": (94.89, 92.93)}
RANGES, BANDS = ("1000", "2000", "3000", "combined"), ("visible", "thermal")
BOXES_OFF = "boxes off by 10 %"
NAMES = {"softmax": "SoftMax", "mls": "MLS", "cbc": "CBC"}
ALL_NAMES = NAMES | {
    "openmax": "OpenMax",
    "gopenmax": "G-OpenMax",
    "conflabel_detector": "ConfLabel",
    "conflabel": "ConfLabel (sum)",
    "energy": "energy",
    "odin": "ODIN",
    "mahalanobis": "Mahalanobis",
    "knn": "k-NN",
    "vim": "ViM",
}


def over_all(name: str, group: str = "all") -> dict | None:
    """Returns a run's evaluation over a group of its test data, by default all of it.

    ``None`` where the run was not carried out with the settings that it has today.
    """
    found = RUNS[name].result(RESULTS)
    return found and found["evaluation"]["groups"].get(group)


def figure(evaluation: dict, score: str, measure: str) -> float:
    """Returns one figure of an evaluation; the closed-set accuracy belongs to no score."""
    if measure == "closed_accuracy":
        return evaluation["closed_accuracy"]
    return evaluation["scores"][score][measure]


def summary(names: Iterable[str], score: str, measure: str) -> metrics.Summary | None:
    """Returns mean and standard deviation over runs, or ``None`` unless all of them were run."""
    values = [over_all(name) for name in names]
    if any(value is None for value in values):
        return None
    return metrics.summarize(figure(value, score, measure) for value in values if value)


def cell(found: metrics.Summary | None, spec: str = ".3f") -> str:
    """Returns a summary as a table's cell."""
    return NOT_RUN if found is None else format(found, spec)


def difference(found: metrics.Summary | None, published: float, spec: str = "+.3f") -> str:
    """Returns how far ours is above the published value."""
    return NOT_RUN if found is None else format(found.mean - published, spec)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(table(header, rows))


def mstar() -> str:
    """MSTAR, per split and over all: AUROC beside the PyTorch port's."""
    rows = []
    for kind, scores in (("cbc", ("softmax", "mls", "cbc")), ("plain", ("softmax", "mls"))):
        trained = "CE + CBC + entropy" if kind == "cbc" else "cross-entropy only"
        for score in scores:
            peer = PYTORCH_MSTAR[score if kind == "cbc" else f"plain {score}"]
            for split in (0, 1, 2, None):
                splits = (0, 1, 2) if split is None else (split,)
                runs = [f"mstar-{s}-{kind}-{seed}" for s in splits for seed in range(3)]
                published = sum(peer[s] for s in splits) / len(splits)
                auroc = summary(runs, score, "auroc")
                others = ("oscr", "open_accuracy", "fitted_open_accuracy", "closed_accuracy")
                rows.append(
                    [
                        trained,
                        NAMES[score],
                        "all" if split is None else str(split),
                        f"{published:.3f}",
                        cell(auroc),
                        difference(auroc, published),
                        *(cell(summary(runs, score, measure)) for measure in others),
                    ]
                )
    header = ["trained with", "score", "split", "AUROC PyTorch", "AUROC ours", "difference"]
    header += ["OSCR", "open acc. fixed", "open acc. fitted", "closed acc."]
    return markdown(header, rows)


def against_cbc() -> str:
    """MSTAR: CBC's AUROC less each other score's, run by run (same split, same seed)."""
    others = [("cbc", "softmax", "SoftMax of the same network")]
    others += [("cbc", "mls", "MLS of the same network")]
    others += [("plain", "softmax", "SoftMax of a network trained by cross-entropy only")]
    others += [("plain", "mls", "MLS of a network trained by cross-entropy only")]
    rows = []
    for kind, score, label in others:
        pairs = [
            (over_all(f"mstar-{split}-cbc-{seed}"), over_all(f"mstar-{split}-{kind}-{seed}"))
            for split in range(3)
            for seed in range(3)
        ]
        gains = [
            figure(own, "cbc", "auroc") - figure(other, score, "auroc")
            for own, other in pairs
            if own and other
        ]
        better = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
        found = metrics.summarize(gains) if gains else None
        gained = f"{found.mean:+.3f} ± {found.deviation:.3f}" if found else NOT_RUN
        rows.append([label, gained, better])
    return markdown(
        ["CBC against", "AUROC gained (mean ± sd)", "runs in which CBC is higher"], rows
    )


def peer_cifar10() -> str:
    """Our run's recipe in PyTorch, from either initialisation (peer_cifar10.py): the last epoch."""
    rows = []
    for name, label in (("he", "He, fan-out: torchvision's and ours"), ("torch", "PyTorch's own")):
        path = RESULTS / f"peer-cifar10-{name}.json"
        if not path.exists():
            rows.append([label, *[NOT_RUN] * 4])
            continue
        last = json.loads(path.read_text())["epochs"][-1]
        aurocs = [f"{100 * last[score]:.1f}" for score in ("mls", "cbc")]
        rows.append([label, str(last["epoch"]), *aurocs, f"{last['closed_accuracy']:.3f}"])
    return markdown(["kernels drawn from", "epochs", "MLS", "CBC", "closed acc."], rows)


def cifar10() -> str:
    """CIFAR-10: AUROC beside the paper's and the PyTorch port's."""
    rows = []
    for score, name in NAMES.items():
        found = summary(["cifar10-paper-code-0"], score, "auroc")
        closed = summary(["cifar10-paper-code-0"], score, "closed_accuracy")
        rows.append(
            [
                name,
                f"{PAPER_CIFAR10[score]:.1f}",
                f"{100 * PYTORCH_CIFAR10[score]:.1f}",
                cell(found and metrics.summarize([100 * found.mean]), ".1f"),
                difference(found, PYTORCH_CIFAR10[score]),
                f"{PYTORCH_CIFAR10['closed']:.3f}",
                cell(closed),
            ]
        )
    header = ["score", "AUROC paper (ImageNet-pretrained)", "AUROC PyTorch", "AUROC ours"]
    header += ["difference to PyTorch", "closed acc. PyTorch", "closed acc. ours"]
    return markdown(header, rows)


def simulated() -> str:
    """The shape of table 1, on simulated vehicles; the paper's column is on DSIAC."""
    rows = []
    for name, published in PAPER_DSIAC.items():
        for band, position in (("visible", 0), ("thermal", 1)):
            for score, label in NAMES.items():
                runs = [f"simulated-{name}-{band}-0"]
                found = summary(runs, score, "auroc")
                rows.append(
                    [
                        name,
                        band,
                        label,
                        f"{published[score][position]:.2f}",
                        cell(found and metrics.summarize([100 * found.mean]), ".2f"),
                        cell(summary(runs, score, "closed_accuracy")),
                    ]
                )
    header = ["range", "band", "score", "AUROC paper (DSIAC)", "AUROC ours (simulated)"]
    return markdown([*header, "closed acc. ours"], rows)


def percentages(names: Iterable[str], score: str, measure: str, group: str = "all") -> list[float]:
    """Returns a figure of those runs that are recorded with it."""
    found = (over_all(name, group) for name in names)
    return [
        100 * figure(run, score, measure)
        for run in found
        if run and (measure == "closed_accuracy" or score in run["scores"])
    ]


def some(names: Iterable[str], score: str, measure: str, group: str = "all") -> str:
    """Returns mean, deviation and number of those runs that are recorded with this figure."""
    values = percentages(names, score, measure, group)
    if not values:
        return NOT_RUN
    found = metrics.summarize(values)
    spread = f" ± {found.deviation:.1f}" if len(values) > 1 else ""
    return f"{found.mean:.1f}{spread} ({len(values)})"


def against(published: float, ours: str) -> list[str]:
    """Returns the cells published, ours, difference."""
    gained = "" if ours == NOT_RUN else f"{float(ours.split()[0]) - published:+.1f}"
    return [f"{published:.1f}", ours, gained]


def protocol(name: str, band: str) -> list[str]:
    """Returns the runs of one cell of tables 1 and 2."""
    return [f"table1-{name}-{band}-{split}-{seed}" for split in range(3) for seed in range(3)]


def table1() -> str:
    """Table 1: AUROC by range and band; the paper's columns are on DSIAC.

    The last column is of test chips whose boxes are off, which the paper does not have.
    """
    rows = []
    for place, name in enumerate(RANGES):
        for side, band in enumerate(BANDS):
            for score, label in ALL_NAMES.items():
                if score in ("gopenmax", "vim"):
                    continue
                ours = some(protocol(name, band), score, "auroc")
                if score in PAPER_TABLE1:
                    cells = against(PAPER_TABLE1[score][place][side], ours)
                else:
                    cells = ["", ours, ""]
                closed = some(protocol(name, band), score, "closed_accuracy")
                off = some(protocol(name, band), score, "auroc", BOXES_OFF)
                rows.append([name, band, label, *cells, closed, off])
    header = ["range (m)", "band", "score", "AUROC published (DSIAC)", "ours (simulated)"]
    return markdown([*header, "difference", "closed acc. ours", f"AUROC, {BOXES_OFF}"], rows)


def table2() -> str:
    """Table 2: accuracy over the known classes and "unknown", at either threshold."""
    rows = []
    for place, name in enumerate(("1000", "3000", "combined")):
        for side, band in enumerate(BANDS):
            for score, published in PAPER_TABLE2.items():
                fixed = (
                    ""
                    if score == "conflabel_detector"  # a score of ours has no threshold of theirs
                    else some(protocol(name, band), score, "open_accuracy")
                )
                fitted = some(protocol(name, band), score, "fitted_open_accuracy")
                label = ALL_NAMES[score]
                rows.append([name, band, label, f"{published[place][side]:.1f}", fixed, fitted])
    header = ["range (m)", "band", "score", "accuracy published (DSIAC)"]
    return markdown([*header, "ours, fixed threshold", "ours, fitted threshold"], rows)


def table3() -> str:
    """Table 3: CIFAR-10."""
    runs = ["cifar10-paper-code-0"]
    rows = [
        [ALL_NAMES[score], *against(published, some(runs, score, "auroc"))]
        for score, published in PAPER_TABLE3.items()
    ]
    return markdown(
        ["score", "AUROC published (ImageNet-pretrained)", "ours (from scratch)", "difference"],
        rows,
    )


def table4() -> str:
    """Table 4: the ablation, on all ranges together."""
    labels = {"bce-entropy": ("BCE", "yes"), "cbc": ("CBC", "no"), "full": ("CBC", "yes")}
    rows = []
    for kind, (loss, entropy) in labels.items():
        for side, band in enumerate(BANDS):
            names = [f"table4-{kind}-{band}-{i}-{seed}" for i in range(3) for seed in range(3)]
            runs = protocol("combined", band) if kind == "full" else names
            cells = against(PAPER_TABLE4[kind][side], some(runs, "cbc", "auroc"))
            rows.append([loss, entropy, band, *cells])
    header = ["binary classifiers' loss", "entropy", "band", "AUROC published (DSIAC)"]
    return markdown([*header, "ours (simulated)", "difference"], rows)


def mstar_runs() -> list[str]:
    """Returns the runs with binary classifiers."""
    return [f"mstar-{split}-cbc-{seed}" for split in range(3) for seed in range(3)]


def mstar_scores() -> str:
    """MSTAR: every score on the runs with binary classifiers, over three splits and three seeds."""
    runs = mstar_runs()
    measures = ("auroc", "oscr", "fpr_at_tpr", "fitted_open_accuracy")
    rows = [
        [label, *(some(runs, score, measure) for measure in measures)]
        for score, label in ALL_NAMES.items()
    ]
    return markdown(["score", "AUROC", "OSCR", "FPR at 95 % TPR", "open acc., fitted"], rows)


def default() -> str:
    """The first command of the README: its time, and its figures by range, over three splits."""
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
    names = ", ".join(result["evaluation"]["decides"] for result in found)
    device = found[0]["record"]["device"]["kind"]
    return (
        f"{len(found)} of 3 splits into known and unknown vehicles; {times} from the command to "
        f"its table, on {device}. What decides, chosen by known vehicles: {names}.\n\n"
        f"{markdown(header, rows)}"
    )


def deciding() -> str:
    """How well the score that decides does, and how far the choice is from the best."""
    groups = {
        "simulated, the default": ("default-",),
        "MSTAR, reference splits": ("mstar-auto-",),
        "MSTAR, fresh splits": ("mstar-fresh-",),
    }
    rows = []
    for label, prefixes in groups.items():
        names = [name for name in RUNS if name.startswith(prefixes)]
        results = [found for name in names if (found := RUNS[name].result(RESULTS))]
        if not results:
            rows.append([label, *[NOT_RUN] * 7])
            continue
        tested = [result["evaluation"]["decision"]["test"] for result in results]
        scores = [result["evaluation"]["groups"]["all"]["scores"] for result in results]
        chosen = [result["evaluation"]["decides"] for result in results]
        shared = set.intersection(*map(set, scores))
        mean = {
            name: metrics.summarize(one[name]["auroc"] for one in scores).mean for name in shared
        }
        best = max(mean, key=lambda name: mean[name])
        auroc = metrics.summarize(one["auroc"] for one in tested)
        rates = [
            one[name]["fpr_at_tpr"] for one, name in zip(scores, chosen, strict=True) if name in one
        ]
        rows.append(
            [
                label,
                f"{len(results)} of {len(names)}",
                ", ".join(sorted(set(chosen))),
                f"{auroc:.3f}",
                f"{metrics.summarize(rates):.3f}" if rates else "",
                f"{metrics.summarize(one['closed_accuracy'] for one in tested):.3f}",
                f"{best} {mean[best]:.3f}",
                f"{auroc.mean - mean[best]:+.3f}",
            ]
        )
    header = ["data", "runs", "decides", "AUROC", "FPR at 95 % TPR", "closed acc."]
    return markdown([*header, "best single score, in the mean", "difference"], rows)


def held_out() -> str:
    """The choice of the default's decoys: AUROC of two known vehicles held out of the training."""
    shown = ("cbc", "mls", "vim", "nearest", "spatial_stage2", "fusion_cbc")
    labels = {"none": "no decoys", "half": "decoys, weight 0.5", "more": "decoys, weight 1.5"}
    rows = [
        [
            label,
            some(names, "cbc", "closed_accuracy"),
            *(some(names, score, "auroc") for score in shown),
        ]
        for kind, label in labels.items()
        for names in [[f"held-out-{kind}-{split}" for split in range(2)]]
    ]
    return markdown(["training", "closed acc.", *(f"AUROC {score}" for score in shown)], rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "The default run": default,
    "The score that decides": deciding,
    "Decoys, tried on known vehicles that are held out, in %, mean ± sd (runs)": held_out,
    "MSTAR, 6 known / 4 unknown, three seeds a split (mean ± sd)": mstar,
    "MSTAR: is CBC better?": against_cbc,
    "MSTAR: every score, in %, mean ± sd (runs)": mstar_scores,
    "Table 1, the DSIAC protocol and crop on simulated vehicles, width 16, 1,000 steps of 32: "
    "AUROC in %, mean ± sd (runs)": table1,
    "Table 2, the same runs: accuracy over five known classes and unknown, in %": table2,
    "Table 3, CIFAR-10: AUROC in %": table3,
    "Table 4, the ablation: AUROC of CBC in %": table4,
    "CIFAR-10, the paper code's split and recipe, from scratch": cifar10,
    "CIFAR-10: the same recipe in PyTorch, by how the kernels are drawn": peer_cifar10,
    "Simulated vehicles by the box in the shape of the paper's table 1: ResNet-18, half the width, "
    "one seed, 5,000 steps of 16": simulated,
}


FIGURES = {"mstar.png": "AUROC of every score on MSTAR", "table1.png": "AUROC by range and band"}


def main() -> None:
    """Writes the tables."""
    made = f"Made by `tables.py` from the recorded runs in this folder. {commits(RESULTS)}"
    parts = ["# Open-set results", made]
    for title, make in SECTIONS.items():
        parts += [f"## {title}", make()]
    parts += [f"![{text}]({name})" for name, text in FIGURES.items() if (RESULTS / name).exists()]
    text = "\n\n".join(parts) + "\n"
    (RESULTS / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
