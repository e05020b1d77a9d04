"""Makes the parts of shards with one model, in this process or as an actor of a cluster."""

import collections
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import runs, training
from jaxatr.batch import manifest, parts
from jaxatr.batch.sources import Found, Source
from jaxatr.data import Cell
from jaxatr.openset import pieces
from jaxatr.tasks.open_set.predictor import OpenSetPredictor
from jaxatr.training import Predictor

Ask = Callable[[str, np.ndarray, int, tuple[int, ...]], Iterable[np.ndarray]]
"""Takes the name of a gallery and what is searched; gives the answers of its pieces."""

READERS = 4
"""Threads that read inputs, while the device computes."""

_AHEAD = 128
"""Inputs that are read ahead of the device."""


class Job(NamedTuple):
    """The work that all workers share in.

    Attributes:
      out: the folder of the parts.
      workdirs: the folders of the runs.
      options: of the predictor.
      sources: of the inputs.
    """

    out: Path
    workdirs: list[str]
    options: dict[str, Any]
    sources: Sequence[Source]


class Identity(NamedTuple):
    """The model that a worker has loaded.

    Attributes:
      run: digest of all that its answers depend on.
      columns: of the rows of its predictions, name to type; empty where only rows can tell.
      note: for the user; empty for nothing.
      runtime: what runs its network.
    """

    run: str
    columns: dict[str, type]
    note: str
    runtime: str = "jax"


class Part(NamedTuple):
    """A shard that is done.

    Attributes:
      shard: its number.
      rows: of its part.
      failed: of these, inputs that could not be used.
      kept: it was there, and whole.
      damaged: why the file that was there had to be made anew; empty where there was none.
    """

    shard: int
    rows: int
    failed: int
    kept: bool = False
    damaged: str = ""


