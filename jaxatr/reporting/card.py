"""A model card out of a run's record (Mitchell et al. 2019, "Model cards for model reporting").

Every figure is one that an evaluation recorded; what is not recorded is said to be missing.
"""

import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import files, metrics, training
from jaxatr.data.splits import MSTAR_CLASSES
from jaxatr.reporting.environment import environment
from jaxatr.reporting.recorded import SIMULATED
from jaxatr.reporting.tables import COLUMNS, FURTHER, score_title

NAME = "MODEL_CARD.md"

MARK = "<!-- Written by `jaxatr convert export`"
"""The beginning of a card that may be written anew."""

MISSING = "missing"

_SEEDS = ("seed", "data.validation_seed")
"""Fields by which repeated runs of one configuration may differ."""

_NO_PLACE = ("data_dir", "weights_dir", "source", "find")


class Exported(NamedTuple):
    """The file that a card is of.

    Attributes:
      name: of the file.
      step: of the checkpoint.
      decides: name of the score that decides in it; empty for none.
      metadata: of the file, parsed.
      licence: of the model; empty for one that is missing.
      data_licence: of the training data, likewise.
      contact: of who answers for it, likewise.
    """

    name: str
    step: int
    decides: str
    metadata: Mapping[str, Any]
    licence: str = ""
    data_licence: str = ""
    contact: str = ""


class _Run(NamedTuple):
    """The files of a run's folder that a card is made from."""

    name: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]


def check_card(folder: str | os.PathLike) -> None:
    """Refuses to write over a card that somebody has made their own.

    Args:
      folder: of the card.

    Raises:
      ValueError: there is one.
    """
    path = Path(folder) / NAME
    if path.is_file() and not path.read_text(encoding="utf-8").startswith(MARK):
        raise ValueError(
            f"{path} is a card that was changed by hand: move it, or export with --nocard"
        )


def write_card(
    workdirs: Sequence[str | os.PathLike], folder: str | os.PathLike, exported: Exported
) -> Path:
    """Writes the card of an exported run beside its file.

    Args:
      workdirs: the run's folder, and those of further runs of its configuration with other seeds,
        for the figures' spread.
      folder: of the file.
      exported: the file.

    Returns:
      The path.

    Raises:
      ValueError: a folder is no run, the runs' configurations differ in more than their seeds, or a
        card there was changed by hand.
    """
    check_card(folder)
    path = Path(folder) / NAME
    files.write_text(path, card(workdirs, exported))
    return path


def check_repeats(workdirs: Sequence[str | os.PathLike]) -> None:
    """Refuses runs that differ in more than their seeds.

    Args:
      workdirs: the runs' folders.

    Raises:
      ValueError: a folder is no run, or a field differs; it is named.
    """
    first, *others = (training.load_config(workdir).to_dict() for workdir in workdirs)
    flat = _fields(first)
    for workdir, other in zip(workdirs[1:], others, strict=True):
        theirs = _fields(other)
        differing = [n for n in sorted(flat | theirs) if flat.get(n) != theirs.get(n)]
        if differing:
            raise ValueError(
                f"{workdir}: a repeat differs from {workdirs[0]} in its seed alone, this one in "
                f"{', '.join(differing)}"
            )


def card(workdirs: Sequence[str | os.PathLike], exported: Exported) -> str:
    """Makes the text of a card; see :func:`write_card`."""
    check_repeats(workdirs)
    runs = [_read(Path(workdir)) for workdir in workdirs]
    run = runs[0]
    columns, rows, about = _figures(runs, exported)
    text = (
        environment()
        .get_template("card.md")
        .render(
            title=f"Model card: {exported.name}",
            details=_details(run, exported),
            use=_use(run, exported),
            scope=_scope(exported),
            factors=_factors(run),
            metrics=_metrics(exported),
            evaluation_data=_evaluation_data(run),
            training_data=_training_data(run),
            about_figures=about,
            columns=columns,
            rows=rows,
            analyses=_analyses(runs, exported),
            data_licence=_line(exported.data_licence or MISSING),
            caveats=_caveats(run, runs, exported),
        )
    )
    return text.rstrip() + "\n"


def _read(workdir: Path) -> _Run:
    path = workdir / training.EVALUATION
    evaluation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    config = training.load_config(workdir).to_dict()
    return _Run(workdir.resolve().name, config, training.read_record(workdir), evaluation)


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Lists the fields of a configuration that repeats share, by dotted name."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in _all(value).items()}
        else:
            found[name] = value
    return {
        name: value
        for name, value in found.items()
        if name not in _SEEDS and name.rpartition(".")[2] not in _NO_PLACE
    }


