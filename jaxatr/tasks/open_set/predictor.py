"""A trained open-set recogniser: images in, known class or "unknown" out."""

import abc
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.special

from jaxatr import data, models, openset, training
from jaxatr.training import Checkpoint, Predictor, TrainedRun
from jaxatr.training.task import Item
from jaxatr.typing import ArrayLike, PyTree

UNKNOWN = "unknown"


class Prediction(NamedTuple):
    """A recogniser's answer to one image.

    Attributes:
      label: a known class, or :data:`UNKNOWN`.
      nearest: the known class that the closed-set classifier prefers, accepted or not.
      score: how known the image is; the logit of that class's binary classifier.
      known_probability: its sigmoid, which is compared with γ.
      gamma: the γ used.
      probabilities: known class to closed-set probability.
    """

    label: str
    nearest: str
    score: float
    known_probability: float
    gamma: float
    probabilities: dict[str, float]


class OpenSetPredictor(Predictor[Item, Prediction]):
    """A trained network with everything that turns an image, or a track, into a decision.

    Attributes:
      classes: names of the known classes.
      gamma: γ of section 2.3.
      chip: from an image to the chip that the network sees.
    """

    def __init__(self, run: TrainedRun, *, gamma: float):
        """Takes a run and its threshold; :meth:`load` reads both from a folder."""
        self.classes, self.gamma, self.chip = run.classes, gamma, run.intake
        self._variables = jax.device_put(run.variables)
        self._infer = jax.jit(self._network(run))

    @staticmethod
    @abc.abstractmethod
    def _network(run: TrainedRun) -> Callable[..., models.OpenSetOutput]:
        """Builds ``(variables, raw inputs) -> outputs``."""

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        *,
        checkpoint: Checkpoint = "latest",
        gamma: float | str | None = None,
    ) -> "OpenSetPredictor[Item]":
        """Loads the recogniser that a run trained.

        Args:
          workdir: the run's folder.
          checkpoint: ``"latest"``, ``"best"`` or a step.
          gamma: γ; ``None`` for the configured one, ``"fitted"`` for the one that the run's
            evaluation fitted on validation data.

        Raises:
          ValueError: no run of this kind, no such checkpoint, no fitted γ, or a run without binary
            classifiers.
        """
        run = training.load_run(workdir, checkpoint)
        training.check_predictor(run, cls)
        if run.config.loss.open == "none":
            raise ValueError(f"{workdir} is a plain classifier (loss.open=none): it has no γ")
        return cls(run, gamma=_threshold(run, gamma, checkpoint))

    def _predictions(self, out: models.OpenSetOutput, count: int) -> Iterator[Prediction]:
        out = jax.tree.map(np.asarray, out)
        decided = openset.decide(
            out.logits, out.open_logits, gamma=self.gamma, unknown=openset.UNKNOWN
        )
        scores = openset.cbc_score(out.logits, out.open_logits)
        probabilities = scipy.special.softmax(np.float64(out.logits), axis=-1)
        for index in range(count):
            row, score = probabilities[index], float(scores[index])
            label = int(decided[index])
            yield Prediction(
                label=UNKNOWN if label == openset.UNKNOWN else self.classes[label],
                nearest=self.classes[int(np.argmax(out.logits[index]))],
                score=score,
                known_probability=float(scipy.special.expit(score)),
                gamma=self.gamma,
                probabilities=dict(zip(self.classes, map(float, row), strict=True)),
            )

    def describe(self, prediction: Prediction) -> str:
        """Writes the decision, the score and the known classes' probabilities, highest first."""
        best = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
        classes = " ".join(f"{name}={value:.3f}" for name, value in best)
        return (
            f"{prediction.label} (known {prediction.known_probability:.4f}, score "
            f"{prediction.score:.2f}, γ {prediction.gamma:.6g}) {classes}"
        )

    def to_json(self, prediction: Prediction) -> dict[str, Any]:
        """Turns a prediction into its fields."""
        return prediction._asdict()


class Recogniser(OpenSetPredictor[np.ndarray]):
    """A recogniser of single images."""

    @staticmethod
    def _network(run: TrainedRun) -> Callable[..., models.OpenSetOutput]:
        module = run.module

        def infer(variables: PyTree, images: ArrayLike) -> models.OpenSetOutput:
            return module.apply(variables, run.normalize(images), train=False)

        return infer

    def read(self, path: str) -> np.ndarray:
        """Reads an image ``[h, w, c]``."""
        return data.read_image(path)

    def check(self, item: np.ndarray) -> object:
        """Checks that an image leads to a chip of the trained shape and type."""
        return self.chip(item)

    def __call__(
        self, items: Iterable[np.ndarray], *, batch_size: int = 32
    ) -> Iterator[Prediction]:
        """Yields a prediction for each image ``[h, w, c]`` (uint8, uint16 or float32), in order.

        Raises:
          ValueError: an image does not lead to a chip of the trained shape and type.
        """
        for chips, count in self.chip.batches(items, batch_size):
            yield from self._predictions(self._infer(self._variables, chips), count)


def _threshold(run: TrainedRun, gamma: float | str | None, checkpoint: Checkpoint) -> float:
    """Finds the γ that is asked for; a fitted one holds for the checkpoint it was fitted on."""
    if gamma is None:
        return run.config.open_set.gamma
    if gamma != "fitted":
        try:
            return float(gamma)
        except ValueError:
            raise ValueError(f"gamma: got {gamma!r}, wanted a probability or 'fitted'") from None
    if run.record.get("fitted_gamma") is None:
        raise ValueError(f"{run.workdir} has no fitted γ: evaluate it, with a validation part")
    if (step := run.record["fitted_gamma_step"]) != run.step:
        raise ValueError(
            f"{run.workdir}: γ was fitted on the checkpoint of step {step}, not of step "
            f"{run.step}: evaluate it with --checkpoint={checkpoint}"
        )
    return run.record["fitted_gamma"]
