"""The examples of a data set that a task trains on, validates on and tests on."""

import hashlib
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np

from jaxatr import data, openset
from jaxatr.typing import Array, ArrayLike, Config, Float, Int, Key, Shaped

BOX_OFF = "box_off"


class Part:
    """Some examples of a data set's split, with labels among the known classes.

    Attributes:
      split: of the data set.
      indices: ``[n]``, which of its examples.
      labels: ``[n]``, known class, or ``openset.UNKNOWN``.
      chip: geometry that every image goes through.
    """

    def __init__(
        self,
        split: data.Split,
        indices: Int[np.ndarray, " n"],
        labels: Int[np.ndarray, " n"],
        chip: data.Chip,
    ):
        """Takes what the attributes say."""
        self.split, self.indices, self.labels, self.chip = split, indices, labels, chip

    def column(self, name: str) -> np.ndarray | None:
        """Returns a per-example field, or ``None`` where the data set has no such field."""
        column = self.split.columns.get(name)
        return None if column is None else column[self.indices]

    def chips(self, rows: Int[np.ndarray, " m"]) -> Shaped[np.ndarray, "m h w c"]:
        """Returns some examples' chips, in their raw units."""
        return np.stack([self.chip(self.split.image(i)) for i in self.indices[rows]])

    def truth(self, rows: Int[np.ndarray, " m"]) -> data.Truth:
        """Returns where the targets of some chips are, as far as the data says it."""
        examples = [self.split[i] for i in self.indices[rows]]
        found: dict[str, np.ndarray] = {}
        if examples and "mask" in examples[0]:
            found["masks"] = np.stack([self.chip.mask(one["mask"]) for one in examples])
        if examples and "box" in examples[0]:
            shapes = (one["image"].shape for one in examples)
            boxes = [self.chip.box(o["box"], s) for o, s in zip(examples, shapes, strict=True)]
            found["boxes"] = np.stack(boxes)
        return data.Truth(**found)

    @property
    def classes(self) -> Int[np.ndarray, " n"]:
        """The class of each example among all that the data set has, unknown ones too."""
        return self.split.columns["label"][self.indices]

    def joined(self, images: Shaped[np.ndarray, "m h w c"], label: int) -> "Part":
        """Returns this part with further examples, which are chips already.

        Raises:
          ValueError: they are not shaped as this part's chips are, or have another type.
        """
        shape, dtype = self.split.chip_shape(self.indices, self.chip), self.split.dtype
        if images.shape[1:] != shape or images.dtype != dtype:
            raise ValueError(
                f"got images of shape {images.shape[1:]} and type {images.dtype}, wanted those of "
                f"the data's chips, {shape} and {dtype}"
            )
        split = data.chips_and_images(self.split, self.indices, self.chip, images)
        labels = np.concatenate([self.labels, np.full(len(images), label, self.labels.dtype)])
        return Part(split, np.arange(len(labels)), labels, data.Chip())


