"""Explains a trained network's predictions: images in, saliency maps out."""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import data, training
from jaxatr.explain.inputs import check_at_least
from jaxatr.explain.measures.faithfulness import insertion_and_deletion
from jaxatr.explain.method import Maps, Method
from jaxatr.explain.methods import METHODS, find_method
from jaxatr.inference import stacked_batches
from jaxatr.kernels.compiled import Compiled
from jaxatr.resolve import trust_names_in
from jaxatr.training import Target, TrainedRun
from jaxatr.typing import ArrayLike, Float, PyTree, Shaped

MARKS_EVERYTHING = 0.75
"""Largest share of the chip that a map can mark and still be informative."""


class Explanation(NamedTuple):
    """The explanation of one image's prediction, with measures of its quality.

    Attributes:
      label: the predicted class, which is the one explained.
      score: its softmax probability.
      chip: ``[h, w, c]``, the network's input.
      saliency: ``[h, w]``, the map scaled to [0, 1].
      raw: ``[h, w]``, the map in the method's own unit, with its signs. A surrogate's map is the
        same in both.
      insertion: area under the image's insertion curve; higher is better.
      deletion: area under the image's deletion curve; lower is better.
      convention: the conventions of insertion and of deletion, as JSON values.
      picture: ``[h, w, d]``, what pictures show of the chip; None for the chip itself.
    """

    label: str
    score: float
    chip: Shaped[np.ndarray, "h w c"]
    saliency: Float[np.ndarray, "h w"]
    raw: Float[np.ndarray, "h w"]
    insertion: float
    deletion: float
    convention: Sequence[Mapping[str, Any]]
    picture: Shaped[np.ndarray, "h w d"] | None = None

    @property
    def marked(self) -> float:
        """Share of the chip where the map is at least half of its maximum."""
        return float(np.mean(self.saliency >= self.saliency.max() / 2))

    @property
    def note(self) -> str:
        """A warning if the map does not locate anything; otherwise empty."""
        if self.raw.min() == self.raw.max():
            return "the map is the same everywhere"
        if self.marked > MARKS_EVERYTHING:
            return f"marks {self.marked:.0%} of the chip, so it locates nothing"
        return ""


class Explainer:
    """A trained network with a method that explains its predictions.

    Attributes:
      method: name of the method.
      classes: names of the network's classes.
      chip: converts images to the network's input.
      source: where the network was loaded from (see :class:`jaxatr.training.Target`).
    """

    def __init__(
        self,
        target: Target,
        intake: data.Intake,
        method: Method,
        explain: Maps,
        probabilities: Compiled | None = None,
    ):
        """Creates an explainer.

        Args:
          target: the network.
          intake: converts images to the network's input.
          method: the method, for its name and its batching.
          explain: maps chips in their raw units to the method's maps (:meth:`Method.bind`).
          probabilities: the network's compiled class probabilities, to share them between several
            methods; None to compile them for this explainer.
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
        """Loads a run's network, at its latest checkpoint, and a method for it.

        Args:
          workdir: the folder of a classifier's run, or of a surrogate's, which explains its target
            network.
          method: a name in :data:`jaxatr.explain.methods.METHODS`, the import path
            ``"my.module:METHOD"`` of your own :class:`~jaxatr.explain.method.Method`, or, for a
            surrogate's run, ``"surrogate"``. The default is ``"surrogate"`` for a surrogate's run
            and ``"grad_cam"`` for others.
          seed: random seed, for methods that use one.
          progress: show a progress bar on standard error, at a terminal, for methods that evaluate
            masked copies.
          options: keyword arguments of the method's function; a surrogate has none.

        Raises:
          ValueError: the run, the method or an option does not exist; ``"surrogate"`` is requested
            for another kind of run; or the network that a surrogate explains has changed since the
            surrogate was trained.
        """
        trust_names_in(method)  # the user's own
        run = training.load_run(workdir)
        return cls.of_run(run, method, seed=seed, progress=progress, **options)

    @classmethod
    def of_run(cls, run: TrainedRun, method: str | None = None, **options: Any) -> "Explainer":
        """Takes a loaded run, at any checkpoint; arguments and errors are those of :meth:`load`."""
        if method == "all":
            raise ValueError("method: 'all' needs load_explainers, which returns several")
        (explainer,) = explainers_of(run, method, **options).values()
        return explainer

    def saliency(self, images: Float[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b h w"]:
        """Computes the saliency maps of chips in their raw units, each in [0, 1].

        Raises:
          ValueError: the method does not support such chips, or returns a map that is not finite.
        """
        return self._method.scaled(self._explain(images))

    def explained(self, images: Float[np.ndarray, "b h w c"]) -> list[str]:
        """Returns the explained class of each chip, which is the one that the network predicts."""
        scores = np.asarray(self._probabilities(images))
        return [self.classes[label] for label in scores.argmax(axis=-1)]

    def __call__(
        self, images: Iterable[np.ndarray], *, batch_size: int = 16, pixels_per_step: int = 0
    ) -> Iterator[Explanation]:
        """Yields an explanation for each image ``[h, w, c]``, in order.

        Args:
          images: any number of images.
          batch_size: number of images per batch.
          pixels_per_step: pixels changed per step of insertion and deletion; 0 for one row of the
            chip.

        Raises:
          ValueError: the network does not accept an image (:class:`jaxatr.data.Intake`), the
            method does not support it or returns a map that is not finite, or ``batch_size`` is
            below 1.
        """
        return self.explanations(
            map(self.chip, images), batch_size=batch_size, pixels_per_step=pixels_per_step
        )

    def explanations(
        self, chips: Iterable[np.ndarray], *, batch_size: int = 16, pixels_per_step: int = 0
    ) -> Iterator[Explanation]:
        """Yields an explanation for each of the network's chips; see :meth:`__call__`."""
        for stacked, count in stacked_batches(chips, batch_size):
            images = stacked[:count].astype(np.float32)
            raw = self._method.in_batches(self._explain, images, batch_size)
            maps = self._method.scaled(raw)
            inserted, deleted = insertion_and_deletion(
                self._predict, images, maps, pixels_per_step=pixels_per_step, batch_size=batch_size
            )
            convention = [dataclasses.asdict(one.convention) for one in (inserted, deleted)]
            for row in range(count):
                yield Explanation(
                    self.classes[deleted.targets[row]],
                    float(deleted.curve[row, 0]),  # of the whole image
                    stacked[row],
                    maps[row],
                    raw[row],
                    float(inserted.auc[row]),
                    float(deleted.auc[row]),
                    convention,
                    self.chip.shown(stacked[row]),
                )


