"""Open-set recognition: binds data, network, loss and evaluation for the one training loop."""

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, models, openset, parallel
from jaxatr.config import Fields
from jaxatr.data import augmentations
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.gan.fields import FIELDS as GENERATOR
from jaxatr.tasks.open_set import outside, trials
from jaxatr.tasks.open_set.checks import check_fields
from jaxatr.tasks.open_set.continued import Continued
from jaxatr.tasks.open_set.deciding import RULE, decides, made_for
from jaxatr.tasks.open_set.evaluation import evaluate
from jaxatr.tasks.open_set.exported import NONE, exportable
from jaxatr.tasks.open_set.fields import FIELDS, RECIPES, TESTS
from jaxatr.tasks.open_set.needs import COMPUTED, given_by
from jaxatr.tasks.open_set.objective import Objective
from jaxatr.tasks.open_set.recipes import check_recipe, rotation_head
from jaxatr.tasks.open_set.views import kept_as, outputs_of, views_of
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.tasks.parts import Part
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, LossOutput, Phase, Target, Task, TrainedRun, digest
from jaxatr.typing import ArrayLike, Batch, Config, Float, PyTree, Shaped


class OpenSet(Task):
    """Trains the closed-set head and the category-aware binary classifiers together (equation 4).

    Attributes:
      examples: the data, and which of it is for what.
      split: which of its classes are known.
      parts: ``"train"``, ``"validation"``, ``"test"`` to the examples of each.
    """

    # Of what is trained beside the run, to compare; what is decided after the training; a folder
    # whose content is recorded; and what is tested.
    free_fields = (
        *("gan", "open_set.negatives", "open_set.score", "open_set.per_class"),
        *("open_set.outliers", "open_set.enrolled"),
        *TESTS,
    )
    predictor = "jaxatr.tasks.open_set.predictor:Recogniser"
    report = "jaxatr.tasks.open_set.report:REPORT"
    kept = ("groups.*", "groups.*.scores.*", "outside.*", "further_scores.*", "fitted_gamma")
    best = "closed_accuracy"

    def __init__(self, config: Config):
        """Opens the data and describes the training.

        Args:
          config: the run's configuration.

        Raises:
          ValueError: the data is missing or does not fit the configuration, or a field is wrong.
        """
        check_fields(config)
        self.config = config
        self._inferring: dict[frozenset[str], Callable[..., Any]] = {}
        self.examples, self.parts = self.open(config)
        if config.open_set.get("enrolled"):
            self.examples.add_classes(config.open_set.enrolled)
        self.split = self.examples.split
        if note := _note(self.split):
            warnings.warn(note, stacklevel=2)
        if config.open_set.negatives:
            self.examples.add_negatives(config.open_set.negatives)
        if config.open_set.get("outliers"):
            self.examples.add_outliers(config.open_set.outliers)
        check_recipe(config, self.examples.image_shape)
        self.module = self.network(config, {"split": self.split.as_dict()})
        self._objective = Objective(config, self.examples, self.module)
        self._pretrained = Pretrained(
            config.model, self.module.backbone, self.examples.image_shape[-1]
        )
        self._continued = None
        if config.open_set.get("continues"):
            self._continued = Continued(config.open_set.continues, self.split.known)
        examples, batch = len(self.examples.streamed.indices), config.train.batch_size
        self.steps_per_epoch = max(1, round(examples / batch))
        steps = config.train.steps or round(config.train.epochs * examples / batch)
        optimizer = build_optimizer(config.optimizer, steps, self.steps_per_epoch)
        trainable = models.trainable(config.model.freeze)
        self.phases = [Phase("open_set", self.loss, optimizer, max(1, steps), trainable)]

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields."""
        # Its baseline G-OpenMax trains a generator.
        return {**FIELDS, **RECIPES, **TESTS, **augmentations.FIELDS, **GENERATOR}

    def open(self, config: Config) -> tuple[Examples, dict[str, Part]]:
        """Returns the data, and :attr:`parts`."""
        examples = Examples(config)
        return examples, examples.parts

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> nn.Module:
        """Builds the network; a class of negatives comes after the known ones."""
        num_classes = len(record["split"]["known"]) + bool(config.open_set.negatives)
        reciprocal = config.loss.get("reciprocal_weight", 0.0) > 0
        return models.build_open_set(config.model, num_classes, reciprocal=reciprocal)

    @classmethod
    def exportable(
        cls, run: TrainedRun, *, score: str | None = None, source: str | None = None
    ) -> Exportable:
        """Exports the logits, binary classifiers where they are trained, features, and decision.

        Args:
          run: the run.
          score: by which is decided in the graph; None for the run's, ``"none"`` for no decision.
          source: where the training data is now, for a score that is not fitted yet.

        Raises:
          ValueError: the score has no form in ONNX.
        """
        module, views = run.module, views_of(run.config)
        # The class of the negatives is not among the known ones.
        further = bool(run.config.open_set.negatives)
        classes = (*run.classes, "unknown") if further else run.classes
        score = NONE if further else score
        seen = views[:1] if score == NONE else views

        def network(
            variables: PyTree, inputs: tuple[jax.Array, ...], needs: Collection[str]
        ) -> Mapping[str, jax.Array]:
            (chips,) = inputs
            found = outputs_of(module, variables, run.normalize(chips), needs, seen)
            return found | {"image": chips}

        given = given_by(module) | cls._binary(run.config)
        return exportable(run, network, score, given, source)._replace(classes=classes)

    @staticmethod
    def _binary(config: Config) -> frozenset[str]:
        """Names the need that trained binary classifiers are."""
        return frozenset() if config.loss.open == "none" else frozenset({"open_logits"})

    @classmethod
    def classifier(cls, run: TrainedRun) -> Target:
        """Takes the closed-set classifier, which takes images in their raw units."""
        module, model = run.module, run.config.model
        source = {
            "workdir": str(run.workdir),
            "fingerprint": run.record.get("fingerprint"),
            "step": run.step,
            "backbone": models.backbone_name(model),
            "width": model.width,
            "variables": digest(run.variables),
        }

        def logits(variables: PyTree, images: ArrayLike) -> jax.Array:
            return module.apply(variables, run.normalize(images), train=False).logits

        return Target(logits, run.variables, run.classes, source)

    @property
    def record(self) -> dict[str, Any]:
        """Facts that a recogniser needs beside the parameters, and that a result must state."""
        own = {} if self._continued is None else {"continues": self._continued.record}
        return {**self.examples.record, **self._pretrained.record, **own}

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns freshly drawn parameters and batch statistics, the backbone's perhaps read."""
        chip = jnp.zeros((1, *self.examples.image_shape))
        out, variables = self.module.init_with_output(key, chip)
        variables = dict(variables)
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        if self._objective.recipe.rotation:
            params |= rotation_head(jax.random.fold_in(key, 1), out.features.shape[-1])
        params, model_state = self._pretrained.put_into(params, variables)
        if self._continued is not None:
            return self._continued.put_into(params, model_state)
        return params, model_state

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches."""
        del phase
        outside.check(self.config)  # before a training, and not after it
        return self.examples.train_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 4 and the recipe's terms, summed over one device's part of a batch."""
        return self._objective(params, model_state, batch, key, step)

    def example_losses(self, logits, open_logits, labels) -> dict[str, jax.Array]:
        """Computes equation 4, as ``loss``, and its terms, ``[b]`` each.

        Args:
          logits: ``[b, k]``, of the closed-set classifier.
          open_logits: ``[b, k]``, of the binary classifiers.
          labels: ``[b]``, known classes.
        """
        return self._objective.example_losses(logits, open_logits, labels)

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns the loss and closed-set accuracy on the validation part; nothing without one."""
        if "validation" not in self.parts:
            return {}
        outputs = self.outputs({"params": params, **model_state}, "validation")
        values = self.example_losses(outputs.logits, outputs.open_logits, outputs.labels)
        return {
            "loss": float(jnp.mean(values["loss"])),
            "closed_accuracy": float(np.mean(outputs.logits.argmax(-1) == outputs.labels)),
        }

    @property
    def given(self) -> frozenset[str]:
        """Names of what scores may need beside the logits and this run can give."""
        own = {"extra_logits"} if self.config.open_set.negatives else set()
        return given_by(self.module) | self._binary(self.config) | own

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Returns the network's outputs on every example of a part, in its order.

        Args:
          variables: parameters and batch statistics, for one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: names of what is wanted beside the logits
            (:data:`jaxatr.tasks.open_set.needs.NEEDS`); a gradient costs several times as much.
        """
        rows: dict[str, list[np.ndarray]] = {}
        infer = self._infer_with(COMPUTED & set(needs))
        batches = self.examples.eval_batches(part)
        for batch, out in parallel.map_batches(infer, variables, batches):
            for name, values in {**out, "image": np.asarray(batch["image"])}.items():
                if name in ("logits", "open_logits", *needs):
                    rows.setdefault(name, []).append(values[batch["mask"]])
        columns = {name: np.concatenate(parts) for name, parts in rows.items()}
        logits, open_logits = columns.pop("logits"), columns.pop("open_logits")
        if self.config.open_set.negatives:
            known = len(self.split.known)
            columns["extra_logits"] = logits[:, known:]
            logits, open_logits = logits[:, :known], open_logits[:, :known]
        return openset.Outputs(logits, open_logits, self.parts[part].labels, columns)

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs on what a recogniser takes one by one; here, each example.

        The arguments are those of :meth:`outputs`.
        """
        return self.outputs(variables, part, needs)

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Lists the trainings without some known classes, by which ``auto`` chooses a score."""
        return trials.configurations(config, len(self.split.known), self.phases[0].steps)

    def finished(self, variables: PyTree, workdir: Path, step: int) -> dict[str, Any]:
        """Fits the score that decides, and keeps it in the run's folder."""
        if not decides(self.config):
            return {}
        made = made_for(self, variables, workdir, step)
        return {"decision": {"step": step, **made.record}}

    def _infer_with(self, computed: frozenset[str]) -> Callable[..., dict[str, jax.Array]]:
        """Returns one function for each set of needs, so that each is compiled once."""
        if not computed:
            return self.infer
        return self._inferring.setdefault(computed, partial(self._infer_more, needs=computed))

    def logits(
        self, variables: PyTree, images: Shaped[np.ndarray, "n h w c"]
    ) -> Float[np.ndarray, "n k"]:
        """Returns the closed-set classifier's logits on further chips, raw as the data's are."""
        size = self.config.train.batch_size
        batches = ({"image": images[i : i + size]} for i in range(0, len(images), size))
        outputs = parallel.map_batches(self.infer, variables, batches)
        return np.concatenate([out["logits"] for _, out in outputs])

    def test(
        self,
        variables: PyTree,
        *,
        scores: str | Collection[str] | None = None,
        outside: str | None = None,
        workdir: Path | None = None,
        step: int | None = None,
        progress: bool = False,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures the network on the test part, by the figures of the paper's tables.

        Args:
          variables: parameters and batch statistics, for one device.
          scores: names of scores (:func:`jaxatr.openset.choose_scores`), or ``"all"``, which leaves
            out, with a warning, one that cannot be computed or fitted. Those that are fitted are
            fitted to the training examples, as they look at test time. Default,
            :data:`jaxatr.openset.DEFAULT` and the score that decides, of a plain classifier without
            CBC; of a network that was shown negatives, its one score ``gopenmax``.
          outside: groups of images of other data, in place of ``open_set.outside``; ``""``: none.
          workdir: the run's folder, for scores that were trained beside the run and for what was
            fitted to decide by.
          step: of the checkpoint.
          progress: say on standard error what is computed and fitted.

        Returns:
          ``(measured, arrays)``. ``measured`` has one group for all test examples and, where they
          were seen from several ranges, one for each, and one for each group of images of other
          data, with the known test examples. ``arrays`` holds the network's logits, every
          score, and the models that were fitted for them.

        Raises:
          ValueError: a score is named that cannot be computed, or fitted to the training examples.
        """
        return evaluate(self, variables, scores, workdir, step, outside, progress)

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the test examples that a score gets most confidently wrong.

        Args:
          measured: what :meth:`test` returned.
          arrays: what it returned besides.

        Returns:
          ``id`` int32 ``[n]``; ``class`` ``[n]``, the names of their true classes, those of unknown
          ones too; ``image`` uint8 ``[n, h, w, c]``, as :func:`jaxatr.data.thumbnail` makes them.
          At most 24 examples for each score and kind of :data:`jaxatr.openset.recorded.MISTAKES`.
        """
        rows = openset.worst_mistakes(arrays, measured["groups"]["all"]["scores"])
        return self.examples.thumbnails("test", rows)

    def evaluated(self, measured: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Keeps the γ that the evaluation fitted, the decision, and their checkpoint."""
        found = {"fitted_gamma": measured.get("fitted_gamma"), "fitted_gamma_step": step}
        found["fitted_gamma_of"] = kept_as(RULE, self.config)
        if "decision" in measured:
            own = {key: value for key, value in measured["decision"].items() if key != "test"}
            found["decision"] = {"step": step, **own}
        return found

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Returns the network's outputs on a batch, in test mode, averaged over its views."""
        return self._infer_more(variables, batch, frozenset())

    def _infer_more(
        self, variables: PyTree, batch: Batch, needs: frozenset[str]
    ) -> dict[str, jax.Array]:
        """Returns :meth:`infer`'s outputs and what scores need besides."""
        images = self.examples.normalize(batch["image"])
        return outputs_of(self.module, variables, images, needs, views_of(self.config))


def _note(split: data.KnownUnknown) -> str:
    """Says what a run without a split leaves out; empty for a split that was chosen."""
    if split.name != "closed":
        return ""
    if split.unknown:
        names = ", ".join(split.unknown)
        return f"unknown, as there is nothing of them to train on: {names}"
    return (
        "no class is unknown, so the evaluation leaves AUROC, OSCR and FPR out: "
        "--config.open_set.split=known:A,B names the known classes, the rest is unknown"
    )
