"""Open-set recognition: binds data, network, loss and evaluation for the one training loop."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, losses, models, openset, parallel
from jaxatr.tasks.base import LossOutput, Phase
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.typing import Batch, Config, PyTree

_OPEN_LOSSES = {"cbc": losses.cbc, "bce": losses.one_vs_rest_bce, "none": None}


class OpenSet:
    """Trains the closed-set head and the category-aware binary classifiers together (equation 4).

    Attributes:
      dataset: where the examples come from.
      split: which of its classes are known.
      parts: ``"train"``, ``"validation"``, ``"test"`` to the examples of each.
      chip: geometry that every image goes through.
      mean, std: of the training images, per channel, in their raw units.
    """

    cycles = 1
    best = "closed_accuracy"
    hook = None

    def __init__(self, config: Config):
        """Opens the data and describes the training.

        Raises:
          ValueError: the data is missing or does not fit the configuration, or a field is wrong.
        """
        _check_fields(config)
        self.config = config
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
        self.chip = data.Chip(
            center_crop=fields.center_crop,
            square=fields.square,
            size=fields.size,
            channels=fields.channels or None,
        )
        if self.dataset.skipped:
            warnings.warn(_listing(self.dataset.skipped), stacklevel=2)
        self.parts = _parts(self.dataset, self.split, fields, config.seed)
        _check_shapes(self.parts, self.chip)
        self.mean, self.std = data.image_statistics(
            self.parts["train"].split, self.parts["train"].indices, self.chip
        )
        self.module = models.build_open_set(config.model, len(self.split.known))
        examples, batch = len(self.parts["train"].indices), config.train.batch_size
        self.steps_per_epoch = max(1, round(examples / batch))
        steps = config.train.steps or round(config.train.epochs * examples / batch)
        optimizer = build_optimizer(config.optimizer, steps, self.steps_per_epoch)
        self.phases = [Phase("open_set", self.loss, optimizer, max(1, steps))]

    @property
    def record(self) -> dict[str, Any]:
        """What a recogniser needs beside the parameters, and what a result must state."""
        return {
            "dataset": {
                "name": self.dataset.name,
                "version": self.dataset.version,
                "fingerprint": self.dataset.fingerprint,
            },
            "split": self.split.as_dict(),
            "examples": {name: len(part.indices) for name, part in self.parts.items()},
            "skipped": [list(entry) for entry in self.dataset.skipped],
            "image_shape": list(self._example.shape),
            "image_dtype": self._example.dtype.name,
            "normalization": {"mean": self.mean.tolist(), "std": self.std.tolist()},
        }

    @property
    def _example(self) -> np.ndarray:
        """A chip as the network sees it: all have its shape and type."""
        train = self.parts["train"]
        return self.chip(train.split[int(train.indices[0])]["image"])

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns freshly drawn parameters and batch statistics."""
        variables = dict(self.module.init(key, jnp.zeros((1, *self._example.shape))))
        params = variables.pop("params")
        return params, variables

    def batches(self, phase: Phase) -> Any:
        """Returns this process's endless iterator of training batches."""
        del phase
        train = self.parts["train"]
        return data.train_batches(
            train.split,
            train.indices,
            train.labels,
            chip=self.chip,
            batch_size=self.config.train.batch_size,
            seed=self.config.seed,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
        )

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Returns equation 4 summed over one device's share of a batch."""
        fields, labels = self.config.augment, batch["label"]
        images = data.augment(
            key,
            normalize(batch["image"], self.mean, self.std),
            batch["id"],
            batch["epoch"],
            rotate_degrees=fields.rotate_degrees,
            flip_horizontal=fields.flip_horizontal,
            flip_vertical=fields.flip_vertical,
            shift=fields.shift,
        )
        dropout = jax.random.fold_in(
            jax.random.fold_in(key, step), jax.lax.axis_index(parallel.AXIS)
        )
        out, model_state = self.module.apply(
            {"params": params, **model_state},
            images,
            train=True,
            mutable=list(model_state),
            rngs={"dropout": dropout},
        )
        values = self.example_losses(out.logits, out.open_logits, labels)
        count = jnp.float32(len(labels))
        correct = jnp.argmax(out.logits, axis=-1) == labels
        sums = {name: (jnp.sum(value), count) for name, value in values.items() if name != "loss"}
        sums["closed_accuracy"] = (jnp.sum(correct, dtype=jnp.float32), count)
        return LossOutput(jnp.sum(values["loss"]), count, sums, model_state)

    def example_losses(self, logits, open_logits, labels) -> dict[str, jax.Array]:
        """Returns the total loss and its parts, ``[b]`` each."""
        weights = self.config.loss
        closed, entropy = losses.cross_entropy(logits, labels), losses.entropy(logits)
        total = closed + weights.entropy_weight * entropy
        values = {"cross_entropy": closed, "entropy": entropy}
        if open_loss := _OPEN_LOSSES[weights.open]:
            values[weights.open] = open_loss(open_logits, labels)
            total += weights.open_weight * values[weights.open]
        return {"loss": total, **values}

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns the loss and closed-set accuracy on the validation part; nothing without one."""
        if "validation" not in self.parts:
            return {}
        outputs = self.outputs({"params": params, **model_state}, "validation")
        values = self.example_losses(*outputs)
        return {
            "loss": float(jnp.mean(values["loss"])),
            "closed_accuracy": float(np.mean(outputs.logits.argmax(-1) == outputs.labels)),
        }

    def outputs(self, variables: PyTree, part: str) -> openset.Outputs:
        """Returns the network's outputs on every example of a part, in its order."""
        chosen = self.parts[part]
        batches = data.eval_batches(
            chosen.split,
            chosen.indices,
            chosen.labels,
            chip=self.chip,
            batch_size=self.config.train.batch_size,
        )
        rows: list[tuple[np.ndarray, np.ndarray]] = []
        for batch, out in parallel.map_batches(self.infer, variables, batches):
            rows.append((out.logits[batch["mask"]], out.open_logits[batch["mask"]]))
        logits, open_logits = (np.concatenate(column) for column in zip(*rows, strict=True))
        return openset.Outputs(logits, open_logits, chosen.labels)

    def test(self, variables: PyTree) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Returns the figures of the paper's tables on the test part, and what they came from.

        Args:
          variables: parameters and batch statistics, for one device.

        Returns:
          ``(measured, arrays)``. ``measured`` has one group for all test examples and, where they
          were seen from several ranges, one for each. ``arrays`` holds the network's outputs.
        """
        outputs = {
            part: self.outputs(variables, part)
            for part in ("validation", "test")
            if part in self.parts
        }
        fields = self.config.open_set
        scores = ("softmax", "mls") + (() if self.config.loss.open == "none" else ("cbc",))
        measure = partial(openset.evaluate, gamma=fields.gamma, tpr=fields.tpr, scores=scores)
        test, validation = outputs["test"], outputs.get("validation")
        groups = {"all": measure(test, validation)}
        ranges = self.parts["test"].column("range_m")
        if ranges is not None and len(np.unique(ranges)) > 1:
            for value in np.unique(ranges):
                groups[f"{value} m"] = measure(test.select(ranges == value), validation)
        measured = {
            "task": "open_set",
            "dataset": self.record["dataset"],
            "split": self.split.as_dict(),
            "known": list(self.split.known),
            "unknown": list(self.split.unknown),
            "gamma": fields.gamma,
            "tpr": fields.tpr,
            "fitted_gamma": groups["all"].pop("fitted_gamma", None),
            "groups": groups,
        }
        arrays = {}
        for part, out in outputs.items():
            arrays |= {f"{part}_{name}": values for name, values in out._asdict().items()}
            arrays[f"{part}_id"] = self.parts[part].column("id")
            if (seen := self.parts[part].column("range_m")) is not None:
                arrays[f"{part}_range_m"] = seen
        return measured, arrays

    def infer(self, variables: PyTree, batch: Batch) -> models.OpenSetOutput:
        """Returns the network's outputs on a batch, in test mode."""
        return infer(self.module, variables, batch["image"], self.mean, self.std)


