"""Detection: binds scenes, network, loss and evaluation for the training loop."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr import data, losses, models, parallel
from jaxatr.models.detector import MULTIPLE
from jaxatr.resolve import imported
from jaxatr.scenes.boxes import giou
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.detection import evaluation
from jaxatr.tasks.detection.assignment import UNKNOWN, assign, boxes_at
from jaxatr.tasks.detection.decoding import Decoded, decode
from jaxatr.tasks.detection.examples import SceneExamples
from jaxatr.tasks.detection.export import exportable
from jaxatr.tasks.detection.scene_task import SceneTask, tile_limits
from jaxatr.tasks.limits import check_choices, check_limits
from jaxatr.tasks.open_set.checks import find_open_loss
from jaxatr.tasks.optimizer import build_optimizer, steps_of
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, LossOutput, Phase, Task, TrainedRun
from jaxatr.training.task import silent
from jaxatr.typing import Batch, Config, PyTree

_OF_CHIPS = {
    **{f"data.{name}": 0 for name in ("blank_center", "center_crop", "size")},
    **{f"data.{name}": 0.0 for name in ("box_margin", "box_error")},
    "data.square": False,
    **{f"augment.{name}": 0 for name in ("rotate_degrees", "shift", "box_shift", "box_scale")},
    "open_set.hold_out": 0,
    "data.select.range_m": (),
    "data.select.band": (),
}
"""Fields of chips that scenes do not have, with the values that turn them off."""

_CFAR = "jaxatr.tasks.detection.cfar:Cfar"  # by name, because it loads what a network does not need


class Detection(SceneTask):
    """Trains a dense detector: where targets are, their boxes, and binary classifiers of classes.

    A picture's loss is the focal loss of the map of centres, 1 - GIoU of the boxes, and the loss of
    the category-aware binary classifiers (equation 3 of Safaei et al. 2023) at the places of the
    targets, so that a target that all of them refuse is of no known class.

    """

    title = "detection"
    predictor = "jaxatr.tasks.detection.predictor:Detector"
    free_fields = (
        "detection.false_alarms",
        "detection.ground_sample_distance",
        "open_set.tpr",
        "open_set.gamma",
    )

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data is missing or does not match the configuration, or a field is
            invalid.
        """
        _check_fields(config)
        self.config = config
        self.examples = SceneExamples(config)
        self.examples.check_channels()
        self.split = self.examples.split
        self.module = self.network(config, {"split": self.split.as_dict()})
        self._pretrained = Pretrained(config.model, self.module.backbone, self.examples.channels)
        self._open_loss = find_open_loss(config.loss.open)
        count = len(self.examples.parts["train"])
        steps, self.steps_per_epoch = steps_of(config.train, count)
        optimizer = build_optimizer(config.optimizer, steps, self.steps_per_epoch)
        trainable = models.trainable(config.model.freeze)
        self.phases = [Phase("detection", self.loss, optimizer, max(1, steps), trainable)]

    @classmethod
    def of_config(cls, config: Config) -> type[Task]:
        """Returns the task of the detector that ``detection.method`` names."""
        check_choices(config, detection__method=("network", "cfar"))
        return cls if config.detection.method == "network" else imported(_CFAR)

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> models.DetectionNetwork:
        """Builds the network."""
        count = len(record["split"]["known"])
        return models.build_detector(config.model, count, width=config.detection.width)

    @classmethod
    def exportable(cls, run: TrainedRun) -> Exportable:
        """Returns the network with decoding, suppression and decision, for ONNX."""
        return exportable(run)

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
        return {**self.examples.record, **self._pretrained.record}

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises parameters and batch statistics, with any pretrained backbone."""
        side = 2 * MULTIPLE
        variables = dict(self.module.init(key, jnp.zeros((1, side, side, self.examples.channels))))
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of pictures."""
        del phase
        return self.examples.train_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes the loss, summed over the targets of one device's part of a batch."""
        images = self.examples.normalize(batch["image"])
        out, model_state = apply_training(self.module, params, model_state, images, key, step)
        fields, (height, width) = self.config.loss, out.target.shape[1:]
        assigned = jax.vmap(lambda b, k: assign(b, k, height, width))(
            batch["boxes"], batch["labels"]
        )
        centres = losses.centre_focal(out.target, assigned.heat)
        centres = jnp.sum(jnp.where(assigned.ignored, 0, centres))
        rows = jnp.arange(len(images))[:, None, None]
        own, labels = (batch[name][rows, assigned.owner] for name in ("boxes", "labels"))
        boxes = jnp.sum(assigned.weight * (1 - giou(boxes_at(out.distances), own)))
        total = centres + fields.box_weight * boxes
        targets = jnp.sum(batch["labels"] >= UNKNOWN, dtype=jnp.float32)
        sums = {"centres": (centres, targets), "boxes": (boxes, targets)}
        if self._open_loss is not None:
            logits = out.open_logits.reshape(-1, out.open_logits.shape[-1])
            flat = labels.reshape(-1)
            known = flat >= 0
            values = jnp.where(
                known,
                self._open_loss(logits, jnp.where(known, flat, 0)),
                losses.refused_by_all(logits),
            )
            weight = assigned.weight.reshape(-1)
            classes = jnp.sum(weight * values)
            total += fields.open_weight * classes
            right = jnp.sum(weight * known * (jnp.argmax(logits, axis=-1) == flat))
            sums |= {"classes": (classes, targets)}
            sums |= {"class_accuracy": (right, jnp.sum(weight * known))}
        return LossOutput(total, targets, sums, model_state)

    def infer(self, variables: PyTree, batch: Batch) -> Decoded:
        """Finds the targets in a batch of tiles, in test mode."""
        out: Any = self.module.apply(variables, self.examples.normalize(batch["image"]))
        fields = self.config.detection
        return decode(out, most=fields.most, overlap=fields.overlap)

    def search(
        self, variables: PyTree, batches: Iterable[Batch]
    ) -> Iterator[tuple[Batch, Decoded]]:
        """Yields what is found in batches of tiles."""
        return parallel.map_batches(self.infer, variables, batches)

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns recall and naming on the validation scenes; empty if there are none."""
        if "validation" not in self.examples.parts:
            return {}
        found = self.found({"params": params, **model_state}, "validation")
        return evaluation.summary(self, found)

    def finished(
        self,
        variables: PyTree,
        workdir: Path,
        step: int,
        say: Callable[[str], None] = silent,
    ) -> dict[str, Any]:
        """Fits the least score and γ to the validation scenes, if there are any."""
        del workdir
        if "validation" not in self.examples.parts:
            gamma = self.config.open_set.gamma
            return {"detection": {"step": step, "threshold": 0.5, "gamma": gamma, "fitted": False}}
        say("fitting the thresholds of the detector to the validation scenes")
        fitted = evaluation.fit(self, self.found(variables, "validation"))
        return {"detection": {"step": step, **fitted}}


def _check_fields(config: Config) -> None:
    """Checks values that would otherwise fail during training or silently spoil it."""
    find_open_loss(config.loss.open)
    fields, scales = config.detection, tuple(config.detection.scales)
    for name, off in _OF_CHIPS.items():
        value = config
        for part in name.split("."):
            value = value[part]
        if value != off:
            raise ValueError(f"{name}: got {value!r}, which is for chips, not for scenes")
    check_choices(config, detection__unknown=("ignore", "background"))
    check_limits(
        config,
        detection__width=(fields.width >= 8 and not fields.width % 8, "a multiple of 8"),
        detection__picture=(
            fields.picture >= 2 * MULTIPLE and not fields.picture % MULTIPLE,
            f"a multiple of {MULTIPLE} from {2 * MULTIPLE}",
        ),
        detection__scales=(
            len(scales) == 2 and 0 < scales[0] <= scales[1],
            "the least and the greatest scale",
        ),
        detection__mosaic=(0 <= fields.mosaic <= 1, "a probability in [0, 1]"),
        detection__aimed=(0 <= fields.aimed <= 1, "a probability in [0, 1]"),
        **tile_limits(config),
        detection__false_alarms=(fields.false_alarms > 0, "more than 0"),
        loss__open_weight=(config.loss.open_weight >= 0, "0 (off) or more"),
        loss__box_weight=(config.loss.box_weight >= 0, "0 (off) or more"),
        open_set__gamma=(0 <= config.open_set.gamma <= 1, "a probability in [0, 1]"),
        open_set__tpr=(0 < config.open_set.tpr <= 1, "a share in (0, 1]"),
    )
