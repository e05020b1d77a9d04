"""Predicts all inputs into the parts of a folder, and goes on there after any failure."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from jaxatr import files, training
from jaxatr.batch import manifest
from jaxatr.batch.engine import Engine, Here
from jaxatr.batch.ray_cluster import RayCluster
from jaxatr.batch.sources import sources_of
from jaxatr.batch.worker import Identity, Job, Part
from jaxatr.data import describe_passed
from jaxatr.data.extras import extra

ENGINES: dict[str, type[Engine]] = {"local": Here, "ray": RayCluster}
"""Name of an engine to what shares out the shards."""


class Totals(NamedTuple):
    """The inputs of all parts.

    Attributes:
      predicted: inputs with a prediction.
      failed: inputs that could not be used.
      parts: files.
      kept: parts that were there before.
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
    say: Callable[[str], object] = print,
    follow: Callable[[int, Iterator[Part]], Iterator[Part]] = lambda total, found: found,
) -> Totals:
    """Predicts inputs into ``part-00000.parquet`` and so on, each there whole or not at all.

    Called again for the same folder it keeps the parts that are whole and makes the others.

    Args:
      out: the folder of the parts; it may be there.
      workdirs: the run's folder, or several for an ensemble.
      arguments: inputs, as :func:`jaxatr.batch.sources.sources_of` takes them.
      engine: one of :data:`ENGINES`.
      size: inputs of a part.
      workers: models at work at a time; None for one on each device of the cluster.
      gallery_workers: workers among which the galleries of scores are shared out; 0: every model
        has them whole.
      options: of the predictor.
      say: takes a line for the user.
      follow: takes the number of all inputs, and passes the parts on as they get done.

    Raises:
      ValueError: there is no such input or run, the folder holds predictions of others, or another
        process works in it.
      OSError: the disk is full, or fails.
      ImportError: a package is missing.
      RuntimeError: workers die of a shard again and again.
    """
    extra("pyarrow", "parquet", f"{out}: a folder of Parquet files")
    ENGINES[engine].check()
    if (workers is not None or gallery_workers) and engine == "local":
        name = "gallery_workers" if gallery_workers else "workers"
        raise ValueError(f"--{name}: the engine 'local' works in one process")
    for workdir in workdirs:  # before anything is listed
        kind = training.predictor_class(training.task_of(workdir))
    options = dict(options or {})
    for name in {"source", "data_dir"} & options.keys():  # workers begin in other folders
        options[name] = str(Path(options[name]).expanduser().absolute())
    data_dir = options.get("data_dir")
    sources = sources_of(arguments, folders=kind.takes == "FOLDER", data_dir=data_dir)
    with _written(out), _owned(out):
        listed = manifest.listed(out, sources, size, say)
        for source in sources:
            if source.passed:
                say(f"{source.name}: {describe_passed(source.passed)}")
        folders = [str(Path(workdir).absolute()) for workdir in workdirs]
        job = Job(out.absolute(), folders, options, sources)
        with ENGINES[engine](job, listed.shards, workers, gallery_workers, say) as works:
            identity = works.identity()
            _check_run(out, identity)
            if identity.note:
                say(identity.note)
            done = list(_told(out, follow(listed.inputs, works.parts(identity.run)), say))
    rows, failed = sum(rows for rows, _, _ in done), sum(failed for _, failed, _ in done)
    if rows != listed.inputs or len(done) != listed.shards:
        raise AssertionError(f"{out}: {rows} rows of {listed.inputs} inputs")
    return Totals(rows - failed, failed, len(done), sum(kept for _, _, kept in done))


def _told(
    out: Path, done: Iterator[Part], say: Callable[[str], object]
) -> Iterator[tuple[int, int, bool]]:
    """Names the parts that were damaged; yields rows, failed ones, and whether it was there."""
    for part in done:
        if part.damaged:
            say(f"warning: {out}/part-{part.shard:05}.parquet: {part.damaged}: made anew")
        yield part.rows, part.failed, part.kept


@contextlib.contextmanager
def _written(out: Path) -> Iterator[None]:
    """Names the folder in an error of the disk, which knows no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(
            error.errno,
            f"{out}: {error.strerror}; the parts that are there are whole, and the same command "
            "goes on with the others",
        ) from error


@contextlib.contextmanager
def _owned(out: Path) -> Iterator[None]:
    """Makes the folder, keeps other processes out, and removes what a killed one left."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: a folder is wanted, and this is a file")
    folder = out / manifest.FOLDER
    if out.is_dir() and any(out.iterdir()) and not folder.is_dir():
        raise ValueError(f"{out}: it holds something else already; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    lock = files.locked(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f"{out}: another process predicts into it") from None
    try:
        for place in (out, folder):
            for partial in place.glob(".*.partial"):
                partial.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def _check_run(out: Path, identity: Identity) -> None:
    before = manifest.load_run(out)
    if before is None:
        manifest.save_run(out, {"digest": identity.run, "runtime": identity.runtime})
    elif before["digest"] != identity.run:
        raise ValueError(
            f"{out}: it holds predictions of another run, or of other options; choose another --out"
        )
