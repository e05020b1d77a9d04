"""Formats recorded figures as text tables."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxatr.reporting import score_record

COLUMNS = {
    "auroc": "AUROC",
    "oscr": "OSCR",
    "fpr_at_tpr": "FPR@TPR",
    "open_accuracy": "open acc.",
    "fitted_open_accuracy": "fitted acc.",
    "closed_accuracy": "own acc.",
}
"""Figures of a score. The last is the closed-set accuracy of the score's own prediction."""

FURTHER = {
    "fpr_at_tpr_of_unknown": "FPR (unknown positive)",
    "aupr_in": "AUPR in",
    "aupr_out": "AUPR out",
    "ccr_at_fpr": "CCR@10 %",
}
"""Further figures of a score, in reports and model cards."""


def open_set_table(evaluation: Mapping[str, Any]) -> str:
    """Formats the recorded evaluation of an open-set run as a table, in percent."""
    groups = evaluation["groups"]
    every = [row for measured in groups.values() for row in measured["scores"].values()]
    named = any("closed_accuracy" in row for row in every)
    columns = [column for column in COLUMNS if named or column != "closed_accuracy"]
    rows = []
    for group, measured in groups.items():
        closed = measured.get("closed_accuracy")
        first = [group, str(measured["num_known"]), str(measured["num_unknown"]), percent(closed)]
        for name, row in measured["scores"].items():
            figures = [percent(row.get(column)) for column in columns]
            rows.append([*first, name, *figures])
            first = ["", "", "", ""]
    titles = [COLUMNS[column] for column in columns]
    header = ["test data", "known", "unknown", "closed acc.", "score", *titles]
    gamma, fitted = evaluation["gamma"], evaluation.get("fitted_gamma")
    known, unknown = ", ".join(evaluation["known"]), ", ".join(evaluation["unknown"])
    dataset, split = evaluation["dataset"], evaluation["split"]
    title = "trained on" if "set" in evaluation else "data"
    notes = [
        f"{title}: {dataset['name']}; split: {split['name']}, version {split['version']}, "
        f"seed {split['seed']}",
        f"known: {known}; unknown: {unknown or '-'}",
    ]
    if "set" in evaluation:
        notes.insert(0, _set_line(evaluation["set"]))
    notes += [*enrolled_lines(evaluation), *outside_lines(evaluation)]
    if "drift" in evaluation:
        notes.append(evaluation["drift"]["sentence"])
    if gamma is not None:
        notes.append(
            f"open acc.: accuracy over the known classes and 'unknown', rejecting below {gamma}"
            + _own_thresholds(groups["all"]["scores"], evaluation)
        )
    if any("fitted_threshold" in row for row in groups["all"]["scores"].values()):
        notes.append(
            "fitted acc.: the same at the threshold fitted to the validation examples, to accept "
            f"{100 * evaluation['tpr']:g}% of known ones"
            + (f" (γ = {fitted:.6g})" if fitted is not None else "")
            + _differs(evaluation)
        )
    if named:
        notes.append(
            "own acc.: share of the known examples that the score itself names right, before "
            "anything is rejected"
        )
    return "\n".join([text_table(header, rows), *notes, *decision_lines(evaluation)])


def counts_training(evaluation: Mapping[str, Any]) -> bool:
    """Returns whether the decision's threshold is fitted to training examples as well.

    ``predict`` does so for any score, but the thresholds of the other scores in an evaluation are
    those of the validation examples alone.
    """
    return "as if not seen" in (evaluation.get("decision", {}).get("fitted_to") or "")


def _differs(evaluation: Mapping[str, Any]) -> str:
    """Says how the fitted thresholds of the decision and of the other scores differ."""
    if not counts_training(evaluation):
        return ""
    return (
        f". {evaluation['decides']} decides, and its threshold is fitted to the training examples "
        "as well, as predict --score=NAME does for any score"
    )


