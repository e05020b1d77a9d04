"""One self-contained page about one or several runs."""

import os
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from jaxatr.reporting import (
    charts,
    embedding_map,
    explorer,
    figures,
    overview,
    retrieval,
    saliency,
)
from jaxatr.reporting.overview import Section
from jaxatr.reporting.recorded import RecordedRun, read_evaluation, read_run
from jaxatr.reporting.sprite import sprite
from jaxatr.reporting.surrogates import AnyRun, RecordedSurrogate, read_surrogate
from jaxatr.reporting.tables import percent


def write_report(workdirs: Sequence[str | os.PathLike], out: str | os.PathLike) -> None:
    """Writes a page about evaluated runs; it needs no other file and no network.

    Args:
      workdirs: the runs' folders.
      out: the HTML file.

    Raises:
      ValueError: no run was given, one twice, or one is not an evaluated run.
    """
    page = render_report(workdirs)
    partial = Path(out).with_suffix(".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(out)


def render_report(workdirs: Sequence[str | os.PathLike]) -> str:
    """Returns the page that :func:`write_report` writes: the same for the same records."""
    found = [_read(folder, name) for folder, name in _named(workdirs).items()]
    # The recognisers first: the page's script counts them.
    recognisers = [run for run in found if isinstance(run, RecordedRun)]
    explained = [run for run in found if isinstance(run, RecordedSurrogate)]
    sprites = [sprite(run.thumbnails) for run in (*recognisers, *explained)]
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
        kind=_kind(recognisers, explained),
        runs=recognisers,
        surrogates=explained,
        sprites=sprites,
        sections=_sections(recognisers, explained),
        data=explorer.page_data(recognisers, sprites[: len(recognisers)]),
    )


def _read(folder: Path, name: str) -> AnyRun:
    task = read_evaluation(folder)["task"]
    return (read_surrogate if task == "distillation" else read_run)(folder, name=name)


def _sections(
    recognisers: Sequence[RecordedRun], explained: Sequence[RecordedSurrogate]
) -> list[Section]:
    """Returns the sections that have something to show, in the page's order."""
    everything: Sequence[AnyRun] = [*recognisers, *explained]
    found = [
        saliency.methods(explained),
        saliency.saliency_sheet(explained, len(recognisers)),
        retrieval.retrieval(recognisers),
        embedding_map.embedding_map(recognisers),
        retrieval.search_sheet(recognisers),
        overview.scores(recognisers),
        figures.curves(recognisers),
        explorer.explorer(recognisers),
        figures.ranges(recognisers),
        overview.confusion(recognisers),
        figures.training(everything),
        overview.settings(everything),
    ]
    return [section for section in found if section is not None]


def _kind(recognisers: Sequence[RecordedRun], explained: Sequence[RecordedSurrogate]) -> str:
    embeddings = [run for run in recognisers if run.embeds]
    kinds = {
        "open-set recognition": len(recognisers) > len(embeddings),
        "fine-grained retrieval": bool(embeddings),
        "explanations": bool(explained),
    }
    text = " and ".join(kind for kind, there in kinds.items() if there)
    return text[:1].upper() + text[1:]


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
