"""A predictor that finds the training chips most similar to an image."""

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import data, openset, training
from jaxatr.inference import stacked_batches
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.sessions import OWN, check_runtime
from jaxatr.reporting import notebook
from jaxatr.reporting.recorded_run import read_arrays
from jaxatr.tasks.display import NotebookPredictor
from jaxatr.tasks.embedding.evaluation import SCORE
from jaxatr.tasks.neighbour import Neighbour, blank, describe, listed
from jaxatr.tasks.runtime import Infer, engine_note, forms_of, ready_network
from jaxatr.training import TrainedRun
from jaxatr.training.predictor import flattened, types_of
from jaxatr.typing import ArrayLike, Float, Int, PyTree, Shaped

UNKNOWN = "unknown"


class Match(NamedTuple):
    """A retriever's prediction for one image.

    Attributes:
      label: class of the nearest training chip, or :data:`UNKNOWN` if it is too far away, or if the
        network overflows on the image.
      distance: distance to the nearest training chip.
      max_distance: distance beyond which an image is unknown; None for no limit.
      neighbours: the nearest training chips, nearest first.
    """

    label: str
    distance: float
    max_distance: float | None
    neighbours: tuple[Neighbour, ...]

    def card(self) -> notebook.Card:
        """Describes the match for a notebook: verdict, distance and the nearest training chips."""
        accepted, first = self.label != UNKNOWN, self.neighbours[0]
        verdict = self.label if accepted else f"{UNKNOWN}, nearest to {first.label}"
        limit = "" if self.max_distance is None else f", unknown beyond {self.max_distance:.4g}"
        near = self.neighbours[: notebook.MOST]
        bars = [notebook.Bar(one.label, f"{one.distance:.4f}  {one.name}") for one in near]
        more = len(self.neighbours) - len(near)
        rest = f"{more} more neighbours" if more else ""
        facts = [f"distance {self.distance:.4g}{limit}"]
        return notebook.Card(verdict, accepted, facts, bars, rest)

    def _repr_html_(self) -> str:
        return notebook.render_cards([self.card()])


class Index(NamedTuple):
    """The search index of training chips.

    Attributes:
      embeddings: ``[n, d]``.
      labels: ``[n]``, indices of classes.
      ids: ``[n]``, ids in the data set.
      paths: ``[n]``, paths of the files, or None.
    """

    embeddings: Float[np.ndarray, "n d"]
    labels: Int[np.ndarray, " n"]
    ids: Int[np.ndarray, " n"]
    paths: Shaped[np.ndarray, " n"] | None