def _set_line(facts: Mapping[str, Any]) -> str:
    left_out = f", {len(facts['left_out'])} left out" if facts["left_out"] else ""
    name = f"set {facts['name']}" if facts["name"] else "set"
    return f"{name}: {facts['images']} images of {facts['source']}{left_out}"


def enrolled_lines(evaluation: Mapping[str, Any]) -> list[str]:
    """Formats the figures of enrolled classes, and those of the trained ones before and after.

    Args:
      evaluation: the content of ``evaluation.json``; without enrolled classes there are no lines.
    """
    lines, measured = [], evaluation.get("enrolled", {})
    for name, row in measured.get("classes", {}).items():
        shares = (
            f"; of {row['test']} test examples named right {percent(row['named'])}, accepted "
            f"{percent(row['accepted'])}, both {percent(row['accuracy'])}"
            if "accuracy" in row
            else "; not measured: the test data has no other chip of this name"
        )
        lines.append(f"enrolled: {name}, by {row['chips']} chips{shares}")
    if "accuracy" in measured.get("own", {}).get("after", {}):
        moments = measured["own"].values()
        shown = ", ".join(
            f"{title} {' to '.join(percent(one.get(key)) for one in moments)}"
            for key, title in (
                ("accuracy", "named right and accepted"),
                ("auroc", "AUROC"),
                ("unknown_accepted", "unknown accepted"),
            )
        )
        when = ", before and after" if len(measured["own"]) > 1 else ""
        lines.append(f"other known classes{when}: {shown}")
    return lines


def outside_lines(evaluation: Mapping[str, Any]) -> list[str]:
    """Formats each group of images of other data: its source, and the share that is accepted.

    Args:
      evaluation: the content of ``evaluation.json``; without such groups there are no lines.
    """
    lines = []
    for name, facts in evaluation.get("outside", {}).items():
        left_out = f", {facts['left_out']} left out" if facts["left_out"] else ""
        share = facts.get("unknown_accepted")
        taken = "" if share is None else f"; accepted as known: {percent(share)}"
        lines.append(f"{name}: {facts['images']} images of {facts['source']}{left_out}{taken}")
    return lines


NO_ESTIMATE = "cannot be estimated without trials (open_set.trials=3)"
"""Stands in place of an AUROC of classes that the network has seen."""


def by_trials(record: Mapping[str, Any]) -> bool:
    """Returns whether a decision's figures are of networks that have not seen the classes.

    Args:
      record: the ``decision`` of ``evaluation.json`` or ``record.json``.
    """
    return "trainings" in record.get("by", "")


def decision_lines(evaluation: Mapping[str, Any]) -> list[str]:
    """Formats a run's deciding score, how it was chosen, and its figures in percent.

    Args:
      evaluation: the content of ``evaluation.json``; without a decision there are no lines.
    """
    record = evaluation.get("decision")
    if record is None:
        return []
    if evaluation["decides"] is None:
        return [f"decides: no score ({record['by']})"]
    test = record.get("test", {})
    lines = [f"decides: {evaluation['decides']}, by {record['by']}"]
    areas = {n: row["auroc"] for n, row in record.get("candidates", {}).items() if "auroc" in row}
    best, tested = sorted(areas, key=lambda name: -areas[name])[:5], by_trials(record)
    if len(areas) > 1:
        listed = ", ".join(f"{name} {percent(areas[name])}" if tested else name for name in best)
        how = "mean AUROC in trials" if tested else "best on classes that the network has seen"
        lines.append(f"{how}: {listed} (of {len(areas)} scores)")
    if "estimate" in record:
        estimate = f"{percent(record['estimate'])}, estimated by trials"
    elif tested:
        estimate = "no estimate: a score that was best in trials is worse on others"
    else:
        estimate = NO_ESTIMATE
    lines.append(f"AUROC against unknown classes: {estimate}")
    accuracy = record.get("validation_accuracy", {})
    if "gallery" in accuracy:
        shown = ", ".join(f"{name} {percent(value)}" for name, value in accuracy.items())
        lines.append(f"class from: {record['class_from']} (validation accuracy: {shown})")
    if test:
        lines.append(
            f"at its threshold: known accepted {percent(test.get('known_accepted'))}, "
            f"unknown accepted {percent(test.get('unknown_accepted'))}, "
            f"open acc. {percent(test.get('open_accuracy'))}"
        )
        lines += guarantee_lines(record)
        errors = [
            f"{name} {percent(test[key]['error'])}"
            for name, key in (("class", "class_probability"), ("known", "known_probability"))
            if key in test
        ]
        if record.get("probability") == "p-value":
            errors.append("known -, a p-value instead of a probability")
        if errors:
            area = percent(test.get("aurc"))
            lines.append(f"calibration error of probabilities: {', '.join(errors)}; AURC {area}")
    return lines


