"""The parts of a data set for training, validation and test."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxatr import data, openset
from jaxatr.tasks.boxes import with_boxes_off
from jaxatr.typing import Bool, Config, Int, Shaped

BOX_OFF = "box_off"
"""Name of the part of test examples with perturbed boxes."""

EVALUATED = ("validation", "test", BOX_OFF)
"""Names of the parts on which a network is evaluated, where a run has them."""


class Part:
    """Some examples of a data set's split, with labels among the known classes.

    Attributes:
      split: the split of the data set.
      indices: ``[n]``, indices of the examples in the split.
      labels: ``[n]``, index of the known class, or ``openset.UNKNOWN``.
      chip: geometry applied to every image.
    """

    def __init__(
        self,
        split: data.Split,
        indices: Int[np.ndarray, " n"],
        labels: Int[np.ndarray, " n"],
        chip: data.Chip,
    ):
        self.split, self.indices, self.labels, self.chip = split, indices, labels, chip

    def column(self, name: str) -> np.ndarray | None:
        """Returns a field of the examples, ``[n]``; None if the data set does not have it."""
        column = self.split.columns.get(name)
        return None if column is None else column[self.indices]

    def chips(self, rows: Int[np.ndarray, " m"]) -> Shaped[np.ndarray, "m h w c"]:
        """Returns the chips of some examples, in raw units."""
        return np.stack([self.chip(self.split.image(i)) for i in self.indices[rows]])

    def truth(self, rows: Int[np.ndarray, " m"]) -> data.Truth:
        """Returns the annotated masks and boxes of the targets in some chips, if available."""
        examples = [self.split[i] for i in self.indices[rows]]
        truth: dict[str, np.ndarray] = {}
        if examples and "mask" in examples[0]:
            truth["masks"] = np.stack([self.chip.mask(one["mask"]) for one in examples])
        if examples and "box" in examples[0]:
            shapes = (one["image"].shape for one in examples)
            boxes = [self.chip.box(o["box"], s) for o, s in zip(examples, shapes, strict=True)]
            truth["boxes"] = np.stack(boxes)
        return data.Truth(**truth)

    @property
    def classes(self) -> Int[np.ndarray, " n"]:
        """``[n]``, index of each example's class among all classes of the data set."""
        return self.split.columns["label"][self.indices]

    def sample(self, most: int, seed: int) -> "Part":
        """Returns a random sample of the examples, in their order.

        Args:
          most: size of the sample, at most the number of examples.
          seed: random seed.
        """
        rows = np.random.default_rng(seed).choice(len(self.labels), most, replace=False)
        rows.sort()
        return Part(self.split, self.indices[rows], self.labels[rows], self.chip)

    def joined(
        self, images: Shaped[np.ndarray, "m h w c"], label: int | Int[np.ndarray, " m"]
    ) -> "Part":
        """Returns this part with additional examples, which are already chips.

        Args:
          images: ``[m, h, w, c]``.
          label: label of all of them, or of each.

        Raises:
          ValueError: they have another shape or dtype than this part's chips.
        """
        shape, dtype = self.split.chip_shape(self.indices, self.chip), self.split.dtype
        if images.shape[1:] != shape or images.dtype != dtype:
            raise ValueError(
                f"got images of shape {images.shape[1:]} and dtype {images.dtype}, wanted those of "
                f"the data's chips, {shape} and {dtype}"
            )
        split = data.chips_and_images(self.split, self.indices, self.chip, images)
        added = np.broadcast_to(label, len(images)).astype(self.labels.dtype)
        labels = np.concatenate([self.labels, added])
        return Part(split, np.arange(len(labels)), labels, data.Chip())

    def with_classes(self, numbers: Mapping[str, int], kept: Bool[np.ndarray, " n"]) -> "Part":
        """Returns a subset of this part in which additional classes are labelled as known.

        Args:
          numbers: labels of the additional classes, by name.
          kept: ``[n]``, which examples to keep.
        """
        labels = self.labels.copy()
        for place, name in enumerate(self.split.classes):
            if name in numbers:
                labels[self.classes == place] = numbers[name]
        return Part(self.split, self.indices[kept], labels[kept], self.chip)


def part_of_chips(
    chips: Shaped[np.ndarray, "n h w c"],
    names: Iterable[str],
    known: Sequence[str],
    columns: Mapping[str, Shaped[np.ndarray, " n"]] | None = None,
) -> Part:
    """Returns a part of chips in memory, whose split has their classes.

    Args:
      chips: ``[n, h, w, c]``.
      names: names of their classes; those that are not in ``known`` are unknown.
      known: the known classes.
      columns: further columns of their split, by name.
    """
    names = [str(name) for name in names]
    classes = tuple(dict.fromkeys(names))

    def numbers(listed: Sequence[str]) -> np.ndarray:
        place = {data.class_name(name): number for number, name in enumerate(listed)}
        return np.array([place.get(name, openset.UNKNOWN) for name in names], np.int32)

    rows = np.arange(len(chips))
    own = {**data.Others(chips, rows, []).split("").columns, "label": numbers(classes)}
    records = [{"image": chip} for chip in chips]
    split = data.Split("chips", records, {**own, **(columns or {})}, classes, chips.dtype)
    return Part(split, rows, numbers(known), data.Chip())


