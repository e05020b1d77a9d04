"""Open-set recognition: binds data, network, loss and evaluation for the training loop."""

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
from jaxatr.reporting import score_record
from jaxatr.resolve import imported
from jaxatr.tasks import image_facts
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.gan.fields import FIELDS as GENERATOR
from jaxatr.tasks.open_set import reframing, terms, trials
from jaxatr.tasks.open_set.checks import check_fields, check_sources, note_of
from jaxatr.tasks.open_set.continuation import Continued
from jaxatr.tasks.open_set.deciders import NONE, RULE, decides
from jaxatr.tasks.open_set.evaluation_form import FORM as EVALUATION
from jaxatr.tasks.open_set.fields import FIELDS, RECIPES, TESTS
from jaxatr.tasks.open_set.needs import COMPUTED, given_by
from jaxatr.tasks.open_set.objective import Objective
from jaxatr.tasks.open_set.views import kept_as, outputs_of, views_of
from jaxatr.tasks.optimizer import build_optimizer, steps_of
from jaxatr.tasks.parts import Part, ids
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, LossOutput, Phase, Target, Task, TrainedRun, digest
from jaxatr.training.task import silent
from jaxatr.typing import ArrayLike, Batch, Config, Float, PyTree, Shaped


class OpenSet(Task):
    """Trains the closed-set head and the category-aware binary classifiers jointly (equation 4).

    Attributes:
      examples: the data.
      split: the split of its classes into known and unknown ones.
      parts: the examples of ``"train"``, ``"validation"`` and ``"test"``.
    """

    title = "open-set recognition"
    # Fields of baselines, of decisions after the training, of files that are recorded by content
    # instead of path, and of the test.
    free_fields = (
        *("gan", "open_set.negatives", "open_set.score", "open_set.per_class"),
        *("open_set.outliers", "open_set.enrolled"),
        *TESTS,
    )
    predictor = "jaxatr.recognition.recogniser:Recogniser"
    # What a finished run does is above the training, so it is named like the predictor.
    decider = "jaxatr.recognition.choice:made_for"
    evaluator = "jaxatr.recognition.evaluation:evaluate"
    exporter = "jaxatr.recognition.export:exportable"
    report = "jaxatr.tasks.open_set.report:REPORT"
    evaluation_form = EVALUATION
    kept = ("groups.*", "groups.*.scores.*", "outside.*", "further_scores.*", "fitted_gamma")
    best = "closed_accuracy"

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data is missing or does not match the configuration, or a field is
            invalid.
        """
        check_fields(config)
        self.config = config
        self._inferring: dict[frozenset[str], Callable[..., Any]] = {}
        self.examples, self.parts = self.open(config)
        if config.open_set.get("enrolled"):
            self.examples.add_classes(config.open_set.enrolled)
        self.split = self.examples.split
        if note := note_of(self.split):
            warnings.warn(note, stacklevel=2)
        if config.open_set.negatives:
            self.examples.add_negatives(config.open_set.negatives)
        if config.open_set.get("outliers"):
            self.examples.add_outliers(config.open_set.outliers)
        terms.check(config, self.examples.image_shape)
        self.module = self.network(config, {"split": self.split.as_dict()})
        self._objective = Objective(config, self.examples, self.module)
        self._pretrained = Pretrained(
            config.model, self.module.backbone, self.examples.image_shape[-1]
        )
        self._continued = None
        if config.open_set.get("continues"):
            self._continued = Continued(config.open_set.continues, self.split.known)
        steps, self.steps_per_epoch = steps_of(config.train, self.examples.pass_length)
        optimizer = build_optimizer(config.optimizer, steps, self.steps_per_epoch)
        trainable = models.trainable(config.model.freeze)
        self.phases = [Phase("open_set", self.loss, optimizer, max(1, steps), trainable)]

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields."""
        # The generator's fields are for the baseline G-OpenMax.
        own = {**FIELDS, **RECIPES, **terms.fields(), **TESTS}
        return {**own, **augmentations.fields(), **GENERATOR}

    def open(self, config: Config) -> tuple[Examples, dict[str, Part]]:
        """Opens the data, and returns it with :attr:`parts`."""
        examples = Examples(config)
        return examples, examples.parts

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> nn.Module:
        """Builds the network; a class of negatives, if any, comes after the known ones."""
        num_classes = len(record["split"]["known"]) + bool(config.open_set.negatives)
        reciprocal = config.loss.get("reciprocal_weight", 0.0) > 0
        return models.build_open_set(config.model, num_classes, reciprocal=reciprocal)

    @classmethod
    def exportable(
        cls,
        run: TrainedRun,
        *,
        score: str | None = None,
        source: str | None = None,
        precision: str = "",
    ) -> Exportable:
        """Returns the logits, trained binary classifiers, features and decision, for ONNX export.

        Args:
          run: the run.
          score: name of the score that decides in the graph; None for the run's, ``"none"`` for no
            decision.
          source: present location of the training data, for a score that is not fitted yet.
          precision: ``"int8"`` or ``"float16"``; empty for float32.

        Raises:
          ValueError: the score cannot be exported to ONNX.
        """
        module, views = run.module, views_of(run.config)
        reframing.check_present(run.variables, run.config, run.workdir, run.step)
        if score is None and run.config.open_set.negatives:  # a plain classifier
            score = NONE
        seen = views[:1] if score == NONE else views

        def network(
            variables: PyTree, inputs: tuple[jax.Array, ...], needs: Collection[str]
        ) -> Mapping[str, jax.Array]:
            (chips,) = inputs
            chips = reframing.reframed(module, variables, chips, run.normalize)
            out = outputs_of(module, variables, run.normalize(chips), needs, seen)
            return out | {"image": chips}

        given = given_by(module, run.config)
        exportable = imported(cls.exporter)(run, network, score, given, source, precision)
        return exportable._replace(classes=_classes(run))

    @classmethod
    def loaded(cls, run: TrainedRun) -> TrainedRun:
        """Adds the estimate of boxes to a run's variables, if the run has one."""
        if not reframing.mark(run.config):
            return run
        path = reframing.path_of(run.workdir, run.step, run.config)
        return run._replace(variables=reframing.with_estimate(run.variables, path))

    @classmethod
    def classifier(cls, run: TrainedRun) -> Target:
        """Returns the closed-set classifier, which takes images in raw units."""
        module, model = run.module, run.config.model
        variables = {k: v for k, v in run.variables.items() if k != reframing.COLLECTION}
        source = {
            "workdir": str(run.workdir),
            "fingerprint": run.record.get("fingerprint"),
            "step": run.step,
            "backbone": models.backbone_name(model),
            "width": model.width,
            "variables": digest(variables),
        }

        def logits(variables: PyTree, images: ArrayLike) -> jax.Array:
            return module.apply(variables, run.normalize(images), train=False).logits

        return Target(logits, variables, _classes(run), source)

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
        continued = {} if self._continued is None else {"continues": self._continued.record}
        return {**self.examples.record, **self._pretrained.record, **continued}

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises parameters and batch statistics, with any pretrained or continued network."""
        chip = jnp.zeros((1, *self.examples.image_shape))
        out, variables = self.module.init_with_output(key, chip)
        variables = dict(variables)
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        further = [term.init for term in self._objective.terms if term.init]
        for number, init in enumerate(further, 1):
            params |= init(jax.random.fold_in(key, number), out.features.shape[-1])
        params, model_state = self._pretrained.put_into(params, variables)
        if self._continued is not None:
            return self._continued.put_into(params, model_state)
        return params, model_state

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches."""
        del phase
        check_sources(self.config)  # raises errors before the training instead of after it
        return self.examples.train_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 4 and the further terms, summed over one device's part of a batch."""
        return self._objective(params, model_state, batch, key, step)

    def example_losses(
        self, logits: ArrayLike, open_logits: ArrayLike, labels: ArrayLike
    ) -> dict[str, jax.Array]:
        """Computes equation 4, as ``loss``, and its terms, ``[b]`` each.

        Args:
          logits: ``[b, k]``, of the closed-set classifier.
          open_logits: ``[b, k]``, of the binary classifiers.
          labels: ``[b]``, known classes.
        """
        return self._objective.example_losses(logits, open_logits, labels)

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns loss and closed-set accuracy on the validation part; empty if there is none."""
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
        """Names of the inputs of scores, other than logits, that this run can provide."""
        extra = {"extra_logits"} if self.config.open_set.negatives else set()
        return given_by(self.module, self.config) | extra

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the outputs for a part of the run, by its name (:meth:`outputs_of`)."""
        return self.outputs_of(variables, self.parts[part], needs)

    def outputs_of(
        self, variables: PyTree, part: Part, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the network's outputs for every example of a part, in order.

        Args:
          variables: parameters and batch statistics, on one device.
          part: the examples.
          needs: names of further outputs (:data:`jaxatr.tasks.open_set.needs.NEEDS`); those that
            need a gradient take several times as long.
        """
        rows: dict[str, list[np.ndarray]] = {}
        computed = COMPUTED | ({"image"} if reframing.COLLECTION in variables else set())
        infer = self._infer_with(computed & set(needs))
        batches = self.examples.eval_batches(part)
        for batch, out in parallel.map_batches(infer, variables, batches):
            for name, values in {"image": np.asarray(batch["image"]), **out}.items():
                if name in ("logits", "open_logits", *needs):
                    rows.setdefault(name, []).append(values[batch["mask"]])
        # Each column's batches are freed before the next column is put together.
        columns = {name: np.concatenate(rows.pop(name)) for name in list(rows)}
        logits, open_logits = columns.pop("logits"), columns.pop("open_logits")
        if self.config.open_set.negatives:
            known = len(self.split.known)
            columns["extra_logits"] = logits[:, known:]
            logits, open_logits = logits[:, :known], open_logits[:, :known]
        return openset.Outputs(logits, open_logits, part.labels, columns)

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for the recogniser's inputs; here, each example.

        Args:
          variables: parameters and batch statistics, on one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: names of further outputs (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
        """
        return self.outputs_of(variables, self.decided_part(part), needs)

    def decided_part(self, name: str) -> Part:
        """Returns the examples of a part as decisions see them.

        With ``open_set.box_error``, those that stand for chips of the field have moved boxes.
        """
        if name in ("validation", "held_out") and reframing.mark(self.config):
            error = self.config.open_set.box_error
            return self.examples.moved(name, error=error, copy=reframing.COPIES)
        return self.parts[name]

    def with_boxes(
        self,
        variables: PyTree,
        workdir: Path | None = None,
        step: int | None = None,
        say: Callable[[str], None] = silent,
    ) -> PyTree:
        """Returns variables with the estimate of boxes, which is fitted unless it is kept.

        Args:
          variables: parameters and batch statistics, on one device.
          workdir: the run's folder; without it, nothing is read or saved.
          step: step of the checkpoint.
          say: called before the fit.

        Raises:
          ValueError: the network has no maps to estimate boxes from, or its chips are not square.
        """
        if not reframing.mark(self.config) or reframing.COLLECTION in variables:
            return variables
        path = None
        if workdir is not None and step is not None:
            path = reframing.path_of(workdir, step, self.config)
            found = reframing.with_estimate(variables, path)
            if reframing.COLLECTION in found:
                return found
        names = reframing.maps_of(self.module)
        if not names:
            raise ValueError(
                "open_set.box_error: wanted a backbone that sows the map of stage 2 or 3, from "
                "which boxes are estimated: set it to 0"
            )
        say("estimating boxes")

        def maps_of(part: Part) -> Mapping[str, np.ndarray]:
            return self.outputs_of(variables, part, names).more

        estimate = reframing.estimated(self.examples, self.config, names, maps_of)
        if path is not None:
            reframing.save(path, estimate)
        return reframing.joined(variables, estimate)

    def sampled_outputs(
        self, variables: PyTree, most: int, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for a random sample of the training examples, always the same.

        Args:
          variables: parameters and batch statistics, on one device.
          most: size of the sample; fewer examples are all used.
          needs: see :meth:`decided_outputs`.
        """
        train = self.parts["train"]
        if len(train.labels) <= most:
            return self.outputs(variables, "train", needs)
        return self.outputs_of(variables, train.sample(most, self.config.seed), needs)

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Returns the configurations of trials, trainings without some classes."""
        return trials.configurations(config, len(self.split.known), self.phases[0].steps)

    def finished(
        self,
        variables: PyTree,
        workdir: Path,
        step: int,
        say: Callable[[str], None] = silent,
    ) -> dict[str, Any]:
        """Fits the score that decides, and saves it and facts of the training chips."""
        image_facts.save(workdir, image_facts.of_part(self.parts["train"], self.config.seed))
        variables = self.with_boxes(variables, workdir, step, say)
        if not decides(self.config):
            return {}
        made = imported(self.decider)(self, variables, workdir, step, say=say)
        return {"decision": {"step": step, **made.record}}

    def _infer_with(self, computed: frozenset[str]) -> Callable[..., dict[str, jax.Array]]:
        """Returns the function for some needs, always the same one, so that it is compiled once."""
        if not computed:
            return self.infer
        return self._inferring.setdefault(computed, partial(self._infer_more, needs=computed))

    def logits(
        self, variables: PyTree, images: Shaped[np.ndarray, "n h w c"]
    ) -> Float[np.ndarray, "n k"]:
        """Computes the closed-set classifier's logits for further chips, in raw units."""
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
        """Evaluates the network on the test part, with the metrics of the paper's tables.

        Args:
          variables: parameters and batch statistics, on one device.
          scores: names of scores (:func:`jaxatr.openset.choose_scores`), or ``"all"``, which skips
            scores that cannot be computed or fitted, with a warning. Scores are fitted to the
            training examples without augmentation. By default :data:`jaxatr.openset.DEFAULT` and
            the score that decides, without CBC for a plain classifier; for a network trained with
            negatives, only ``gopenmax``.
          outside: groups of images of other data, instead of ``open_set.outside``; ``""`` for none.
          workdir: the run's folder, from which baselines and the fitted decision are read.
          step: step of the checkpoint.
          progress: print progress on standard error.

        Returns:
          ``(measured, arrays)``. ``measured`` has a group for all test examples, one for each range
          if there are several, and one for each group of images of other data together with the
          known test examples. ``arrays`` has the network's logits, all scores, and their fitted
          models.

        Raises:
          ValueError: a named score cannot be computed, or cannot be fitted to the training
            examples.
        """
        evaluate = imported(self.evaluator)
        return evaluate(self, variables, scores, workdir, step, outside, progress)

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the most confident mistakes of each score in the test.

        Returns:
          ``id`` int32 ``[n]``; ``class`` ``[n]``, names of the true classes, also of unknown ones;
          ``image`` uint8 ``[n, h, w, c]``, from :func:`jaxatr.data.thumbnail`. At most 24 examples
          for each score and kind of :data:`jaxatr.reporting.score_record.MISTAKES`.
        """
        scores, decides = measured["groups"]["all"]["scores"], measured.get("decides")
        rows = score_record.worst_mistakes(arrays, scores, decides)
        places = {number: row for row, number in enumerate(ids(self.parts["test"]).tolist())}
        chosen = [places[number] for number in arrays["test_id"][rows].tolist()]
        return self.examples.thumbnails("test", np.array(chosen, int))

    def evaluated(self, measured: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Returns the fitted γ, the decision, and the step of their checkpoint, for the record."""
        fields = {"fitted_gamma": measured.get("fitted_gamma"), "fitted_gamma_step": step}
        fields["fitted_gamma_of"] = kept_as(RULE, self.config)
        if "decision" in measured:
            kept = {key: value for key, value in measured["decision"].items() if key != "test"}
            fields["decision"] = {"step": step, **kept}
        return fields

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the network's outputs for a batch, in test mode, averaged over its views."""
        return self._infer_more(variables, batch, frozenset())

    def _infer_more(
        self, variables: PyTree, batch: Batch, needs: frozenset[str]
    ) -> dict[str, jax.Array]:
        """Computes the outputs of :meth:`infer`, and further inputs of scores."""
        normalize = self.examples.normalize
        chips = reframing.reframed(self.module, variables, batch["image"], normalize)
        found = outputs_of(
            self.module, variables, normalize(chips), needs - {"image"}, views_of(self.config)
        )
        return found | {"image": chips} if "image" in needs else found


def _classes(run: TrainedRun) -> tuple[str, ...]:
    """Names the network's classes; ``run.classes`` does not include the class of negatives."""
    return (*run.classes, "unknown") if run.config.open_set.negatives else run.classes
