"""Workers that predict shards with one model, in this process or as actors of a cluster."""

import collections
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import resolve, runs, training
from jaxatr.batch import manifest, parts
from jaxatr.batch.sources import Found, Source
from jaxatr.data import Cell, reason_of
from jaxatr.files import Scratch
from jaxatr.openset.gallery import pieces
from jaxatr.recognition import sightings
from jaxatr.recognition.drift import Reference, reference_of
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.training import Predictor

Ask = Callable[[str, np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]]
"""Searches all pieces of a gallery; see :meth:`GalleryWorker.search` for the arguments."""

READERS = 4
"""Number of threads that read inputs while the device computes."""

_AHEAD = 128
"""Number of inputs that are read ahead of the device."""

_BYTES_AHEAD = 1 << 28
"""Largest size in bytes of the temporary files of these inputs; one may be larger."""

MEASURED = 500
"""Number of inputs of a part, evenly spread, whose images' facts are computed."""

_SHARED = "/dev/shm"


class Search(NamedTuple):
    """The further parts of a search of scenes, beside the detector.

    Attributes:
      recognisers: folders of the runs that decide about each target; none if the detector does.
      options: of the recogniser.
      strips: how many strips of a scene are searched by themselves; each is an input of a shard.
    """

    recognisers: list[str]
    options: dict[str, Any]
    strips: int = 1


class Job(NamedTuple):
    """The job that all workers share.

    Attributes:
      out: the folder of the parts.
      workdirs: the folder of the run; several for an ensemble.
      options: options of the predictor.
      sources: sources of the inputs.
      trusted: names of code outside the package that a run may use.
      search: if the inputs are scenes, and the run is a detector; else None.
      begun: time at which the job began, which all its rows have; empty for parts of an earlier
        version, whose rows have neither time nor source.
      source_name: the source of all inputs; empty for that of their argument.
      size: number of inputs in a shard.
    """

    out: Path
    workdirs: list[str]
    options: dict[str, Any]
    sources: Sequence[Source]
    trusted: frozenset[str] = frozenset()
    search: Search | None = None
    begun: str = ""
    source_name: str = ""
    size: int = 1

    @property
    def run(self) -> str:
        """The run that the rows name."""
        further = [] if self.search is None else self.search.recognisers
        return training.run_id(*self.workdirs, *further)

    def sources_of(self, shard: manifest.Shard) -> list[str]:
        """Returns the source of each input of a shard."""
        return [
            self.source_name or self.sources[number].counted_as
            for number, keys in shard.runs
            for _ in keys
        ]


class Identity(NamedTuple):
    """The identity of the model that a worker has loaded.

    Attributes:
      run: digest of everything that the predictions depend on.
      columns: columns of the predictions, name to type; empty if they are known only from the rows.
      note: a note for the user; may be empty.
      runtime: engine that runs its network.
      reference: what the inputs are compared with, to notice a drift.
    """

    run: str
    columns: dict[str, type]
    note: str
    runtime: str = "jax"
    reference: Reference = Reference({})


class Part(NamedTuple):
    """A completed part.

    Attributes:
      shard: number of the shard.
      rows: number of inputs, each of which has a row unless it is a scene.
      failed: number of inputs that could not be used.
      kept: whether the part was already complete.
      damaged: the reason why an existing file was replaced; empty if none was.
    """

    shard: int
    rows: int
    failed: int
    kept: bool = False
    damaged: str = ""


