"""Formats the tables of docs/results/decisions.md from ``results/decisions.json``."""

import json
from statistics import fmean
from typing import Any

from experiments.decisions.measure import RESULTS, SHOWN
from experiments.open_set_atr.run import RESULTS as OPEN_SET
from experiments.records import table

BY_TASK = (
    "softmax", "spatial_stage2", "template", "auto", "six, sum within 3", "eight, bent",
    "unlike, left out", "consensus, by images", "consensus", "consensus, left out",
)  # fmt: skip
"""Rules in the table by task."""
DEFAULT = "consensus"
"""The package's default rule."""


def recorded() -> dict[str, Any]:
    """Reads the record."""
    return json.loads((RESULTS / "decisions.json").read_text(encoding="utf-8"))


def tasks() -> str:
    """The tasks: what the chips are, how many there are, and the best single score."""
    rows = [
        [
            one["name"],
            one["kind"],
            f"{one['training']} + {one['validation']}",
            f"{one['known']} / {one['unknown']}",
            str(one["trials"]),
            str(one["folds"]),
            f"{one['best']} {one['best_auroc']:.3f}",
        ]
        for one in recorded()["tasks"]
    ]
    header = ["task", "chips", "training + validation", "test, known / unknown", "trials", "folds"]
    return "\n".join(table([*header, "best single score"], rows))


def rules() -> str:
    """The rules: AUROC, regret, and how far they are below softmax."""
    found, rows = recorded(), []
    for name in SHOWN:
        per = list(found["rules"][name]["tasks"].values())
        regrets = [one["regret"] for one in per]
        rows.append(
            [
                name,
                f"{fmean(one['auroc'] for one in per):.3f}",
                f"{fmean(one['fpr'] for one in per):.3f}",
                f"{fmean(regrets):.3f}",
                f"{max(regrets):.3f}",
                str(sum(one > 0.03 for one in regrets)),
                f"{min(one['over_softmax'] for one in per):+.3f}",
                str(sum(one["over_softmax"] < -0.02 for one in per)),
            ]
        )
    header = ["rule", "AUROC", "FPR at 95 %", "mean regret", "largest", "tasks above .03"]
    return "\n".join(table([*header, "worst against softmax", "more than .02 below"], rows))


def by_task() -> str:
    """AUROC of some rules on each task."""
    found = recorded()
    rows = [
        [task["name"], f"{task['best_auroc']:.3f}"]
        + [f"{found['rules'][name]['tasks'][task['name']]['auroc']:.3f}" for name in BY_TASK]
        for task in found["tasks"]
    ]
    return "\n".join(table(["task", "best single", *BY_TASK], rows))


def acceptance() -> str:
    """Shares accepted at 95 %, by a threshold from the validation and one from all known chips."""
    found, rows = recorded(), []
    for task in found["tasks"]:
        one = found["rules"][DEFAULT]["tasks"][task["name"]]
        cells = [task["name"]]
        for kind in ("validation", "calibration"):
            own = one[kind]
            cells += [str(own["chips"]), _shares(own)]
        cells[3:] = cells[3:] if task["folds"] else ["", ""]
        cross = one.get("cross")
        cells.append("" if cross is None else _shares(cross))
        rows.append([*cells, f"95 / {100 * one['fpr']:.0f}"])
    header = ["task", "validation chips", "accepted, %", "chips in folds", "accepted, %"]
    return "\n".join(table([*header, "by cross-conformal p-values, %", "oracle, %"], rows))


def few() -> str:
    """Shares accepted at 95 % by thresholds from few validation chips, and what they promise."""
    found = json.loads((RESULTS / "few.json").read_text(encoding="utf-8"))
    rows = []
    for task, one in found.items():
        own = one["rules"][DEFAULT]
        rows.append(
            [
                task,
                f"{one['training']} + {one['validation']}",
                *(_pair(own[kind]) for kind in ("validation", "as_seen", "own")),
                f"{100 * own['promise']:.1f}",
                _pair(own["drawn"]),
                _pair(own["oracle"]),
            ]
        )
    header = ["task", "chips", "validation alone", "training chips unmoved", "moved", "promised"]
    return "\n".join(table([*header, "moved, drawn", "oracle"], rows))


def few_by_rule() -> str:
    """The same by rule, in the mean over tasks, and the tasks within the limits."""
    tasks = json.loads((RESULTS / "few.json").read_text(encoding="utf-8")).values()
    rows = []
    for name in next(iter(tasks))["rules"]:
        every = [task["rules"][name] for task in tasks]
        cells = [name]
        for kind in ("own", "drawn"):
            excess = [one[kind][1] - one["oracle"][1] for one in every]
            known = [one[kind][0] for one in every]
            cells += [
                f"{100 * fmean(known):.1f}",
                f"{100 * fmean(excess):+.1f}",
                str(sum(0.85 <= one <= 0.98 for one in known)),
                str(sum(one <= 0.05 for one in excess)),
            ]
        rows.append(cells)
    kinds = [
        f"{kind}: {what}"
        for kind in ("own chips", "drawn")
        for what in ("known", "unknown above the oracle", "known 85 to 98", "unknown at most + 5")
    ]
    return "\n".join(table(["rule", *kinds], rows))


