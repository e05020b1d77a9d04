"""The examples of a data set that a task trains on, validates on and tests on."""

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np

from jaxatr import data, openset
from jaxatr.tasks.boxes import shares_of_chip, surrounded_chip
from jaxatr.tasks.normalization import constants_of, normalizing_network
from jaxatr.tasks.parts import (
    BOX_OFF,
    Part,
    parts_of,
    shared_shape,
    trainable_classes,
    with_outliers,
)
from jaxatr.typing import Array, ArrayLike, Config, Float, Int, Key, Shaped


class Examples:
    """The data that a configuration names, and which of it is for what.

    Attributes:
      dataset: where the examples come from.
      split: which of its classes are known.
      parts: ``"train"``, ``"validation"`` (where wanted), ``"test"``, where known classes are held
        out ``"held_out"``, their training examples, and with ``data.box_error`` ``"box_off"``, the
        test examples cut by boxes that are off.
      image_shape: ``(h, w, c)`` of all chips.
      mean, std: of the training images, or the constants of a published network, per channel, in
        the images' raw units; 0 and 1 where they are not to be normalised.
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
            config.open_set.split,
            self.dataset.classes,
            seed=config.open_set.split_seed,
            trainable=trainable_classes(self.dataset, fields),
        )
        if config.open_set.hold_out:
            held = config.open_set
            self.split = data.hold_out_classes(self.split, held.hold_out, held.hold_out_turn)
        chip = self._chip = data.Chip.configured(fields, fields.channels or None)
        if self.dataset.skipped:
            warnings.warn(_listing(self.dataset.skipped), stacklevel=3)
        self.parts = parts_of(self.dataset, self.split, config, chip, tracks=tracks)
        self.image_shape = shared_shape(self.parts)
        train = self.parts["train"]
        self._network = normalizing_network(config)
        if self._network is None:
            self.mean, self.std = data.image_statistics(train.split, train.indices, chip)
        else:
            self.mean, self.std = constants_of(self._network, train.split.dtype, self.image_shape)
        if not fields.normalize:
            self.mean, self.std = np.zeros_like(self.mean), np.ones_like(self.std)
        self._batch_size, self._seed = config.train.batch_size, config.seed
        self._config = config
        self._negatives: dict[str, Any] = {}
        self._outliers: Part | None = None

    @property
    def _augmentation(self) -> dict[str, Any]:
        """The fields of ``config.augment`` as they are now, in shares of the chip's side."""
        return shares_of_chip(self._config.augment, self._config.data.box_margin)

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
            self._outliers = with_outliers(
                self.dataset, self.parts["train"], source, self._config.data, self._chip
            )
            count = len(self._outliers.labels) - len(self.parts["train"].labels)
            self._negatives |= {"outliers": {"images": count, "split": source}}
        else:
            self._add_outlier_folder(source)

    def _add_outlier_folder(self, folder: str) -> None:
        train = self.parts["train"]
        images, fingerprint = data.read_chips(folder, self._chip)
        try:
            self._outliers = train.joined(images, openset.UNKNOWN)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        self._negatives |= {"outliers": {"images": len(images), "fingerprint": fingerprint}}

    def add_classes(self, path: str) -> None:
        """Lets the chips of a file, of further classes, train and be validated on.

        The classes come after the known ones, in the order of the file; chips of a known class are
        further ones of it. As of the data's, a share of each class is held out for validation. The
        others are repeated, so that a class is seen as often as the data's are in the mean. Test
        examples of these classes, by their names, are known ones; those in the file are no test.
        Where other boxes are drawn, what surrounds a training chip is then its reflection.

        Args:
          path: of an ``.npz`` with ``images``, ``[m, h, w, c]``, chips as the data's are, and
            ``names``, ``[m]``, their classes.

        Raises:
          ValueError: there is no such file, or its images do not fit.
        """
        images, fingerprint = data.read_images(path)
        names = data.read_names(path, len(images))
        own = self.split.known
        further = tuple(name for name in dict.fromkeys(names) if name not in own)
        known = (*own, *further)
        self.split = dataclasses.replace(
            self.split,
            name=f"{self.split.name}, enrolled: {', '.join(dict.fromkeys(names))}",
            known=known,
            unknown=tuple(name for name in self.split.unknown if name not in known),
        )
        there = {hashlib.sha256(image.tobytes()).hexdigest() for image in images}
        tested = ~np.isin(self.fingerprints("test"), list(there))
        numbers = {name: known.index(name) for name in further}
        for name in ("test", BOX_OFF):  # which are the same examples
            if name in self.parts:
                part = self.parts[name]
                self.parts[name] = part.with_classes(self.dataset.classes, numbers, tested)
        labels = np.array([known.index(name) for name in names])
        fields, train = self._config.data, self.parts["train"]
        kept, held = np.arange(len(labels)), np.zeros(0, int)
        if "validation" in self.parts:
            seed = self._seed if fields.validation_seed is None else fields.validation_seed
            kept, held = data.holdout(labels, fields.validation, seed)
        often = round(len(train.labels) / len(own))
        rows = [
            np.resize(mine, max(often, len(mine)))
            for c in np.unique(labels)
            if len(mine := kept[labels[kept] == c])
        ]
        drawn = np.concatenate(rows)
        try:
            self.parts["train"] = train.joined(images[drawn], labels[drawn])
            if len(held):
                validation = self.parts["validation"]
                self.parts["validation"] = validation.joined(images[held], labels[held])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        counts = {name: names.count(name) for name in further}
        facts = {"images": len(images), "fingerprint": fingerprint, "classes": counts}
        self._negatives |= {"enrolled": facts}

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
        """Facts that a recogniser needs beside the parameters, and that a result must state."""
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
            "normalization": {
                "mean": self.mean.tolist(),
                "std": self.std.tolist(),
                **({"by": self._network.name} if self._network else {}),
            },
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
        fields = {name: v for name, v in self._augmentation.items() if not only or name in only}
        if not raw:
            fields |= {"mean": self.mean, "std": self.std}
        shape = self.image_shape[:2]
        return data.augment(key, images, ids, epochs, shape=shape, boxes=boxes, **fields)

    def _training(self, make: Callable, *arguments: Any, **options: Any) -> data.BatchIterator:
        cut, train = self.parts["train"], self.streamed
        chip = surrounded_chip(cut.split, cut.indices, cut.chip, self._augmentation)
        return make(
            train.split,
            train.indices,
            train.labels,
            *arguments,
            chip=chip,
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


def _listing(skipped) -> str:
    shown = [f"  {path}: {reason}" for path, reason in skipped[:10]]
    more = [f"  and {len(skipped) - 10} more"] if len(skipped) > 10 else []
    return "\n".join([f"{len(skipped)} images cannot be read and are left out:", *shown, *more])