def normalize(images, mean, std):
    """Returns raw images as float32 with the given mean and standard deviation taken out."""
    return (jnp.asarray(images, jnp.float32) - np.float32(mean)) / np.float32(std)


def infer(module, variables: PyTree, images, mean, std) -> models.OpenSetOutput:
    """Returns a network's outputs on raw images, in test mode."""
    return module.apply(variables, normalize(images, mean, std), train=False)


def _check_fields(config: Config) -> None:
    """Refuses what would end a training only after it has begun, or spoil it without a word."""
    if config.loss.open not in _OPEN_LOSSES:
        raise ValueError(
            f"loss.open: got {config.loss.open!r}, wanted one of {', '.join(_OPEN_LOSSES)}"
        )
    train, open_set = config.train, config.open_set
    limits = {
        "train.batch_size": (train.batch_size >= 1, "at least 1"),
        "train.steps": (train.steps >= 0, "0 (off) or more"),
        "train.epochs": (train.steps > 0 or train.epochs > 0, "more than 0"),
        "train.evaluate_every": (train.evaluate_every > 0, "more than 0"),
        "train.checkpoint_every": (train.checkpoint_every >= 1, "at least 1"),
        "train.log_every": (train.log_every >= 1, "at least 1"),
        "train.keep": (train.keep >= 1, "at least 1"),
        "augment.shift": (config.augment.shift >= 0, "0 (off) or more"),
        "data.validation": (0 <= config.data.validation < 1, "a share in [0, 1)"),
        "open_set.gamma": (0 <= open_set.gamma <= 1, "a probability in [0, 1]"),
        "open_set.tpr": (0 < open_set.tpr <= 1, "a share in (0, 1]"),
    }
    for name, (fits, wanted) in limits.items():
        if not fits:
            group, field = name.split(".")
            raise ValueError(f"{name}: got {config[group][field]}, wanted {wanted}")


