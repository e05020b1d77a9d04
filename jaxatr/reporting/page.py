"""Renders a self-contained page about one or more runs of any kind."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxatr import files
from jaxatr.reporting import charts, figures, overview, recorded_sets
from jaxatr.reporting import recorded_repeats as repeats
from jaxatr.reporting.environment import environment
from jaxatr.reporting.kind import Recorded, Report, Section, report_of
from jaxatr.reporting.sprite import sprite
from jaxatr.training import read_repeats


def write_report(workdirs: Sequence[str | os.PathLike], out: str | os.PathLike) -> None:
    """Writes a self-contained page about evaluated runs.

    Raises:
      ValueError: there is no run, a run is given twice, a folder is not an evaluated run, or
        ``out`` does not end in ``.html``.
      OSError: ``out`` cannot be written.
    """
    files.check_page(out)
    files.write_text(out, render_report(workdirs))


def render_report(workdirs: Sequence[str | os.PathLike]) -> str:
    """Renders the page of :func:`write_report`; the same records give the same page."""
    several = {place: name for place, name in _named(workdirs).items() if read_repeats(place)}
    named = _named(list(_members(workdirs)))
    kinds = {folder: report_of(folder) for folder in named}
    # Runs with data for the page's script come first, so that their numbers index its list.
    folders = sorted(named, key=lambda folder: kinds[folder].data is None)
    both = [
        (kinds[folder], run)
        for folder in folders
        for run in _evaluations(kinds[folder], folder, named[folder])
    ]
    reports, runs = [report for report, _ in both], [run for _, run in both]
    sprites = [sprite(run.thumbnails) for run in runs]
    packages = dict.fromkeys(["jaxatr.reporting", *(report.templates for report in reports)])
    made = environment(packages)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.globals |= {"geometry": charts}
    script_data = [
        report.data(run, sheet)
        for (report, run), sheet in zip(both, sprites, strict=True)
        if report.data is not None
    ]
    title = " and ".join(dict.fromkeys(report.title for report in reports))
    return made.get_template("page.html").render(
        kind=title[:1].upper() + title[1:],
        everything=runs,
        own=[run.name for run in runs if "set" not in run.evaluation],
        introductions=[report.introduce(run) for report, run in both],
        runs=runs[: len(script_data)],
        sprites=sprites,
        sections=_sections(both, {name: repeats.read(place) for place, name in several.items()}),
        data={"left": charts.LEFT, "width": charts.PLOT_WIDTH, "runs": script_data},
    )


def _evaluations(report: Report[Any], folder: Path, name: str) -> Iterator[Recorded]:
    """Yields a run with its own evaluation, and with that on each other set."""
    yield report.read(folder, name)
    if report.read_set is not None:
        for place in recorded_sets.folders(folder):
            yield report.read_set(folder, f"{name} on {place.name}", place)


def _members(workdirs: Sequence[str | os.PathLike]) -> Iterator[str | os.PathLike]:
    """Yields the folders of runs, in place of a folder of several runs these."""
    for workdir in workdirs:
        several = read_repeats(workdir)
        yield from [workdir] if several is None else several.runs


def _sections(
    both: Sequence[tuple[Report[Any], Recorded]], summaries: Mapping[str, Mapping[str, Any]]
) -> list[Section]:
    """Makes the sections in the page's order, without empty ones."""
    makers = dict.fromkeys(placed for report, _ in both for placed in report.sections)
    made: list[tuple[int, Section | None]] = [(500, repeats.section(summaries))]
    for place, make in makers:
        listed = [
            (number, run)
            for number, (report, run) in enumerate(both)
            if (place, make) in report.sections
        ]
        made.append((place, make(listed)))
    runs = [run for _, run in both]
    made.append((8000, figures.training(runs)))
    made.append((9000, overview.settings(runs, [r.settings(run) for r, run in both])))
    ordered = sorted(made, key=lambda placed: placed[0])
    return [section for _, section in ordered if section is not None]


def _named(workdirs: Sequence[str | os.PathLike]) -> dict[Path, str]:
    """Returns the name of each folder in the report; all by their paths if two names clash."""
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
