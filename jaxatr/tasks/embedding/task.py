"""Metric learning: an embedding in which the nearest chips are of the same class.

The quadruplet method is Karaman et al. (2019), "Quadruplet Selection Methods for Deep Embedding
Learning"; what that paper compares with is trained by the same loop.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxatr import data, metrics, models, openset, parallel, training
from jaxatr.config import Fields
from jaxatr.data import augmentations
from jaxatr.losses import quadruplet
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.embedding.evaluation import evaluate
from jaxatr.tasks.embedding.fields import FIELDS
from jaxatr.tasks.embedding.in_batch import find_in_batch, in_batch_loss
from jaxatr.tasks.embedding.mining import select
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, Hook, LossOutput, Phase, Task, TrainedRun
from jaxatr.typing import Batch, Config, Float, PyTree

_QUADRUPLET = "quadruplet"
_MEMBERS = 4  # of a quadruplet


class Embedding(Task):
    """Trains an embedding on two levels of classes (figure 1, equation 6), or on a baseline's loss.

    With ``embedding.loss = "quadruplet"`` every training example is the reference of one
    quadruplet, selected anew from the embeddings of all of them every ``mining.refresh`` epochs; a
    batch of b images holds b/4 quadruplets. The other losses take batches of
    ``embedding.per_class`` images of each of several classes.

    Attributes:
      examples: the data, and which of it is for what.
      split: which classes are trained on; the others test the embedding on what it never saw.
      parts: ``"train"``, ``"validation"``, ``"test"`` to the examples of each.
      hierarchy: the coarse class of each class.
    """

    predictor = "jaxatr.tasks.embedding.predictor:Retriever"
    report = "jaxatr.tasks.embedding.report:REPORT"
    best = "recall_at_1"

    def __init__(self, config: Config):
        """Opens the data and describes the training.

        Args:
          config: the run's configuration.

        Raises:
          ValueError: the data is missing or does not fit the configuration, or a field is wrong.
        """
        _check_fields(config)
        self.config = config
        self.examples = Examples(config)
        self.split, self.parts = self.examples.split, self.examples.parts
        self.hierarchy = data.coarse_of(self.examples.dataset, config.data.coarse)
        classes = self.examples.dataset.classes
        of_known = [self.hierarchy.fine_to_coarse[classes.index(c)] for c in self.split.known]
        coarse, self._coarse = np.unique(of_known, return_inverse=True)
        if config.embedding.loss == _QUADRUPLET and len(coarse) < 2:
            raise ValueError(
                f"data.coarse: the classes {', '.join(self.split.known)} are all of one coarse "
                "class: a quadruplet's negative is of another"
            )
        fields = config.embedding
        self.module = self.network(config, self._levels)
        self._pretrained = Pretrained(
            config.model, self.module.backbone, self.examples.image_shape[-1]
        )
        count = len(self.parts["train"].indices)
        self.steps_per_epoch = max(1, round(count / config.train.batch_size))
        steps = config.train.steps or round(config.train.epochs * self.steps_per_epoch)
        optimizer = build_optimizer(config.optimizer, steps, self.steps_per_epoch)
        mined = fields.loss == _QUADRUPLET
        loss = self.quadruplet_loss if mined else self.in_batch_loss
        trainable = models.trainable(config.model.freeze)
        self.phases = [Phase("embedding", loss, optimizer, max(1, steps), trainable)]
        refresh = config.mining.refresh_steps or round(config.mining.refresh * self.steps_per_epoch)
        self.hook = Hook(max(1, refresh), self.select, self._selected_batches) if mined else None

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields."""
        return {**FIELDS, **augmentations.FIELDS}

    @property
    def record(self) -> dict[str, Any]:
        """Facts that a retriever needs beside the parameters, and that a result must state."""
        return {**self.examples.record, **self._levels, **self._pretrained.record}

    @property
    def _levels(self) -> dict[str, Any]:
        names, classes = self.hierarchy.coarse_classes, self.examples.dataset.classes
        coarse = [names[self.hierarchy.fine_to_coarse[classes.index(c)]] for c in self.split.known]
        return {
            "hierarchy": self.hierarchy.name,
            "coarse": coarse,
            "split": self.split.as_dict(),
        }

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> models.EmbeddingNetwork:
        """Builds the network, with a classifier of each level."""
        return models.build_embedding(
            config.model,
            len(set(record["coarse"])),
            len(record["split"]["known"]),
            dimension=config.embedding.dimension,
            unit_length=config.embedding.unit_length,
        )

    @classmethod
    def exportable(cls, run: TrainedRun) -> Exportable:
        """Exports the embedding and the logits of both levels."""
        module = run.module

        def apply(variables: PyTree, images: jax.Array) -> list[jax.Array]:
            out = module.apply(variables, images, train=False)
            return [out.embeddings, out.coarse_logits, out.fine_logits]

        outputs = ("embedding", "coarse_logits", "fine_logits")
        return Exportable(apply, run.variables, outputs, run.classes)

    def files(
        self, arrays: dict[str, np.ndarray], step: int
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """Moves the training chips' embeddings, which a search goes through, to ``index.npz``."""
        names = [name for name in arrays if name.startswith("index_")]
        index = {name: arrays.pop(name) for name in names}
        return {training.INDEX: index | {"index_step": np.asarray(step)}}

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns freshly drawn parameters and batch statistics, the backbone's perhaps read."""
        variables = dict(self.module.init(key, jnp.zeros((1, *self.examples.image_shape))))
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of batches with several images of a class."""
        del phase
        return self.examples.class_batches(self.config.embedding.per_class)

    def select(
        self, step: int, params: PyTree, model_state: PyTree, progress: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns a quadruplet for every training example (section 3.3), from how it embeds now.

        Args:
          step: how many steps were taken; decides what is drawn.
          params: as :meth:`init` returns them.
          model_state: as there.
          progress: show how far the embedding is.

        Returns:
          What :func:`jaxatr.tasks.embedding.mining.select` returns.

        Raises:
          ValueError: not one example has a quadruplet.
        """
        labels = self.parts["train"].labels
        if self.config.mining.method == "random":
            embeddings = np.zeros((len(labels), 1), np.float32)
        else:
            variables = {"params": params, **model_state}
            embeddings = self.embed(variables, "train", progress=progress)
        coarse = self._coarse[labels].astype(np.int32)
        return select(
            embeddings, labels, coarse, self.config.mining, seed=self.config.seed, step=step
        )

    def _selected_batches(
        self, phase: Phase, state: Mapping[str, np.ndarray]
    ) -> data.BatchIterator:
        del phase
        selected = np.full(len(state["valid"]), state["selected"], np.int32)
        return self.examples.tuple_batches(
            state["members"],
            columns={"valid": state["valid"], "selected": selected},
            batch_size=self.config.train.batch_size // _MEMBERS,
            start=int(state["selected"]),
        )

    def quadruplet_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Returns one device's share of equation 6 over the global batch of quadruplets."""
        shape = batch["image"].shape
        flat = {name: batch[name].reshape(-1, *batch[name].shape[2:]) for name in ("image", "id")}
        flat["draw"] = jnp.repeat(batch["draw"], shape[1])
        out, model_state = self._apply(params, model_state, flat, key, step)
        reference, positive, sibling, negative = jnp.moveaxis(
            out.embeddings.reshape(*shape[:2], -1), 1, 0
        )
        fine, valid = batch["label"][:, 0], batch["valid"]
        fields = self.config.quadruplet
        margins, fine_logits = tuple(fields.margins), out.fine_logits[:: shape[1]]
        value = quadruplet.combined(
            reference,
            positive,
            sibling,
            negative,
            out.coarse_logits[:: shape[1]],
            fine_logits,
            jnp.asarray(self._coarse)[fine],
            fine,
            margins=margins,
            class_weights=tuple(self.config.embedding.class_weights),
            global_margins=tuple(fields.global_margins),
            global_weights=tuple(fields.global_weights),
            eta=fields.eta,
            reduction=fields.reduction,
            valid=valid,
            axis_name=parallel.AXIS,
        )
        counted = jnp.sum(valid, dtype=jnp.float32)
        joint = quadruplet.joint(
            reference, positive, sibling, negative, margins=margins, valid=valid
        )
        correct = jnp.sum((jnp.argmax(fine_logits, axis=-1) == fine) & valid)
        age = jnp.sum(step - batch["selected"], dtype=jnp.float32)
        rows = jnp.float32(len(valid))
        sums = {
            "joint": (jnp.sum(joint), counted),
            "fine_accuracy": (correct.astype(jnp.float32), counted),
            "valid": (counted, rows),
            "selection_age": (age, rows),
        }
        return _of_global_batch(value, sums, model_state)

    def in_batch_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Returns one device's share of a baseline's loss over the global batch."""
        out, model_state = self._apply(params, model_state, batch, key, step)
        fields, labels = self.config.embedding, batch["label"]
        gather = partial(jax.lax.all_gather, axis_name=parallel.AXIS, tiled=True)
        value = in_batch_loss(
            fields.loss, gather(out.embeddings), gather(labels), margin=fields.margin
        )
        sums = {fields.loss: (value, jnp.float32(1))}
        if any(fields.class_weights):
            coarse = jnp.asarray(self._coarse)[labels]
            each = quadruplet.hierarchical_cross_entropy(
                out.coarse_logits,
                out.fine_logits,
                coarse,
                labels,
                weights=tuple(fields.class_weights),
            )
            value += jax.lax.pmean(jnp.mean(each), parallel.AXIS)
        return _of_global_batch(value, sums, model_state)

    def _apply(self, params, model_state, batch: Batch, key: jax.Array, step: jax.Array):
        """Returns the network's outputs on augmented images, in training mode."""
        images = self.examples.augment(
            key,
            self.examples.normalize(batch["image"]),
            batch["id"],
            batch["draw"],
        )
        return apply_training(self.module, params, model_state, images, key, step)

    def embed(
        self, variables: PyTree, part: str, *, progress: bool = False
    ) -> Float[np.ndarray, "n d"]:
        """Returns the embeddings of every example of a part, in its order.

        Args:
          variables: parameters and batch statistics, for one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          progress: show a bar at a terminal.
        """
        batches = self.examples.eval_batches(part)
        bar = tqdm(
            parallel.map_batches(self.infer, variables, batches),
            total=len(batches),
            desc="embedding",
            leave=False,
            position=1,
            disable=None if progress else True,
        )
        return np.concatenate([rows[batch["mask"]] for batch, rows in bar])

    def infer(self, variables: PyTree, batch: Batch) -> jax.Array:
        """Returns the embeddings of a batch, in test mode."""
        images = self.examples.normalize(batch["image"])
        out: Any = self.module.apply(variables, images, train=False)
        return out.embeddings

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns Recall@1 and MAP@R on the validation part; nothing without one.

        Where classes are held out, on their examples: they are what the test's new classes are to
        the finished embedding.
        """
        part = "held_out" if "held_out" in self.parts else "validation"
        if part not in self.parts:
            return {}
        embeddings = self.embed({"params": params, **model_state}, part)
        labels = self.parts[part].classes
        recall = {"recall_at_1": metrics.recall_at_k(embeddings, labels, (1,))[1]}
        if len(np.unique(labels)) == len(labels):  # each alone in its class: there is no R
            return recall
        return recall | {"map_at_r": metrics.map_at_r(embeddings, labels)}

    def test(
        self, variables: PyTree, *, scores: str | Collection[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures retrieval and open-set recognition on the test part.

        Retrieval is measured among the test examples of the classes that were not trained on
        (``new``), and among those of the classes that were (``trained``), where there are any; of
        equal chips the first alone takes part.
        An example is recognised by the nearest training chip: its class, and minus its distance
        as the score ``nearest`` of how known it is.

        Args:
          variables: parameters and batch statistics, for one device.
          scores: ``"nearest"``, ``"all"`` or None, which are the same here.

        Returns:
          ``(measured, arrays)``, as :meth:`jaxatr.tasks.OpenSet.test` does; ``measured`` has
          ``retrieval`` besides. Of the arrays, ``index_…`` are those of a search among the training
          chips, and ``map_…`` and ``sheet_…`` what the report shows.

        Raises:
          ValueError: another score is asked for.
        """
        return evaluate(self, variables, scores)

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the worst mistakes, and of what the report shows besides.

        Args:
          measured: what :meth:`test` returned.
          arrays: what it returned besides.
        """
        shown = [arrays[name].ravel() for name in ("map_row", "sheet_row", "sheet_neighbour")]
        worst = openset.worst_mistakes(arrays, measured["groups"]["all"]["scores"])
        return self.examples.thumbnails("test", np.unique(np.concatenate([worst, *shown])))


def _of_global_batch(value: jax.Array, sums: dict[str, Any], model_state: PyTree) -> LossOutput:
    """Returns a device's share of a loss that every device has whole."""
    share = 1 / jax.lax.axis_size(parallel.AXIS)
    return LossOutput(value * share, jnp.float32(share), sums, model_state)


def _check_fields(config: Config) -> None:
    """Refuses what would end a training only after it has begun, or spoil it without a word."""
    augmentations.check(dict(config.augment))
    fields, mined, size = config.embedding, config.mining, config.train.batch_size
    if fields.loss != _QUADRUPLET:
        find_in_batch(fields.loss)
    if fields.margin is not None and fields.loss in (_QUADRUPLET, "n_pairs"):
        raise ValueError(f"embedding.margin: got {fields.margin}; {fields.loss} takes none here")
    selects = fields.loss == _QUADRUPLET
    check_limits(
        config,
        train__batch_size=(
            size >= 1 and not (selects and size % _MEMBERS),
            "a multiple of 4, for quadruplets" if selects else "at least 1",
        ),
        embedding__per_class=(selects or fields.per_class >= 2, "at least 2"),
        embedding__dimension=(fields.dimension >= 0, "0 (off) or more"),
        mining__refresh=(mined.refresh > 0 or mined.refresh_steps > 0, "more than 0 epochs"),
        mining__block_size=(mined.block_size >= 1, "at least 1"),
        open_set__tpr=(0 < config.open_set.tpr <= 1, "a share in (0, 1]"),
    )
