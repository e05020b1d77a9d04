"""Attentive knowledge distillation of a surrogate that explains a trained network.

Lee and Kim (2021), "Explaining Neural Networks Using Attentive Knowledge Distillation". An
attentive student learns to match the target network's outputs (equation 4), and an explanation
network learns to mask the image without changing the target's output (equation 8).
"""

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, losses, models
from jaxatr.config import Fields
from jaxatr.explain import load_target
from jaxatr.forms import COUNT, NUMBER, TEXT
from jaxatr.kernels.compiled import Compiled
from jaxatr.tasks.distillation.checks import check_fields
from jaxatr.tasks.distillation.evaluation import compare, evaluate, validate
from jaxatr.tasks.distillation.fields import FIELDS
from jaxatr.tasks.distillation.saliency_terms import saliency_terms
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.keys import example_keys
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.tasks.pretrained import Pretrained
from jaxatr.training import Exportable, LossOutput, Phase, Surrogate, Task, TrainedRun
from jaxatr.typing import ArrayLike, Batch, Config, PyTree

_STATE = "batch_stats"


class Distillation(Task):
    """Trains a surrogate of a target network, in two stages or end to end (section 3).

    The target's variables are part of the parameters, but no phase trains them. The target's
    architecture is read from its folder or file, which must exist whenever the run is used.

    Attributes:
      examples: the data; only the target's known classes are used.
      split: the target's split into known and unknown classes.
      parts: the examples of ``"train"``, ``"validation"`` and ``"test"``.
      target: the network to explain.
    """

    title = "explanation by distillation"
    usage = "explain --workdir={workdir} --out=DIR IMAGE..."
    report = "jaxatr.tasks.distillation.report:REPORT"
    evaluation_form = {
        "target": {"workdir": TEXT, "step": COUNT},
        "explanation": {
            "examples": COUNT,
            "methods": {"*": {"*": NUMBER}},
            "convention": [{"pixels_per_step": COUNT}],
            "*": NUMBER,
        },
    }
    kept = ("explanation.methods.*",)
    best = "fidelity"
    free_fields = ("distillation.target",)  # the target may move: the record identifies it

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data or the target is missing, or they do not match each other or the
            configuration.
        """
        fields = config.distillation
        check_fields(config)
        self.config = config
        self.examples = Examples(config)
        self.split, self.parts = self.examples.split, self.examples.parts
        self.target = load_target(fields.target)
        if self.target.classes == (*self.split.known, "unknown"):
            raise ValueError(
                f"distillation.target: {fields.target} has a class of negatives "
                "(open_set.negatives), which no surrogate can learn"
            )
        if self.target.classes != self.split.known:
            raise ValueError(
                f"distillation.target: the known classes of {fields.target} are "
                f"{', '.join(self.target.classes)}, but those of open_set.split are "
                f"{', '.join(self.split.known)}: use the split of the target's run"
            )
        begins = config.model.pretrained
        same = begins and Path(begins).absolute() == Path(fields.target).absolute()
        if same and not Path(begins).is_dir():
            raise ValueError(
                f"model.pretrained: got {begins}, the target, which is no run whose weights the "
                "student could start from: --config.model.pretrained= starts from random ones"
            )
        self.module = models.build_surrogate(config, len(self.split.known))
        self._pretrained = Pretrained(
            config.model, self.module.student.backbone, self.examples.image_shape[-1]
        )
        self.steps_per_epoch = max(
            1, round(len(self.parts["train"].indices) / config.train.batch_size)
        )
        self.phases = self._phases()

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields."""
        return FIELDS

    def _phases(self) -> list[Phase]:
        config, epoch = self.config, self.steps_per_epoch
        fields, second = config.distillation, config.explanation
        steps = max(1, config.train.steps or round(config.train.epochs * epoch))
        optimizer = build_optimizer(config.optimizer, steps, epoch)
        if fields.end_to_end:
            return [Phase("surrogate", self.whole_loss, optimizer, steps, _not_the_target)]
        later = max(1, second.steps or round(second.epochs * epoch))
        schedule = config.optimizer.copy_and_resolve_references()
        schedule.backbone_factor, schedule.restarts = 1.0, 0  # this network has no backbone
        schedule.update(
            {name: second[name] for name in ("learning_rate", "schedule", "boundaries")}
        )
        return [
            Phase("student", self.student_loss, optimizer, steps, _part_of("student")),
            Phase(
                "explanation",
                self.explanation_loss,
                build_optimizer(schedule, later, epoch),
                later,
                _part_of("explainer"),
            ),
        ]

    @property
    def record(self) -> dict[str, Any]:
        """Information needed in addition to the parameters to use the run and state its results."""
        source = {"target": dict(self.target.source)}
        return {**self.examples.record, **source, **self._pretrained.record}

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> models.Surrogate:
        """Builds the surrogate: the student and the explanation network."""
        return models.build_surrogate(config, len(record["split"]["known"]))

    @classmethod
    def exportable(cls, run: TrainedRun) -> Exportable:
        """Returns the student's logits and the saliency map, for ONNX export."""
        module, params = run.module, run.variables["params"]
        exported = {name: params[name] for name in ("student", "explainer")}

        def apply(variables: PyTree, images: jax.Array) -> list[jax.Array]:
            out = module.apply(variables, images, train=False)
            return [out.logits, out.saliency]

        variables = {**run.variables, "params": exported}
        return Exportable(apply, variables, ("logits", "saliency"), run.classes)

    @classmethod
    def explains(cls, record: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
        """Returns whether the recorded target is the network of ``source``, wherever it is."""
        # Only recorded fields are compared, because older versions recorded fewer of them.
        recorded = record["target"].items()
        return all(source.get(name) == value for name, value in recorded if name != "workdir")

    @classmethod
    def surrogate(cls, run: TrainedRun) -> Surrogate:
        """Returns the surrogate and its target, whose variables are part of the run.

        Raises:
          ValueError: the target is missing or has changed.
        """
        target = load_target(run.config.distillation.target)
        if not cls.explains(run.record, target.source):
            raise ValueError(
                f"distillation.target: {run.workdir} explains another network: recorded "
                f"{run.record['target']}, now {target.source}"
            )
        params = dict(run.variables["params"])
        target, module = target._replace(variables=params.pop("target")), run.module

        def saliency(variables: PyTree, images: ArrayLike) -> jax.Array:
            return module.apply(variables, run.normalize(images), train=False).saliency

        return Surrogate(target, Compiled(saliency, {**run.variables, "params": params}))

    def check_continues(self, workdir: str | os.PathLike, recorded: Mapping[str, Any]) -> None:
        """Checks that a run can be continued with the present data and target.

        Raises:
          ValueError: the data or the target differs; the target's location is ignored.
        """
        super().check_continues(workdir, recorded)
        before, now = recorded.get("target"), self.target.source
        if before and not self.explains(recorded, now):
            raise ValueError(
                f"distillation.target: {workdir} explains another network: recorded {before}, now "
                f"{now}"
            )

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises parameters and batch statistics, and adds the target's variables."""
        images = jnp.zeros((1, *self.examples.image_shape))
        variables = dict(self.module.init(key, images))
        params = variables.pop("params")
        student = {"params": params["student"], _STATE: variables[_STATE]["student"]}
        begun, state = self._pretrained.put_into(student["params"], {_STATE: student[_STATE]})
        params = {**params, "student": begun, "target": self.target.variables}
        return params, {_STATE: {**variables[_STATE], "student": state[_STATE]}}

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches."""
        del phase
        return self.examples.train_batches()

    def student_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 4, summed over one device's part of a batch."""
        del step
        images, labels = self._images(batch, key), batch["label"]
        teacher = self.target.logits(params["target"], images)
        out, new = self._run(
            params, model_state, images, method="classify", train=True, mutable=[_STATE]
        )
        values = {"distillation": self._distillation(teacher, out.logits, labels)}
        values |= _agreement(teacher, out.logits, labels)
        return _summed(values["distillation"], values, new)

    def explanation_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 8, summed over one device's part of a batch."""
        images = self._images(batch, key)
        teacher = self.target.logits(params["target"], images)
        out, new = self._run(params, model_state, images, train=True, mutable=[_STATE])
        keys = example_keys(batch["id"], key, step)
        values = self._explanation(params, model_state, images, teacher, out.saliency, keys)
        return _summed(values["explanation"] + values["prior"], values, new)

    def whole_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 11, summed over one device's part of a batch."""
        images, labels = self._images(batch, key), batch["label"]
        teacher = self.target.logits(params["target"], images)
        out, new = self._run(
            params, model_state, images, train=True, end_to_end=True, mutable=[_STATE]
        )
        values = {"distillation": self._distillation(teacher, out.logits, labels)}
        keys = example_keys(batch["id"], key, step)
        values |= self._explanation(params, model_state, images, teacher, out.saliency, keys)
        total = values["distillation"] + values["explanation"] + values["prior"]
        return _summed(total, values | _agreement(teacher, out.logits, labels), new)

    def _distillation(self, teacher, student, labels) -> jax.Array:
        fields = self.config.distillation
        return losses.distillation(
            teacher, student, labels, temperature=fields.temperature, alpha=fields.alpha
        )

    def _explanation(
        self, params, model_state, images, teacher, saliency, keys
    ) -> dict[str, jax.Array]:
        score = partial(self._score, params, model_state)
        return saliency_terms(self.config.distillation, score, images, teacher, saliency, keys)

    def _score(self, params: PyTree, model_state: PyTree, images: jax.Array) -> jax.Array:
        if self.config.distillation.scorer == "target":
            return self.target.logits(params["target"], images)
        # The student scores with its running statistics, as it does after training.
        return self._run(params, model_state, images, method="classify").logits

    def _run(self, params: PyTree, model_state: PyTree, images: jax.Array, **options: Any) -> Any:
        """Runs the surrogate on raw images."""
        params = {name: params[name] for name in ("student", "explainer")}
        images = self.examples.normalize(images)
        return self.module.apply({"params": params, **model_state}, images, **options)

    def _images(self, batch: Batch, key: jax.Array) -> jax.Array:
        """Returns augmented images in raw units, the units in which they are masked."""
        return self.examples.augment(
            key,
            jnp.asarray(batch["image"], jnp.float32),
            batch["id"],
            batch["epoch"],
            raw=True,
        )

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns metrics on the validation part; empty if there is none.

        ``fidelity`` is the area under the insertion curve minus that under the deletion curve, for
        ``distillation.judged`` evenly spaced examples; it selects the best checkpoint.
        """
        if "validation" not in self.parts:
            return {}
        return validate(self, {"params": params, **model_state})

    def test(
        self,
        variables: PyTree,
        *,
        scores: str | Collection[str] | None = None,
        methods: str | Collection[str] = (),
        progress: bool = False,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Evaluates the surrogate on the test examples of the known classes.

        Args:
          variables: parameters and batch statistics, on one device.
          scores: not supported, because a surrogate has no open-set scores.
          methods: other methods to compare with (:func:`jaxatr.explain.find_methods`).
          progress: show progress bars of methods that evaluate masked copies.

        Returns:
          ``(measured, arrays)``. ``explanation`` in ``measured`` has the accuracies of target and
          student and their agreement, over all examples; in ``methods``, the mean measures
          (:func:`jaxatr.explain.measures.judge`) of the maps of the surrogate and of the other
          methods, over ``distillation.judged`` evenly spaced examples; and in ``convention``, a
          description of these measures. ``arrays`` has the values for each example, and the maps
          for the report.

        Raises:
          ValueError: ``scores`` are given, or there is no such method.
        """
        if scores not in (None, "all"):
            raise ValueError(f"scores: got {scores!r}; a surrogate has none")
        return evaluate(self, variables, methods, progress)

    def compare(
        self,
        variables: PyTree,
        part: str,
        methods: str | Collection[str],
        *,
        progress: bool = False,
    ) -> dict[str, dict[str, float]]:
        """Returns the measures of the surrogate and of other methods on a part, by method.

        Use ``"validation"`` to choose between surrogates.

        Args:
          variables: parameters and batch statistics, on one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          methods: other methods to compare with (:func:`jaxatr.explain.find_methods`).
          progress: show progress bars of methods that evaluate masked copies.

        Raises:
          ValueError: there is no such part or method.
        """
        if part not in self.parts:
            raise ValueError(f"part: got {part!r}, wanted one of {', '.join(self.parts)}")
        return compare(self, variables, part, methods, progress)

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes both networks' logits and the saliency maps of a batch, in test mode."""
        params, state = variables["params"], {_STATE: variables[_STATE]}
        images = jnp.asarray(batch["image"], jnp.float32)
        out = self._run(params, state, images)
        target = self.target.logits(params["target"], images)
        return {"student": out.logits, "target": target, "saliency": out.saliency}

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the test examples whose maps are measured (:meth:`test`)."""
        del measured
        return self.examples.thumbnails("test", arrays["test_row"])


def _part_of(name: str):
    return lambda path: path[0] == name


def _not_the_target(path: tuple[str, ...]) -> bool:
    return path[0] != "target"


def _agreement(teacher, student, labels) -> dict[str, jax.Array]:
    chosen = jnp.argmax(student, axis=-1)
    return {
        "student_accuracy": (chosen == labels).astype(jnp.float32),
        "agreement": (chosen == jnp.argmax(teacher, axis=-1)).astype(jnp.float32),
    }


def _summed(total: jax.Array, values: Mapping[str, jax.Array], model_state: PyTree) -> LossOutput:
    count = jnp.float32(len(total))
    sums = {name: (jnp.sum(value), count) for name, value in values.items()}
    return LossOutput(jnp.sum(total), count, sums, model_state)
