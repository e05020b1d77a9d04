"""The texts and tables of a model card's sections, from the record of a run."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxatr import metrics
from jaxatr.data.splits import MSTAR_CLASSES
from jaxatr.reporting import score_record
from jaxatr.reporting.recorded_run import SIMULATED
from jaxatr.reporting.tables import COLUMNS, FURTHER, guarantee_in_words, least_guarantee

MISSING = "missing"
"""Stands for a fact that is not recorded."""


class Exported(NamedTuple):
    """An exported file that a card describes.

    Attributes:
      name: name of the file.
      step: step of the exported checkpoint.
      decides: name of the score that decides in the file; empty for none.
      metadata: the file's metadata, parsed.
      licence: licence of the model; empty if missing.
      data_licence: licence of the training data; empty if missing.
      contact: contact of the model's owner; empty if missing.
    """

    name: str
    step: int
    decides: str
    metadata: Mapping[str, Any]
    licence: str = ""
    data_licence: str = ""
    contact: str = ""


class CardRun(NamedTuple):
    """The recorded facts of a run that a card uses.

    Attributes:
      name: name of the run's folder.
      config: content of ``config.json``.
      record: content of ``record.json``.
      evaluation: content of ``evaluation.json``; empty if the run is not evaluated.
    """

    name: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]


def line(text: Any) -> str:
    """Escapes a user's text for one line or table cell of Markdown."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def listed(names: Iterable[Any]) -> str:
    """Joins users' texts, escaped; "none" if there are none."""
    return ", ".join(map(line, names)) or "none"


def details(run: CardRun, exported: Exported) -> list[tuple[str, str]]:
    """Lists the model details, as (name, text)."""
    record, model = run.record, run.config.get("model", {})
    code, versions = record.get("code") or {}, record.get("versions", {})
    dirty = ", with uncommitted changes" if code.get("dirty") else ""
    commit = f"{code['commit']}{dirty}" if code else MISSING
    begun = record.get("pretrained", {})
    network = model.get("onnx") or model.get("pretrained") or model.get("backbone") or MISSING
    return [
        ("File", line(exported.name)),
        ("Run", f"{line(run.name)}, checkpoint of step {exported.step}"),
        ("Kind", line(record.get("task", MISSING))),
        ("Network", f"{line(network)}, width {model.get('width', MISSING)}"),
        (
            "Pretrained weights",
            f"{line(begun['name'])}, licence {line(begun.get('licence', MISSING))}"
            if begun
            else "none recorded",
        ),
        ("Fingerprint of the configuration", line(record.get("fingerprint", MISSING))),
        ("Trained", line(record.get("started", MISSING))),
        ("Code", f"commit {commit}"),
        ("Versions", listed(f"{name} {value}" for name, value in versions.items())),
        ("Owner and contact", line(exported.contact or MISSING)),
        ("Licence of the model", line(exported.licence or MISSING)),
    ]


def use(run: CardRun, exported: Exported) -> str:
    """Describes the intended use."""
    classes = listed(exported.metadata.get("classes", ()))
    if exported.decides:
        return f"recognition of these classes in images; other images are unknown: {classes}"
    return f"outputs of a network that was trained on these classes: {classes}"


def scope(exported: Exported) -> str:
    """Describes the images that are out of scope."""
    metadata = exported.metadata
    rows, columns, channels = metadata.get("image_shape", (MISSING,) * 3)
    return (
        "images of another sensor, band, resolution or geometry than the training images; the "
        f"network's input is {rows} × {columns} × {channels} "
        f"{metadata.get('image_dtype', MISSING)} values in the units of the training images."
    )


def factors(run: CardRun) -> list[str]:
    """Lists the factors that were measured separately, and those that were not tested."""
    groups = [name for name in run.evaluation.get("groups", {}) if name != "all"]
    lines = [f"Measured separately: {listed(groups)}"]
    outside = run.evaluation.get("outside", {})
    lines.append(f"Images of other data: {listed(outside) if outside else 'not tested'}")
    lines.append("Other sensors, other backgrounds, weather and seasons: not tested")
    return lines


