"""A model card from a run's record (Mitchell et al. 2019, "Model cards for model reporting").

All figures come from recorded evaluations; facts that are not recorded are marked as missing.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxatr import files, training
from jaxatr.reporting import card_sections, detector_card
from jaxatr.reporting.card_sections import CardRun, Exported
from jaxatr.reporting.environment import environment

NAME = "MODEL_CARD.md"

MARK = "<!-- Written by `jaxatr convert export`"
"""The beginning of a card that may be overwritten."""

_TITLE = "# Model card: "

_SEEDS = ("seed", "data.validation_seed")
"""Fields in which repeated runs of one configuration may differ."""

_LOCATIONS = ("data_dir", "weights_dir", "source", "find")
"""Last parts of the names of fields that do not affect the results."""


def check_card(folder: str | os.PathLike, name: str) -> None:
    """Checks that writing a card would not overwrite one that was edited by hand.

    Raises:
      ValueError: there is a card of this file that does not begin with :data:`MARK`.
    """
    _place(folder, name)


def _place(folder: str | os.PathLike, name: str) -> Path:
    """Returns the path of an exported file's card: with its name if another file has the first."""
    path = Path(folder) / NAME
    if path.is_file() and f"\n{_TITLE}{name}\n" not in (text := path.read_text(encoding="utf-8")):
        if _TITLE in text:
            path = path.with_stem(f"{path.stem}-{Path(name).stem}")
    if path.is_file() and not path.read_text(encoding="utf-8").startswith(MARK):
        raise ValueError(f"{path} was changed by hand: move it, or export with --nocard")
    return path


def write_card(
    workdirs: Sequence[str | os.PathLike], folder: str | os.PathLike, exported: Exported
) -> Path:
    """Writes the model card of an exported run.

    Args:
      workdirs: the run's folder, followed by those of runs of the same configuration with other
        seeds, for the spread of the figures.
      folder: the folder of the exported file, where the card is written.
      exported: the exported file.

    Returns:
      The path of the card.

    Raises:
      ValueError: a folder is not a run, the runs' configurations differ in more than their seeds, a
        run was last evaluated with enrolled classes, or the folder has a card that was changed by
        hand.
    """
    path = _place(folder, exported.name)
    files.write_text(path, card(workdirs, exported))
    return path


def check_repeats(workdirs: Sequence[str | os.PathLike]) -> None:
    """Checks that runs differ only in their seeds.

    Raises:
      ValueError: a folder is not a run, or is given twice, or another field differs; the message
        names it.
    """
    places = [Path(workdir).resolve() for workdir in workdirs]
    if len(set(places)) < len(places):
        raise ValueError(f"{max(places, key=places.count)}: the same run is given twice")
    first, *others = (training.load_config(workdir).to_dict() for workdir in workdirs)
    flat = _fields(first)
    for workdir, other in zip(workdirs[1:], others, strict=True):
        theirs = _fields(other)
        differing = [n for n in sorted(flat | theirs) if flat.get(n) != theirs.get(n)]
        if differing:
            raise ValueError(
                f"{workdir}: a repeat may differ from {workdirs[0]} only in its seed, but this one "
                f"differs in {', '.join(differing)}"
            )


def check_evaluations(workdirs: Sequence[str | os.PathLike]) -> None:
    """Checks that runs were evaluated without enrolled classes, which an exported file lacks.

    Raises:
      ValueError: a run was last evaluated with enrolled classes.
    """
    for workdir in workdirs:
        if names := _read(Path(workdir)).evaluation.get("enrolled", {}).get("classes"):
            raise ValueError(
                f"{workdir}: the last evaluation was made with enrolled classes "
                f"({', '.join(names)}), which an exported file does not have: evaluate the run "
                f"without them (jaxatr evaluate --workdir={shlex.quote(str(workdir))}, if needed "
                "after jaxatr enrol --remove=NAME), or export with --nocard"
            )


def card(workdirs: Sequence[str | os.PathLike], exported: Exported) -> str:
    """Renders the text of a card; see :func:`write_card`."""
    check_repeats(workdirs)
    check_evaluations(workdirs)
    runs = [_read(Path(workdir)) for workdir in workdirs]
    run = runs[0]
    own = detector_card if detector_card.is_detector(run) else card_sections
    columns, rows, about = own.figures(runs, exported)
    text = (
        environment()
        .get_template("card.md")
        .render(
            title=f"{_TITLE.removeprefix('# ')}{exported.name}",
            details=card_sections.details(run, exported),
            use=own.use(run, exported),
            scope=card_sections.scope(exported),
            factors=own.factors(run),
            metrics=own.decision_metrics(exported),
            evaluation_data=card_sections.evaluation_data(run),
            training_data=card_sections.training_data(run),
            about_figures=about,
            columns=columns,
            rows=rows,
            analyses=own.analyses(runs, exported),
            data_licence=card_sections.line(exported.data_licence or card_sections.MISSING),
            caveats=own.caveats(run, runs, exported),
        )
    )
    return text.rstrip() + "\n"


def _read(workdir: Path) -> CardRun:
    is_evaluated = (workdir / training.EVALUATION).is_file()
    evaluation = training.load_evaluation(workdir) if is_evaluated else {}
    config = training.load_config(workdir).to_dict()
    return CardRun(workdir.resolve().name, config, training.read_record(workdir), evaluation)


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Lists the fields of a configuration that repeated runs share, by dotted name."""
    return {
        name: value
        for name, value in _all(config).items()
        if name not in _SEEDS and name.rpartition(".")[2] not in _LOCATIONS
    }


def _all(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        inner = _all(value) if isinstance(value, Mapping) else None
        found |= {name: value} if inner is None else {f"{name}.{n}": v for n, v in inner.items()}
    return found