def _all(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        inner = _all(value) if isinstance(value, Mapping) else None
        found |= {name: value} if inner is None else {f"{name}.{n}": v for n, v in inner.items()}
    return found


def _line(text: Any) -> str:
    """Writes a user's text so that it stays text, within its line and its cell."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(_line, names)) or "none"


def _details(run: _Run, exported: Exported) -> list[tuple[str, str]]:
    record, model = run.record, run.config.get("model", {})
    code, versions = record.get("code") or {}, record.get("versions", {})
    commit = f"{code['commit']}{', with changes' if code.get('dirty') else ''}" if code else MISSING
    begun = record.get("pretrained", {})
    network = model.get("onnx") or model.get("pretrained") or model.get("backbone") or MISSING
    return [
        ("File", _line(exported.name)),
        ("Run", f"{_line(run.name)}, checkpoint of step {exported.step}"),
        ("Kind", _line(record.get("task", MISSING))),
        ("Network", f"{_line(network)}, width {model.get('width', MISSING)}"),
        (
            "Begins with the weights of",
            f"{_line(begun['name'])}, licence {_line(begun.get('licence', MISSING))}"
            if begun
            else "none that the record names",
        ),
        ("Configuration's fingerprint", _line(record.get("fingerprint", MISSING))),
        ("Trained", _line(record.get("started", MISSING))),
        ("Code", f"commit {commit}"),
        ("Versions", _listed(f"{name} {value}" for name, value in versions.items())),
        ("Owner and contact", _line(exported.contact or MISSING)),
        ("Licence of the model", _line(exported.licence or MISSING)),
    ]


def _use(run: _Run, exported: Exported) -> str:
    classes = _listed(exported.metadata.get("classes", ()))
    if exported.decides:
        return f"says of an image which of these classes it shows, or that it shows none: {classes}"
    return f"gives the outputs of a network that was trained on these classes: {classes}"


def _scope(exported: Exported) -> str:
    told = exported.metadata
    rows, columns, channels = told.get("image_shape", (MISSING,) * 3)
    return (
        "images of another sensor, band, resolution or geometry than the training images; the "
        f"network sees chips of {rows} × {columns} × {channels} of {told.get('image_dtype')} "
        "values in the units of the training images."
    )


def _factors(run: _Run) -> list[str]:
    groups = [name for name in run.evaluation.get("groups", {}) if name != "all"]
    lines = [f"Measured apart: {_listed(groups)}"] if groups else ["Measured apart: nothing"]
    outside = run.evaluation.get("outside", {})
    lines.append(f"Images of other data: {_listed(outside) if outside else 'not tested'}")
    lines.append("Other sensors, other backgrounds, weather and seasons: not tested")
    return lines


def _metrics(exported: Exported) -> list[str]:
    told = exported.metadata
    lines = [
        "Closed acc.: share of the known examples whose class is right, before anything is "
        "rejected; AUROC: how well the score tells known examples from unknown ones; OSCR, AUPR "
        "and FPR@TPR as the package's documentation has them. All in percent."
    ]
    if not exported.decides:
        return [*lines, "The file has no decision."]
    limits = told.get("thresholds", [])
    shown = _listed(sorted({"none, all is accepted" if v is None else f"{v:.6g}" for v in limits}))
    lines.append(f"Decides: the score {exported.decides}; threshold: {shown}")
    if told.get("validation_examples"):
        share = f"{100 * told['tpr']:g} %"
        lines.append(
            f"Promise: of known examples like the {told['validation_examples']} validation "
            f"examples, {share} are accepted, up to chance"
            + (" (for each class)" if told.get("per_class") else "")
            + "; none is made of the unknown ones"
        )
    else:
        lines.append("Promise: none, as the threshold was fitted to no validation examples")
    meaning = {
        "calibrated": "calibrated, at even odds of known and unknown, with known classes that were "
        "left out in the place of unknown ones",
        "p-value": "a p-value, the share of known examples that look no more usual: no probability "
        "of being known",
        "score": "the network's own, not calibrated",
    }
    said = meaning.get(str(told.get("probability_is")), "there is none")
    lines.append(f"Probability of being known: {said}")
    if told.get("note"):
        lines.append(_line(told["note"]))
    return lines


def _data(run: _Run) -> list[tuple[str, str]]:
    dataset, split = run.record.get("dataset", {}), run.record.get("split", {})
    print_of = dataset.get("fingerprint", MISSING)
    return [
        ("Data", f"{_line(dataset.get('name', MISSING))}, fingerprint {_line(print_of)[:16]}"),
        (
            "Split",
            f"{_line(split.get('name', MISSING))}, version {split.get('version', MISSING)}, "
            f"seed {split.get('seed', MISSING)}",
        ),
    ]


def _evaluation_data(run: _Run) -> list[tuple[str, str]]:
    split, examples = run.record.get("split", {}), run.record.get("examples", {})
    unknown = split.get("unknown", ())
    return [
        *_data(run),
        ("Test examples", str(examples.get("test", MISSING))),
        ("Known classes", _listed(split.get("known", ()))),
        ("Classes held out, unknown to the network", _listed(unknown)),
    ]


def _training_data(run: _Run) -> list[tuple[str, str]]:
    examples, told = run.record.get("examples", {}), run.record.get("dataset", {})
    found = [
        *_data(run),
        ("Training examples", str(examples.get("train", MISSING))),
        ("Validation examples", str(examples.get("validation", "none"))),
        ("Images left out as unreadable", str(len(run.record["skipped"])))
        if "skipped" in run.record
        else ("Images left out as unreadable", MISSING),
    ]
    if "outliers" in told:
        found.append(("Images of no class that took part", _line(json.dumps(told["outliers"]))))
    return found


def _figures(
    runs: Sequence[_Run], exported: Exported
) -> tuple[list[str], list[tuple[str, list[str]]], list[str]]:
    """Makes the table of the score that decides, a row for each group of test examples."""
    evaluation = runs[0].evaluation
    if not evaluation:
        return [], [], ["No evaluation is recorded: all figures are missing."]
    step = evaluation.get("checkpoint", {}).get("step")
    about = [f"Evaluated: {len(runs)} run{'s' if len(runs) > 1 else ''}."]
    if len(runs) > 1:
        about = [f"Mean ± standard deviation of {len(runs)} runs that differ in their seeds."]
    if step != exported.step:
        about.append(
            f"The figures are those of the checkpoint of step {step}, not of the exported one of "
            f"step {exported.step}."
        )
    score = exported.decides or evaluation.get("decides") or ""
    titles = {"closed": "closed acc."} | COLUMNS | FURTHER
    titles.pop("open_accuracy")
    rows = []
    for name, group in evaluation.get("groups", {}).items():
        if score not in group.get("scores", {}):
            continue
        values = {key: [_figure(run, name, score, key) for run in runs] for key in titles}
        counts = [str(group[key]) for key in ("num_known", "num_unknown")]
        rows.append((_line(name), counts + [_percent(column) for column in values.values()]))
    if not rows:
        return [], [], [*about, f"The evaluation has no figures of the score {score or MISSING}."]
    about.append(f"Of the score {score_title(score, evaluation)}:")
    return list(titles.values()), rows, about


def _figure(run: _Run, group: str, score: str, key: str) -> float | None:
    found = run.evaluation.get("groups", {}).get(group, {})
    if key == "closed":
        return found.get("closed_accuracy")
    return found.get("scores", {}).get(score, {}).get(key)


def _percent(values: Sequence[float | None]) -> str:
    """Writes mean and spread of recorded shares; those of too few runs are missing."""
    if any(value is None for value in values):
        return "–"
    return f"{metrics.summarize([100 * value for value in values if value is not None]):.1f}"


def _analyses(runs: Sequence[_Run], exported: Exported) -> list[str]:
    """Lists the figures of the decision itself, and those of other kinds of runs."""
    lines = []
    tests = [run.evaluation.get("decision", {}).get("test", {}) for run in runs]
    if exported.decides and all(
        test and run.evaluation.get("decides") == exported.decides
        for run, test in zip(runs, tests, strict=True)
    ):
        for key, said in (
            ("known_accepted", "Known test examples that are accepted"),
            ("unknown_accepted", "Unknown test examples that are accepted, wrongly"),
            ("open_accuracy", "Right decisions, over the known classes and unknown"),
        ):
            lines.append(f"{said}: {_percent([test.get(key) for test in tests])} %")
        for key, said in (
            ("class_probability", "Calibration error of the class probabilities"),
            ("known_probability", "Calibration error of the probability of being known"),
        ):
            errors = [test.get(key, {}).get("error") for test in tests]
            lines.append(f"{said}: {_percent(errors)} %")
    elif exported.decides:
        lines.append("The decision of the file itself is not evaluated: its figures are missing")
    for group, facts in runs[0].evaluation.get("retrieval", {}).items():
        shares = [
            f"{_line(name)} {_percent([r.evaluation['retrieval'][group].get(name) for r in runs])}"
            for name, value in facts.items()
            if isinstance(value, float)
        ]
        lines.append(f"Retrieval, classes {_line(group)}, in percent: {', '.join(shares)}")
    return lines


def _caveats(run: _Run, runs: Sequence[_Run], exported: Exported) -> list[str]:
    lines = [
        "Not tested: other sensors, other resolutions, other backgrounds, and whatever differs "
        "from the training images in a way that the test images do not.",
        "Unknown means: unlike the known classes as far as the score tells. What an unknown object "
        "is, is not said.",
    ]
    if exported.decides:
        lines.append(
            "The threshold holds for images like the validation examples: calibrate it to images "
            "of the field (jaxatr calibrate) and export again."
        )
    if len(runs) == 1:
        lines.append("One run: how far its figures would change with another seed is missing.")
    if run.record.get("dataset", {}).get("name") in SIMULATED:
        lines.append("The images are simulated: nothing here is a figure of a real sensor.")
    split = run.record.get("split", {})
    classes = {*split.get("known", ()), *split.get("unknown", ())}
    if len(classes) > 1 and classes <= MSTAR_CLASSES:
        lines.append(
            "MSTAR: the clutter around a vehicle tells of the place where its class was recorded, "
            "and training and test chips share it. Figures on it are no promise for other places."
        )
    return lines
