"""Writes the open-set paper's tables from the recorded runs to ``results/README.md``.

    python -m experiments.open_set_atr.tables

The script reads ``results/*.json`` only. Cells without a recorded run are "not run", as are those
whose runs were recorded with other settings. The number of runs follows mean and standard deviation
in parentheses.
"""

import json
from collections.abc import Callable

from experiments.open_set_atr.deciding import (
    CLUTTER,
    GROUPS,
    calibrated,
    cifar10_recipes,
    controls,
    deciding,
    default,
    held_out,
    recipes,
    with_clutter,
)
from experiments.open_set_atr.published import (
    OPENOOD,
    PAPER_TABLE1,
    PAPER_TABLE2,
    PAPER_TABLE3,
    PAPER_TABLE4,
    PYTORCH_CIFAR10,
    PYTORCH_MSTAR,
)
from experiments.open_set_atr.recorded import (
    NAMES,
    beginning,
    cell,
    difference,
    figure,
    markdown,
    over_all,
    percentages,
    some,
    summary,
)
from experiments.open_set_atr.run import BANDS, RANGES, RESULTS
from experiments.records import NOT_RUN, commits
from jaxatr import metrics

BOXES_OFF = "boxes off by 10 %"
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
DECIDES = {"fusion_cbc": "CBC + map, which decides"}


def mstar() -> str:
    """MSTAR, by split and over all splits, compared with the PyTorch port."""
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
    """MSTAR: the difference between the AUROC of CBC and of other scores, paired by run."""
    others = [("cbc", "softmax", "SoftMax, same network")]
    others += [("cbc", "mls", "MLS, same network")]
    others += [("plain", "softmax", "SoftMax, network trained with cross-entropy only")]
    others += [("plain", "mls", "MLS, network trained with cross-entropy only")]
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
        ["compared with", "AUROC gain of CBC (mean ± sd)", "runs in which CBC is better"], rows
    )


def against_softmax() -> str:
    """The paper's claim on all data: CBC and SoftMax of the same networks, paired by run."""
    groups = {
        "simulated, table 1": beginning("table1-"),
        "simulated, table 4, CBC without entropy": beginning("table4-cbc-"),
        "MSTAR, the paper's recipe": mstar_runs(),
        "CIFAR-10, the paper's code": beginning("cifar10-paper-code-"),
        **{label: beginning(prefix) for label, prefix in GROUPS.items() if label != CLUTTER},
    }
    rows = []
    for label, names in groups.items():
        measured = [found for name in names if (found := over_all(name))]
        pairs = [[figure(one, score, "auroc") for score in ("cbc", "softmax")] for one in measured]
        if not pairs:
            rows.append([label, *[NOT_RUN] * 4])
            continue
        own, other = (metrics.summarize(side) for side in zip(*pairs, strict=True))
        gain = metrics.summarize(cbc - softmax for cbc, softmax in pairs)
        better = f"{sum(cbc > softmax for cbc, softmax in pairs)} of {len(pairs)}"
        rows.append([label, f"{own:.3f}", f"{other:.3f}", f"{gain.mean:+z.3f}", better])
    header = [
        "data",
        "AUROC CBC",
        "AUROC SoftMax",
        "mean difference",
        "runs in which CBC is better",
    ]
    return markdown(header, rows)


def peer_cifar10() -> str:
    """CIFAR-10 with our recipe in PyTorch, by initialisation (peer_cifar10.py), last epoch."""
    rows = []
    names = (("he", "He, fan-out (torchvision's and ours)"), ("torch", "PyTorch's default"))
    for name, label in names:
        path = RESULTS / f"peer-cifar10-{name}.json"
        if not path.exists():
            rows.append([label, *[NOT_RUN] * 4])
            continue
        last = json.loads(path.read_text())["epochs"][-1]
        aurocs = [f"{100 * last[score]:.1f}" for score in ("mls", "cbc")]
        rows.append([label, str(last["epoch"]), *aurocs, f"{last['closed_accuracy']:.3f}"])
    return markdown(["initialisation", "epochs", "MLS", "CBC", "closed acc."], rows)