class Examples:
    """The data that a configuration names, and which of it is for what.

    Attributes:
      dataset: where the examples come from.
      split: which of its classes are known.
      parts: ``"train"``, ``"validation"`` (where wanted), ``"test"``, where known classes are held
        out ``"held_out"``, their training examples, and with ``data.box_error`` ``"box_off"``, the
        test examples cut by boxes that are off.
      image_shape: ``(h, w, c)`` of all chips.
      mean, std: of the training images, per channel, in their raw units; 0 and 1 where they are
        not to be normalised.
    """

    def __init__(self, config: Config, *, tracks: bool = False):
        """Opens the data.

        Args:
          config: the run's configuration.
          tracks: hold tracks out for validation, not chips.

        Raises:
          ValueError: the data is missing or does not fit the configuration.
        """
        fields = config.data
        self.dataset = data.open_dataset(
            fields.name,
            data_dir=fields.data_dir or None,
            source=fields.source or None,
            options=dict(fields.options),
            skip_corrupt=fields.skip_corrupt,
        )
        self.split = data.known_unknown(
            config.open_set.split, self.dataset.classes, seed=config.open_set.split_seed
        )
        if config.open_set.hold_out:
            self.split = data.hold_out_classes(self.split, config.open_set.hold_out)
        chip = data.Chip(
            center_crop=fields.center_crop,
            square=fields.square,
            size=fields.size,
            channels=fields.channels or None,
        )
        if self.dataset.skipped:
            warnings.warn(_listing(self.dataset.skipped), stacklevel=3)
        self.parts = _parts(self.dataset, self.split, fields, config, chip, tracks)
        self.image_shape = _shared_shape(self.parts)
        train = self.parts["train"]
        self.mean, self.std = data.image_statistics(train.split, train.indices, chip)
        if not fields.normalize:
            self.mean, self.std = np.zeros_like(self.mean), np.ones_like(self.std)
        self._batch_size, self._seed = config.train.batch_size, config.seed
        self._config = config
        self._negatives: dict[str, Any] = {}
        self._outliers: Part | None = None

    @property
    def _augment(self) -> dict[str, Any]:
        """The fields of ``config.augment``, shares of the box's side turned into the chip's."""
        fields = dict(self._config.augment)
        fields["box_shift"] /= 1 + self._config.data.box_margin
        return fields

    @property
    def streamed(self) -> Part:
        """The training part, and after it the outliers, labelled ``openset.UNKNOWN``."""
        return self._outliers or self.parts["train"]

    def add_outliers(self, source: str) -> None:
        """Lets images of no known class into the batches of the training.

        They are in no part: nothing is fitted to them, and nothing measured on them.

        Args:
          source: a split of the data set, or else a folder of images, which become chips as the
            data's do.

        Raises:
          ValueError: there is neither, it trains or is tested on already, or the images do not fit.
        """
        if source in self.dataset.splits:
            self._outliers = self._with_outlier_split(source)
            count = len(self._outliers.labels) - len(self.parts["train"].labels)
            self._negatives |= {"outliers": {"images": count, "split": source}}
        else:
            self._add_outlier_folder(source)

    def _with_outlier_split(self, name: str) -> Part:
        train, fields = self.parts["train"], self._config.data
        for field in ("train_split", "test_split"):
            if name in fields[field].split("+"):
                raise ValueError(f"open_set.outliers: {name!r} is data.{field} already")
        split = self.dataset.splits[name]
        where = {field: tuple(values) for field, values in fields.select.items() if values}
        own = data.select(split, classes=None, where=where)
        labels = np.full(len(own), openset.UNKNOWN, train.labels.dtype)
        return Part(
            data.concatenated([train.split, split]),
            np.concatenate([train.indices, len(train.split) + own]),
            np.concatenate([train.labels, labels]),
            train.chip,
        )

    def _add_outlier_folder(self, folder: str) -> None:
        train = self.parts["train"]
        images, fingerprint = data.read_chips(folder, train.chip)
        try:
            self._outliers = train.joined(images, openset.UNKNOWN)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        self._negatives |= {"outliers": {"images": len(images), "fingerprint": fingerprint}}

    def add_negatives(self, path: str) -> None:
        """Lets the images of a file, of no known class, train as the class after the known ones.

        Args:
          path: of an ``.npz`` with ``images``, ``[m, h, w, c]``, chips as the data's are.

        Raises:
          ValueError: there is no such file, or its images do not fit.
        """
        images, fingerprint = data.read_images(path)
        try:
            self.parts["train"] = self.parts["train"].joined(images, len(self.split.known))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        self._negatives |= {"negatives": {"images": len(images), "fingerprint": fingerprint}}

    @property
    def record(self) -> dict[str, Any]:
        """What a recogniser needs beside the parameters, and what a result must state."""
        return {
            "dataset": {
                "name": self.dataset.name,
                "version": self.dataset.version,
                "fingerprint": self.dataset.fingerprint,
                **self._negatives,
            },
            "split": self.split.as_dict(),
            "examples": {name: len(part.indices) for name, part in self.parts.items()},
            "skipped": [list(entry) for entry in self.dataset.skipped],
            "image_shape": list(self.image_shape),
            "image_dtype": self.parts["train"].split.dtype.name,
            "normalization": {"mean": self.mean.tolist(), "std": self.std.tolist()},
        }

    def normalize(self, images: ArrayLike) -> jax.Array:
        """Brings raw images ``[..., c]`` to the scale that the network sees."""
        return data.normalize(images, self.mean, self.std)

    def thumbnails(self, part: str, rows: Int[np.ndarray, " m"]) -> dict[str, np.ndarray]:
        """Returns small pictures of some examples of a part.

        Args:
          part: its name.
          rows: ``[m]``, positions in the part.

        Returns:
          ``id`` int32 ``[m]``; ``class`` ``[m]``, the names of their true classes, those of unknown
          ones too; ``image`` uint8 ``[m, h, w, c]``, as :func:`jaxatr.data.thumbnail` makes them.
        """
        chosen = self.parts[part]
        indices = chosen.indices[rows]
        chips = (chosen.chip(chosen.split.image(index)) for index in indices)
        return {
            "id": chosen.split.columns["id"][indices],
            "class": np.array([self.dataset.classes[label] for label in chosen.classes[rows]]),
            "image": np.array([data.thumbnail(chip) for chip in chips], np.uint8),
        }

    def fingerprints(self, part: str) -> Shaped[np.ndarray, " n"]:
        """Returns for each chip of a part a text that only equal chips share."""
        chosen = self.parts[part]
        chips = (chosen.chip(chosen.split.image(index)) for index in chosen.indices)
        return np.array([hashlib.sha256(c.tobytes()).hexdigest() for c in chips])

    def train_batches(self, batch_size: int | None = None) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches, of the configured size."""
        return self._training(data.train_batches, batch_size=batch_size or self._batch_size)

    def class_batches(self, per_class: int) -> data.BatchIterator:
        """Returns :func:`jaxatr.data.class_batches` of the training part."""
        return self._training(data.class_batches, batch_size=self._batch_size, per_class=per_class)

    def tuple_batches(self, members: Int[np.ndarray, "n m"], **options: Any) -> data.BatchIterator:
        """Returns :func:`jaxatr.data.tuple_batches` of the training part.

        Args:
          members: ``[n, m]``, positions in the training part.
          options: ``batch_size``, ``columns`` and ``start``, as there.
        """
        return self._training(data.tuple_batches, members, **options)

    def augment(
        self,
        key: Key,
        images: Float[Array, "b h w c"],
        ids: Int[Array, " b"],
        epochs: Int[Array, " b"],
        *,
        boxes: Int[Array, " b"] | None = None,
        raw: bool = False,
        only: Collection[str] | None = None,
    ) -> Float[Array, "b y x c"]:
        """Varies a training batch's images as ``config.augment`` asks, and cuts their chips.

        Args:
          key: the run's.
          images: of a batch, normalised.
          ids: of the examples.
          epochs: how often the stream had gone round before each example.
          boxes: ids by which other boxes are drawn; by default ``ids``.
          raw: the images are in their raw units.
          only: names of the fields that count; by default all.
        """
        fields = {name: value for name, value in self._augment.items() if not only or name in only}
        if not raw:
            fields |= {"mean": self.mean, "std": self.std}
        shape = self.image_shape[:2]
        return data.augment(key, images, ids, epochs, shape=shape, boxes=boxes, **fields)

    def _training_chip(self) -> data.Chip:
        """Finds the geometry of the training images, which hold what other boxes show."""
        train, fields = self.parts["train"], self._augment
        if not (fields["box_shift"] or fields["box_scale"]) or not train.chip.cuts:
            return train.chip
        side, turn = train.chip.center_crop, math.radians(fields["rotate_degrees"])
        corner = (1 + fields["box_scale"]) * (abs(math.cos(turn)) + abs(math.sin(turn)))
        wanted = math.ceil(side * (fields["box_shift"] + (corner - 1) / 2))
        columns = [train.split.columns[name][train.indices] for name in ("height", "width")]
        return train.chip.surrounded(min(wanted, (int(np.min(columns)) - side) // 2))

    def _training(self, make: Callable, *arguments: Any, **options: Any) -> data.BatchIterator:
        train = self.streamed
        return make(
            train.split,
            train.indices,
            train.labels,
            *arguments,
            chip=self._training_chip(),
            seed=self._seed,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
            **options,
        )

    def eval_batches(self, part: str) -> data.EvalBatches:
        """Returns the examples of a part once, in their order, as often as it is looped over."""
        chosen = self.parts[part]
        return data.eval_batches(
            chosen.split,
            chosen.indices,
            chosen.labels,
            chip=chosen.chip,
            batch_size=self._batch_size,
        )


def _parts(
    dataset: data.Dataset,
    split: data.KnownUnknown,
    fields: Config,
    config: Config,
    chip: data.Chip,
    tracks: bool,
) -> dict[str, Part]:
    train, test = _splits(dataset, fields.train_split, fields.test_split)
    to_known = np.full(len(dataset.classes), openset.UNKNOWN, np.int32)
    for label, name in enumerate(split.known):
        to_known[dataset.classes.index(name)] = label
    where = {name: tuple(values) for name, values in fields.select.items() if values}

    indices = data.select(train, classes=split.known, where=where)
    labels = to_known[train.columns["label"][indices]]
    if missing := [name for i, name in enumerate(split.known) if not np.any(labels == i)]:
        raise ValueError(
            f"data: the split {fields.train_split!r} of {dataset.name} holds no example of "
            f"{', '.join(missing)}, known by open_set.split"
        )
    groups = _track_numbers(train, test)[indices] if tracks else None
    parts = {}
    if fields.validation:
        kept, held_out = data.holdout(labels, fields.validation, config.seed, groups=groups)
        if len(held_out):
            parts["validation"] = Part(train, indices[held_out], labels[held_out], chip)
            indices, labels = indices[kept], labels[kept]
        else:
            warnings.warn(
                f"data.validation: a share of {fields.validation} of each class is less than one "
                "image, so nothing is validated and no γ is fitted",
                stacklevel=4,
            )
    parts["train"] = Part(train, indices, labels, chip)
    if config.open_set.hold_out:
        indices = data.select(train, classes=split.unknown, where=where)
        unknown = np.full(len(indices), openset.UNKNOWN, np.int32)
        parts["held_out"] = Part(train, indices, unknown, chip)

    indices = data.select(test, classes=split.known + split.unknown, where=where)
    # Where both are made of the same examples, those that train are no test.
    seen = [part.column("id") for part in parts.values()]
    indices = indices[~np.isin(test.columns["id"][indices], np.concatenate(seen))]
    if not len(indices):
        raise ValueError(f"data: every example of the split {fields.test_split!r} trains")
    labels = to_known[test.columns["label"][indices]]
    parts["test"] = Part(test, indices, labels, chip)
    if fields.box_error:
        off = _with_boxes_off(test, chip, fields)
        parts[BOX_OFF] = Part(off, indices, labels, data.Chip())
    return parts


def _with_boxes_off(test: data.Split, chip: data.Chip, fields: Config) -> data.Split:
    try:
        return data.other_boxes(test, chip, error=fields.box_error, margin=fields.box_margin)
    except ValueError as error:
        raise ValueError(f"data.box_error: {error}") from error


def _track_numbers(train: data.Split, test: data.Split) -> np.ndarray:
    """Returns the track of each training example; refuses tracks that are in both splits."""
    for split in (train, test):
        data.check_tracks(split)
    numbers = train.columns["track"]
    if len(both := np.intersect1d(numbers, test.columns["track"])):
        raise ValueError(f"data: {len(both)} tracks have chips to train on and to test on")
    return numbers


def _splits(dataset: data.Dataset, *names: str) -> list[data.Split]:
    """Returns splits by their names; ``"train+test"`` is both, one after the other."""
    made: dict[str, data.Split] = {}
    for name in names:
        wanted = name.split("+")
        for one in wanted:
            if one not in dataset.splits:
                raise ValueError(
                    f"data: no split {one!r} in {dataset.name}, "
                    f"which has {', '.join(dataset.splits)}"
                )
        # One object for one name: it keeps its chips in memory.
        made.setdefault(name, data.concatenated([dataset.splits[one] for one in wanted]))
    return [made[name] for name in names]


def _shared_shape(parts: Mapping[str, Part]) -> tuple[int, int, int]:
    """Refuses test chips of another shape: a network of convolutions would take them in silence."""
    shapes = {name: part.split.chip_shape(part.indices, part.chip) for name, part in parts.items()}
    for name, shape in shapes.items():
        if shape != shapes["train"]:
            raise ValueError(
                f"data: chips of shape {shape} in the {name} part and {shapes['train']} in the "
                "training part: set data.size, or data.center_crop"
            )
    return shapes["train"]


def _listing(skipped) -> str:
    shown = [f"  {path}: {reason}" for path, reason in skipped[:10]]
    more = [f"  and {len(skipped) - 10} more"] if len(skipped) > 10 else []
    return "\n".join([f"{len(skipped)} images cannot be read and are left out:", *shown, *more])