class Worker:
    """A model and the job that it takes part in."""

    def __init__(self, job: Job, ask: Ask | None = None):
        """Takes the job; the model is loaded when it is first needed.

        Args:
          job: the job.
          ask: asks the workers that have the pieces of the galleries; None: they are here.
        """
        self._job, self._ask = job, ask

    @cached_property
    def _loaded(self) -> tuple[Predictor, Identity]:
        predictor = load(self._job)
        identity = Identity(
            predictor.digest(), predictor.columns(), predictor.note, predictor.runtime
        )
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
        """Loads the model, and says which it is."""
        return self._identity

    def make(self, number: int, run: str) -> Part:
        """Makes the part of a shard, or keeps it where it is there and whole.

        Args:
          number: of the shard.
          run: digest of the run that the other workers have.

        Raises:
          ValueError: this worker has loaded another run, or the list of the shard is damaged.
          OSError: the part cannot be written.
        """
        if run != self._identity.run:
            raise ValueError(f"{', '.join(self._job.workdirs)}: it is another run on this worker")
        shard = manifest.read(self._job.out, number)
        path = parts.path_of(self._job.out, number)
        damaged = ""
        if path.exists():
            try:
                found = parts.check(path)
                wanted = parts.Facts(number, shard.digest, run, len(shard), found.failed)
                if found == wanted:
                    return Part(number, found.rows, found.failed, kept=True)
                damaged = "it is of other inputs, or of another run"
            except (ValueError, OSError, KeyError, TypeError) as error:
                damaged = str(error)
        rows = self._rows(shard)
        failed = sum(row["error"] is not None for row in rows)
        facts = parts.Facts(number, shard.digest, run, len(shard), failed)
        parts.write(self._job.out, facts, self._columns(rows), rows, self._identity.runtime)
        return Part(number, len(rows), failed, damaged=damaged)

    def _columns(self, rows: Sequence[Mapping[str, Cell]]) -> dict[str, type | None]:
        """Lists the columns, the same ones in every part, also of one where every input failed."""
        first: dict[str, type | None] = {"path": str, "error": str}
        known: dict[str, type | None] = {**self._identity.columns}
        if not known:  # an empty column counts as one of numbers
            names = dict.fromkeys(name for row in rows for name in row if name not in first)
            filled = {n for row in rows for n, cell in row.items() if cell is not None}
            known = {name: None if name in filled else float for name in names}
        if double := first.keys() & known.keys():
            raise ValueError(f"--out: a prediction's field {min(double)!r} has a column's name")
        return first | known

    def _rows(self, shard: manifest.Shard) -> list[dict[str, Cell]]:
        rows: list[dict[str, Cell]] = [{} for _ in range(len(shard))]
        taken: collections.deque[int] = collections.deque()
        predictor = self._predictor
        with (
            tempfile.TemporaryDirectory(prefix="jaxatr-", dir=_memory()) as scratch,
            ThreadPoolExecutor(READERS) as readers,
        ):

            def items() -> Iterator[Any]:
                for number, (name, item, error) in enumerate(
                    self._read_ahead(self._found(shard, Path(scratch)), readers)
                ):
                    rows[number] = {"path": name, "error": error}
                    if error is None:
                        taken.append(number)
                        yield item

            for prediction in predictor(items()):
                rows[taken.popleft()] |= predictor.to_row(prediction)
        return rows

    def _found(self, shard: manifest.Shard, scratch: Path) -> Iterator[tuple[Found, bool]]:
        """Yields the inputs, and whether a file is to be removed once it is read."""
        for number, (source, keys) in enumerate(shard.runs):
            own = scratch / str(number)
            own.mkdir()
            for found in self._job.sources[source].read(keys, own):
                yield found, found.file.startswith(f"{own}/")

    def _read_ahead(
        self, found: Iterator[tuple[Found, bool]], readers: ThreadPoolExecutor
    ) -> Iterator[tuple[str, Any, str | None]]:
        waiting: collections.deque[Future] = collections.deque()
        for one, temporary in found:
            waiting.append(readers.submit(self._read, one, temporary))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _read(self, found: Found, temporary: bool) -> tuple[str, Any, str | None]:
        """Reads an input: its name, and either it or the reason why it cannot be used."""
        try:
            if found.error is not None:
                raise found.error
            item = self._predictor.read(found.file)
            self._predictor.check(item)
        except (ValueError, OSError) as error:
            reason = str(error)
            if found.file:
                reason = reason.replace(found.file, found.name)
            return found.name, None, reason.removeprefix(f"{found.name}: ")
        finally:
            if temporary:
                Path(found.file).unlink(missing_ok=True)
        return found.name, item, None


class GalleryWorker:
    """A piece of the galleries that a job's runs decide by."""

    def __init__(self, job: Job, number: int, of: int):
        """Takes the job, and the piece by its number; it is loaded when it is first needed."""
        self._job, self._number, self._of = job, number, of

    @cached_property
    def _pieces(self) -> dict[str, Any]:
        decision = _decider(self._job, load(self._job)).decision
        return pieces.piece_of(decision, self._number, self._of)

    def search(
        self, name: str, queries: np.ndarray, classes: int, estimated: tuple[int, ...]
    ) -> np.ndarray:
        """Searches the piece, as :func:`jaxatr.openset.pieces.search`.

        Args:
          name: of the gallery.
          queries: ``[b, s, d]``.
          classes: k.
          estimated: the forms by which a search in two stages estimates.
        """
        return pieces.search(self._pieces[name], np.array(queries), classes, estimated)


def load(job: Job) -> Predictor:
    """Loads the predictor of a job."""
    training.enable_compilation_cache()
    several = job.workdirs if len(job.workdirs) > 1 else job.workdirs[0]
    return runs.load_predictor(several, **job.options)


def _decider(job: Job, predictor: Predictor) -> OpenSetPredictor:
    if len(job.workdirs) > 1 or not isinstance(predictor, OpenSetPredictor):
        raise ValueError(
            f"--gallery_workers is of one open-set run, which {', '.join(job.workdirs)} is not"
        )
    return predictor


def _memory() -> str | None:
    """Returns a folder in memory, where the system has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
