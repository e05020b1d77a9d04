"""Metric learning of an embedding in which neighbouring chips have the same class.

The quadruplet method is from Karaman et al. (2019), "Quadruplet Selection Methods for Deep
Embedding Learning"; the paper's baselines are available too.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxatr import data, metrics, models, parallel, training
from jaxatr.config import Fields
from jaxatr.data import augmentations
from jaxatr.extras import require
from jaxatr.forms import NUMBER
from jaxatr.losses import quadruplet
from jaxatr.reporting import score_record
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.embedding.evaluation import evaluate
from jaxatr.tasks.embedding.fields import FIELDS
from jaxatr.tasks.embedding.in_batch import find_in_batch, in_batch_loss
from jaxatr.tasks.embedding.mining import select
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.limits import are_numbers, check_limits
from jaxatr.tasks.open_set.evaluation_form import FORM as OPEN_SET
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, Hook, LossOutput, Phase, Task, TrainedRun
from jaxatr.typing import Batch, Config, Float, PyTree

_QUADRUPLET = "quadruplet"
_MEMBERS = 4  # images of a quadruplet
_OF_TWO, _TWO = ("margins", "global_margins", "global_weights"), "two numbers, 0 or more"


class Embedding(Task):
    """Trains an embedding on two levels of classes (figure 1, equation 6), or with another loss.

    With ``embedding.loss = "quadruplet"``, every training example is the reference of one
    quadruplet. Quadruplets are selected from the embeddings of all training examples, every
    ``mining.refresh`` epochs; a batch of b images consists of b/4 quadruplets. For other losses, a
    batch consists of ``embedding.per_class`` images of each of several classes.

    Attributes:
      examples: the data.
      split: the classes to train on ("known") and the new classes for the test ("unknown").
      parts: the examples of ``"train"``, ``"validation"`` and ``"test"``.
      hierarchy: the coarse class of each class.
    """

    title = "similarity search"
    predictor = "jaxatr.tasks.embedding.predictor:Retriever"
    report = "jaxatr.tasks.embedding.report:REPORT"
    evaluation_form = {**OPEN_SET, "retrieval": {"*": {"*": NUMBER}}}
    best = "recall_at_1"

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data is missing or does not match the configuration, or a field is
            invalid.
          ImportError: scikit-learn, of the extra ``report``, is not installed.
        """
        require("sklearn", extra="report", what="the evaluation of an embedding")
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
                f"data.coarse: the classes {', '.join(self.split.known)} all belong to one coarse "
                "class, but a quadruplet's negative must belong to another"
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
        """Declares the task's own configuration fields."""
        return {**FIELDS, **augmentations.fields()}

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
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
        """Builds the network, with a classifier for each level."""
        return models.build_embedding(
            config.model,
            len(set(record["coarse"])),
            len(record["split"]["known"]),
            dimension=config.embedding.dimension,
            unit_length=config.embedding.unit_length,
        )

    @classmethod
    def exportable(cls, run: TrainedRun) -> Exportable:
        """Returns the embedding and both levels' logits, for ONNX export."""
        module = run.module

        def apply(variables: PyTree, images: jax.Array) -> list[jax.Array]:
            out = module.apply(variables, images, train=False)
            return [out.embeddings, out.coarse_logits, out.fine_logits]

        outputs = ("embedding", "coarse_logits", "fine_logits")
        return Exportable(apply, run.variables, outputs, run.classes)

    def files(
        self, arrays: dict[str, np.ndarray], step: int
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """Moves the training chips' embeddings, which are the search index, to ``index.npz``."""
        names = [name for name in arrays if name.startswith("index_")]
        index = {name: arrays.pop(name) for name in names}
        return {training.INDEX: index | {"index_step": np.asarray(step)}}

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises parameters and batch statistics, with any pretrained backbone."""
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
        """Selects a quadruplet for every training example (section 3.3) from current embeddings.

        Args:
          step: number of steps so far, which is folded into the random seed.
          params: parameters of the network.
          model_state: batch statistics of the network.
          progress: show a progress bar while embedding.

        Returns:
          ``members`` int32 ``[n, 4]``, ``valid`` bool ``[n]`` and ``selected``, the step; see
          :func:`jaxatr.tasks.embedding.mining.select`.

        Raises:
          ValueError: no example has a quadruplet.
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
        """Computes one device's share of equation 6 over the global batch of quadruplets."""
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
        """Computes one device's share of an in-batch loss over the global batch."""
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
        """Applies the network to augmented images, in training mode."""
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
        """Computes the embeddings of every example of a part, in order.

        Args:
          variables: parameters and batch statistics, on one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          progress: show a progress bar on a terminal.
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
        """Computes the embeddings of a batch, in test mode."""
        images = self.examples.normalize(batch["image"])
        out: Any = self.module.apply(variables, images, train=False)
        return out.embeddings

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns Recall@1 and MAP@R on the validation part; empty if there is none.

        If classes are held out, their examples are used instead, because they correspond to the
        new classes of the test.
        """
        part = "held_out" if "held_out" in self.parts else "validation"
        if part not in self.parts:
            return {}
        embeddings = self.embed({"params": params, **model_state}, part)
        labels = self.parts[part].classes
        recall = {"recall_at_1": metrics.recall_at_k(embeddings, labels, (1,))[1]}
        if len(np.unique(labels)) == len(labels):  # one example per class: MAP@R is undefined
            return recall
        return recall | {"map_at_r": metrics.map_at_r(embeddings, labels)}

    def test(
        self, variables: PyTree, *, scores: str | Collection[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures retrieval and open-set recognition on the test part.

        Retrieval is measured without duplicate chips, among the test examples of classes that were
        not trained (``new``) and among those of trained classes (``trained``), if there are any.
        Recognition uses the nearest training chip: its class, and minus its distance as the score
        ``nearest``.

        Args:
          variables: parameters and batch statistics, on one device.
          scores: ``"nearest"``, ``"all"`` or None, which are equivalent here.

        Returns:
          ``(measured, arrays)`` in the form of :meth:`jaxatr.tasks.OpenSet.test`, with
          ``retrieval`` in ``measured``. The arrays ``index_…`` are the search index of the training
          chips, and ``map_…`` and ``sheet_…`` are for the report.

        Raises:
          ValueError: ``scores`` names another score.
        """
        return evaluate(self, variables, scores)

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the worst mistakes and of other examples in the report."""
        shown = [arrays[name].ravel() for name in ("map_row", "sheet_row", "sheet_neighbour")]
        worst = score_record.worst_mistakes(arrays, measured["groups"]["all"]["scores"])
        return self.examples.thumbnails("test", np.unique(np.concatenate([worst, *shown])))


def _of_global_batch(value: jax.Array, sums: dict[str, Any], model_state: PyTree) -> LossOutput:
    """Returns a device's share of a loss that every device computed over the global batch."""
    share = 1 / jax.lax.axis_size(parallel.AXIS)
    return LossOutput(value * share, jnp.float32(share), sums, model_state)


def _check_fields(config: Config) -> None:
    """Checks values that would otherwise fail during training or silently spoil it."""
    augmentations.check(dict(config.augment))
    fields, mined, size = config.embedding, config.mining, config.train.batch_size
    if fields.loss != _QUADRUPLET:
        find_in_batch(fields.loss)
    if fields.margin is not None and fields.loss in (_QUADRUPLET, "n_pairs"):
        raise ValueError(f"embedding.margin: got {fields.margin}; not used by {fields.loss}")
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
        mining__refresh_steps=(mined.refresh_steps >= 0, "0 (by epochs) or more"),
        mining__block_size=(mined.block_size >= 1, "at least 1"),
        open_set__tpr=(0 < config.open_set.tpr <= 1, "a share in (0, 1]"),
        embedding__class_weights=(are_numbers(fields.class_weights, 2), _TWO),
        **{
            f"quadruplet__{name}": (are_numbers(config.quadruplet[name], 2), _TWO)
            for name in _OF_TWO
        },
    )
