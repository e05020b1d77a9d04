"""The training, validation and test examples of a run."""

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np

from jaxatr import data, openset
from jaxatr.tasks.bands import chip_of, preview_of, record_of
from jaxatr.tasks.boxes import shares_of_chip, surrounded_chip
from jaxatr.tasks.normalization import constants_of, normalizing_network
from jaxatr.tasks.opened_data import listing, opened
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
    """The data set of a configuration, divided into parts.

    Attributes:
      dataset: the data set.
      split: the split of its classes into known and unknown ones.
      parts: ``"train"``, ``"validation"`` (optional) and ``"test"``; with held-out known classes
        also ``"held_out"``, their training examples; with ``data.box_error`` also ``"box_off"``,
        the test examples cropped to perturbed boxes.
      own_test: whether the test examples are those of the data set.
      image_shape: ``(h, w, c)`` of all chips.
      preview: the channels of a chip that pictures show; empty for the usual ones.
      mean, std: mean and standard deviation of each channel of the training images, or the
        constants of a published network, in raw units; 0 and 1 without normalisation.
    """

    def __init__(self, config: Config, *, tracks: bool = False):
        """Opens the data.

        Args:
          config: the run's configuration.
          tracks: hold out whole tracks for validation instead of single chips.

        Raises:
          ValueError: the data is missing or does not match the configuration.
        """
        fields = config.data
        self.dataset = opened(fields)
        self.split = data.known_unknown(
            config.open_set.split,
            self.dataset.classes,
            seed=config.open_set.split_seed,
            trainable=trainable_classes(self.dataset, fields),
        )
        if config.open_set.hold_out:
            held = config.open_set
            self.split = data.hold_out_classes(self.split, held.hold_out, held.hold_out_turn)
        chip = self._chip = chip_of(fields, self.dataset)
        if self.dataset.skipped:
            warnings.warn(listing(fields, self.dataset.skipped), stacklevel=3)
        self.parts = parts_of(self.dataset, self.split, config, chip, tracks=tracks)
        self.own_test = True
        self.image_shape = shared_shape(self.parts)
        self.preview = preview_of(fields, self.dataset.bands, chip.choice, self.image_shape[2])
        train = self.parts["train"]
        self._network = normalizing_network(config)
        if self._network is None:
            self.mean, self.std = data.image_statistics(train.split, train.indices, chip)
        else:
            self.mean, self.std = constants_of(self._network, train.split.dtype, self.image_shape)
        self._units = self.mean, self.std  # of the augmentations
        if not fields.normalize:
            self.mean, self.std = np.zeros_like(self.mean), np.ones_like(self.std)
        self._batch_size, self._seed = config.train.batch_size, config.seed
        self._config = config
        self._negatives: dict[str, Any] = {}
        self._outliers: Part | None = None

    @property
    def _augmentation(self) -> dict[str, Any]:
        """The current fields of ``config.augment``, as fractions of the chip's side."""
        return shares_of_chip(self._config.augment, self._config.data.box_margin)

    @property
    def streamed(self) -> Part:
        """The training part followed by the outliers, which are labelled ``openset.UNKNOWN``."""
        return self._outliers or self.parts["train"]

    def replace_test(self, part: Part) -> None:
        """Puts other examples in the place of the test; only training and validation remain."""
        for name in self.parts.keys() - {"train", "validation"}:
            del self.parts[name]
        self.parts["test"], self.own_test = part, False

    def add_outliers(self, source: str) -> None:
        """Adds images of no known class to the training batches.

        They do not belong to any part, so nothing is fitted to them or measured on them.

        Args:
          source: a split of the data set, or a folder or archive of images, which are preprocessed
            like those of the data set.

        Raises:
          ValueError: there is no such source, it is already used for training or test, or
            the chips have another shape or dtype than those of the data set.
        """
        if source in self.dataset.splits:
            self._outliers = with_outliers(
                self.dataset, self.parts["train"], source, self._config.data, self._chip
            )
            count = len(self._outliers.labels) - len(self.parts["train"].labels)
            self._negatives |= {"outliers": {"images": count, "split": source}}
        else:
            self._add_outliers_of(source)

    def _add_outliers_of(self, source: str) -> None:
        train = self.parts["train"]
        images, fingerprint = data.read_chips(source, self._chip, self.dataset.bands)
        try:
            self._outliers = train.joined(images, openset.UNKNOWN)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
        self._negatives |= {"outliers": {"images": len(images), "fingerprint": fingerprint}}

    def add_classes(self, path: str) -> None:
        """Adds chips of additional classes, from a file, to training and validation.

        New classes come after the known ones, in the order of the file; chips of known classes are
        added to these. The usual fraction of each class is held out for validation. The other chips
        of each class are repeated, so that they are sampled as often as an average class of the
        data. Test examples of the new classes become known. Examples contained in the file are
        removed from validation and test. All training chips are then stored without their
        surroundings, so that perturbed boxes show the chip's reflection beyond its edges.

        Args:
          path: path of an ``.npz`` file with ``images``, ``[m, h, w, c]``, chips with the shape and
            dtype of the data's, and ``names``, ``[m]``, the class of each. With ``rounds``,
            ``[m]``, the chips of each number are held out apart.

        Raises:
          ValueError: there is no such file, or its images have another shape or dtype.
        """
        images, fingerprint = data.read_images(path)
        names = data.read_names(path, len(images))
        previous = self.split.known
        further = tuple(name for name in dict.fromkeys(names) if name not in previous)
        known = (*previous, *further)
        self.split = dataclasses.replace(
            self.split,
            name=f"{self.split.name}, enrolled: {', '.join(dict.fromkeys(names))}",
            known=known,
            unknown=tuple(name for name in self.split.unknown if name not in known),
        )
        enrolled = list({hashlib.sha256(image.tobytes()).hexdigest() for image in images})
        numbers = {name: known.index(name) for name in further}
        others = {
            name: ~np.isin(self.fingerprints(name), enrolled)
            for name in ("validation", "test")
            if name in self.parts
        }
        if BOX_OFF in self.parts:
            others[BOX_OFF] = others["test"]  # both have the same examples
        for name, kept in others.items():
            part = self.parts[name]
            self.parts[name] = part.with_classes(numbers, kept)
        labels = np.array([known.index(name) for name in names])
        fields, train = self._config.data, self.parts["train"]
        kept, held = np.arange(len(labels)), np.zeros(0, int)
        if "validation" in self.parts:
            seed = self._seed if fields.validation_seed is None else fields.validation_seed
            rounds = data.read_rounds(path, len(labels))  # whose divisions stay as they were
            each = [np.flatnonzero(rounds == number) for number in np.unique(rounds)]
            held = np.concatenate(
                [rows[data.holdout(labels[rows], fields.validation, seed)[1]] for rows in each]
            )
            kept = np.setdiff1d(kept, held)
        per_class = round(len(train.labels) / len(previous))
        repeated = [
            np.resize(rows, max(per_class, len(rows)))
            for c in np.unique(labels)
            if len(rows := kept[labels[kept] == c])
        ]
        chosen = np.concatenate(repeated)
        try:
            self.parts["train"] = train.joined(images[chosen], labels[chosen])
            if len(held):
                validation = self.parts["validation"]
                self.parts["validation"] = validation.joined(images[held], labels[held])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        counts = {name: names.count(name) for name in further}
        facts = {"images": len(images), "fingerprint": fingerprint, "classes": counts}
        self._negatives |= {"enrolled": facts}

    def add_negatives(self, path: str) -> None:
        """Adds the images of a file to the training part, as one class after the known ones.

        Args:
          path: path of an ``.npz`` file with ``images``, ``[m, h, w, c]``, chips of no known class
            with the shape and dtype of the data's.

        Raises:
          ValueError: there is no such file, or its images have another shape or dtype.
        """
        images, fingerprint = data.read_images(path)
        try:
            self.parts["train"] = self.parts["train"].joined(images, len(self.split.known))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        self._negatives |= {"negatives": {"images": len(images), "fingerprint": fingerprint}}

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
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
            **record_of(self.dataset.bands, self._chip.choice, self.preview, self.image_shape[2]),
            "normalization": {
                "mean": self.mean.tolist(),
                "std": self.std.tolist(),
                **({"by": self._network.name} if self._network else {}),
            },
        }

    def normalize(self, images: ArrayLike) -> jax.Array:
        """Normalises raw images ``[..., c]`` for the network."""
        return data.normalize(images, self.mean, self.std)

    def moved(self, part: str, *, error: float, copy: int) -> Part:
        """Returns a part whose chips are cut by boxes that are off.

        Args:
          part: name of the part.
          error: largest deviation, as a share of the box's side.
          copy: which of several draws of the boxes.

        Raises:
          ValueError: the chips are not square, or their centre is blanked.
        """
        chosen = self.parts[part]
        split = data.other_boxes(
            chosen.split,
            chosen.chip,
            error=error,
            margin=self._config.data.box_margin,
            copy=copy,
            reflect=True,
        )
        return Part(split, chosen.indices, chosen.labels, data.Chip())

    def thumbnails(self, part: str, rows: Int[np.ndarray, " m"]) -> dict[str, np.ndarray]:
        """Returns small pictures of some examples of a part.

        Args:
          part: name of the part.
          rows: ``[m]``, positions in the part.

        Returns:
          ``id`` int32 ``[m]``; ``class`` ``[m]``, names of the true classes, also of unknown ones;
          ``image`` uint8 ``[m, h, w, c]``, from :func:`jaxatr.data.thumbnail`.
        """
        chosen = self.parts[part]
        indices = chosen.indices[rows]
        chips = (chosen.chip(chosen.split.image(index)) for index in indices)
        return {
            "id": chosen.split.columns["id"][indices],
            "class": np.array([chosen.split.classes[label] for label in chosen.classes[rows]]),
            "image": np.array(
                [data.thumbnail(data.shown(chip, self.preview)) for chip in chips], np.uint8
            ),
        }

    def fingerprints(self, part: str) -> Shaped[np.ndarray, " n"]:
        """Returns the SHA-256 of each chip of a part; identical chips have the same."""
        chosen = self.parts[part]
        chips = (chosen.chip(chosen.split.image(index)) for index in chosen.indices)
        return np.array([hashlib.sha256(c.tobytes()).hexdigest() for c in chips])

    def train_batches(self, batch_size: int | None = None) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches.

        Args:
          batch_size: global batch size; by default the configured one.
        """
        return self._training(
            data.train_batches,
            batch_size=batch_size or self._batch_size,
            balance=self.balance,
        )

    @property
    def balance(self) -> str:
        """How a pass repeats examples of rare classes (:mod:`jaxatr.data.balance`)."""
        return self._config.train.get("balance", data.UNBALANCED)

    @property
    def streamed_labels(self) -> Int[np.ndarray, " n"]:
        """The labels of what a pass goes through."""
        return self.streamed.labels

    @property
    def pass_length(self) -> int:
        """The number of training examples in a pass, in which some may be repeated."""
        rows, _ = data.balanced_pass(self.streamed_labels, self.balance)
        return len(rows)

    def class_batches(self, per_class: int) -> data.BatchIterator:
        """Returns an endless iterator of batches of several classes, ``per_class`` images of each.

        Args:
          per_class: images of a class in a batch (:func:`jaxatr.data.class_batches`).
        """
        return self._training(data.class_batches, batch_size=self._batch_size, per_class=per_class)

    def tuple_batches(self, members: Int[np.ndarray, "n m"], **options: Any) -> data.BatchIterator:
        """Returns an endless iterator of batches of tuples of training examples.

        Args:
          members: ``[n, m]``, positions in the training part.
          **options: ``batch_size``, ``columns`` and ``start`` of :func:`jaxatr.data.tuple_batches`.
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
        """Augments a training batch's images by ``config.augment`` and crops their chips.

        Args:
          key: the run's key.
          images: normalised images of a batch.
          ids: ids of the examples.
          epochs: number of previous passes over the data, for each example.
          boxes: ids from which perturbed boxes are drawn; by default ``ids``.
          raw: whether the images are in raw units instead of normalised ones.
          only: names of the fields to apply; by default all.
        """
        fields = {name: v for name, v in self._augmentation.items() if not only or name in only}
        fields |= {"shape": self.image_shape[:2], "boxes": boxes}
        if raw:
            return data.augment(key, images, ids, epochs, **fields)
        fields["mean"], fields["std"] = mean, std = self._units
        if self._config.data.normalize:
            return data.augment(key, images, ids, epochs, **fields)
        # The network normalises its input itself, but some augmentations take normalised images.
        images = data.normalize(images, mean, std)
        varied = data.augment(key, images, ids, epochs, **fields)
        return varied * np.float32(std) + np.float32(mean)

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

    def eval_batches(self, part: str | Part) -> data.EvalBatches:
        """Returns batches of a part's examples in order; each iteration is one pass."""
        chosen = self.parts[part] if isinstance(part, str) else part
        return data.eval_batches(
            chosen.split,
            chosen.indices,
            chosen.labels,
            chip=chosen.chip,
            batch_size=self._batch_size,
        )