class Retriever(NotebookPredictor[np.ndarray, Match]):
    """A trained embedding that finds the training chips most similar to an image.

    Attributes:
      classes: names of the trained classes.
      chip: converts an image to the network's chip.
      index: the training chips.
      neighbours: number of training chips to return for an image.
      max_distance: distance beyond which an image is unknown, or None.
    """

    def __init__(
        self,
        run: TrainedRun,
        index: Index,
        *,
        neighbours: int,
        max_distance: float | None,
        runtime: str = "jax",
    ):
        self.workdir = run.workdir
        self.classes, self.chip, self.index = run.classes, run.intake, index
        self.neighbours, self.max_distance = neighbours, max_distance
        self.runtime, own = runtime, runtime in OWN
        self._variables = jax.device_put(run.variables) if own else run.variables
        example = np.zeros((1, *self.chip.shape), self.chip.dtype)
        run = run._replace(variables=self._variables)
        self._network = functools.partial(
            ready_network, run, _network, self._variables, [example], runtime=runtime
        )
        self.note = engine_note(self._infer)

    @functools.cached_property
    def _infer(self) -> Callable[..., Mapping[str, ArrayLike]]:
        return self._network()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the compiled network, which a copy compiles anew, also in another process."""
        return {name: value for name, value in vars(self).items() if name != "_infer"}

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        *,
        neighbours: int = 1,
        max_distance: float | None = None,
        runtime: str = "jax",
    ) -> "Retriever":
        """Loads the retriever of a run, at the checkpoint that was evaluated last.

        Args:
          workdir: the run's folder.
          neighbours: number of training chips to return for an image.
          max_distance: distance beyond which an image is unknown; by default the one that the
            evaluation fitted to the validation data, if there was any.
          runtime: engine that runs the network: ``"jax"``; ``"onednn"``, which is JAX with oneDNN's
            kernels for the batch sizes for which they are faster; ``"onnxruntime"`` or
            ``"openvino"``, which are extras. The search stays in JAX.

        Raises:
          ImportError: the package of ``runtime`` is not installed; the message names the extra.
          ValueError: ``workdir`` is not the folder of an embedding's run, the run has not been
            evaluated yet, or this jaxlib has no oneDNN for ``runtime``.
        """
        check_runtime(runtime)
        run, index = load_indexed(workdir)
        if max_distance is None:
            max_distance = fitted_distance(workdir)
        limits = {"neighbours": neighbours, "max_distance": max_distance}
        return cls(run, index, **limits, runtime=runtime)

    def __repr__(self) -> str:
        """Names the run, the classes and the chips."""
        shape = " × ".join(map(str, self.chip.shape))
        return (
            f"<Retriever {self.workdir}: nearest of {len(self.index.ids)} chips of "
            f"{', '.join(self.classes)}; chips {shape} of {self.chip.dtype}; {self.runtime}>"
        )

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return forms_of(self._infer)

    def read(self, path: str) -> np.ndarray:
        """Reads an image ``[h, w, c]``."""
        return self.bands.read(path)

    def prepare(self, item: np.ndarray) -> np.ndarray:
        """Converts an image to a chip, which has the shape and dtype of training."""
        return self.chip(item)

    def embed(
        self, images: Iterable[np.ndarray], *, batch_size: int = 32
    ) -> Iterator[Float[np.ndarray, "b d"]]:
        """Yields the embeddings of images ``[h, w, c]``, in order, one batch at a time.

        Raises:
          ValueError: an image's chip has another shape or dtype than in training.
        """
        for chips, count in stacked_batches(map(self.prepare, images), batch_size):
            yield self.of_chips(chips)[:count]

    def answers(
        self, chips: Iterable[np.ndarray], *, neighbours: int | None = None, batch_size: int = 32
    ) -> Iterator[Match]:
        """Yields the nearest training chips of each chip ``[h, w, c]``, in order.

        Args:
          chips: any number of chips.
          neighbours: number of training chips for each; by default :attr:`neighbours`.
          batch_size: chips per batch.

        Raises:
          ValueError: there are fewer than ``neighbours`` training chips.
        """
        for stacked, count in stacked_batches(chips, batch_size):
            yield from self.search(self.of_chips(stacked)[:count], neighbours)

    def of_chips(self, chips: Shaped[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b d"]:
        """Computes the embeddings of a batch of chips."""
        return np.asarray(self._infer(chips)["embeddings"])

    def search(
        self, embeddings: Float[np.ndarray, "b d"], neighbours: int | None = None
    ) -> Iterator[Match]:
        """Yields the nearest training chips of each embedding.

        Args:
          embeddings: from :meth:`embed` or :meth:`of_chips`.
          neighbours: number of training chips for each; by default :attr:`neighbours`.

        Raises:
          ValueError: there are fewer than ``neighbours`` training chips.
        """
        count = self.neighbours if neighbours is None else neighbours
        found = openset.nearest_neighbour.neighbours(self.index.embeddings, embeddings, count)
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
        limit = math.inf if self.max_distance is None else self.max_distance
        known = math.isfinite(first.distance) and first.distance <= limit
        label = first.label if known else UNKNOWN
        return Match(label, first.distance, self.max_distance, near)

    def describe(self, prediction: Match) -> str:
        """Formats the decision, its distance, and the nearest training chips."""
        limit = prediction.max_distance
        beyond = "" if limit is None else f", unknown beyond {limit:.4g}"
        near = describe(prediction.neighbours)
        return f"{prediction.label} (distance {prediction.distance:.4f}{beyond}) {near}"

    def to_json(self, prediction: Match) -> dict[str, Any]:
        """Converts a match to a dictionary of its fields, including those of its neighbours."""
        return {**prediction._asdict(), "neighbours": listed(prediction.neighbours)}

    def to_row(self, prediction: Match) -> dict[str, data.Cell]:
        """Converts a match to a row; ``neighbour_1_label`` is the class of the nearest chip."""
        fields = self.to_json(prediction)
        fields["neighbour"] = fields.pop("neighbours")
        return flattened(fields)

    def columns(self) -> dict[str, type]:
        """Returns the columns of a row, including those of every neighbour."""
        return types_of(self.to_row(Match("", 0.0, 0.0, blank(self.neighbours))))


def _network(run: TrainedRun) -> Infer:
    """Builds ``(variables, raw images) -> outputs``."""
    module = run.module

    def infer(variables: PyTree, images: ArrayLike) -> dict[str, jax.Array]:
        out = module.apply(variables, run.normalize(images), train=False)
        return {"embeddings": out.embeddings}

    return infer


def load_indexed(workdir: str | os.PathLike) -> tuple[TrainedRun, Index]:
    """Loads a run at the checkpoint that was evaluated last, and its index.

    Raises:
      ValueError: ``workdir`` is not the folder of an embedding's run, the run has not been
        evaluated yet, its index cannot be read, or the checkpoint that was evaluated is gone.
    """
    path = Path(workdir) / training.INDEX
    if not path.is_file():
        training.check_predictor(training.load_run(workdir), Retriever)
        raise ValueError(
            f"{workdir} has no {training.INDEX} to search: evaluate it first (jaxatr evaluate "
            f"--workdir={workdir})"
        )
    arrays = read_arrays(path)
    if (step := int(arrays["index_step"])) not in (steps := training.saved_steps(workdir)):
        raise ValueError(
            f"{workdir}: {training.INDEX} is of step {step}, but the checkpoints are of {steps}: "
            f"evaluate it again (jaxatr evaluate --workdir={workdir})"
        )
    run = training.load_run(workdir, step)
    training.check_predictor(run, Retriever)
    index = Index(
        arrays["index_embeddings"],
        arrays["index_labels"],
        arrays["index_id"],
        arrays.get("index_path"),
    )
    return run, index


def fitted_distance(workdir: str | os.PathLike) -> float | None:
    """Returns the distance that the evaluation fitted to the validation data, or None."""
    scores = training.load_evaluation(workdir)["groups"]["all"]["scores"]
    threshold = scores[SCORE].get("fitted_threshold")
    return None if threshold is None else -threshold
