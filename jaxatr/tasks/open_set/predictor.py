"""A trained open-set recogniser: images, or tracks, in, known class or "unknown" out."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import scipy.special

from jaxatr import data, models, openset, training
from jaxatr.tasks.open_set.task import infer
from jaxatr.typing import Config, PyTree

UNKNOWN = "unknown"


class Prediction(NamedTuple):
    """What the recogniser says of one image.

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


class Recogniser:
    """A trained network with everything that turns an image into a decision.

    Attributes:
      classes: names of the known classes.
      gamma: γ of section 2.3.
      chip: from an image to the chip that the network sees.
    """

    of_tracks = False

    def __init__(
        self,
        module: Any,
        variables: PyTree,
        *,
        classes: Sequence[str],
        chip: data.Chip,
        image_shape: tuple[int, int, int],
        image_dtype: str,
        mean: np.ndarray,
        std: np.ndarray,
        gamma: float,
    ):
        """Takes the network and what :meth:`load` reads from a run."""
        self.classes, self.gamma = tuple(classes), gamma
        self.chip = data.Intake(chip, image_shape, image_dtype)
        self._variables = jax.device_put(variables)
        self._infer = jax.jit(partial(infer, module, mean=mean, std=std))

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        *,
        checkpoint: Literal["best", "latest"] | int = "latest",
        gamma: float | str | None = None,
    ) -> "Recogniser":
        """Returns the recogniser that a run trained.

        Args:
          workdir: the run's folder.
          checkpoint: ``"latest"``, ``"best"`` or a step.
          gamma: γ; ``None`` for the configured one, ``"fitted"`` for the one that the run's
            evaluation fitted on validation data.

        Raises:
          ValueError: no run, no such checkpoint, no fitted γ, or a run without binary classifiers.
        """
        config, record = training.load_config(workdir), training.read_record(workdir)
        if cls.of_tracks != (tracks := training.takes_tracks(config, record)):
            what = "tracks" if tracks else "single images"
            raise ValueError(f"{workdir} is a run on {what}: jaxatr.load gives its recogniser")
        if "coarse" in record:
            raise ValueError(f"{workdir} is the run of an embedding: jaxatr.load loads it")
        if "target" in record:
            raise ValueError(f"{workdir} is the run of a surrogate: jaxatr.Explainer loads it")
        if config.loss.open == "none":
            raise ValueError(f"{workdir} is a plain classifier (loss.open=none): it has no γ")
        fitted = gamma == "fitted"
        if fitted and record.get("fitted_gamma") is None:
            raise ValueError(f"{workdir} has no fitted γ: evaluate it, with a validation part")
        gamma = record["fitted_gamma"] if fitted else gamma
        snapshot = training.load_snapshot(workdir, checkpoint)
        if fitted and record["fitted_gamma_step"] != snapshot.step:
            raise ValueError(
                f"{workdir}: γ was fitted on the checkpoint of step {record['fitted_gamma_step']}, "
                f"not of step {snapshot.step}: evaluate it with --checkpoint={checkpoint}"
            )
        classes, intake = record["split"]["known"], data.Intake.of_run(config, record)
        return cls(
            cls._network(config, len(classes)),
            training.variables_of(snapshot),
            classes=classes,
            chip=intake.chip,
            image_shape=intake.shape,
            image_dtype=intake.dtype,
            mean=np.asarray(record["normalization"]["mean"]),
            std=np.asarray(record["normalization"]["std"]),
            gamma=config.open_set.gamma if gamma is None else float(gamma),
            **cls._further(config),
        )

    @staticmethod
    def _network(config: Config, num_classes: int) -> Any:
        return models.build_open_set(config.model, num_classes)

    @staticmethod
    def _further(config: Config) -> dict[str, Any]:
        del config
        return {}

    def __call__(
        self, images: Iterable[np.ndarray], *, batch_size: int = 32
    ) -> Iterator[Prediction]:
        """Yields a prediction for each image ``[h, w, c]`` (uint8, uint16 or float32), in order.

        Raises:
          ValueError: as :class:`jaxatr.data.Intake` raises of an image.
        """
        for chips, count in self.chip.batches(images, batch_size):
            yield from self._predictions(self._infer(self._variables, chips), count)

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
