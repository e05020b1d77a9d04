"""The network of a finished run, and its outputs for chips."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.recognition.enrolments import Chips
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import outputs_of, views_of
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, Config, Network, PyTree

_BATCH = 32


class Session(NamedTuple):
    """A run's network at a checkpoint.

    Attributes:
      workdir: the run's folder.
      step: step of the checkpoint.
      config: the run's configuration.
      known: the classes on which the run was trained.
      module: the network.
      normalize: normalises raw chips.
      variables: variables of the checkpoint, on one device.
    """

    workdir: Path
    step: int
    config: Config
    known: tuple[str, ...]
    module: Network
    normalize: Callable[[ArrayLike], jax.Array]
    variables: PyTree

    @classmethod
    def of_run(cls, run: TrainedRun) -> "Session":
        """Returns the network of a loaded run."""
        return cls(
            run.workdir, run.step, run.config, run.classes, run.module, run.normalize, run.variables
        )

    @classmethod
    def of_task(
        cls, task: OpenSet, variables: PyTree, workdir: Path, step: int, known: tuple[str, ...]
    ) -> "Session":
        """Returns the network of a task at a checkpoint."""
        return cls(
            workdir, step, task.config, known, task.module, task.examples.normalize, variables
        )

    def outputs(self, found: Chips, needs: Collection[str]) -> openset.Outputs:
        """Computes the network's outputs for chips.

        Args:
          found: the chips.
          needs: names of the inputs of scores to compute in addition to the logits.
        """
        views = views_of(self.config)

        @jax.jit
        def infer(variables: PyTree, images: ArrayLike) -> dict[str, jax.Array]:
            return outputs_of(self.module, variables, self.normalize(images), needs, views)

        rows: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(found.images), _BATCH):
            batch = found.images[start : start + _BATCH]
            padding = [(0, _BATCH - len(batch)), *[(0, 0)] * (batch.ndim - 1)]
            out = infer(self.variables, np.pad(batch, padding, mode="edge"))
            for name, values in {**out, "image": batch}.items():
                rows.setdefault(name, []).append(np.asarray(values)[: len(batch)])
        columns = {name: np.concatenate(parts) for name, parts in rows.items()}
        logits, open_logits = columns.pop("logits"), columns.pop("open_logits")
        return openset.Outputs(logits, open_logits, found.labels, columns)


def head(variables: PyTree, prefix: str = "") -> openset.Head:
    """Returns the closed-set classifier's last layer from a network's variables.

    A head of reciprocal points is converted to a linear layer. Its logits differ by the same
    constant for all classes of an example, the mean square of the features.

    Args:
      variables: variables of the network.
      prefix: prefix of the head's name.
    """
    layer = variables["params"][f"{prefix}closed_head"]
    if "points" in layer:
        points = layer["points"]
        kernel = -(1 + 2 / points.shape[-1]) * points.T
        return openset.Head(kernel, (points**2).mean(axis=-1))
    return openset.Head(layer["kernel"], layer.get("bias"))