def guarantee_lines(record: Mapping[str, Any]) -> list[str]:
    """Describes what a decision's threshold was fitted to, and what it guarantees.

    Args:
      record: ``decision`` of ``evaluation.json``; that of an earlier version has no such facts.
    """
    if "guarantees" not in record:
        return []
    if record["fitted_to"] is None:
        return ["its threshold is given: no guarantee"]
    least = least_guarantee(record["guarantees"])
    return [f"its threshold is fitted to {record['fitted_to']}: {guarantee_in_words(least)}"]


def least_guarantee(guarantees: Sequence[float | None]) -> float | None:
    """Returns the smallest guarantee of a class; None if one of them has none."""
    return None if None in guarantees else min(one for one in guarantees if one is not None)


def guarantee_in_words(guarantee: float | None) -> str:
    """Describes the share of known examples that a threshold is guaranteed to accept.

    >>> guarantee_in_words(0.857), guarantee_in_words(None)
    ('at least 85.7 % guaranteed', 'no guarantee')
    """
    if guarantee is None:
        return "no guarantee"
    return f"at least {100 * guarantee:.3g} % guaranteed"


def _own_thresholds(rows: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """Lists the fixed thresholds of scores that are not probabilities, in their own unit."""
    own = [
        f"{name}: {row['threshold']:.6g}"
        for name, row in rows.items()
        if row.get("threshold") is not None
        and score_record.shown(name, evaluation).scale == "plain"
    ]
    return f" ({', '.join(own)})" if own else ""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats rows under a header in columns: the first aligned left, the others right.

    >>> print(text_table(["name", "n"], [["a", "10"], ["bb", "9"]]))
    name   n
    ----  --
    a     10
    bb     9
    """
    widths = [max(map(shown_width, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        fill = [" " * (w - shown_width(cell)) for cell, w in zip(cells, widths, strict=True)]
        rest = (space + cell for space, cell in zip(fill[1:], cells[1:], strict=True))
        return "  ".join([cells[0] + fill[0], *rest]).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def shown_width(text: str) -> int:
    r"""Counts the columns of a terminal that a text takes: two for each Chinese character.

    >>> shown_width("船 ship"), shown_width("fu\u0308r")
    (7, 3)
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


class Confusion(NamedTuple):
    """A pair of confused classes.

    Attributes:
      true: name of the true class.
      taken_for: name of the predicted class.
      count: number of confused examples.
      share: their share of the true class's examples.
    """

    true: str
    taken_for: str
    count: int
    share: float


def worst_confusions(
    names: Sequence[str], counts: Sequence[Sequence[int]], *, most: int = 15
) -> list[Confusion]:
    """Lists the pairs of classes that are confused most often, worst first.

    Args:
      names: names of the c classes.
      counts: ``[c, c]``, examples by true class and decision.
      most: largest number of pairs.
    """
    pairs = [
        Confusion(names[label], names[decision], count, count / sum(row))
        for label, row in enumerate(counts)
        for decision, count in enumerate(row)
        if count and label != decision
    ]
    return sorted(pairs, key=lambda one: (-one.count, -one.share))[:most]


def percent(value: float | None) -> str:
    """Formats a share in percent; None is a dash."""
    return "-" if value is None else f"{100 * value:.1f}"
