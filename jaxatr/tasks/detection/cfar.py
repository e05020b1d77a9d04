"""The detector of radar scenes at a constant false alarm rate: a run without training."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import data
from jaxatr.scenes import cfar
from jaxatr.scenes.clutter import Clutter
from jaxatr.tasks.detection.decoding import Decoded, Tiling
from jaxatr.tasks.detection.examples import SceneExamples
from jaxatr.tasks.detection.predictor import Detector, identity
from jaxatr.tasks.detection.scene_task import SceneTask, tile_limits
from jaxatr.tasks.limits import check_choices, check_limits
from jaxatr.training import Phase, TrainedRun
from jaxatr.training.task import silent
from jaxatr.typing import Batch, Config, Float, PyTree, Shaped


class Cfar(SceneTask):
    """Finds targets that exceed a multiple of the clutter around them; nothing is trained.

    It knows no classes: every target is of no known one, until a recogniser decides.
    """

    title = "detection at a constant false alarm rate"
    predictor = "jaxatr.tasks.detection.cfar:CfarDetector"
    phases = ()
    steps_per_epoch = 1
    least = 0.0

    def __init__(self, config: Config):
        """Opens the data.

        Raises:
          ValueError: the data is missing or does not match the configuration, or a field is
            invalid.
        """
        _check_fields(config)
        self.config = config
        self.examples = SceneExamples(config, classes=False)
        self.split = self.examples.split
        self.searcher = Searcher(config)

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the configuration to state the results."""
        return self.examples.record

    @property
    def tiling(self) -> Tiling:
        """How scenes are cut into tiles."""
        return self.searcher.tiling

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns no parameters."""
        del key
        return {}, {}

    def batches(self, phase: Phase) -> data.BatchIterator:
        """There are none, because there are no phases."""
        raise NotImplementedError(f"{self.title} has no phase {phase.name}")

    def prepared(self, image: np.ndarray) -> np.ndarray:
        """Converts a scene to intensities."""
        return self.searcher.intensity(image)

    def search(
        self, variables: PyTree, batches: Iterable[Batch]
    ) -> Iterator[tuple[Batch, Decoded]]:
        """Yields what is found in batches of tiles."""
        del variables
        for batch in batches:
            yield batch, self.searcher(batch["image"])

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns nothing: no checkpoint is better than another."""
        del params, model_state
        return {}

    def finished(
        self,
        variables: PyTree,
        workdir: Path,
        step: int,
        say: Callable[[str], None] = silent,
    ) -> dict[str, Any]:
        """Records that every target counts: the rate of false alarms is the threshold."""
        del variables, workdir, say
        return {"detection": {"step": step, "threshold": 0.0, "gamma": 1.0, "fitted": False}}


