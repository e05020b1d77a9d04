"""The data, search and test of all tasks that find targets in scenes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.config import Fields
from jaxatr.data.scene_image import scene_of
from jaxatr.models.detector import MULTIPLE
from jaxatr.reporting.scene_picture import closeup
from jaxatr.scenes import boxes as geometry
from jaxatr.tasks.detection import evaluation
from jaxatr.tasks.detection.assignment import UNKNOWN
from jaxatr.tasks.detection.decoding import Decoded, Found, Tiling, found_in
from jaxatr.tasks.detection.examples import SceneExamples
from jaxatr.tasks.detection.fields import FIELDS
from jaxatr.tasks.detection.matching import FALSE_ALARM
from jaxatr.training import Task
from jaxatr.typing import Batch, Config, PyTree

PICTURES = 24
"""The most pictures of misses, and of false alarms, in a report."""
MISSED, ALARM = "#56B4E9", "#D55E00"


class SceneTask(Task):
    """A base class of detectors; subclasses search a batch of tiles.

    Attributes:
      examples: the data.
      split: the split of its classes into known and unknown ones.
      least: the least score of found targets that are measured.
    """

    report = "jaxatr.tasks.detection.report:REPORT"
    evaluation_form = evaluation.FORM
    usage = "detect --workdir={workdir} --out=targets.csv SCENE..."
    best = "recall"
    least = evaluation.LEAST

    config: Config
    examples: SceneExamples
    split: data.KnownUnknown

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields."""
        return FIELDS

    @property
    def tiling(self) -> Tiling:
        """How scenes are cut into tiles."""
        fields = self.config.detection
        return Tiling(fields.tile, fields.tile_overlap, self.examples.fill)

    def prepared(self, image: np.ndarray) -> np.ndarray:
        """Converts a scene of the data ``[h, w, c]`` to one that is cut into tiles."""
        return image

    def search(
        self, variables: PyTree, batches: Iterable[Batch]
    ) -> Iterator[tuple[Batch, Decoded]]:
        """Yields what is found in batches of tiles, ``image`` ``[b, h, w, c]``."""
        raise NotImplementedError

    def found(self, variables: PyTree, part: str) -> list[Found]:
        """Finds the targets in every scene of a part, in the tiles of a detector's ``detect``.

        The network's norms see all of a tile, so that scores depend on how far it is padded.

        Args:
          variables: parameters and batch statistics, on one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
        """
        scenes, tiling = self.examples.parts[part], self.tiling
        infer: Callable = lambda batches: self.search(variables, batches)  # noqa: E731
        return list(
            found_in(
                (self.prepared(scenes.image(number)) for number in range(len(scenes))),
                tiling,
                infer,
                batch_size=max(1, self.config.train.batch_size // 4),
                overlap=self.config.detection.overlap,
                least=self.least,
            )
        )

    def test(
        self, variables: PyTree, *, workdir: Path | None = None, step: int | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures detection on the test scenes.

        Args:
          variables: parameters and batch statistics, on one device.
          workdir: the run's folder, from which the fitted thresholds are read.
          step: step of the checkpoint.

        Returns:
          ``(measured, arrays)``; see :func:`jaxatr.tasks.detection.evaluation.measured`.
        """
        del step
        return evaluation.measured(self, self.found(variables, "test"), workdir)

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns pictures of the largest missed targets and of the most certain false alarms.

        The id of a missed target is its row among the true boxes, that of a false alarm -1 - its
        row among the found ones.
        """
        threshold = measured["decision"]["threshold"]
        scores, truth = arrays["found_scores"], arrays["found_truth"]
        above = scores >= np.float32(threshold)
        missed = arrays["true_labels"] >= UNKNOWN
        missed[truth[above & (truth >= 0)]] = False
        areas = np.asarray(geometry.area(arrays["true_boxes"]))
        misses = np.flatnonzero(missed)
        misses = misses[np.argsort(-areas[misses], kind="stable")][:PICTURES]
        alarms = np.flatnonzero(above & (truth == FALSE_ALARM))
        alarms = alarms[np.argsort(-scores[alarms], kind="stable")][:PICTURES]
        part, classes = self.examples.parts["test"], self.examples.dataset.classes
        listed = [
            (row, "true", classes[arrays["true_class"][row]], MISSED) for row in misses.tolist()
        ]
        listed += [(row, "found", "false alarm", ALARM) for row in alarms.tolist()]
        images = []
        for row, kind, _, colour in listed:
            scene = scene_of(part.image(int(arrays[f"{kind}_scene"][row])))
            images.append(closeup(scene, arrays[f"{kind}_boxes"][row], colour))
        if not images:
            return {}
        ids = [row if kind == "true" else -1 - row for row, kind, *_ in listed]
        return {
            "id": np.array(ids, np.int32),
            "class": np.array([name for _, _, name, _ in listed]),
            "image": np.stack(images),
        }


def tile_limits(config: Config) -> dict[str, tuple[bool, str]]:
    """Returns the limits of the fields about tiles, for ``check_limits``."""
    fields = config.detection
    return {
        "detection.most": (fields.most >= 1, "at least 1"),
        "detection.overlap": (0 <= fields.overlap <= 1, "an IoU in [0, 1]"),
        "detection.tile": (
            fields.tile >= MULTIPLE and not fields.tile % MULTIPLE,
            f"a multiple of {MULTIPLE}",
        ),
        "detection.tile_overlap": (
            0 <= fields.tile_overlap < fields.tile,
            "0 or more, and less than detection.tile",
        ),
    }