def cifar10() -> str:
    """CIFAR-10: AUROC compared with the paper and the PyTorch port."""
    rows = []
    for score, name in NAMES.items():
        found = summary(["cifar10-paper-code-0"], score, "auroc")
        closed = summary(["cifar10-paper-code-0"], score, "closed_accuracy")
        rows.append(
            [
                name,
                f"{PAPER_TABLE3[score]:.1f}",
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


def cifar10_pretrained() -> str:
    """CIFAR-10 from ImageNet's weights: the split's unknown classes, and two other data sets.

    OpenOOD's leaderboard, in the last rows, has other conditions: see :data:`OPENOOD`.
    """
    names = [f"cifar10-pretrained-{split}" for split in range(5)]
    groups = {
        "all": "CIFAR-10's other four classes",
        "near": "CIFAR-100's test images",
        "far": "MSTAR's chips",
    }
    scores = ("nearest", "softmax", "mls", "cbc")
    rows = [
        [
            title,
            some(names, "nearest", "closed_accuracy", group),
            *(some(names, score, "auroc", group) for score in scores),
            some(names, "nearest", "fpr_at_tpr", group),
        ]
        for group, title in groups.items()
    ]
    header = ["unknown", "closed acc.", "AUROC nearest, which decides"]
    header += [f"AUROC {name}" for name in scores[1:]]
    rows += [[label, *figures, "", ""] for label, figures in OPENOOD.items()]
    return markdown([*header, "FPR at 95 % TPR, nearest"], rows)


def cifar10_consensus() -> str:
    """The default rule beside the nearest chip on networks of the same recipe, and over flips."""
    kinds = {
        "`nearest`": ("nearest", "pretrained"),
        "the default rule": ("consensus", "consensus"),
        "the default rule, with each chip's mirror image": ("consensus", "flips"),
    }
    rows = []
    for title, (score, kind) in kinds.items():
        names = [f"cifar10-{kind}-{split}" for split in range(5)]
        cells = [percentages([name], score, "auroc") for name in names]
        rows.append(
            [
                title,
                *(f"{own[0]:.1f}" if own else NOT_RUN for own in cells),
                some(names, score, "auroc"),
                some(names, score, "fpr_at_tpr"),
            ]
        )
    header = ["score", *(f"split {split}" for split in range(5)), "AUROC", "FPR at 95 % TPR"]
    return markdown(header, rows)


def cifar10_scratch() -> str:
    """CIFAR-10 from random weights, five standard splits, and two known classes held out."""
    scores = ("softmax", "mls", "cbc")
    kinds = {
        "half the width, 12 epochs": [f"cifar10-scratch-{split}" for split in range(5)],
        "whole, 20 epochs": [f"cifar10-long-{split}" for split in range(5)],
        "the same, two known classes held out": ["cifar10-recipe-long-0"],
    }
    rows = [
        [
            title,
            some(names, "cbc", "closed_accuracy"),
            *(some(names, score, "auroc") for score in scores),
            some(names, "mls", "fpr_at_tpr"),
        ]
        for title, names in kinds.items()
    ]
    header = ["network", "closed acc.", *(f"AUROC {name}" for name in scores)]
    return markdown([*header, "FPR at 95 % TPR, mls"], rows)


def against(published: float, ours: str) -> list[str]:
    """Formats the cells published, ours, difference."""
    gained = "" if ours == NOT_RUN else f"{float(ours.split()[0]) - published:+.1f}"
    return [f"{published:.1f}", ours, gained]


def protocol(name: str, band: str) -> list[str]:
    """Lists the runs of one cell of tables 1 and 2."""
    return [f"table1-{name}-{band}-{split}" for split in range(3)]


def table1() -> str:
    """Table 1: AUROC by range and band; the paper's column is on DSIAC.

    The last column, for test chips with inaccurate boxes, is not in the paper.
    """
    rows, gains = [], []
    for place, name in enumerate(RANGES):
        for side, band in enumerate(BANDS):
            for score, label in (ALL_NAMES | DECIDES).items():
                if score in ("gopenmax", "vim"):
                    continue
                ours = some(protocol(name, band), score, "auroc")
                if score in PAPER_TABLE1:
                    cells = against(PAPER_TABLE1[score][place][side], ours)
                    gains.append(cells[-1])
                else:
                    cells = ["", ours, ""]
                closed = some(protocol(name, band), score, "closed_accuracy")
                off = some(protocol(name, band), score, "auroc", BOXES_OFF)
                rows.append([name, band, label, *cells, closed, off])
    run = [float(gain) for gain in gains if gain]
    above = (
        f"{sum(gain >= 0 for gain in run)} of {len(gains)} published cells are reached or exceeded"
    )
    header = ["range (m)", "band", "score", "AUROC published (DSIAC)", "ours (simulated)"]
    header += ["difference", "closed acc. ours", f"AUROC, {BOXES_OFF}"]
    return f"{above}; {len(run)} were run.\n\n{markdown(header, rows)}"


def table2() -> str:
    """Table 2: accuracy over the known classes and "unknown", at fixed and fitted thresholds."""
    rows = []
    for place, name in enumerate(("1000", "3000", "combined")):
        for side, band in enumerate(BANDS):
            for score, published in PAPER_TABLE2.items():
                fixed = (
                    ""
                    if score == "conflabel_detector"  # our version has no fixed threshold
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
    """Table 4: the ablation, on all ranges combined."""
    labels = {"bce-entropy": ("BCE", "yes"), "cbc": ("CBC", "no"), "full": ("CBC", "yes")}
    rows = []
    for kind, (loss, entropy) in labels.items():
        for side, band in enumerate(BANDS):
            names = [f"table4-{kind}-{band}-{split}" for split in range(3)]
            runs = protocol("combined", band) if kind == "full" else names
            cells = against(PAPER_TABLE4[kind][side], some(runs, "cbc", "auroc"))
            rows.append([loss, entropy, band, *cells])
    header = ["binary classifiers' loss", "entropy", "band", "AUROC published (DSIAC)"]
    return markdown([*header, "ours (simulated)", "difference"], rows)


def mstar_runs() -> list[str]:
    """Lists the runs with binary classifiers."""
    return [f"mstar-{split}-cbc-{seed}" for split in range(3) for seed in range(3)]


def mstar_scores() -> str:
    """MSTAR: all scores on the runs with binary classifiers, over three splits and three seeds."""
    runs = mstar_runs()
    measures = ("auroc", "oscr", "fpr_at_tpr", "fitted_open_accuracy")
    rows = [
        [label, *(some(runs, score, measure) for measure in measures)]
        for score, label in ALL_NAMES.items()
    ]
    return markdown(["score", "AUROC", "OSCR", "FPR at 95 % TPR", "open acc., fitted"], rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "The default run": default,
    "The score that decides": deciding,
    "Decoys, on held-out known vehicles: %, mean ± sd (runs)": held_out,
    "MSTAR, the influence of the clutter around the vehicles: %, mean ± sd (runs)": controls,
    "MSTAR, training recipes, on held-out known vehicles: %, mean ± sd (runs)": with_clutter(
        recipes
    ),
    "MSTAR, calibration to a few chips of the test's depression angle: %, mean ± sd": with_clutter(
        calibrated
    ),
    "MSTAR, 6 known / 4 unknown, three seeds per split: mean ± sd": with_clutter(mstar),
    "MSTAR, CBC compared with other scores": against_cbc,
    "CBC compared with SoftMax of the same networks": against_softmax,
    "MSTAR, all scores: %, mean ± sd (runs)": with_clutter(mstar_scores),
    "Table 1, DSIAC protocol and crop on simulated vehicles: AUROC in %, mean ± sd (runs)": table1,
    "Table 2, the runs of table 1: accuracy over five known classes and unknown, in %": table2,
    "Table 3, CIFAR-10: AUROC in %": table3,
    "Table 4, ablation: AUROC of CBC in %": table4,
    "CIFAR-10, split and recipe of the paper's code, from scratch": cifar10,
    "CIFAR-10, the same recipe in PyTorch, by initialisation": peer_cifar10,
    "CIFAR-10, fine-tuning of networks from ImageNet, on two held-out known classes: %": (
        cifar10_recipes
    ),
    "CIFAR-10 from ImageNet's EfficientNet-Lite0, five standard splits: %, mean ± sd (runs)": (
        cifar10_pretrained
    ),
    "CIFAR-10 by the default rule, the same five splits: %, mean ± sd (runs)": cifar10_consensus,
    "CIFAR-10 from random weights, five standard splits: %": cifar10_scratch,
}
FIGURES = {"mstar.png": "AUROC of all scores on MSTAR", "table1.png": "AUROC by range and band"}


def main() -> None:
    """Writes the tables."""
    made = f"Generated by `tables.py` from the recorded runs in this folder. {commits(RESULTS)}"
    parts = ["# Open-set results", made]
    for title, make in SECTIONS.items():
        parts += [f"## {title}", make()]
    parts += [f"![{text}]({name})" for name, text in FIGURES.items() if (RESULTS / name).exists()]
    text = "\n\n".join(parts) + "\n"
    (RESULTS / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
