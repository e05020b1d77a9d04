"""The scenes of a run: training, validation and test, with labels among the known classes."""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from jaxatr import data
from jaxatr.data.pipeline import process_share, read_ahead
from jaxatr.tasks.detection.assignment import IGNORED, UNKNOWN
from jaxatr.tasks.detection.pictures import Pictures, Scene, padded
from jaxatr.tasks.normalization import constants_of, normalizing_network
from jaxatr.tasks.opened_data import listing, opened
from jaxatr.typing import ArrayLike, Config, Float, Int

BOXES, LABELS = data.SCENE_ARRAYS
RANGES = "ranges"
_STATISTICS = 200  # scenes from which mean and deviation are computed


@dataclasses.dataclass(frozen=True)
class ScenePart:
    """Some scenes of a data set's split.

    Attributes:
      split: the split of the data set.
      indices: ``[n]``, numbers of the scenes in the split.
      boxes: the boxes of each scene, ``[m, 4]``.
      classes: the classes of each scene's boxes, ``[m]``, indices into those of the data set.
      chip: converts the channels of every image.
      pixels: ``[n]``, number of pixels of each scene.
      ranges: metres to each box of each scene, ``[m]``; None if the data set does not have them.
    """

    split: data.Split
    indices: Int[np.ndarray, " n"]
    boxes: list[np.ndarray]
    classes: list[np.ndarray]
    chip: data.Chip
    pixels: Int[np.ndarray, " n"]
    ranges: list[np.ndarray] | None = None

    @classmethod
    def of(cls, split: data.Split, indices: Int[np.ndarray, " n"], chip: data.Chip) -> "ScenePart":
        """Reads the boxes of some scenes.

        Raises:
          ValueError: the data set has no boxes.
        """
        found = [split[index] for index in indices]
        if missing := {BOXES, LABELS} - set(found[0]):
            raise ValueError(
                f"data.name: the examples of split {split.name!r} have no "
                f"{', '.join(sorted(missing))}, wanted scenes, such as simulated_scenes"
            )
        boxes = [np.asarray(one[BOXES], np.float32).reshape(-1, 4) for one in found]
        classes = [np.asarray(one[LABELS], np.int32).reshape(-1) for one in found]
        ranges = [one[RANGES] for one in found] if RANGES in found[0] else None
        pixels = np.array([np.prod(one["image"].shape[:2]) for one in found], np.int64)
        return cls(split, indices, boxes, classes, chip, pixels, ranges)

    def __len__(self) -> int:
        """Returns the number of scenes."""
        return len(self.indices)

    def image(self, number: int) -> np.ndarray:
        """Returns the image of a scene, ``[h, w, c]``."""
        return self.chip(self.split.image(self.indices[number]))

    def some(self, rows: Int[np.ndarray, " k"]) -> "ScenePart":
        """Returns a part of these scenes."""
        return ScenePart(
            self.split,
            self.indices[rows],
            [self.boxes[row] for row in rows],
            [self.classes[row] for row in rows],
            self.chip,
            self.pixels[rows],
            None if self.ranges is None else [self.ranges[row] for row in rows],
        )