def decision_metrics(exported: Exported) -> list[str]:
    """Explains the figures, the threshold and the probability of the exported decision."""
    metadata = exported.metadata
    lines = [
        "Closed acc.: share of the known examples whose class is right, before anything is "
        "rejected; AUROC: how well the score separates known from unknown examples; OSCR, AUPR "
        "and FPR@TPR are defined in the package's documentation. All in percent."
    ]
    if not exported.decides:
        return [*lines, "The file has no decision."]
    limits = set(metadata.get("thresholds", []))
    words = [f"{limit:.6g}" for limit in sorted(limits - {None})]
    shown = listed(words + ["none, everything is accepted"] * (None in limits))
    lines.append(f"Deciding score: {exported.decides}; threshold: {shown}")
    if "guarantees" in metadata:
        least = least_guarantee(metadata["guarantees"])
        lines.append(
            f"Guarantee: of known examples like the {metadata['validation_examples']} validation "
            f"examples, {guarantee_in_words(least)} to be accepted, on average; there is none for "
            "unknown examples"
            if least is not None
            else "Guarantee: none (no guarantee)"
        )
        if fitted := metadata.get("fitted_to"):
            share = f"{100 * metadata['tpr']:g} % of known examples"
            lines.append(f"The threshold is fitted to {line(fitted)}, to accept {share}")
    elif metadata.get("validation_examples"):
        share = f"{100 * metadata['tpr']:g} %"
        lines.append(
            f"Guarantee: {share} of known examples like the {metadata['validation_examples']} "
            "validation examples are accepted, on average"
            + (" (for each class)" if metadata.get("per_class") else "")
            + "; there is none for unknown examples"
        )
    else:
        lines.append("Guarantee: none: the threshold was not fitted to validation examples")
    meanings = {
        "calibrated": "calibrated for even odds of known and unknown, with held-out known classes "
        "in place of unknown ones",
        "p-value": "a p-value, the share of known examples with no higher score; it is not a "
        "probability of being known",
        "score": "the network's own, not calibrated",
    }
    meaning = meanings.get(str(metadata.get("probability_is")), "none")
    lines.append(f"Probability of being known: {meaning}")
    if metadata.get("note"):
        lines.append(line(metadata["note"]))
    return lines


def _data(run: CardRun) -> list[tuple[str, str]]:
    dataset, split = run.record.get("dataset", {}), run.record.get("split", {})
    print_of = dataset.get("fingerprint", MISSING)
    return [
        ("Data", f"{line(dataset.get('name', MISSING))}, fingerprint {line(print_of)[:16]}"),
        (
            "Split",
            f"{line(split.get('name', MISSING))}, version {split.get('version', MISSING)}, "
            f"seed {split.get('seed', MISSING)}",
        ),
    ]


def evaluation_data(run: CardRun) -> list[tuple[str, str]]:
    """Lists the facts about the test data, as (name, text)."""
    split, examples = run.record.get("split", {}), run.record.get("examples", {})
    unknown = split.get("unknown", ())
    return [
        *_data(run),
        ("Test examples", str(examples.get("test", MISSING))),
        ("Known classes", listed(split.get("known", ()))),
        ("Unknown classes, held out from training", listed(unknown)),
    ]


def training_data(run: CardRun) -> list[tuple[str, str]]:
    """Lists the facts about the training data, as (name, text)."""
    examples, dataset = run.record.get("examples", {}), run.record.get("dataset", {})
    facts = [
        *_data(run),
        ("Training examples", str(examples.get("train", MISSING))),
        ("Validation examples", str(examples.get("validation", "none"))),
        ("Images left out as unreadable", str(len(run.record["skipped"])))
        if "skipped" in run.record
        else ("Images left out as unreadable", MISSING),
    ]
    if "outliers" in dataset:
        facts.append(("Outlier images used in training", line(json.dumps(dataset["outliers"]))))
    return facts


def figures(
    runs: Sequence[CardRun], exported: Exported
) -> tuple[list[str], list[tuple[str, list[str]]], list[str]]:
    """Makes the table of the deciding score, with a row for each group of test examples.

    Returns:
      The titles of the columns, the rows as (group, cells), and lines of text above the table.
    """
    evaluation = runs[0].evaluation
    about = about_runs(runs, exported)
    if not evaluation:
        return [], [], about
    score = exported.decides or evaluation.get("decides") or ""
    titles = {"closed": "closed acc."} | COLUMNS | FURTHER
    titles.pop("open_accuracy")
    rows = []
    for name, group in evaluation.get("groups", {}).items():
        if score not in group.get("scores", {}):
            continue
        values = {key: [_figure(run, name, score, key) for run in runs] for key in titles}
        counts = [str(group[key]) for key in ("num_known", "num_unknown")]
        rows.append((line(name), counts + [percent(column) for column in values.values()]))
    if not rows:
        return [], [], [*about, f"The evaluation has no figures of the score {score or MISSING}."]
    about.append(f"Of the score {score_record.label(score, evaluation)}:")
    return ["known", "unknown", *titles.values()], rows, about


