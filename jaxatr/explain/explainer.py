"""A trained network and a method that explains it: images in, saliency maps out."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import data, training
from jaxatr.explain.measures.judge import judge
from jaxatr.explain.method import Maps, Method
from jaxatr.explain.methods import METHODS, find_method
from jaxatr.inference import Compiled
from jaxatr.training import Checkpoint, Target
from jaxatr.typing import ArrayLike, Float, PyTree, Shaped

MARKS_EVERYTHING = 0.75
"""Share of a chip from which a map that marks it says nothing of where."""


class Explanation(NamedTuple):
    """The pixels that speak for the prediction of one image, and measures of that map.

    Attributes:
      label: the class that the network predicts, which is the one that is explained.
      score: its softmax probability.
      chip: ``[h, w, c]``, the image as the network saw it.
      saliency: ``[h, w]`` in [0, 1].
      raw: ``[h, w]``, the map in the method's own unit, with its signs; of a surrogate the same.
      insertion: area under the insertion curve of this image; high is good.
      deletion: area under the deletion curve; low is good.
      convention: of insertion and of deletion, as JSON values.
    """

    label: str
    score: float
    chip: Shaped[np.ndarray, "h w c"]
    saliency: Float[np.ndarray, "h w"]
    raw: Float[np.ndarray, "h w"]
    insertion: float
    deletion: float
    convention: Sequence[Mapping[str, Any]]

    @property
    def marked(self) -> float:
        """Share of the chip where the map is at least half of its greatest value."""
        return float(np.mean(self.saliency >= self.saliency.max() / 2))

    @property
    def note(self) -> str:
        """Says that the map does not tell where; empty where it does."""
        if self.raw.min() == self.raw.max():
            return "the map is the same everywhere"
        if self.marked > MARKS_EVERYTHING:
            return f"marks {self.marked:.0%} of the chip, so it does not tell where"
        return ""


class Explainer:
    """A trained network, and a method that explains it.

    Attributes:
      method: its name.
      classes: names of the classes that the network knows.
      chip: from an image to the chip that the network sees.
      source: where the network comes from, as :class:`jaxatr.training.Target` has it.
    """

    def __init__(
        self,
        target: Target,
        intake: data.Intake,
        method: Method,
        explain: Maps,
        probabilities: Compiled | None = None,
    ):
        """Joins a network and a method.

        Args:
          target: the network.
          intake: the images that it takes.
          method: the method, for its name and its batches.
          explain: from chips in their raw units to the method's maps (:meth:`Method.bind`).
          probabilities: the network's, compiled once for several methods; None: for this one.
        """
        self.method, self.classes, self.chip = method.name, target.classes, intake
        self.source = target.source
        self._method, self._explain = method, explain
        self._predict = jax.tree_util.Partial(target.logits, target.variables)
        self._probabilities = probabilities or compiled_probabilities(target)

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        method: str | None = None,
        *,
        seed: int = 0,
        progress: bool = False,
        **options: Any,
    ) -> "Explainer":
        """Loads a run's network, at its newest checkpoint, and a method for it.

        Args:
          workdir: the folder of a classifier's run, or of a surrogate's, which explains its target.
          method: ``"surrogate"`` of a surrogate's run, a name in
            :data:`jaxatr.explain.methods.METHODS`, or ``"my.module:METHOD"`` of a
            :class:`~jaxatr.explain.method.Method` of your own. By default ``"surrogate"`` of a
            surrogate's run and ``"grad_cam"`` of another.
          seed: of the methods that draw.
          progress: show a bar on standard error, at a terminal, of those that try masked copies.
          options: of the method's function; a surrogate has none.

        Raises:
          ValueError: no run, no such method or option, a surrogate is asked of another run, or the
            network that a surrogate explains is no longer the one that it was trained for.
        """
        if method == "all":
            raise ValueError("method: 'all' is several explainers, which load_explainers gives")
        (found,) = load_explainers(
            workdir, method, seed=seed, progress=progress, **options
        ).values()
        return found

    def saliency(self, images: Float[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b h w"]:
        """Makes the saliency maps of chips in their raw units, each in [0, 1].

        Raises:
          ValueError: the method cannot be used on such chips.
        """
        return self._method.scaled(self._explain(images))

    def explained(self, images: Float[np.ndarray, "b h w c"]) -> list[str]:
        """Names the class that is explained of each chip: the one that the network predicts."""
        scores = np.asarray(self._probabilities(images))
        return [self.classes[label] for label in scores.argmax(axis=-1)]

    def __call__(
        self, images: Iterable[np.ndarray], *, batch_size: int = 16, pixels_per_step: int = 0
    ) -> Iterator[Explanation]:
        """Yields an explanation for each image ``[h, w, c]``, in order.

        Args:
          images: any number of them.
          batch_size: images at a time.
          pixels_per_step: of insertion and deletion; 0 for one row of the chip.

        Raises:
          ValueError: the network does not take such an image (:class:`jaxatr.data.Intake`), or the
            method cannot be used on it.
        """
        for chips, count in self.chip.batches(images, batch_size):
            filled = chips.astype(np.float32)
            images, scores = filled[:count], np.asarray(self._probabilities(filled))
            raw = self._method.in_batches(self._explain, images, batch_size)
            maps = self._method.scaled(raw)
            values, convention = judge(
                self._predict, images, maps, pixels_per_step=pixels_per_step, batch_size=batch_size
            )
            for row in range(count):
                label = int(scores[row].argmax())
                yield Explanation(
                    self.classes[label],
                    float(scores[row, label]),
                    chips[row],
                    maps[row],
                    raw[row],
                    float(values["insertion"][row]),
                    float(values["deletion"][row]),
                    convention,
                )


def compiled_probabilities(target: Target) -> Compiled:
    """Compiles the probabilities of the classes, of chips in their raw units."""

    def probabilities(variables: PyTree, images: ArrayLike) -> jax.Array:
        return jax.nn.softmax(target.logits(variables, images))

    return Compiled(probabilities, target.variables)


def load_explainers(
    workdir: str | os.PathLike,
    method: str | None = None,
    *,
    checkpoint: Checkpoint = "latest",
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> dict[str, Explainer]:
    """Loads a run's network once, and one method for it or all: name to explainer.

    Args:
      workdir: as :meth:`Explainer.load` has it.
      method: likewise; ``"all"`` for every method of the package, and the run's surrogate.
      checkpoint: ``"latest"``, ``"best"`` or a step.
      seed: of the methods that draw.
      progress: show a bar on standard error, at a terminal, of those that try masked copies.
      options: of the method's function; none with ``"all"``.

    Raises:
      ValueError: as :meth:`Explainer.load`.
    """
    run = training.load_run(workdir, checkpoint)
    surrogate, own = run.task.surrogate(run), {}
    target = run.task.classifier(run) if surrogate is None else surrogate.target
    target = target._replace(variables=jax.device_put(target.variables))  # once, for every call
    if surrogate is not None:
        maps = surrogate.saliency
        own["surrogate"] = Method(
            "surrogate",
            "surrogate",
            lambda predict, images: maps(images),
            in_unit_interval=True,
        )
    elif method == "surrogate":
        raise ValueError("method: a surrogate takes the run of configs/distill.py")
    if method == "all":
        chosen = [*own.values(), *METHODS.values()]
    else:
        chosen = [find_method(method or ("surrogate" if own else "grad_cam"), own | METHODS)]
    predict = jax.tree_util.Partial(target.logits, target.variables)
    found, probabilities = {}, compiled_probabilities(target)
    for one in chosen:
        explain = one.bind(predict, run.mean, seed=seed, progress=progress, **options)
        found[one.name] = Explainer(target, run.intake, one, explain, probabilities)
    return found


def explain_all(
    explainers: Mapping[str, Explainer], images: Iterable[np.ndarray], *, batch_size: int = 16
) -> Iterator[dict[str, Explanation]]:
    """Yields the explanations of each image by every method, in order.

    Args:
      explainers: of one network, by method.
      images: any number of them.
      batch_size: images at a time.

    Raises:
      ValueError: as :meth:`Explainer.__call__`.
    """
    images = iter(images)
    while batch := list(itertools.islice(images, batch_size)):
        rows = [list(one(batch, batch_size=batch_size)) for one in explainers.values()]
        for row in zip(*rows, strict=True):
            yield dict(zip(explainers, row, strict=True))
