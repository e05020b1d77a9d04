"""A trained embedding and the chips it was trained on: images in, the most similar chips out."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxatr import data, models, openset, training
from jaxatr.tasks.embedding.task import infer
from jaxatr.typing import Float, Int, PyTree, Shaped

UNKNOWN = "unknown"


class Neighbour(NamedTuple):
    """A training chip that is near an image.

    Attributes:
      label: its class.
      distance: in the embedding.
      id: its number in the data set.
      path: of its file, where the data set has files.
    """

    label: str
    distance: float
    id: int
    path: str | None


class Match(NamedTuple):
    """What the retriever says of one image.

    Attributes:
      label: class of the nearest training chip, or :data:`UNKNOWN` where that is too far away.
      distance: to it.
      max_distance: beyond which an image is unknown; None: there is no such limit.
      neighbours: the nearest training chips, the nearest first.
    """

    label: str
    distance: float
    max_distance: float | None
    neighbours: tuple[Neighbour, ...]


class Index(NamedTuple):
    """What a search looks through.

    Attributes:
      embeddings: ``[n, d]``.
      labels: ``[n]``, classes by number.
      ids: ``[n]``, numbers in the data set.
      paths: ``[n]``, of the files, or None.
    """

    embeddings: Float[np.ndarray, "n d"]
    labels: Int[np.ndarray, " n"]
    ids: Int[np.ndarray, " n"]
    paths: Shaped[np.ndarray, " n"] | None


class Retriever:
    """A trained embedding with everything that turns an image into a search.

    Attributes:
      classes: names of the trained classes.
      chip: from an image to the chip that the network sees.
      index: the training chips.
      max_distance: beyond which an image is unknown, or None.
    """

    def __init__(
        self,
        module: models.EmbeddingNetwork,
        variables: PyTree,
        index: Index,
        *,
        classes: Sequence[str],
        chip: data.Intake,
        mean: np.ndarray,
        std: np.ndarray,
        max_distance: float | None,
    ):
        """Takes the network and what :meth:`load` reads from a run."""
        self.classes, self.chip, self.index = tuple(classes), chip, index
        self.max_distance = max_distance
        self._variables = jax.device_put(variables)
        self._infer = jax.jit(partial(infer, module, mean=mean, std=std))

    @classmethod
    def load(cls, workdir: str | os.PathLike, *, max_distance: float | None = None) -> "Retriever":
        """Returns the retriever that a run trained, at the checkpoint that was last evaluated.

        Args:
          workdir: the run's folder.
          max_distance: beyond which an image is unknown; by default the one that the evaluation
            fitted to the validation data, where there was some.

        Raises:
          ValueError: no run, or one without an index: no embedding, or not evaluated yet.
        """
        config, record = training.load_config(workdir), training.read_record(workdir)
        path = Path(workdir) / training.INDEX
        if not path.is_file():
            raise ValueError(
                f"{workdir} has no {training.INDEX} to search: it is no run of "
                "configs/quadruplet.py, or is not evaluated yet (python -m jaxatr.evaluate)"
            )
        with np.load(path) as file:
            arrays = dict(file)
        if max_distance is None:
            max_distance = _fitted_distance(workdir)
        step = int(arrays["index_step"])
        return cls(
            models.build_embedding(
                config.model,
                len(set(record["coarse"])),
                len(record["split"]["known"]),
                dimension=config.embedding.dimension,
                unit_length=config.embedding.unit_length,
            ),
            training.variables_of(training.load_snapshot(workdir, step)),
            Index(
                arrays["index_embeddings"],
                arrays["index_labels"],
                arrays["index_id"],
                arrays.get("index_path"),
            ),
            classes=record["split"]["known"],
            chip=data.Intake.of_run(config, record),
            mean=np.asarray(record["normalization"]["mean"]),
            std=np.asarray(record["normalization"]["std"]),
            max_distance=max_distance,
        )

    def embed(
        self, images: Iterable[np.ndarray], *, batch_size: int = 32
    ) -> Iterator[Float[np.ndarray, "b d"]]:
        """Yields the embeddings of images ``[h, w, c]``, in order, a batch at a time.

        Raises:
          ValueError: as :class:`jaxatr.data.Intake` raises of an image.
        """
        for chips, count in self.chip.batches(images, batch_size):
            yield np.asarray(self._infer(self._variables, chips))[:count]

    def __call__(
        self, images: Iterable[np.ndarray], *, neighbours: int = 1, batch_size: int = 32
    ) -> Iterator[Match]:
        """Yields what is nearest each image ``[h, w, c]`` (uint8, uint16 or float32), in order.

        Args:
          images: any number of them.
          neighbours: how many training chips to name for each.
          batch_size: images at a time.

        Raises:
          ValueError: as :meth:`embed`; or there are not as many training chips.
        """
        for embeddings in self.embed(images, batch_size=batch_size):
            found = openset.nearest_neighbour.neighbours(
                self.index.embeddings, embeddings, neighbours
            )
            for distances, rows in zip(*map(np.asarray, found), strict=True):
                yield self._match(distances, rows)

    def _match(self, distances: np.ndarray, rows: np.ndarray) -> Match:
        index = self.index
        near = tuple(
            Neighbour(
                label=self.classes[int(index.labels[row])],
                distance=float(distance),
                id=int(index.ids[row]),
                path=None if index.paths is None else str(index.paths[row]),
            )
            for distance, row in zip(distances, rows, strict=True)
        )
        first = near[0]
        known = self.max_distance is None or first.distance <= self.max_distance
        label = first.label if known else UNKNOWN
        return Match(label, first.distance, self.max_distance, near)


def is_embedding(workdir: str | os.PathLike) -> bool:
    """Returns whether a folder holds the run of an embedding."""
    return "coarse" in training.read_record(workdir)


def _fitted_distance(workdir: str | os.PathLike) -> float | None:
    scores = training.load_evaluation(workdir)["groups"]["all"]["scores"]
    threshold = scores["nearest"].get("fitted_threshold")
    return None if threshold is None else -threshold
