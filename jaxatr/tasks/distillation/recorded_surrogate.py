"""Reading the folder of an evaluated surrogate, for a report."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from jaxatr import training
from jaxatr.explain import method_title
from jaxatr.reporting import recorded_run
from jaxatr.reporting.overlay import blended
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.typing import UInt8

_SIDE = 96  # side in pixels to which smaller chips are enlarged, so that maps are legible


class ExplainedChip(NamedTuple):
    """A test chip with the maps of every method.

    Attributes:
      kind: ``"worst"`` or ``"drawn"``.
      name: name of its true class.
      predicted: class predicted by the target network.
      probability: probability of the predicted class.
      picture: key of the chip in the thumbnails.
      maps: for each method, its title, the key of its picture, and its insertion and deletion.
    """

    kind: str
    name: str
    predicted: str
    probability: float
    picture: int
    maps: list[dict[str, Any]]


class RecordedSurrogate(NamedTuple):
    """A trained and evaluated surrogate.

    Attributes:
      name: name in the report.
      config: content of ``config.json``.
      record: content of ``record.json``.
      evaluation: content of ``evaluation.json``.
      metrics: the records of ``metrics.jsonl``.
      sheet: the chips to show.
      thumbnails: pictures of the chips, with and without maps, by key.
    """

    name: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    sheet: list[ExplainedChip]
    thumbnails: dict[int, Thumbnail]

    @property
    def simulated(self) -> bool:
        """Whether the images come from the simulated sensor."""
        return recorded_run.is_simulated(self.record)

    @property
    def methods(self) -> dict[str, dict[str, float]]:
        """Mean measures of each method."""
        return self.evaluation["explanation"]["methods"]


def read_surrogate(workdir: str | os.PathLike, *, name: str | None = None) -> RecordedSurrogate:
    """Reads the records of a surrogate.

    Args:
      workdir: the run's folder.
      name: name in the report; by default, the folder's name.

    Raises:
      ValueError: the folder is not an evaluated run, or its files cannot be read or do not belong
        together.
    """
    folder = Path(workdir)
    evaluation = recorded_run.read_evaluation(folder)
    arrays = recorded_run.read_arrays(folder / training.SCORES)
    found = recorded_run.read_thumbnails(folder / training.THUMBNAILS, arrays["test_id"])
    methods = tuple(evaluation["explanation"]["methods"])
    if len(found) != len(arrays["test_id"]) or any(f"{m}_map" not in arrays for m in methods):
        raise recorded_run.different(folder, training.EVALUATION, training.SCORES)
    sheet, pictures = _sheet(evaluation, arrays, found, methods)
    return RecordedSurrogate(
        name=name or folder.resolve().name,
        config=training.load_config(folder).to_dict(),
        record=training.read_record(folder),
        evaluation=evaluation,
        metrics=training.read_metrics(folder),
        sheet=sheet,
        thumbnails=pictures,
    )


def _sheet(
    evaluation: dict[str, Any],
    arrays: dict[str, np.ndarray],
    found: dict[int, Thumbnail],
    methods: Sequence[str],
) -> tuple[list[ExplainedChip], dict[int, Thumbnail]]:
    kinds = [(k, int(r)) for k in ("worst", "drawn") for r in arrays[f"sheet_{k}"]]
    sheet, pictures = [], {}
    for place, (kind, row) in enumerate(kinds):
        chip = found[row]
        key = len(pictures)
        pictures[key] = Thumbnail(chip.name, _enlarged(chip.image))
        maps = []
        for method in methods:
            saliency = arrays[f"{method}_map"][place].astype(np.float64) / 255
            maps.append(
                {
                    "method": method_title(method),
                    "picture": len(pictures),
                    "insertion": f"{arrays[f'{method}_insertion'][row]:.3f}",
                    "deletion": f"{arrays[f'{method}_deletion'][row]:.3f}",
                }
            )
            over = blended(chip.image, saliency, side=max(pictures[key].image.shape[:2]))
            pictures[len(pictures)] = Thumbnail(chip.name, np.asarray(over))
        predicted = evaluation["known"][arrays["test_predicted"][row]]
        probability = float(arrays["test_probability"][row])
        sheet.append(ExplainedChip(kind, chip.name, predicted, probability, key, maps))
    return sheet, pictures


def _enlarged(image: UInt8[np.ndarray, "h w c"]) -> UInt8[np.ndarray, "y x 3"]:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).convert("RGB")
    factor = max(1, round(_SIDE / max(image.shape[:2])))
    size = (factor * image.shape[1], factor * image.shape[0])
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST))
