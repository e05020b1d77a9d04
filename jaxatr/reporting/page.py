"""One self-contained page about one or several runs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from jaxatr.reporting import charts, embedding_map, explorer, figures, overview, retrieval
from jaxatr.reporting.overview import Section
from jaxatr.reporting.recorded import RecordedRun, read_run
from jaxatr.reporting.sprite import sprite
from jaxatr.reporting.tables import percent

SECTIONS: tuple[Callable[[Sequence[RecordedRun]], Section | None], ...] = (
    retrieval.retrieval,
    embedding_map.embedding_map,
    retrieval.search_sheet,
    overview.scores,
    figures.curves,
    explorer.explorer,
    figures.ranges,
    overview.confusion,
    figures.training,
    overview.settings,
)
"""In the page's order. A section whose function gives ``None`` has nothing to show."""


def write_report(workdirs: Sequence[str | os.PathLike], out: str | os.PathLike) -> None:
    """Writes a page about evaluated runs; it needs no other file and no network.

    Args:
      workdirs: the runs' folders.
      out: the HTML file.

    Raises:
      ValueError: no run was given, one twice, or one is not an evaluated open-set or
        embedding run.
    """
    page = render_report(workdirs)
    partial = Path(out).with_suffix(".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(out)


def render_report(workdirs: Sequence[str | os.PathLike]) -> str:
    """Returns the page that :func:`write_report` writes: the same for the same records."""
    runs = [read_run(folder, name=name) for folder, name in _named(workdirs).items()]
    sprites = [sprite(run) for run in runs]
    sections = [section for make in SECTIONS if (section := make(runs)) is not None]
    environment = Environment(
        loader=PackageLoader("jaxatr.reporting"),
        autoescape=True,  # class names and paths are a user's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= {"geometry": charts, "percent": percent}
    return environment.get_template("page.html").render(
        runs=runs, sprites=sprites, sections=sections, data=explorer.page_data(runs, sprites)
    )


def _named(workdirs: Sequence[str | os.PathLike]) -> dict[Path, str]:
    """Returns each folder's name in the report: its own, or the path where two are called alike."""
    folders = [Path(workdir) for workdir in workdirs]
    if not folders:
        raise ValueError("workdirs: got none, wanted at least one")
    places = [folder.resolve() for folder in folders]
    for place in places:
        if places.count(place) > 1:
            raise ValueError(f"workdirs: {place} is given twice")
    names = [place.name for place in places]
    alike = len(set(names)) < len(names)
    return {f: str(f) if alike else name for f, name in zip(folders, names, strict=True)}