def _pair(shares: list[float]) -> str:
    return " / ".join(f"{100 * one:.0f}" for one in shares)


def _shares(own: dict[str, float]) -> str:
    return f"{100 * own['known_accepted']:.0f} / {100 * own['unknown_accepted']:.0f}"


def unlabelled() -> str:
    """Shares accepted before and after a shift without labels, by task."""
    found = json.loads((RESULTS / "unlabelled.json").read_text(encoding="utf-8"))["rows"]
    tasks = dict.fromkeys((row["task"], row["part"], row["kind"]) for row in found)
    rows = []
    for task in tasks:
        own = [row for row in found if (row["task"], row["part"], row["kind"]) == task]
        rows.append([task[0], task[2], *_by_share(own)])
    return "\n".join(table(["task", "what has changed", *BY_SHARE], rows))


def recipes() -> str:
    """The same of MSTAR's recipes, by run, each with the score that it chose."""
    found = json.loads((RESULTS / "recipes.json").read_text(encoding="utf-8"))["rows"]
    rows = []
    for run in dict.fromkeys(row["run"] for row in found):
        own = [row for row in found if row["run"] == run]
        recipe, split = run.rsplit("-", 1)
        rows.append([f"`cbc:{recipe}`", split, f"`{own[0]['score']}`", *_by_share(own)])
    return "\n".join(table(["recipe", "reference split", "score", *BY_SHARE], rows))


BY_SHARE = (
    "before", "0 % unknown", "20 %", "50 %", "80 %", "mean", "open-set accuracy", "cannot tell",
)  # fmt: skip


def _by_share(own: list[dict[str, Any]]) -> list[str]:
    """Returns the cells of the columns ``BY_SHARE``."""
    before, done = own[0]["before"], [row["after"] for row in own if "after" in row]
    cells = [_shares(before)]
    for share in sorted({row["share"] for row in own}):
        after = [row["after"] for row in own if row["share"] == share and "after" in row]
        cells.append(_shares(_mean(after)) if after else "cannot tell")
    cells.append(_shares(_mean(done)) if done else "")
    accuracy = f"{100 * _mean(done)['open_accuracy']:.1f}" if done else ""
    cells.append(f"{100 * before['open_accuracy']:.1f} → {accuracy}" if done else "")
    return [*cells, f"{len(own) - len(done)} of {len(own)}"]


def boxes() -> str:
    """Decisions on exact boxes and on boxes that are off, with and without an estimate."""
    found = json.loads((RESULTS / "boxes.json").read_text(encoding="utf-8"))["runs"]
    rows = []
    for name, one in found.items():
        for error in (0.0, 0.1):
            exact, off = (row for row in one["rows"] if row["box_error"] == error)
            cost = exact["operations"] / one["rows"][0]["operations"]
            pairs = (("auroc", 1), ("oscr", 1), ("named", 100), ("named_by_head", 100))
            cells = [
                " / ".join(f"{scale * row[key]:.{3 if scale == 1 else 1}f}" for row in (exact, off))
                for key, scale in pairs
            ]
            rows.append(
                [
                    name.removesuffix(" main"),
                    one["role"],
                    one["score"],
                    "found again" if error else "as they are",
                    *cells,
                    _shares(exact),
                    _shares(off),
                    f"{cost:.2f}",
                ]
            )
    header = ["run", "role", "score", "boxes", "AUROC, exact / off", "OSCR", "named right, %"]
    more = ["by the head", "accepted, exact", "accepted, off", "cost"]
    return "\n".join(table([*header, *more], rows))


def temperatures() -> str:
    """ECE of the class probabilities by what the temperature is fitted to."""
    found = json.loads((RESULTS / "temperatures.json").read_text(encoding="utf-8"))["rows"]
    tasks, rows = dict.fromkeys((row["task"], row["kind"]) for row in found), []
    for task in tasks:
        own = [row for row in found if (row["task"], row["kind"]) == task]
        cells = [task[0], task[1], f"{100 * fmean(row['none'] for row in own):.1f}"]
        for row in own:
            cells.append(f"{100 * row['alone']:.1f} → {100 * row['both']:.1f}")
        rows.append(cells)
    header = ["task", "what has changed", "no field chips", "5 of a class", "10", "20"]
    return "\n".join(table(header, rows))


def few_labelled() -> str:
    """Known and unknown chips accepted, by what the threshold is fitted to."""
    found = json.loads((RESULTS / "temperatures.json").read_text(encoding="utf-8"))["rows"]
    rows = []
    for row in found:
        shares = [
            " / ".join(f"{100 * share:.0f}" for share in row[f"accepted_{name}"])
            for name in ("none", "alone", "both")
        ]
        off = [f"{100 * row[f'off_{name}']:.1f}" for name in ("alone", "both")]
        rows.append([row["task"], row["kind"], str(row["chips"]), *shares, " → ".join(off)])
    header = ["task", "what has changed", "chips of a class", "validation chips", "field chips"]
    header += ["both, if few", "known, off 95 % by"]
    return "\n".join(table(header, rows))


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(row[name] for row in rows) for name in rows[0]}