def _listing(skipped) -> str:
    shown = [f"  {path}: {reason}" for path, reason in skipped[:10]]
    more = [f"  and {len(skipped) - 10} more"] if len(skipped) > 10 else []
    return "\n".join([f"{len(skipped)} images cannot be read and are left out:", *shown, *more])


def _check_shapes(parts: "dict[str, Part]", chip: data.Chip) -> None:
    """Refuses test chips of another shape: a network of convolutions would take them in silence."""
    shapes = {name: part.split.chip_shape(part.indices, chip) for name, part in parts.items()}
    for name, shape in shapes.items():
        if shape != shapes["train"]:
            raise ValueError(
                f"data: chips of shape {shape} in the {name} part and {shapes['train']} in the "
                "training part: set data.size, or data.center_crop"
            )


class Part:
    """Some examples of a data set's split, with labels among the known classes."""

    def __init__(self, split: data.Split, indices: np.ndarray, labels: np.ndarray):
        """Args: the split, which of its examples, and their labels (``openset.UNKNOWN``: none)."""
        self.split, self.indices, self.labels = split, indices, labels

    def column(self, name: str) -> np.ndarray | None:
        """Returns a per-example field, or ``None`` where the data set has no such field."""
        column = self.split.columns.get(name)
        return None if column is None else column[self.indices]


def _parts(dataset, split, fields, seed) -> dict[str, Part]:
    """Returns the training, validation (where wanted) and test examples."""
    for name in (fields.train_split, fields.test_split):
        if name not in dataset.splits:
            raise ValueError(
                f"data: no split {name!r} in {dataset.name}, which has {', '.join(dataset.splits)}"
            )
    to_known = np.full(len(dataset.classes), openset.UNKNOWN, np.int32)
    for label, name in enumerate(split.known):
        to_known[dataset.classes.index(name)] = label
    where = {name: tuple(values) for name, values in fields.select.items() if values}

    train = dataset.splits[fields.train_split]
    indices = data.select(train, classes=split.known, where=where)
    labels = to_known[train.columns["label"][indices]]
    if missing := [name for i, name in enumerate(split.known) if not np.any(labels == i)]:
        raise ValueError(
            f"data: the split {fields.train_split!r} of {dataset.name} holds no example of "
            f"{', '.join(missing)}, known by open_set.split"
        )
    parts = {}
    if fields.validation:
        kept, held_out = data.holdout(labels, fields.validation, seed)
        if len(held_out):
            parts["validation"] = Part(train, indices[held_out], labels[held_out])
            indices, labels = indices[kept], labels[kept]
        else:
            warnings.warn(
                f"data.validation: a share of {fields.validation} of each class is less than one "
                "image, so nothing is validated and no γ is fitted",
                stacklevel=3,
            )
    parts["train"] = Part(train, indices, labels)

    test = dataset.splits[fields.test_split]
    indices = data.select(test, classes=split.known + split.unknown, where=where)
    parts["test"] = Part(test, indices, to_known[test.columns["label"][indices]])
    return parts
