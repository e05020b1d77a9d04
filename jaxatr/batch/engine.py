"""The base class of engines, which distribute shards to workers, and the local engine."""

import abc
from collections.abc import Callable, Iterator
from functools import cached_property

from jaxatr.batch.scenes import worker_of
from jaxatr.batch.worker import Identity, Job, Part, Worker


class Engine(abc.ABC):
    """Distributes the shards of a job to workers; a context manager.

    Attributes:
      job: the workers' job.
      shards: number of shards.
      workers: requested number of workers; None for the engine's default.
      gallery_workers: number of workers that share the galleries; 0 if every worker holds them
        entirely.
      say: prints a line for the user.
    """

    def __init__(
        self,
        job: Job,
        shards: int,
        workers: int | None,
        gallery_workers: int,
        say: Callable[[str], object],
    ):
        """Starts no worker yet."""
        self.job, self.shards, self.workers, self.say = job, shards, workers, say
        self.gallery_workers = gallery_workers

    @staticmethod
    def check() -> object:
        """Checks that the engine's packages are installed.

        Raises:
          ImportError: a package is missing.
        """
        return None

    def __enter__(self) -> "Engine":
        """Starts the engine."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stops the workers."""
        return None

    @abc.abstractmethod
    def identity(self) -> Identity:
        """Loads the model in the first worker, and returns its identity."""

    @abc.abstractmethod
    def parts(self, run: str) -> Iterator[Part]:
        """Makes the parts of all shards, and yields each when it is complete, in any order.

        Args:
          run: digest of the run that every worker must have loaded.
        """


class Here(Engine):
    """One worker, in this process."""

    @cached_property
    def _worker(self) -> Worker:
        return worker_of(self.job)(self.job)

    def identity(self) -> Identity:
        """Loads the model, and returns its identity."""
        return self._worker.identity()

    def parts(self, run: str) -> Iterator[Part]:
        """Makes the parts one after another."""
        for number in range(self.shards):
            yield self._worker.make(number, run)