def compiled_probabilities(target: Target) -> Compiled:
    """Compiles the class probabilities of chips in their raw units."""

    def probabilities(variables: PyTree, images: ArrayLike) -> jax.Array:
        return jax.nn.softmax(target.logits(variables, images))

    return Compiled(probabilities, target.variables)


def load_explainers(
    workdir: str | os.PathLike, method: str | None = None, **options: Any
) -> dict[str, Explainer]:
    """Loads a run's network, at its latest checkpoint, for :func:`explainers_of`."""
    trust_names_in(method)  # the user's own
    return explainers_of(training.load_run(workdir), method, **options)


def explainers_of(
    run: TrainedRun,
    method: str | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> dict[str, Explainer]:
    """Combines a run's network with one method or all of them.

    Args:
      run: the run of a classifier, or of a surrogate, which explains its target network.
      method: a method as in :meth:`Explainer.load`, or ``"all"`` for every method of the package
        and the run's surrogate.
      seed: random seed, for methods that use one.
      progress: show a progress bar on standard error, at a terminal, for methods that evaluate
        masked copies.
      options: keyword arguments of the method's function; none with ``"all"``.

    Returns:
      The explainers, by name of the method.

    Raises:
      ValueError: as for :meth:`Explainer.load`.
    """
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
        raise ValueError("method: 'surrogate' needs a run of configs/distill.py")
    if method == "all":
        chosen = [*own.values(), *METHODS.values()]
    else:
        chosen = [find_method(method or ("surrogate" if own else "grad_cam"), own)]
    predict = jax.tree_util.Partial(target.logits, target.variables)
    explainers, probabilities = {}, compiled_probabilities(target)
    for one in chosen:
        explain = one.bind(predict, run.mean, seed=seed, progress=progress, **options)
        explainers[one.name] = Explainer(target, run.intake, one, explain, probabilities)
    return explainers


def explain_all(
    explainers: Mapping[str, Explainer], chips: Iterable[np.ndarray], *, batch_size: int = 16
) -> Iterator[dict[str, Explanation]]:
    """Yields the explanations of each chip by every method, in order.

    Args:
      explainers: explainers of one network, by method.
      chips: any number of the network's chips (:attr:`Explainer.chip` makes them of images).
      batch_size: number of chips per batch.

    Raises:
      ValueError: as for :meth:`Explainer.__call__`.
    """
    check_at_least(1, batch_size=batch_size)
    chips = map(np.array, chips)  # copies, since all may be read into one buffer
    while batch := list(itertools.islice(chips, batch_size)):
        rows = [list(one.explanations(batch, batch_size=batch_size)) for one in explainers.values()]
        for row in zip(*rows, strict=True):
            yield dict(zip(explainers, row, strict=True))
