"""The Ray engine: an actor for each device, a task for each shard.

Ray Data is not used: its writers name files randomly, and its checkpoints (Ray 2.60) load the ids
of all completed rows into memory. Here a part's name has the shard's number, and a part is replaced
atomically, so that a shard that is computed twice gives one file.
"""

import collections
import itertools
import os
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from jaxatr.batch.engine import Engine
from jaxatr.batch.parts import path_of
from jaxatr.batch.scenes import worker_of
from jaxatr.batch.worker import GalleryWorker, Identity, Part
from jaxatr.extras import extra

MOST_DEATHS = 3
"""Number of workers that may die on a shard before the batch fails."""

_ACCELERATORS = ("GPU", "TPU")


class RayCluster(Engine):
    """Runs workers as actors on the cluster at ``RAY_ADDRESS``, or on a local one if it is not set.

    By default there is one model on each accelerator, or without accelerators one on each node.
    """

    @staticmethod
    def check() -> Any:
        """Returns the module of Ray.

        Raises:
          ImportError: the extra ``ray`` is not installed.
        """
        return extra("ray", "ray", "--engine=ray")

    @cached_property
    def _ray(self) -> Any:
        return self.check()

    def __enter__(self) -> "RayCluster":
        """Joins or starts the cluster, and starts the first worker.

        Raises:
          ValueError: the cluster has too few devices.
        """
        address = _address()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry unless enabled
        local: dict[str, Any] = {} if address else {"include_dashboard": False}
        try:
            self._ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **local,
            )
            self._number, self._options = self._plan()
            self._pieces = [self._piece(number) for number in range(self.gallery_workers)]
            self._actors = [self._start()]
        except BaseException:
            self._ray.shutdown()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Stops the workers, and the cluster if it was started here."""
        self._ray.shutdown()

    def _plan(self) -> tuple[int, dict[str, Any]]:
        """Returns the number of models and the resource options of each worker."""
        resources = self._ray.cluster_resources()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        kinds = () if os.environ.get("JAX_PLATFORMS") == "cpu" else _ACCELERATORS
        kind = next((kind for kind in kinds if resources.get(kind)), "CPU")
        total = int(resources.get(kind, 0))
        free = total - self.gallery_workers
        wanted = self.workers or min(free, len(nodes) if kind == "CPU" else total)
        if not 1 <= wanted <= free:
            more = f" and {self.gallery_workers} for galleries" if self.gallery_workers else ""
            name = "--workers" if self.workers or not self.gallery_workers else "--gallery_workers"
            asked = max(wanted, 1)  # the fewest, if the galleries leave none
            raise ValueError(f"{name}: got {asked}{more}, but the cluster has {total} {kind}")
        number = min(wanted, self.shards)
        options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        variables: dict[str, str] = {}
        if _address() is None:  # workers on this machine can import the same modules
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if kind == "GPU":
            options["num_gpus"] = 1
        elif kind == "TPU":
            options["resources"] = {"TPU": 1}
        else:  # the workers of a node share its cores
            each = max(1, total // max(number + self.gallery_workers, len(nodes)))
            variables |= {"JAX_PLATFORMS": "cpu", "NPROC": str(each)}
        return number, options | {"runtime_env": {"env_vars": variables}}

    def _start(self) -> Any:
        ask = _Ask(self._pieces) if self._pieces else None
        worker = self._ray.remote(worker_of(self.job))
        return worker.options(**self._options).remote(self.job, ask)

    def _piece(self, number: int) -> Any:
        # A gallery worker has no state to lose: Ray restarts it and repeats the call.
        lasting = {"max_restarts": -1, "max_task_retries": -1}
        actor = self._ray.remote(GalleryWorker).options(**self._options, **lasting)
        return actor.remote(self.job, number, self.gallery_workers)

    def identity(self) -> Identity:
        """Loads the model in the first worker, which fits and saves the scores if necessary."""
        for death in itertools.count(1):
            try:
                return self._answer(self._actors[0].identity.remote())
            except self._ray.exceptions.RayActorError as error:
                if death >= MOST_DEATHS:
                    raise RuntimeError(
                        f"a worker died {death} times while loading the model ({_line(error)})"
                    ) from error
                self.say("a worker died while loading the model; starting another one")
                self._actors[0] = self._start()
        raise AssertionError

    def _answer(self, asked: Any) -> Any:
        """Waits for a worker's result; re-raises the original error of the worker."""
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from error

    def parts(self, run: str) -> Iterator[Part]:
        """Distributes the shards; if a worker dies, another one takes its shard."""
        self._actors += [self._start() for _ in range(self._number - len(self._actors))]
        todo: Iterator[int] = iter(range(self.shards))
        again: collections.deque[int] = collections.deque()
        deaths: collections.Counter[int] = collections.Counter()
        idle = list(self._actors)
        busy: dict[Any, tuple[Any, int]] = {}
        while True:
            while idle:
                number = again.popleft() if again else next(todo, None)
                if number is None:
                    break
                actor = idle.pop()
                busy[actor.make.remote(number, run)] = actor, number
            if not busy:
                return
            (done,), _ = self._ray.wait(list(busy), num_returns=1)
            actor, number = busy.pop(done)
            try:
                part = self._answer(done)
            except self._ray.exceptions.RayActorError as error:
                deaths[number] += 1
                if deaths[number] >= MOST_DEATHS:
                    raise RuntimeError(
                        f"{path_of(self.job.out, number)}: {deaths[number]} workers died while "
                        f"making it ({_line(error)})"
                    ) from error
                self.say(f"a worker died at shard {number}; another one takes it")
                again.append(number)
                idle.append(self._start())
            else:
                idle.append(actor)
                yield part


def _address() -> str | None:
    return os.environ.get("RAY_ADDRESS") or None


class _Ask:
    """Searches the pieces of a gallery on all gallery workers in parallel."""

    def __init__(self, pieces: list[Any]):
        self._pieces = pieces

    def __call__(
        self, name: str, queries: np.ndarray, classes: int, estimated: tuple[int, ...]
    ) -> list[np.ndarray]:
        import ray

        shared = ray.put(queries)  # stored once for all workers
        return ray.get([p.search.remote(name, shared, classes, estimated) for p in self._pieces])


def _line(error: Exception) -> str:
    """Returns the last line of an error's message, which has the cause."""
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]