class Worker:
    """A model that predicts shards of a job."""

    def __init__(self, job: Job, ask: Ask | None = None):
        """Loads nothing yet: the model is loaded on first use.

        Args:
          job: the job.
          ask: searches the galleries on gallery workers; None if this worker holds them.
        """
        self._job, self._ask = job, ask

    @cached_property
    def _run(self) -> str:
        return self._job.run

    def _origin(self, source: str) -> dict[str, Cell]:
        """Returns the cells that say when an input was predicted, of which source, by which run."""
        if not self._job.begun:
            return {}
        of_all = {sightings.TIME: self._job.begun, sightings.SOURCE: source}
        return {**of_all, sightings.RUN: self._run}

    @cached_property
    def _loaded(self) -> tuple[Predictor, Identity]:
        predictor = load(self._job)
        reference = Reference({})
        if isinstance(predictor, OpenSetPredictor):
            reference = reference_of(predictor)
        known = predictor.digest(), predictor.columns(), predictor.note, predictor.runtime
        identity = Identity(*known, reference)
        if self._ask is not None:
            decider = _decider(self._job, predictor)
            decider.decision = pieces.without(decider.decision, self._ask)
        return predictor, identity

    @property
    def _predictor(self) -> Predictor:
        return self._loaded[0]

    @property
    def _identity(self) -> Identity:
        return self._loaded[1]

    def identity(self) -> Identity:
        """Loads the model, and returns its identity."""
        return self._identity

    def make(self, number: int, run: str) -> Part:
        """Makes the part of a shard, or keeps an existing one that is complete.

        Args:
          number: number of the shard.
          run: digest of the run that all workers must have loaded.

        Raises:
          ValueError: this worker has loaded another run, or the shard's list is damaged.
          OSError: the part cannot be written.
        """
        if run != self._identity.run:
            raise ValueError(f"{', '.join(self._job.workdirs)}: the run differs on this worker")
        shard = manifest.read(self._job.out, number)
        path = parts.path_of(self._job.out, number)
        damaged = ""
        if path.exists():
            try:
                existing = parts.check(path)
                wanted = parts.Facts(number, shard.digest, run, len(shard), existing.failed)
                if existing == wanted:
                    return Part(number, existing.rows, existing.failed, kept=True)
                damaged = "it is of other inputs or another run"
            except (ValueError, OSError, KeyError, TypeError) as error:
                damaged = str(error)
        rows, failed = self._made(shard)
        facts = parts.Facts(number, shard.digest, run, len(shard), failed)
        parts.write(self._job.out, facts, self._columns(rows), rows, self._identity.runtime)
        return Part(number, len(shard), failed, damaged=damaged)

    def _made(self, shard: manifest.Shard) -> tuple[list[dict[str, Cell]], int]:
        """Returns the rows of a shard, and the number of inputs that could not be used."""
        rows = self._rows(shard)
        return rows, sum(row["error"] is not None for row in rows)

    def _columns(self, rows: Sequence[Mapping[str, Cell]]) -> dict[str, type | None]:
        """Lists the columns; every part has the same, even if all its inputs failed."""
        first: dict[str, type | None] = {"path": str, "error": str}
        known: dict[str, type | None] = {**self._identity.columns}
        if not known:  # a column without values gets the type of numbers
            others = {*first, *sightings.columns(facts=True)}
            names = dict.fromkeys(name for row in rows for name in row if name not in others)
            filled = {n for row in rows for n, cell in row.items() if cell is not None}
            known = {name: None if name in filled else float for name in names}
        if double := first.keys() & known.keys():
            raise ValueError(
                f"--out: the prediction's field {min(double)!r} has the name of another column"
            )
        added = sightings.columns(facts=self._has_facts) if self._job.begun else {}
        return first | known | added

    @property
    def _has_facts(self) -> bool:
        """Whether the inputs are single images, which have facts."""
        return self._predictor.takes == "IMAGE"

    def _rows(self, shard: manifest.Shard) -> list[dict[str, Cell]]:
        rows: list[dict[str, Cell]] = [{} for _ in range(len(shard))]
        taken: collections.deque[int] = collections.deque()
        predictor, sources = self._predictor, self._job.sources_of(shard)
        measures = bool(self._job.begun) and self._has_facts
        facts: dict[int, np.ndarray | None] = {}
        apart = -(-len(shard) // MEASURED)
        with self._scratch() as scratch, ThreadPoolExecutor(READERS) as readers:

            def items() -> Iterator[Any]:
                for number, (name, item, error) in enumerate(
                    self._read_ahead(self._found(shard, scratch), readers)
                ):
                    rows[number] = {"path": name, "error": error}
                    if error is None:
                        taken.append(number)
                        if measures and number % apart == 0:
                            facts[number] = sightings.facts_of(item)
                        yield item

            for prediction in predictor.answers(items()):
                rows[taken.popleft()] |= predictor.to_row(prediction)
        for number, (row, source) in enumerate(zip(rows, sources, strict=True)):
            row |= self._origin(source) | sightings.fact_cells(facts.get(number))
        return rows

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Makes a folder for the temporary files of a shard."""
        with Scratch(_memory()) as scratch:
            yield Path(scratch)

    def _found(self, shard: manifest.Shard, scratch: Path) -> Iterator[tuple[Found, bool]]:
        """Yields the inputs, and whether a file is temporary."""
        for number, (source, keys) in enumerate(shard.runs):
            folder = scratch / str(number)
            folder.mkdir()
            for found in self._job.sources[source].found(keys, folder):
                yield found, found.file.startswith(f"{folder}/")

    def _read_ahead(
        self, found: Iterator[tuple[Found, bool]], readers: ThreadPoolExecutor
    ) -> Iterator[tuple[str, Any, str | None]]:
        waiting: collections.deque[tuple[Future, int]] = collections.deque()
        size = 0
        for one, temporary in found:
            of_one = os.path.getsize(one.file) if temporary else 0
            size += of_one
            waiting.append((readers.submit(self._read, one, temporary), of_one))
            while len(waiting) >= _AHEAD or (waiting and size > _BYTES_AHEAD):
                future, of_first = waiting.popleft()
                size -= of_first
                yield future.result()
        for future, _ in waiting:
            yield future.result()

    def _read(self, found: Found, temporary: bool) -> tuple[str, Any, str | None]:
        """Reads and prepares an input; returns its name, the chip, and why it cannot be used."""
        try:
            if found.error is not None:
                raise found.error
            item = self._predictor.prepare(self._predictor.read(found.file))
        except (ValueError, OSError, ImportError) as error:
            return found.name, None, reason_of(error, found.name, found.file)
        finally:
            if temporary:
                Path(found.file).unlink(missing_ok=True)
        return found.name, item, None


class GalleryWorker:
    """Holds a piece of the galleries of a job's run, and searches it."""

    def __init__(self, job: Job, number: int, of: int):
        """Loads nothing yet: the piece is loaded on first use."""
        self._job, self._number, self._of = job, number, of

    @cached_property
    def _pieces(self) -> dict[str, Any]:
        decision = _decider(self._job, load(self._job)).decision
        return pieces.piece_of(decision, self._number, self._of)

    def search(
        self, name: str, queries: np.ndarray, classes: int, estimated: tuple[int, ...]
    ) -> np.ndarray:
        """Searches the piece; see :func:`jaxatr.openset.gallery.pieces.search`.

        Args:
          name: name of the gallery.
          queries: ``[b, s, d]``.
          classes: number of classes k.
          estimated: the forms that a two-stage search estimates with.
        """
        return pieces.search(self._pieces[name], np.array(queries), classes, estimated)


def load(job: Job) -> Predictor:
    """Loads the predictor of a job."""
    training.enable_compilation_cache()
    resolve.trust(*job.trusted)
    several = job.workdirs if len(job.workdirs) > 1 else job.workdirs[0]
    return runs.load_predictor(several, **job.options)


def _decider(job: Job, predictor: Predictor) -> OpenSetPredictor:
    if len(job.workdirs) > 1 or not isinstance(predictor, OpenSetPredictor):
        raise ValueError(
            f"--gallery_workers needs a single open-set run, got {', '.join(job.workdirs)}"
        )
    return predictor


def _memory() -> str | None:
    """Returns a folder in memory if the system has one with enough room; else None.

    In a container, it often has only 64 MB.
    """
    try:
        free = shutil.disk_usage(_SHARED).free if os.access(_SHARED, os.W_OK | os.X_OK) else 0
    except OSError:
        return None
    return _SHARED if free > 2 * _BYTES_AHEAD else None
