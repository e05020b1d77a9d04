"""Finds the training chips of a run that are nearest to a chip, and draws them."""

import functools
import io
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from PIL import Image
from tqdm import tqdm

import jaxatr
from jaxatr import data, openset
from jaxatr.onnx.sessions import divided
from jaxatr.openset import gallery, nearest_neighbour
from jaxatr.openset.gallery import reduction
from jaxatr.recognition import store
from jaxatr.recognition.decision import open_part
from jaxatr.reporting.recorded_run import read_arrays
from jaxatr.tasks.neighbour import Neighbour
from jaxatr.tasks.open_set.needs import COMPUTED
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.tasks.parts import Part
from jaxatr.training import TrainedRun
from jaxatr.training.folder import write_file
from jaxatr.typing import Float, Int, Shaped

NEAREST = 8
"""Largest number of nearest training chips for a chip in the console."""

_FILE = "nearest_chips"
_BATCH = 32
_SIDE = 96  # side of a picture in pixels
_PICTURES = 2048  # size of the cache of pictures

Features = Callable[[Shaped[np.ndarray, "b h w c"]], Float[np.ndarray, "b d"]]


class TrainingChips:
    """The training chips that are searched.

    Attributes:
      count: number of chips.
      features: their features ``[count, d]``, of unit length; None if they are not searched.
    """

    def __init__(
        self,
        part: Part,
        classes: Sequence[str],
        rows: Int[np.ndarray, " n"],
        features: Float[np.ndarray, "n d"] | None,
        preview: Sequence[int] = (),
    ):
        """Places the rows to search.

        Args:
          part: the run's training part.
          classes: names of the known classes.
          rows: rows of the part.
          features: features of these rows, of unit length; None if :meth:`nearest` is not used,
            because the retriever itself searches.
          preview: the channels that pictures show; empty for the usual ones.
        """
        self._preview = preview
        ids = part.column("id")
        self._part, self._rows = part, rows
        self._ids = np.arange(len(part.indices)) if ids is None else ids
        self._paths, self._classes = part.column("path"), classes
        self.features = features
        self._bank = None if features is None else jnp.asarray(features)
        self._row_of = {int(self._ids[row]): int(row) for row in rows}
        self.count = len(rows)

    @functools.cached_property
    def _kept(self) -> Callable[[int], bytes]:
        return functools.lru_cache(_PICTURES)(self._draw)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the pictures that were drawn."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def nearest(
        self, features: Float[np.ndarray, "b d"], count: int = NEAREST
    ) -> list[tuple[Neighbour, ...]]:
        """Finds the training chips nearest to each chip, nearest first.

        Args:
          features: features of the chips; only their direction matters.
          count: largest number of training chips for each chip.
        """
        if self._bank is None:
            raise ValueError("there are no features to search")
        count = min(count, self.count)
        found = nearest_neighbour.neighbours(self._bank, gallery.unit(features), count)
        return [
            tuple(
                self._named(int(self._rows[i]), float(d))
                for d, i in zip(distances, indices, strict=True)
            )
            for distances, indices in zip(*map(np.asarray, found), strict=True)
        ]

    def _named(self, row: int, distance: float) -> Neighbour:
        return Neighbour(
            label=self._classes[int(self._part.labels[row])],
            distance=distance,
            id=int(self._ids[row]),
            path=None if self._paths is None else str(self._paths[row]),
        )

    def picture(self, number: int) -> bytes | None:
        """Draws a training chip as a PNG; None if no chip has that number."""
        return self._kept(number) if number in self._row_of else None

    def _draw(self, number: int) -> bytes:
        (chip,) = self._part.chips(np.array([self._row_of[number]]))
        return as_png(data.thumbnail(data.shown(chip, self._preview), side=_SIDE))


def as_png(image: Shaped[np.ndarray, "h w c"], *, effort: int = 6) -> bytes:
    """Encodes an 8-bit gray or RGB image as a PNG; ``effort`` is zlib's, from 0 to 9."""
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(
        file, "PNG", compress_level=effort
    )
    return file.getvalue()


def build_examples(
    run: TrainedRun,
    where: Mapping[str, str],
    features: Features | None,
    most: int | None = None,
    *,
    runtime: str = "jax",
    needs: Collection[str] = (),
) -> tuple[TrainingChips | None, str]:
    """Opens a run's training chips, and computes their features or loads saved ones.

    Args:
      run: the run.
      where: fields of ``config.data`` to change if the data has moved.
      features: computes the features of a batch of 32 chips; None if a retriever searches all
        training chips itself.
      most: largest number of chips to search, sampled evenly from the classes; 0 for none, None
        for all.
      runtime: the engine that computes the features, whose precision they have.
      needs: the other outputs of the network, on which it depends in a precision.

    Returns:
      The chips and an empty string, or None and the reason why there are none.
    """
    if most == 0:
        return None, "switched off by --examples=0"
    try:
        part = open_part(run, where, "train")
    except (ValueError, OSError, ImportError) as error:
        return None, f"the training data cannot be read: {error}"
    if features is None:
        rows = np.arange(len(part.indices))
        return TrainingChips(part, run.classes, rows, None, run.intake.preview), ""
    known = np.flatnonzero(part.labels != openset.UNKNOWN)
    rows = known if most is None else known[reduction.sample(part.labels[known], most)]
    _, precision = divided(runtime)
    # The next version may convert the network in another way.
    kind = [precision, jaxatr.__version__, *sorted(COMPUTED & set(needs))]
    suffix = f".{'_'.join(kind)}" if precision else ""
    name = f"{kept_as(_FILE, run.config)}_{len(rows)}{suffix}"
    kept = _kept(run, name, rows)
    if kept is None:
        kept = nearest_neighbour.fit(_computed(part, rows, features)).features
        path = store.path_of(run.workdir, run.step, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, lambda file: np.savez(file, rows=rows, features=kept))
        except OSError as error:
            warnings.warn(f"the features of training chips are not saved: {error}", stacklevel=2)
    return TrainingChips(part, run.classes, rows, np.asarray(kept), run.intake.preview), ""


def _kept(
    run: TrainedRun, name: str, rows: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n d"] | None:
    """Loads the features that an earlier start saved; None if there are none for these rows.

    Features that cannot be read are computed and saved again.
    """
    path = store.path_of(run.workdir, run.step, name)
    if not os.path.isfile(path):
        return None
    try:
        arrays = read_arrays(path)
        return arrays["features"] if np.array_equal(arrays["rows"], rows) else None
    except (ValueError, KeyError) as error:
        warnings.warn(f"the saved features are computed again: {error}", stacklevel=2)
        return None


def _computed(
    part: Part, rows: Int[np.ndarray, " n"], features: Features
) -> Float[np.ndarray, "n d"]:
    batches = []
    bar = tqdm(  # disable=None: shown on terminals only
        range(0, len(rows), _BATCH), desc="features of training chips", leave=False, disable=None
    )
    for start in bar:
        chosen = rows[start : start + _BATCH]
        filled = np.resize(chosen, _BATCH)  # a single batch size needs one compilation
        batches.append(features(part.chips(filled))[: len(chosen)])
    return np.concatenate(batches)