class Searcher:
    """Searches tiles of intensities.

    Attributes:
      settings: of the detector.
      tiling: how scenes are cut; a tile has no data beyond its scene.
    """

    def __init__(self, config: Config):
        fields, tiles = config.cfar, config.detection
        clutter = Clutter(fields.looks, fields.shape or math.inf)
        self.settings = cfar.Cfar(
            fields.rate, fields.level, fields.guard, fields.train, clutter, fields.order
        )
        self.tiling = Tiling(tiles.tile, tiles.tile_overlap, np.array([np.nan], np.float32))
        self._fields, self._most = fields, tiles.most

    def intensity(self, image: Shaped[np.ndarray, "h w c"]) -> Float[np.ndarray, "h w 1"]:
        """Converts a scene of any dtype to intensities; NaN where it has no data."""
        values = data.Chip(channels=1)(image).astype(np.float32)
        if self._fields.scene == "amplitude":
            values = values**2
        return np.where(values == 0, np.float32(np.nan), values) if self._fields.gaps else values

    def __call__(self, tiles: Float[np.ndarray, "b h w 1"]) -> Decoded:
        """Finds the targets in tiles.

        A target's score is 1 - threshold / intensity of its brightest pixel: 0 at the threshold.
        """
        found = [self._of_tile(tile[:, :, 0]) for tile in tiles]
        most = max(1, *(len(scores) for _, scores in found))
        boxes, scores = np.zeros((len(found), most, 4)), np.zeros((len(found), most))
        for row, (own_boxes, own_scores) in enumerate(found):
            boxes[row, : len(own_scores)], scores[row, : len(own_scores)] = own_boxes, own_scores
        valid = np.arange(most) < np.array([len(own) for _, own in found])[:, None]
        classes = np.zeros((len(found), most, 0), np.float32)
        return Decoded(boxes.astype(np.float32), scores.astype(np.float32), classes, valid)

    def _of_tile(
        self, intensity: Float[np.ndarray, "h w"]
    ) -> tuple[Float[np.ndarray, "n 4"], Float[np.ndarray, " n"]]:
        """Returns boxes and scores, by descending score."""
        fields = self._fields
        exceeding = cfar.exceedance(intensity, self.settings)
        found = cfar.grouped(exceeding, gap=fields.gap, least=fields.pixels)
        sides = (found.boxes[:, 2:] - found.boxes[:, :2]).max(axis=1, initial=0)
        rows = np.flatnonzero((sides >= fields.smallest) & (sides <= (fields.largest or np.inf)))
        scores = 1 - 1 / found.scores[rows]
        first = np.argsort(-scores, kind="stable")[: self._most]
        return found.boxes[rows[first]], scores[first]


class CfarDetector(Detector):
    """A detector at a constant false alarm rate; it takes scenes of any dtype."""

    def __init__(self, run: TrainedRun, *, threshold: float, gamma: float):
        """Creates a detector from a run; :meth:`load` reads it from a folder."""
        self.workdir, self.classes = run.workdir, ()
        self.threshold, self.gamma = threshold, gamma
        self.dtype = np.dtype(run.record["image_dtype"])
        self.channels = int(run.record["channels"])
        self._searcher = Searcher(run.config)
        self._tiling, self._overlap = self._searcher.tiling, run.config.detection.overlap
        self._identity = identity(run.config.cfar.to_dict(), run.config.detection.most)

    def __repr__(self) -> str:
        """Names the run and the settings."""
        given = self._searcher.settings
        return (
            f"<CfarDetector {self.workdir}: level {given.method}, {given.rate:.3g} false alarms a "
            f"pixel, {given.clutter.looks:g} looks; targets from {self.threshold:.3g}>"
        )

    def _infer(self, tiles: Shaped[np.ndarray, "b h w c"]) -> Decoded:
        """Finds the targets in tiles of intensities."""
        return self._searcher(tiles)

    def prepare(self, item: np.ndarray) -> np.ndarray:
        """Converts a scene to intensities."""
        return self._searcher.intensity(item)


def _check_fields(config: Config) -> None:
    fields = config.cfar
    check_choices(
        config, cfar__level=("mean", "log_mean", "order"), cfar__scene=("amplitude", "intensity")
    )
    check_limits(
        config,
        cfar__rate=(0 < fields.rate < 1, "a rate in (0, 1)"),
        cfar__guard=(fields.guard >= 0, "0 or more cells"),
        cfar__train=(fields.train >= 1, "at least 1 cell"),
        cfar__order=(0 < fields.order <= 1, "a share of the cells in (0, 1]"),
        cfar__looks=(0 < fields.looks < math.inf, "more than 0"),
        cfar__shape=(0 <= fields.shape < math.inf, "0 (no texture) or more"),
        cfar__gap=(fields.gap >= 0, "0 or more pixels"),
        cfar__pixels=(fields.pixels >= 1, "at least 1 pixel"),
        cfar__smallest=(fields.smallest >= 0, "0 (off) or more pixels"),
        cfar__largest=(
            fields.largest == 0 or fields.largest >= max(1, fields.smallest),
            "0 (off), or cfar.smallest or more",
        ),
        **tile_limits(config),
    )