def parts_of(
    dataset: data.Dataset,
    split: data.KnownUnknown,
    config: Config,
    chip: data.Chip,
    *,
    tracks: bool,
) -> dict[str, Part]:
    """Divides a data set into the parts of a run, by name.

    Args:
      dataset: the data set to divide.
      split: the split of its classes into known and unknown ones.
      config: the run's configuration.
      chip: geometry applied to every image.
      tracks: hold out whole tracks for validation instead of single chips.

    Raises:
      ValueError: a part would be empty, or the data set has no such split.
    """
    fields = config.data
    train, test = _splits(dataset, fields)
    to_known = np.full(len(dataset.classes), openset.UNKNOWN, np.int32)
    for label, name in enumerate(split.known):
        to_known[dataset.classes.index(name)] = label
    where = _conditions(fields)

    indices = data.select(train, classes=split.known, where=where)
    labels = to_known[train.columns["label"][indices]]
    if missing := [name for i, name in enumerate(split.known) if not np.any(labels == i)]:
        raise ValueError(
            f"data: the split {fields.train_split!r} of {dataset.name} has no examples of "
            f"{', '.join(missing)}, which open_set.split makes known"
        )
    seed = config.seed if fields.validation_seed is None else fields.validation_seed
    numbers = _track_numbers(train, test) if tracks else None
    parts = {}
    if fields.fold or fields.validation:
        if fields.fold or fields.group_by:
            in_fold = _in_fold(train, split, config, seed, numbers)[indices]
            kept, held_out = np.flatnonzero(~in_fold), np.flatnonzero(in_fold)
        else:
            groups = None if numbers is None else numbers[indices]
            kept, held_out = data.holdout(labels, fields.validation, seed, groups=groups)
        if len(held_out):
            parts["validation"] = Part(train, indices[held_out], labels[held_out], chip)
            indices, labels = indices[kept], labels[kept]
        else:
            warnings.warn(
                f"data.validation: a fraction of {fields.validation} of each class is less than "
                "one image, so there is no validation data and no γ is fitted",
                stacklevel=4,
            )
    parts["train"] = Part(train, indices, labels, chip)
    if config.open_set.hold_out:
        indices = data.select(train, classes=split.unknown, where=where)
        unknown = np.full(len(indices), openset.UNKNOWN, np.int32)
        parts["held_out"] = Part(train, indices, unknown, chip)

    indices = data.select(test, classes=split.known + split.unknown, where=where)
    # If training and test use the same split, training examples are removed from the test.
    # Validation examples stay in it if classes are held out to compare scores: only thresholds are
    # fitted to them, which do not affect rankings.
    chosen_by = config.open_set.hold_out and test is train
    seen = [p.column("id") for name, p in parts.items() if name == "train" or not chosen_by]
    indices = indices[~np.isin(test.columns["id"][indices], np.concatenate(seen))]
    if not len(indices):
        raise ValueError(
            f"data: all examples of the split {fields.test_split!r} are used for training"
        )
    labels = to_known[test.columns["label"][indices]]
    parts["test"] = Part(test, indices, labels, chip)
    if fields.box_error:
        off = with_boxes_off(test, chip, fields)
        parts[BOX_OFF] = Part(off, indices, labels, data.Chip())
    return parts


def _in_fold(
    train: data.Split,
    split: data.KnownUnknown,
    config: Config,
    seed: int,
    tracks: Int[np.ndarray, " n"] | None,
) -> Bool[np.ndarray, " n"]:
    """Returns which examples of the training split are in the fold that is held out.

    Without ``data.fold``, it is the first of so many folds that each has the share of
    ``data.validation``, or about this share.

    The folds do not depend on the classes that are known, so that trainings without some of these
    (:mod:`jaxatr.tasks.open_set.trials`) hold the same examples out.

    Args:
      train: the training split.
      split: the split of its classes.
      config: the run's configuration.
      seed: seed of the folds.
      tracks: ``[n]``, the track of each example, which stays together; None for single images.

    Raises:
      ValueError: there is no such fold or column, or a known class cannot be divided.
    """
    fields = config.data
    name = "data.fold" if fields.fold else "data.validation"
    shares = max(2, round(1 / (fields.validation or 1)))
    fold = data.Fold.parse(fields.fold) if fields.fold else data.Fold(1, shares)
    chosen = data.select(train, where=_conditions(fields))
    groups, by = tracks, fields.group_by or ("track" if tracks is not None else "")
    if fields.group_by:
        groups = data.group_values(train, fields.group_by)
    labels = train.columns["label"][chosen]
    own = None if groups is None else groups[chosen]
    folds = data.stratified_folds(labels, fold.count, seed, groups=own)
    known = [train.classes.index(name) for name in split.known]
    for one, label in zip(split.known, known, strict=True):
        data.check_divided(one, folds[labels == label], fold.count, by, field=name)
    if (filled := len(np.unique(folds[np.isin(labels, known)]))) < fold.count:
        raise ValueError(
            f"{name}: got {fold.count} folds, but the known classes fill {filled}: wanted at "
            f"most as many folds as {by} has values"
        )
    held_out = np.zeros(len(train), bool)
    held_out[chosen[folds == fold.number - 1]] = True
    return held_out


