"""The protocol of an engine, which shares shards out among workers; and the one of this process."""

import abc
from collections.abc import Callable, Iterator
from functools import cached_property

from jaxatr.batch.worker import Identity, Job, Part, Worker


class Engine(abc.ABC):
    """Workers, and the shards that they make parts of. Used as a context.

    Attributes:
      job: of the workers.
      shards: how many there are.
      workers: that were asked for; None where nothing was said.
      gallery_workers: among which the galleries are shared out; 0: every worker has them whole.
      say: takes a line for the user.
    """

    def __init__(
        self,
        job: Job,
        shards: int,
        workers: int | None,
        gallery_workers: int,
        say: Callable[[str], object],
    ):
        """Takes the job; nothing begins yet."""
        self.job, self.shards, self.workers, self.say = job, shards, workers, say
        self.gallery_workers = gallery_workers

    @staticmethod
    def check() -> object:
        """Checks that the engine can be used at all.

        Raises:
          ImportError: a package is missing.
        """
        return None

    def __enter__(self) -> "Engine":
        """Begins, and returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the workers."""
        return None

    @abc.abstractmethod
    def identity(self) -> Identity:
        """Loads the first model, and says which it is."""

    @abc.abstractmethod
    def parts(self, run: str) -> Iterator[Part]:
        """Makes the parts of all shards; yields each once it is done, in any order.

        Args:
          run: digest of the run that every worker has to have.
        """


class Here(Engine):
    """One worker, in this process."""

    @cached_property
    def _worker(self) -> Worker:
        return Worker(self.job)

    def identity(self) -> Identity:
        """Loads the model, and says which it is."""
        return self._worker.identity()

    def parts(self, run: str) -> Iterator[Part]:
        """Makes one part after the other."""
        for number in range(self.shards):
            yield self._worker.make(number, run)