def probabilities() -> str:
    """ECE of the probability of being known, by what its sigmoid is fitted to."""
    found, rows = recorded(), []
    for name in SHOWN:
        per = list(found["rules"][name]["tasks"].values())
        errors = [one["probability_error"] for one in per]
        both = [one.get("own", one["usual"]) for one in errors]
        cells = [name]
        for values in (
            [one["usual"] for one in errors],
            [one["own"] for one in errors if "own" in one],
            [one["blend"] for one in errors if "blend" in one],
            both,
        ):
            cells.append(f"{fmean(values):.3f} ({max(values):.3f})" if values else "")
        rows.append(cells)
    header = ["rule", "other tasks", "own trials", "both", "own trials, or else other tasks"]
    return "\n".join(table(header, rows))


def estimates() -> str:
    """The AUROC estimated by trials, and its distance from the test's."""
    found, rows = recorded(), []
    for name in SHOWN:
        per = [one for one in found["rules"][name]["tasks"].values() if "estimate" in one]
        gaps = [one["estimate"] - one["auroc"] for one in per]
        corrected = [one["corrected"] - one["auroc"] for one in per]
        rows.append(
            [
                name,
                str(len(per)),
                f"{fmean(gaps):+.3f}",
                f"{fmean(map(abs, gaps)):.3f}",
                f"{max(map(abs, gaps)):.3f}",
                f"{fmean(map(abs, corrected)):.3f}",
                f"{max(map(abs, corrected)):.3f}",
            ]
        )
    header = ["rule", "tasks", "mean excess", "mean distance", "largest", "mean, corrected"]
    return "\n".join(table([*header, "largest, corrected"], rows))


def names() -> str:
    """Accuracy of each way to name the class, on known test chips in percent."""
    found = recorded()["tasks"]
    kinds = list(found[0]["named"])
    rows = [[one["name"], *(f"{100 * one['named'][kind]:.1f}" for kind in kinds)] for one in found]
    means = [f"{100 * fmean(one['named'][kind] for one in found):.1f}" for kind in kinds]
    return "\n".join(table(["task", *kinds], [*rows, ["mean", *means]]))


RECORDED = {
    "simulated, held-out vehicles, no decoys": "held-out-none-",
    "simulated, held-out vehicles, decoys": "held-out-half-",
    "MSTAR, reference splits": "mstar-auto-",
    "MSTAR, fresh splits": "mstar-fresh-",
    "MSTAR, 48 px": "mstar-strong-",
    "MSTAR, held-out vehicles": "recipe-plain-",
    "CIFAR-10, ImageNet, held-out classes": "cifar10-recipe-plain-",
}
"""Trained networks of the open-set experiments whose single scores and sums were recorded."""


def _evaluations(prefix: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(OPEN_SET.glob(f"{prefix}*.json"))]
    return [one["evaluation"] for one in found if "evaluation" in one]


def trained() -> str:
    """AUROC of recorded scores on trained networks, with the mean and the largest regret."""
    areas: dict[str, dict[str, float]] = {}
    for label, prefix in RECORDED.items():
        scores = [one["groups"]["all"]["scores"] for one in _evaluations(prefix)]
        for name in set.intersection(*map(set, scores)):
            areas.setdefault(name, {})[label] = fmean(one[name]["auroc"] for one in scores)
    best = {label: max(own[label] for own in areas.values() if label in own) for label in RECORDED}
    rows = []
    for name, own in areas.items():
        if len(own) < len(RECORDED) - 1:  # the last group has no maps
            continue
        regrets = [best[label] - value for label, value in own.items()]
        cells = [f"{own[label]:.3f}" if label in own else "" for label in RECORDED]
        rows.append(
            (fmean(regrets), [name, *cells, f"{fmean(regrets):.3f}", f"{max(regrets):.3f}"])
        )
    header = ["score", *RECORDED, "mean regret", "largest"]
    return "\n".join(table(header, [cells for _, cells in sorted(rows)]))


def printed() -> str:
    """The AUROC that runs printed as held-out, and that of the test, by how it was estimated."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for path in sorted(OPEN_SET.glob("*.json")):
        decision = json.loads(path.read_text()).get("evaluation", {}).get("decision", {})
        one = decision.get("candidates", {}).get(decision.get("decides"), {})
        if "auroc" in one and "auroc" in decision.get("test", {}):
            kind = "trials" if "trainings" in decision["by"] else "the network has seen them"
            data = path.stem.split("-")[0]
            groups.setdefault((data, kind), []).append((one["auroc"], decision["test"]["auroc"]))
    rows = [
        [
            data,
            kind,
            str(len(pairs)),
            f"{fmean(a for a, _ in pairs):.3f}",
            f"{fmean(b for _, b in pairs):.3f}",
            f"{fmean(abs(a - b) for a, b in pairs):.3f}",
        ]
        for (data, kind), pairs in groups.items()
    ]
    header = ["runs", "known classes held out by", "runs", "printed", "AUROC of the test"]
    return "\n".join(table([*header, "mean distance"], rows))
