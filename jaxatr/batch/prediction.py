"""Predicts all inputs into part files in a folder, and resumes after any failure."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import files, resolve, training
from jaxatr.batch import manifest, summary
from jaxatr.batch.engine import Engine, Here
from jaxatr.batch.ray_cluster import RayCluster
from jaxatr.batch.sources import Source, sources_of
from jaxatr.batch.worker import Job, Part, Search
from jaxatr.data import Bands, class_name, describe_passed
from jaxatr.extras import extra
from jaxatr.recognition import sightings

ENGINES: dict[str, type[Engine]] = {"local": Here, "ray": RayCluster}
"""The engines by name."""


class Totals(NamedTuple):
    """The totals of a batch.

    Attributes:
      predicted: number of inputs with a prediction.
      failed: number of inputs that could not be used.
      parts: number of part files.
      kept: number of parts that were already complete.
    """

    predicted: int
    failed: int
    parts: int
    kept: int


def predict_parts(
    out: Path,
    workdirs: Sequence[str],
    arguments: Sequence[str],
    *,
    engine: str,
    size: int,
    workers: int | None = None,
    gallery_workers: int = 0,
    options: dict[str, Any] | None = None,
    search: Search | None = None,
    source_name: str = "",
    say: Callable[[str], object] = print,
    follow: Callable[[int, Iterator[Part]], Iterator[Part]] = lambda total, found: found,
) -> Totals:
    """Predicts inputs into the files ``part-00000.parquet``, … of a folder.

    Each part is written atomically. Called again with the same folder, the function keeps complete
    parts and makes the others.

    Args:
      out: the folder of the parts; it is created if missing.
      workdirs: the run's folder, or several for an ensemble.
      arguments: inputs, see :func:`jaxatr.batch.sources.sources_of`.
      engine: name of one of :data:`ENGINES`.
      size: number of inputs in a part.
      workers: number of models that work in parallel; None for one on each device of the cluster.
      gallery_workers: number of workers that share the galleries of scores; 0 if every model holds
        them entirely.
      options: options of the predictor.
      search: if the inputs are scenes, in which the run finds targets; a part then has a row for
        each target, and for each scene that cannot be used.
      source_name: the source of all inputs, which their rows name; empty for that of each argument.
      say: prints a line for the user.
      follow: receives the total number of inputs and the parts as they are completed, and passes
        the parts on; for showing progress.

    Raises:
      ValueError: there is no such input or run, the folder holds predictions of other inputs or
        another run, or another process is using it.
      OSError: the disk is full or fails.
      ImportError: a package is missing.
      RuntimeError: workers die repeatedly on the same shard.
    """
    extra("pyarrow", "parquet", f"{out}: a folder of Parquet files")
    ENGINES[engine].check()
    if (workers is not None or gallery_workers) and engine == "local":
        name = "gallery_workers" if gallery_workers else "workers"
        raise ValueError(f"--{name}: the engine 'local' runs in one process")
    if search is not None:
        recognisers = [str(Path(one).absolute()) for one in search.recognisers]
        search = search._replace(recognisers=recognisers)
        if gallery_workers:
            raise ValueError("--gallery_workers: scenes are searched by whole models")
        if search.strips < 1:
            raise ValueError(f"--strips: got {search.strips}, wanted 1 or more")
    for workdir in workdirs:  # before anything is listed
        kind = training.predictor_class(training.task_of(workdir))
        bands = Bands.of_fields(training.read_record(workdir).get("bands", {}))
    options = dict(options or {})
    for name in {"source", "data_dir"} & options.keys():  # workers have other current folders
        options[name] = str(Path(options[name]).expanduser().absolute())
    data_dir = options.get("data_dir")
    folders_too = kind.takes == "FOLDER"
    given = {"data_dir": data_dir, "bands": bands, "scenes": search is not None}
    sources = sources_of(arguments, folders=folders_too, **given)
    named = class_name(source_name)
    with _written(out), _owned(out):
        before = manifest.load_run(out) or {}
        _name_as_before(out, sources, named, before)
        strips = 1 if search is None else search.strips
        listed = manifest.listed(out, sources, size, say, strips=strips)
        for source in sources:
            for line in source.unread:
                say(f"warning: {line}")
            if source.passed:
                say(f"{source.name}: {describe_passed(source.passed)}")
        folders = [str(Path(workdir).absolute()) for workdir in workdirs]
        begun = before.get("begun", "") if before else sightings.now()
        trusted = resolve.trusted()
        job = Job(out.absolute(), folders, options, sources, trusted, search, begun, named, size)
        with ENGINES[engine](job, listed.shards, workers, gallery_workers, say) as works:
            identity = works.identity()
            run = {"digest": identity.run, "runtime": identity.runtime, "begun": begun}
            _check_run(out, before, run | {"names": _names(sources), "source_name": named})
            if identity.note:
                say(identity.note)
            done = list(_counted(out, follow(listed.inputs, works.parts(identity.run)), say))
    rows, failed = sum(rows for rows, _, _ in done), sum(failed for _, failed, _ in done)
    if rows != listed.inputs or len(done) != listed.shards:
        raise AssertionError(f"{out}: {rows} rows of {listed.inputs} inputs")
    if begun:
        with _written(out):
            summary.write(out, listed.shards, identity.reference, say)
    return Totals(rows - failed, failed, len(done), sum(kept for _, _, kept in done))


def _counted(
    out: Path, done: Iterator[Part], say: Callable[[str], object]
) -> Iterator[tuple[int, int, bool]]:
    """Warns of damaged parts; yields (rows, failed rows, whether it was kept) for each part."""
    for part in done:
        if part.damaged:
            say(f"warning: {out}/part-{part.shard:05}.parquet: {part.damaged}: made again")
        yield part.rows, part.failed, part.kept


@contextlib.contextmanager
def _written(out: Path) -> Iterator[None]:
    """Says of an error of the disk, in the folder or of no file, what is complete."""
    try:
        yield
    except OSError as error:
        place = error.filename or out
        if error.errno is None or not Path(place).absolute().is_relative_to(out.absolute()):
            raise
        raise OSError(
            error.errno,
            f"{place}: {error.strerror}; the existing parts are complete, and the same command "
            "continues with the others",
        ) from error


@contextlib.contextmanager
def _owned(out: Path) -> Iterator[None]:
    """Creates and locks the folder, and removes the partial files of a killed process."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: wanted a folder, got a file")
    folder = out / manifest.FOLDER
    if out.is_dir() and any(out.iterdir()) and not folder.is_dir():
        raise ValueError(f"{out}: the folder has other content; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(folder / "lock", seconds=0.0))
        except TimeoutError:
            raise ValueError(f"{out}: another process is predicting into it") from None
        for place in (out, folder):
            for partial in place.glob(".*.partial"):
                partial.unlink(missing_ok=True)
        yield


def _names(sources: Sequence[Source]) -> list[list[str]]:
    return [[source.place, source.name, source.counted_as] for source in sources]


def _name_as_before(
    out: Path, sources: Sequence[Source], source_name: str, before: Mapping[str, Any]
) -> None:
    """Names the sources as the command that began, which may have had another current folder."""
    if (old := before.get("source_name", source_name)) != source_name:
        raise manifest.refusal(out, "--source_name", old, source_name)
    for source, (place, name, counted_as) in zip(sources, before.get("names", []), strict=False):
        if source.place == place:
            source.name, source.counted_as = name, counted_as


def _check_run(out: Path, before: Mapping[str, Any], run: dict[str, Any]) -> None:
    if not before:
        manifest.save_run(out, run)
    elif before["digest"] != run["digest"]:
        raise ValueError(
            f"{out}: its predictions are of another run or with other options; choose another --out"
        )