def _conditions(fields: Config) -> dict[str, tuple[Any, ...]]:
    """Returns the values accepted by ``data.select``, by column."""
    return {name: tuple(values) for name, values in fields.select.items() if values}


def _track_numbers(train: data.Split, test: data.Split) -> np.ndarray:
    """Returns the track of each training example, after checking that splits share no tracks."""
    for split in (train, test):
        data.check_tracks(split)
    numbers = train.columns["track"]
    if len(both := np.intersect1d(numbers, test.columns["track"])):
        raise ValueError(f"data: {len(both)} tracks have chips in both training and test")
    return numbers


def trainable_classes(dataset: data.Dataset, fields: Config) -> list[str]:
    """Returns the names of the classes with examples in the training split.

    Raises:
      ValueError: the data set has no such split.
    """
    labels = np.unique(_splits(dataset, fields)[0].columns["label"])
    return [dataset.classes[label] for label in labels]


def _splits(dataset: data.Dataset, fields: Config) -> list[data.Split]:
    """Returns the splits for training and test; ``"train+test"`` concatenates both."""
    made: dict[str, data.Split] = {}
    names = []
    for field in ("train_split", "test_split"):
        names.append(name := fields[field])
        wanted = name.split("+")
        for one in wanted:
            if one not in dataset.splits:
                raise ValueError(
                    f"data.{field}: no split {one!r} in {dataset.name}, which has "
                    f"{', '.join(dataset.splits)}: set --config.data.{field}=NAME"
                )
        # One object per name, because a split caches its chips in memory.
        made.setdefault(name, data.concatenated([dataset.splits[one] for one in wanted]))
    return [made[name] for name in names]


def shared_shape(parts: Mapping[str, Part]) -> tuple[int, int, int]:
    """Returns the shape of all chips, after checking that it is the same in every part.

    A convolutional network would silently accept test chips of a different shape.
    """
    shapes = {name: part.split.chip_shape(part.indices, part.chip) for name, part in parts.items()}
    for name, shape in shapes.items():
        if shape != shapes["train"]:
            raise ValueError(
                f"data: chips of shape {shape} in the {name} part but {shapes['train']} in the "
                "training part: set data.size or data.center_crop"
            )
    return shapes["train"]


def with_outliers(
    dataset: data.Dataset, train: Part, name: str, fields: Config, chip: data.Chip
) -> Part:
    """Appends the examples of another split to the training part, labelled as unknown.

    Args:
      dataset: the data set with that split.
      train: the training part.
      name: name of the split.
      fields: ``config.data``, whose ``select`` applies to the outliers too.
      chip: geometry of the data set's images.

    Raises:
      ValueError: the split is already used for training or test, or no examples are selected.
    """
    for field in ("train_split", "test_split"):
        if name in fields[field].split("+"):
            raise ValueError(f"open_set.outliers: {name!r} is already data.{field}")
    split = dataset.splits[name]
    chosen = data.select(split, where=_conditions(fields))
    labels = np.full(len(chosen), openset.UNKNOWN, train.labels.dtype)
    if train.chip != chip:  # the part has been joined with chips, so its images are chips already
        outliers = Part(split, chosen, labels, chip)
        return train.joined(outliers.chips(np.arange(len(chosen))), openset.UNKNOWN)
    return Part(
        data.concatenated([train.split, split]),
        np.concatenate([train.indices, len(train.split) + chosen]),
        np.concatenate([train.labels, labels]),
        train.chip,
    )


def box_off(config: Config) -> str:
    """Returns the name of the group of test examples with perturbed boxes."""
    return f"boxes off by {100 * config.data.box_error:g} %"


def ids(part: Part) -> np.ndarray:
    """Returns the ids of a part's examples, ``[n]``."""
    return part.split.columns["id"][part.indices]


def part_arrays(
    prefix: str, outputs: openset.Outputs, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the outputs and scores of a part, by their names in ``scores.npz``."""
    fields = {name: getattr(outputs, name) for name in ("logits", "open_logits", "labels")}
    fields |= {f"score_{name}": score for name, score in values.items()}
    return {f"{prefix}{name}": array for name, array in fields.items()}