class SceneExamples:
    """The scenes of a configuration's data set.

    Attributes:
      dataset: the data set.
      split: the split of its classes into known and unknown ones, without outliers.
      parts: ``"train"``, ``"validation"`` (optional) and ``"test"``.
      channels: channels of all images.
      mean, std: mean and standard deviation of each channel, in raw units.
    """

    def __init__(self, config: Config, *, classes: bool = True):
        """Opens the data.

        Args:
          config: the run's configuration.
          classes: whether classes can be known; if not, all are unknown, whatever the split.

        Raises:
          ValueError: the data is missing, has no boxes or does not match the configuration.
        """
        fields = config.data
        if fields.bands:
            raise ValueError(
                f"data.bands: got {fields.bands!r}, but a detector takes all bands of a scene"
            )
        self._config = config
        self.dataset = opened(fields)
        if self.dataset.skipped:
            warnings.warn(listing(fields, self.dataset.skipped), stacklevel=3)
        chip = data.Chip(channels=fields.channels or None)
        self.parts = _parts(self.dataset, config, chip)
        train = self.parts["train"]
        self.split = self._split(classes)
        self.channels = train.image(0).shape[2]
        self.dtype = train.split.dtype
        self._network = normalizing_network(config)
        if self._network is None:
            self.mean, self.std = _statistics(train)
        else:
            shape = (0, 0, self.channels)
            self.mean, self.std = constants_of(self._network, self.dtype, shape)
        if not fields.normalize:
            self.mean, self.std = np.zeros_like(self.mean), np.ones_like(self.std)

    def check_channels(self) -> None:
        """Checks that all scenes have the channels of the first.

        Raises:
          ValueError: they have different ones, and ``data.channels`` converts none.
        """
        found = {
            channels
            for part in self.parts.values()
            for channels in part.split.columns["channels"][part.indices].tolist()
        }
        if len(found) > 1 and not self._config.data.channels:
            named = " and ".join(map(str, sorted(found)))
            raise ValueError(
                f"data.channels: the scenes of {self.dataset.name} have {named} channels; 1 makes "
                "all of them gray, 3 RGB"
            )

    def _split(self, known: bool) -> data.KnownUnknown:
        config, dataset = self._config, self.dataset
        others = {*config.detection.outliers, *config.detection.ignored}
        classes = [name for name in dataset.classes if name not in others]
        if not known:
            return data.KnownUnknown("none", 1, (), tuple(classes), 0)
        trained = np.unique(np.concatenate([np.zeros(0, np.int32), *self.parts["train"].classes]))
        there = {dataset.classes[label] for label in trained[trained >= 0]}
        split = data.known_unknown(
            config.open_set.split,
            classes,
            seed=config.open_set.split_seed,
            trainable=[name for name in classes if name in there],
        )
        if missing := [name for name in split.known if name not in there]:
            raise ValueError(
                f"data: the training scenes of {dataset.name} have no box of "
                f"{', '.join(missing)}, which open_set.split makes known"
            )
        return split

    @property
    def fill(self) -> np.ndarray:
        """The value of each channel beyond the edge of a scene, in the images' dtype."""
        mean = self.mean
        return (np.rint(mean) if np.issubdtype(self.dtype, np.integer) else mean).astype(self.dtype)

    def labels(self, part: str) -> list[Int[np.ndarray, " m"]]:
        """Returns the labels of the boxes of each scene.

        A target of an outlier's class is :data:`UNKNOWN`; classes that the split leaves out are
        :data:`IGNORED`. The split's unknown classes are unknown in the test, and ignored in the
        other parts, so that neither the training nor the choice of a checkpoint or a threshold
        has seen them.
        """
        others = (*self._config.detection.outliers, *(self.split.unknown if part == "test" else ()))
        numbers = dict.fromkeys(others, UNKNOWN)
        numbers |= {name: label for label, name in enumerate(self.split.known)}
        table = np.array([numbers.get(c, IGNORED) for c in self.dataset.classes], np.int32)
        # A negative label is that of a region in which nothing counts.
        return [np.where(c < 0, IGNORED, table[c]) for c in self.parts[part].classes]

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
        return {
            "dataset": {
                "name": self.dataset.name,
                "version": self.dataset.version,
                "fingerprint": self.dataset.fingerprint,
            },
            "split": self.split.as_dict(),
            "examples": {name: len(part) for name, part in self.parts.items()},
            "boxes": {name: int(sum(map(len, part.classes))) for name, part in self.parts.items()},
            "skipped": [list(entry) for entry in self.dataset.skipped],
            "image_dtype": np.dtype(self.dtype).name,
            "channels": self.channels,
            "normalization": {
                "mean": self.mean.tolist(),
                "std": self.std.tolist(),
                **({"by": self._network.name} if self._network else {}),
            },
        }

    def normalize(self, images: ArrayLike) -> jax.Array:
        """Normalises raw images ``[..., c]`` for the network."""
        return data.normalize(images, self.mean, self.std)

    def train_batches(self) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of pictures.

        A batch has ``image`` ``[b, s, s, c]`` in raw units, ``boxes`` ``[b, m, 4]``, ``labels``
        ``[b, m]``, and ``id`` and ``epoch`` ``[b]``. A picture depends on the seed and its place in
        the stream, not on the number of processes.
        """
        import grain  # slow to import

        config, train = self._config, self.parts["train"]
        labels = self.labels("train")
        if config.detection.unknown == "background":
            unknown = {self.dataset.classes.index(name) for name in self.split.unknown}
            kept = [~np.isin(classes, [*unknown]) for classes in train.classes]
        else:
            kept = [np.ones(len(one), bool) for one in labels]

        def scene(number: int) -> Scene:
            rows = kept[number]
            return Scene(train.image(number), train.boxes[number][rows], labels[number][rows])

        fields, augment = config.detection, config.augment
        pictures = Pictures(
            scene,
            len(train),
            fields.picture,
            tuple(fields.scales),
            fields.mosaic,
            fields.aimed,
            (augment.flip_horizontal, augment.flip_vertical),
            self.fill,
        )
        # A mosaic has four scenes, and any scene may be drawn several times.
        most = (4 if fields.mosaic else 1) * max(1, *(int(rows.sum()) for rows in kept))
        size, count = config.train.batch_size, len(train)
        mine = process_share(size, jax.process_index(), jax.process_count())
        ids = train.split.columns["id"][train.indices]

        def make(drawn: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
            place, position = (column[mine] for column in drawn)
            made = [
                pictures.draw(int(number), (config.seed, int(where)))
                for where, number in zip(place, position, strict=True)
            ]
            rows = [padded(picture, most) for picture in made]
            return {
                "image": np.stack([picture.image for picture in made]),
                **{name: np.stack([row[name] for row in rows]) for name in rows[0]},
                "id": ids[position].astype(np.int32),
                "epoch": (place // count).astype(np.int32),
            }

        order = grain.MapDataset.range(count).seed(config.seed).shuffle().repeat()
        stream = order.map_with_index(lambda place, position: (place, position)).batch(size)
        return read_ahead(stream.map(make), threads=2)


def _parts(dataset: data.Dataset, config: Config, chip: data.Chip) -> dict[str, ScenePart]:
    fields, named = config.data, config.detection.validation_split
    if fields.fold:
        raise ValueError("data.fold: not supported for scenes, which have several targets each")
    wanted = {"train": fields.train_split, "test": fields.test_split}
    wanted |= {"validation": named} if named else {}
    for part, name in wanted.items():
        if name not in dataset.splits:
            field = "detection.validation_split" if part == "validation" else f"data.{part}_split"
            there = ", ".join(dataset.splits)
            raise ValueError(f"{field}: no split {name!r} in {dataset.name}, which has {there}")
    parts = {
        part: ScenePart.of(dataset.splits[name], np.arange(len(dataset.splits[name])), chip)
        for part, name in wanted.items()
    }
    if not named and fields.validation:
        train = parts["train"]
        seed = config.seed if fields.validation_seed is None else fields.validation_seed
        by = fields.group_by
        groups = data.group_values(train.split, by) if by else None
        alike = np.zeros(len(train), np.int32)
        kept, held = data.holdout(alike, fields.validation, seed, groups=groups)
        if len(held):
            parts |= {"validation": train.some(held), "train": train.some(kept)}
    return parts


def _statistics(train: ScenePart) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Computes the mean and standard deviation of each channel of evenly spaced scenes."""
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    chosen = np.unique(np.linspace(0, len(train) - 1, min(_STATISTICS, len(train))).astype(int))
    for number in chosen.tolist():
        image = train.image(number)
        pixels = image.astype(np.float64).reshape(-1, image.shape[2])
        count += len(pixels)
        total = total + pixels.sum(axis=0)
        squares = squares + np.square(pixels).sum(axis=0)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return mean, np.where(std > 1e-6 * np.abs(mean), std, 1.0)
