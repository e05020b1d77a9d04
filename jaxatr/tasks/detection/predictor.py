"""A predictor that finds targets in scenes of any size, and names each or calls it unknown."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, overload

import numpy as np

from jaxatr import data, training
from jaxatr.data.scene_image import SceneImage, open_scene, read_scene, scene_of
from jaxatr.onnx.sessions import check_runtime
from jaxatr.reporting import notebook
from jaxatr.tasks.detection.decoding import WHOLE, Decoded, Found, Strip, found_in
from jaxatr.tasks.detection.export import tiling_of
from jaxatr.tasks.detection.matching import nearest
from jaxatr.tasks.detection.recognised import (
    Decider,
    RecognisedTargets,
    place_of,
    recognised,
)
from jaxatr.tasks.detection.tile_network import TileNetwork
from jaxatr.training import Checkpoint, Predictor, TrainedRun
from jaxatr.training.predictor import One
from jaxatr.typing import Batch, Bool, Float, Shaped

UNKNOWN = "unknown"


class FoundTarget(NamedTuple):
    """A target in a scene.

    Attributes:
      box: x0, y0, x1, y1 in pixels of the scene, with continuous edges.
      score: probability of a target.
      label: its class, or :data:`UNKNOWN`.
      nearest: the class whose binary classifier has the highest probability; empty if the
        detector knows no classes.
      known_probability: that probability.
    """

    box: tuple[float, float, float, float]
    score: float
    label: str
    nearest: str
    known_probability: float


class Detections(NamedTuple):
    """The targets of a scene, by descending score.

    Attributes:
      boxes: ``[n, 4]``, x0, y0, x1, y1 in pixels of the scene, with continuous edges.
      scores: ``[n]``, probability of a target.
      labels: the class of each, or :data:`UNKNOWN`.
      probabilities: ``[n, k]``, of the binary classifiers.
      classes: names of the k known classes.
    """

    boxes: Float[np.ndarray, "n 4"]
    scores: Float[np.ndarray, " n"]
    labels: tuple[str, ...]
    probabilities: Float[np.ndarray, "n k"]
    classes: tuple[str, ...]

    def some(self, chosen: Bool[np.ndarray, " n"]) -> "Detections":
        """Returns some of the targets."""
        labels = tuple(np.array(self.labels, object)[chosen])
        return Detections(
            self.boxes[chosen],
            self.scores[chosen],
            labels,
            self.probabilities[chosen],
            self.classes,
        )

    @property
    def targets(self) -> list[FoundTarget]:
        """The targets, one by one."""
        best, most = nearest(self.probabilities), self.probabilities.max(axis=1, initial=0.0)
        return [
            FoundTarget(
                tuple(self.boxes[row].tolist()),
                float(self.scores[row]),
                self.labels[row],
                self.classes[best[row]] if best[row] >= 0 else "",
                float(most[row]),
            )
            for row in range(len(self.labels))
        ]

    def rows(self) -> list[dict[str, data.Cell]]:
        """Returns the rows of a table, one for each target.

        ``probability_CLASS`` is that of the class's binary classifier.
        """
        columns = [f"probability_{name}" for name in self.classes]
        return [
            place_of(one.box, one.score)
            | {"label": one.label, "nearest": one.nearest}
            | {"known_probability": one.known_probability}
            | dict(zip(columns, row, strict=True))
            for one, row in zip(self.targets, self.probabilities.tolist(), strict=True)
        ]

    def card(self) -> notebook.Card:
        """Describes the targets for a notebook."""
        targets = self.targets
        shown = targets[: notebook.MOST]
        bars = [notebook.Bar(one.label, f"{one.score:.3f}  {_place(one)}") for one in shown]
        more = len(targets) - len(shown)
        verdict = _count(len(targets))
        return notebook.Card(verdict, bool(targets), [], bars, f"{more} more" if more else "")

    def _repr_html_(self) -> str:
        return notebook.render_cards([self.card()])


class Detector(Predictor[np.ndarray, Detections]):
    """A trained detector.

    Attributes:
      classes: names of the known classes.
      threshold: the least score of a target.
      gamma: γ; below it, a target is unknown.
    """

    takes = "SCENE"

    def __init__(self, run: TrainedRun, *, threshold: float, gamma: float, runtime: str = "jax"):
        """Creates a detector from a run; :meth:`load` reads it from a folder."""
        self.workdir, self.classes = run.workdir, run.classes
        self.threshold, self.gamma, self.runtime = threshold, gamma, runtime
        self.dtype = np.dtype(run.record["image_dtype"])
        self.channels = int(run.record["channels"])
        self._tiling = tiling_of(run)
        self._overlap = run.config.detection.overlap
        self._identity = identity(run.record["normalization"], run.config.detection.most)
        self._network = TileNetwork(run, runtime)
        self._variables = self._network.variables  # the digest covers arrays of attributes only
        self.note = self._network.note

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        *,
        threshold: float | None = None,
        gamma: float | None = None,
        checkpoint: Checkpoint = "latest",
        runtime: str = "jax",
    ) -> "Detector":
        """Loads the detector of a run.

        Args:
          workdir: the run's folder.
          threshold: the least score of a target; by default the one fitted after the training.
          gamma: γ; by default the one fitted after the training.
          checkpoint: ``"latest"``, ``"best"`` (on the validation scenes) or a step.
          runtime: engine that runs the network in float32, one of
            :data:`jaxatr.onnx.sessions.RUNTIMES`; CFAR has no network.

        Raises:
          ImportError: the package of ``runtime`` is not installed; the message names the extra.
          ValueError: ``workdir`` is not the folder of a detector's run, its training is not
            finished and a threshold is not given, or the network does not run in ``runtime``.
        """
        check_runtime(runtime)
        run = training.load_run(workdir, checkpoint)
        if (kind := training.predictor_class(run.task)) is not cls and issubclass(kind, cls):
            return kind.load(
                workdir, threshold=threshold, gamma=gamma, checkpoint=checkpoint, runtime=runtime
            )
        training.check_predictor(run, cls)
        for name, value in (("threshold", threshold), ("gamma", gamma)):
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}: got {value}, wanted a probability in [0, 1]")
        fitted = run.record.get("detection", {})
        if not fitted and (threshold is None or gamma is None):
            raise ValueError(
                f"{workdir}: the training is not finished, so there is no least score yet: give "
                "threshold and gamma, or train it to its end"
            )
        return cls(
            run,
            threshold=fitted["threshold"] if threshold is None else threshold,
            gamma=fitted["gamma"] if gamma is None else gamma,
            runtime=runtime,
        )

    def __repr__(self) -> str:
        """Names the run, the classes and the thresholds."""
        return (
            f"<Detector {self.workdir}: {', '.join(self.classes)}; targets from "
            f"{self.threshold:.3g}, known from {self.gamma:.3g}>"
        )

    @overload
    def detect(self, image: One) -> Detections: ...

    @overload
    def detect(self, image: One, *, recogniser: Decider) -> RecognisedTargets: ...

    def detect(
        self, image: One, *, recogniser: Decider | None = None
    ) -> Detections | RecognisedTargets:
        """Finds the targets in a scene of any size.

        Of a large TIFF or ``.npy`` file, only the windows of a few tiles are in memory.

        Args:
          image: a path, a Pillow image, or an array ``[h, w]`` or ``[h, w, c]``.
          recogniser: decides about the class of each target, by its chip, which is cut out of the
            scene as those of the recogniser's training were; None for the detector's own binary
            classifiers.

        Raises:
          FileNotFoundError: there is no file at a path.
          ValueError: the image cannot be read, or does not have the dtype of the training scenes,
            or a chip is not one for the recogniser.
        """
        with opened(image) as scene:
            found = self.detect_in(scene)
            if recogniser is None:
                return found
            return recognised(scene, found.boxes, found.scores, recogniser)

    @property
    def tile(self) -> int:
        """Side in pixels of the tiles into which longer scenes are cut."""
        return self._tiling.side

    def detect_in(
        self,
        scene: SceneImage,
        *,
        batch_size: int = 4,
        least: float | None = None,
        strip: Strip = WHOLE,
    ) -> Detections:
        """Finds the targets in an open scene, which is read tile by tile.

        Args:
          scene: the scene.
          batch_size: tiles per batch.
          least: see :meth:`answers`.
          strip: the strip of the scene that is searched.

        Raises:
          ValueError: the scene is damaged, or does not have the dtype of the training scenes.
        """

        def pixels(rows: slice, columns: slice) -> np.ndarray:
            part = scene.pixels(rows, columns)
            try:
                return self.prepare(part)
            except ValueError as error:
                raise ValueError(f"{scene.name}: {error}") from error

        tiles = self._tiling.windows(scene.height, scene.width)
        if not self._tiling.strip(tiles, strip)[0]:
            none = np.zeros((0, 4), np.float32)
            return self.named(none, none[:, 0], np.zeros((0, len(self.classes))))
        return next(
            self.answers(
                [scene._replace(pixels=pixels)],
                batch_size=batch_size,
                least=least,
                strip=strip,
            )
        )

    def read(self, path: str) -> np.ndarray:
        """Reads a scene ``[h, w, c]``."""
        return read_scene(path)

    def prepare(self, item: np.ndarray) -> np.ndarray:
        """Converts a scene's channels to those of training, and checks its dtype."""
        if item.dtype != self.dtype:
            raise ValueError(
                f"got an image of {item.dtype}, wanted {self.dtype} like the training scenes"
            )
        wanted = self.channels if self.channels in (1, 3) else None
        scene = data.Chip(channels=wanted)(item)
        if scene.shape[2] != self.channels:
            raise ValueError(f"got {scene.shape[2]} channels, wanted {self.channels}")
        return scene

    def answers(
        self,
        chips: Iterable[np.ndarray | SceneImage],
        *,
        batch_size: int = 4,
        least: float | None = None,
        strip: Strip = WHOLE,
    ) -> Iterator[Detections]:
        """Yields the targets of each scene, in order.

        Args:
          chips: any number of scenes ``[h, w, c]``, or open ones whose pixels are those of
            :meth:`prepare`.
          batch_size: tiles per batch.
          least: the least score of a target; None for :attr:`threshold`.
          strip: the strip of each scene that is searched.
        """

        def infer(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Decoded]]:
            for batch in batches:
                yield batch, self.decoded(batch["image"])

        for found in found_in(
            chips,
            self._tiling,
            infer,
            batch_size=batch_size,
            overlap=self._overlap,
            least=self.threshold if least is None else least,
            strip=strip,
        ):
            yield self._decided(found)

    def decoded(self, tiles: Shaped[np.ndarray, "b h w c"]) -> Decoded:
        """Finds the targets of a batch of tiles, whose sides are multiples of 32 pixels."""
        return self._network(tiles)

    def _decided(self, found: Found) -> Detections:
        probabilities = 1 / (1 + np.exp(-found.open_logits.astype(np.float64)))
        return self.named(found.boxes, found.scores, probabilities)

    def named(
        self,
        boxes: Float[np.ndarray, "n 4"],
        scores: Float[np.ndarray, " n"],
        probabilities: Float[np.ndarray, "n k"],
    ) -> Detections:
        """Decides about targets by the probabilities of the binary classifiers."""
        known = probabilities.max(axis=1, initial=0.0) >= self.gamma
        labels = tuple(
            self.classes[one] if accepted and one >= 0 else UNKNOWN
            for one, accepted in zip(nearest(probabilities), known, strict=True)
        )
        return Detections(boxes, scores, labels, probabilities, self.classes)

    def verdict(self, prediction: Detections) -> str:
        """Returns the number of targets."""
        return _count(len(prediction.labels))

    def describe(self, prediction: Detections) -> str:
        """Formats the targets as one line."""
        listed = [f"{one.label} {one.score:.3f} at {_place(one)}" for one in prediction.targets]
        return "; ".join([_count(len(listed)), *listed])

    def to_json(self, prediction: Detections) -> dict[str, Any]:
        """Converts the targets to dictionaries of their fields."""
        targets: list[Mapping[str, Any]] = [one._asdict() for one in prediction.targets]
        return {"targets": targets}

    def to_row(self, prediction: Detections) -> dict[str, data.Cell]:
        """Converts the targets to a row with their number; :meth:`Detections.rows` lists them."""
        return {"targets": len(prediction.labels)}

    def columns(self) -> dict[str, type]:
        """Returns the column of a row."""
        return {"targets": int}


def identity(*facts: Any) -> Shaped[np.ndarray, " n"]:
    """Returns facts that are not among a detector's arrays as one, for its digest."""
    return np.frombuffer(json.dumps(facts, sort_keys=True).encode(), np.uint8)


@contextmanager
def opened(image: One) -> Iterator[SceneImage]:
    """Opens an image of any kind as a scene."""
    if isinstance(image, str | os.PathLike):
        with open_scene(image) as scene:
            yield scene
    else:
        yield scene_of(data.as_image(image, "input"), "input")


def _place(target: FoundTarget) -> str:
    return ",".join(f"{value:.0f}" for value in target.box)


def _count(number: int) -> str:
    return "1 target" if number == 1 else f"{number or 'no'} targets"