def about_runs(runs: Sequence[CardRun], exported: Exported) -> list[str]:
    """Says how many runs the figures are of, and of which checkpoint."""
    evaluation = runs[0].evaluation
    if not evaluation:
        return ["No evaluation is recorded: all figures are missing."]
    step = evaluation.get("checkpoint", {}).get("step")
    about = [f"Evaluated: {len(runs)} run{'s' if len(runs) > 1 else ''}."]
    if len(runs) > 1:
        about = [f"Mean ± standard deviation of {len(runs)} runs that differ in their seeds."]
    if step != exported.step:
        about.append(
            f"The figures are of the checkpoint of step {step}, not of the exported one of step "
            f"{exported.step}."
        )
    return about


def _figure(run: CardRun, group: str, score: str, key: str) -> float | None:
    measured = run.evaluation.get("groups", {}).get(group, {})
    if key == "closed":
        return measured.get("closed_accuracy")
    return measured.get("scores", {}).get(score, {}).get(key)


def percent(values: Sequence[float | None]) -> str:
    """Formats the mean and spread of shares over runs; a dash if a run has none."""
    if any(value is None for value in values):
        return "–"
    return f"{metrics.summarize([100 * value for value in values if value is not None]):.1f}"


def analyses(runs: Sequence[CardRun], exported: Exported) -> list[str]:
    """Lists the figures of the decision, and the retrieval figures of embeddings."""
    lines = []
    tests = [run.evaluation.get("decision", {}).get("test", {}) for run in runs]
    evaluated = exported.decides and all(
        test and run.evaluation.get("decides") == exported.decides
        for run, test in zip(runs, tests, strict=True)
    )
    measured = runs[0].evaluation.get("decision", {}).get("thresholds")
    if evaluated and measured not in (None, exported.metadata.get("thresholds")):
        lines.append(
            "The file decides at another threshold than the evaluated run: the shares that it "
            "accepts are missing"
        )
    elif evaluated:
        for key, title in (
            ("known_accepted", "Known test examples that are accepted"),
            ("unknown_accepted", "Unknown test examples that are wrongly accepted"),
            ("open_accuracy", "Correct decisions, over the known classes and unknown"),
        ):
            lines.append(f"{title}: {percent([test.get(key) for test in tests])} %")
        for key, title in (
            ("class_probability", "Calibration error of the class probabilities"),
            ("known_probability", "Calibration error of the probability of being known"),
        ):
            errors = [test.get(key, {}).get("error") for test in tests]
            lines.append(f"{title}: {percent(errors)} %")
    elif exported.decides:
        lines.append("The file's decision has not been evaluated: its figures are missing")
    for group, facts in runs[0].evaluation.get("retrieval", {}).items():
        shares = [
            f"{line(name)} {percent([_retrieved(r, group).get(name) for r in runs])}"
            for name, value in facts.items()
            if isinstance(value, float)
        ]
        lines.append(f"Retrieval, classes {line(group)}, in percent: {', '.join(shares)}")
    return lines


def _retrieved(run: CardRun, group: str) -> Mapping[str, Any]:
    return run.evaluation.get("retrieval", {}).get(group, {})


def common_caveats(run: CardRun, runs: Sequence[CardRun]) -> list[str]:
    """Lists the caveats of every kind of run."""
    lines = [
        "Not tested: other sensors, resolutions and backgrounds, and any other difference from the "
        "training images that the test images do not have.",
        "Unknown means unlike the known classes by the score; the model does not identify unknown "
        "objects.",
    ]
    if len(runs) == 1:
        lines.append("One run: the variation of the figures between seeds is missing.")
    if run.record.get("dataset", {}).get("name") in SIMULATED:
        lines.append("The images are simulated: no figure here is of a real sensor.")
    return lines


def caveats(run: CardRun, runs: Sequence[CardRun], exported: Exported) -> list[str]:
    """Lists the caveats and recommendations."""
    lines = common_caveats(run, runs)
    if exported.decides:
        lines.append(
            "The threshold is valid for images like the validation examples: calibrate it to "
            "images from the field (jaxatr calibrate) and export again."
        )
    split = run.record.get("split", {})
    classes = {*split.get("known", ()), *split.get("unknown", ())}
    if len(classes) > 1 and classes <= MSTAR_CLASSES:
        lines.append(
            "MSTAR: the clutter around a vehicle reveals the site where its class was recorded, "
            "and training and test chips share it. The figures do not transfer to other sites."
        )
    return lines
