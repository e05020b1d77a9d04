"""Workers on a cluster of Ray: an actor for each device, a task for each shard.

Ray Data is not used. Its writers name files at random, and its checkpoints (Ray 2.60) load the ids
of all rows that are done into memory. Here a shard's file has the shard's number and is replaced
as a whole: what is done twice leaves one file.
"""

import collections
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

from jaxatr.batch.engine import Engine
from jaxatr.batch.parts import path_of
from jaxatr.batch.worker import Identity, Job, Part, Worker
from jaxatr.data.extras import extra

MOST_DEATHS = 3
"""Workers that may die of a shard before it is given up."""

_ACCELERATORS = ("GPU", "TPU")


class RayCluster(Engine):
    """Actors on the cluster that ``RAY_ADDRESS`` names, or on one of this machine without it."""

    def __init__(self, job: Job, shards: int, workers: int | None, say: Callable[[str], object]):
        """Takes the job; ``workers`` None stands for one on each accelerator, else each node.

        Raises:
          ImportError: the extra ``ray`` is not installed.
        """
        super().__init__(job, shards, workers, say)
        self._ray: Any = extra("ray", "ray", "--engine=ray")
        self._actors: list[Any] = []
        self._options: dict[str, Any] = {}
        self._number = 0

    def __enter__(self) -> "RayCluster":
        """Joins or starts the cluster, and starts the first worker."""
        address = os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = {} if address else {"include_dashboard": False}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            self._ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **own,
            )
            self._number = self._plan()
            self._actors.append(self._started())
        except BaseException:
            self._ray.shutdown()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the workers, and the cluster if it was started here."""
        self._ray.shutdown()

    def _plan(self) -> int:
        """Finds what a worker is given, and how many there are."""
        resources = self._ray.cluster_resources()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        kinds = () if os.environ.get("JAX_PLATFORMS") == "cpu" else _ACCELERATORS
        kind = next((kind for kind in kinds if resources.get(kind)), "CPU")
        there = int(resources[kind])
        wanted = self.workers or (there if kind != "CPU" else len(nodes))
        if wanted > there:
            raise ValueError(f"--workers: got {wanted}, and the cluster has {there} of {kind}")
        number = min(wanted, self.shards)
        if kind == "CPU":
            # A worker shares its node's cores with the others, or takes them all.
            each = max(1, there // max(number, len(nodes)))
            own = {"JAX_PLATFORMS": "cpu", "NPROC": str(each)}
            self._options = {"num_cpus": 1, "runtime_env": {"env_vars": own}}
        else:
            self._options = (
                {"num_cpus": 1, "num_gpus": 1}
                if kind == "GPU"
                else {"num_cpus": 1, "resources": {kind: 1}}
            )
        self._options["scheduling_strategy"] = "SPREAD"
        return number

    def _started(self) -> Any:
        return self._ray.remote(Worker).options(**self._options).remote(self.job)

    def identity(self) -> Identity:
        """Loads the model in the first worker, which fits and keeps what is not fitted yet."""
        for death in itertools.count(1):
            try:
                return self._answer(self._actors[0].identity.remote())
            except self._ray.exceptions.RayActorError as error:
                if death >= MOST_DEATHS:
                    raise RuntimeError(
                        f"a worker died {death} times as it loaded the model ({_line(error)})"
                    ) from error
                self.say("a worker died as it loaded the model; another one tries")
                self._actors[0] = self._started()
        raise AssertionError

    def _answer(self, asked: Any) -> Any:
        """Waits for a worker's answer, and raises its error as if it had been raised here."""
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def parts(self, run: str) -> Iterator[Part]:
        """Hands shards out; one whose worker dies is given to another worker."""
        self._actors += [self._started() for _ in range(self._number - len(self._actors))]
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
                        f"{path_of(self.job.out, number)}: {deaths[number]} workers died of it "
                        f"({_line(error)})"
                    ) from error
                self.say(f"a worker died at shard {number}; another one takes it")
                again.append(number)
                idle.append(self._started())
            else:
                idle.append(actor)
                yield part


def _line(error: Exception) -> str:
    """Returns the first line of an error's text that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
