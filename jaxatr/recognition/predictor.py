"""The common part of recognisers of images and of tracks: a network and its decision."""

import abc
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxatr import data, openset, training
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.sessions import OWN, check_runtime, divided
from jaxatr.openset.logistic import sigmoid
from jaxatr.recognition.decision import load_decision, open_task
from jaxatr.recognition.neighbours import TrainingChips
from jaxatr.recognition.prediction import UNKNOWN, Prediction
from jaxatr.recognition.session import FEATURES, Network, Session
from jaxatr.reporting import notebook, score_record
from jaxatr.reporting.tables import guarantee_in_words
from jaxatr.resolve import imported
from jaxatr.tasks.display import NotebookPredictor
from jaxatr.tasks.neighbour import Neighbour, blank, describe, listed
from jaxatr.tasks.open_set.deciders import RULE
from jaxatr.tasks.open_set.needs import in_jax_alone
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training import Checkpoint, TrainedRun, digest
from jaxatr.training.predictor import Item, flattened, types_of
from jaxatr.typing import PyTree

if TYPE_CHECKING:
    from jaxatr.explain import Explainer


class OpenSetPredictor(NotebookPredictor[Item, Prediction]):
    """A trained network and its decision, for images or tracks.

    Attributes:
      classes: names of the known classes, first those of the network, then enrolled ones.
      further: names of the enrolled classes.
      gamma: γ of section 2.3, if CBC decides, otherwise None; the largest one if each class has its
        own.
      chip: converts an image to the network's chip.
      step: step of the checkpoint.
      workdir: the run's folder.
      kept: name of the decision's fit in the run's folder.
      examples: the training chips among which those nearest to an image are found; None for none.
      neighbours: number of nearest training chips in a prediction.
    """

    #: Dotted path of the function that loads an ensemble; empty if not supported.
    ensemble: ClassVar[str] = ""
    _network: ClassVar[Network]
    examples: TrainingChips | None = None
    neighbours: int = 0
    _deciding: openset.Decision | None

    def __init__(
        self,
        run: TrainedRun,
        decision: openset.Decision,
        *,
        gamma: float | None = None,
        further: tuple[str, ...] = (),
        needs: Collection[str] = (),
        runtime: str = "jax",
        task: Callable[[], OpenSet] | None = None,
    ):
        """Creates a recogniser from a run and its decision; :meth:`load` reads both from a folder.

        Args:
          run: the run.
          decision: the decision.
          gamma: γ, if it was given.
          further: names of the enrolled classes.
          needs: names of further outputs (:data:`jaxatr.tasks.open_set.needs.NEEDS`), in addition
            to those that the decision needs.
          runtime: engine that runs the network, one of :data:`jaxatr.onnx.sessions.RUNTIMES`; a
            precision may follow a colon, as in ``"onnxruntime:int8"``.
          task: opens the run's task with its data, for a precision below float32.

        Raises:
          ValueError: there is no such engine, or it cannot compute the inputs of the score.
        """
        self.session = Session(
            run,
            decision.score.all_needs | set(needs),
            runtime=runtime,
            network=type(self)._network,
            examples=self._examples(run),
            task=task,
        )
        if divided(runtime)[0] not in OWN and (reason := in_jax_alone(decision.score)):
            raise ValueError(f"runtime={runtime}: {decision.score.name} {reason}")
        self.classes, self.further = (*run.classes, *further), further
        self.chip, self.step, self.workdir = run.intake, run.step, run.workdir
        self.decision, self.runtime = decision, runtime
        self.kept = self.session.key(decision.score.name)
        if gamma is None and decision.score.name == RULE:
            gamma = float(sigmoid(decision.thresholds(len(run.classes)).max()))
        self.gamma = gamma
        self._explainers: dict[str, Explainer] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what is on a device or compiled, which a copy makes anew."""
        return {**vars(self), "_deciding": None, "_explainers": {}}

    def __repr__(self) -> str:
        """Names the run, the classes, the score that decides and the chips."""
        shape, classes = " × ".join(map(str, self.chip.shape)), ", ".join(self.classes)
        return (
            f"<{type(self).__name__} {self.workdir}, step {self.step}: {classes} or unknown, by "
            f"{self.decision.score.name}; chips {shape} of {self.chip.dtype}; {self.runtime}>"
        )

    def _repr_html_(self) -> str:
        calibration, limits = self.decision.calibration, self._limits()
        rows = {
            "run": f"{self.workdir}, step {self.step}",
            "known classes": ", ".join(self.classes),
            "decides": score_record.shown(self.decision.score.name).title,
            "known from": limits,
            "fitted to": "-" if calibration is None else calibration.basis,
            "chips": f"{' × '.join(map(str, self.chip.shape))}, {self.chip.dtype}",
            "computed by": self.runtime,
        }
        notes = [self.note] if self.note else []
        return notebook.table(type(self).__name__, [], [[*row] for row in rows.items()], notes)

    def _limits(self) -> str:
        """Describes the thresholds of the score that decides."""
        limits = self.decision.thresholds(len(self.classes) - len(self.further))
        low, high = float(limits.min()), float(limits.max())
        return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}, by class"

    @property
    def engine(self) -> str:
        """A note that names the engine of the network and its version; empty for plain jax."""
        return self.session.engine

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return self.session.forms

    @staticmethod
    def _examples(run: TrainedRun) -> list[np.ndarray] | None:
        """Returns example inputs of the network, a batch of one; None for a chip."""
        return None

    @property
    def decision(self) -> openset.Decision:
        """The score that decides, with its threshold."""
        return self._decision

    @decision.setter
    def decision(self, decision: openset.Decision) -> None:
        self._decision, self._deciding = decision, None

    @property
    def deciding(self) -> openset.Decision:
        """The decision with its galleries on the device, to which they are moved on first use."""
        if self._deciding is None:
            self._deciding = self._decision.ready()
        return self._deciding

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike | Sequence[str | os.PathLike],
        *,
        checkpoint: Checkpoint = "latest",
        gamma: float | str | None = None,
        score: str | None = None,
        source: str | None = None,
        data_dir: str | None = None,
        field: bool = True,
        enrolled: bool = True,
        neighbours: int = 0,
        runtime: str = "jax",
    ) -> "OpenSetPredictor[Item]":
        """Loads the recogniser of a run.

        Args:
          workdir: the run's folder; for single images also several folders, for an ensemble.
          checkpoint: ``"latest"``, ``"best"`` or a step.
          gamma: the threshold: γ, a probability, if CBC decides; otherwise a value of the score
            that decides. ``"fitted"`` uses the threshold fitted to validation data. None also does,
            unless the configuration or ``score`` names CBC; then it uses the configured γ.
          score: name of the score that decides, or ``"auto"``; None for the score with which
            classes were enrolled, or else the configured one. A score that is not fitted yet is
            fitted to the training data, and the fit is saved in the run's folder.
          source: present location of the training data, for this fit.
          data_dir: present location of prepared data.
          field: use the calibration to field chips, if there is one.
          enrolled: include enrolled classes, if there are any.
          neighbours: number of nearest training chips in a prediction, for recognisers of single
            images. It needs the training data; the features of the chips are saved in the run's
            folder.
          runtime: engine that runs the network: ``"jax"``; ``"onednn"``, which is JAX with oneDNN's
            kernels for the batch sizes for which they are faster; ``"onnxruntime"`` or
            ``"openvino"``, which are extras. The decision and heat maps stay in JAX.
            ``"jax:bfloat16"``, ``"onnxruntime:int8"`` and so on
            (:data:`jaxatr.onnx.sessions.PRECISIONS`) are for recognisers of single images: the
            network computes in bfloat16, or is converted once
            (:mod:`jaxatr.onnx.writer.quantisation`), and the threshold is fitted to its outputs,
            for which the training data is needed.

        Raises:
          ImportError: the package of ``runtime`` is not installed; the message names the extra.
          ValueError: ``workdir`` is not the folder of such a run, there is no such checkpoint or
            score, no fitted threshold, the training data for a fit or for neighbours is missing,
            runs of this kind have no neighbours, or this jaxlib has no oneDNN for ``runtime``.
        """
        where = {"source": source, "data_dir": data_dir}
        where = {name: value for name, value in where.items() if value is not None}
        if not isinstance(workdir, str | os.PathLike):
            if neighbours and cls.ensemble:
                raise ValueError("neighbours: an ensemble cannot search for training chips")
            asked = {"gamma": gamma, "score": score, "where": where, "runtime": runtime}
            return cls._load_ensemble(workdir, checkpoint=checkpoint, **asked)
        check_runtime(runtime)
        run = training.load_run(workdir, checkpoint)
        training.check_predictor(run, cls)
        _, precision = divided(runtime)
        if precision and not cls.ensemble:
            raise ValueError(f"precision: {workdir} recognises tracks, in float32 only")
        loaded = load_decision(
            run, score, gamma, where, checkpoint, field=field, enrolment=enrolled, runtime=runtime
        )
        options: dict[str, Any] = (
            {"task": functools.partial(open_task, run, where)} if precision else {}
        )
        recogniser = cls(
            run,
            loaded.rule,
            gamma=loaded.gamma,
            further=loaded.further,
            needs={FEATURES} if neighbours else (),
            runtime=runtime,
            **options,
        )
        if neighbours:
            recogniser._search(run, where, neighbours)
        recogniser.note = "; ".join(filter(None, [loaded.note, recogniser.engine]))
        return recogniser

    @classmethod
    def _load_ensemble(
        cls, folders: Sequence[str | os.PathLike], **options: Any
    ) -> "OpenSetPredictor[Item]":
        """Loads the recogniser of several runs.

        Raises:
          ValueError: recognisers of this kind make no ensemble.
        """
        if not cls.ensemble:
            runs = ", ".join(map(str, folders))
            raise ValueError(f"{runs}: an ensemble consists of recognisers of single images")
        return imported(cls.ensemble)(folders, **options)

    def _search(self, run: TrainedRun, where: Mapping[str, str], count: int) -> None:
        """Prepares the search for the training chips that are nearest to an image.

        Raises:
          ValueError: the training data cannot be read, or recognisers of this kind do not search.
        """
        raise ValueError(f"neighbours: {type(self).__name__} cannot search for training chips")

    def answers(
        self, chips: Iterable[np.ndarray], *, batch_size: int | None = None
    ) -> Iterator[Prediction]:
        """Yields a prediction for each chip, or track of chips, in order.

        Args:
          chips: from :meth:`prepare`.
          batch_size: chips or tracks per batch.
        """
        for outputs in self.outputs(chips, batch_size=batch_size):
            yield from self.decide(outputs)

    @abc.abstractmethod
    def outputs(
        self, chips: Iterable[np.ndarray], *, batch_size: int | None = None
    ) -> Iterator[openset.Outputs]:
        """Yields the network's outputs for batches of prepared inputs, all labelled unknown."""

    def decide(self, outputs: openset.Outputs) -> Iterator[Prediction]:
        """Yields the prediction for each example of the network's outputs.

        Args:
          outputs: outputs of this network, with all inputs that the decision needs; they may come
            from another predictor of the same network.
        """
        answers = self.deciding(outputs)
        gammas: Sequence[float | None] = [self.gamma] * len(answers.nearest)
        # Each class may have its own.
        if self.gamma is not None and self.decision.threshold is None:
            gammas = sigmoid(answers.thresholds).tolist()
        own = self.classes[: outputs.logits.shape[1]]
        promised = [None if math.isnan(one) else one for one in answers.guarantees.tolist()]
        near: Sequence[tuple[Neighbour, ...]] = [()] * len(answers.nearest)
        if self.examples is not None:
            near = self.examples.nearest(outputs.more[FEATURES], self.neighbours)
        for index, label in enumerate(answers.nearest):
            nearest = self.classes[int(label)]
            row = map(float, answers.probabilities[index])
            yield Prediction(
                label=nearest if answers.accepted[index] else UNKNOWN,
                nearest=nearest,
                score=float(answers.scores[index]),
                known_probability=_at(answers.known_probabilities, index),
                gamma=gammas[index],
                probabilities=dict(zip(own, row, strict=True)),
                decides=self.decision.score.name,
                threshold=float(answers.thresholds[index]),
                p_value=_at(answers.p_values, index),
                probability_is=self.decision.probability_is,
                neighbours=near[index],
                guarantee=promised[index],
            )

    def verdict(self, prediction: Prediction) -> str:
        """Returns the class, or "unknown" and the most similar class."""
        probability = prediction.probabilities.get(prediction.nearest)  # none if it was enrolled
        named = prediction.nearest + ("" if probability is None else f" ({probability:.3f})")
        return f"unknown, most like {named}" if prediction.label == UNKNOWN else named

    def describe(self, prediction: Prediction) -> str:
        """Formats the decision, the score and the known classes' probabilities, highest first."""
        best = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
        classes = " ".join(f"{name}={value:.3f}" for name, value in best)
        words = []
        if prediction.known_probability is not None and prediction.probability_is != "p-value":
            words.append(f"known {prediction.known_probability:.4f}")
        if prediction.p_value is not None:
            words.append(f"p-value {prediction.p_value:.4f}")
        limit = f"threshold {prediction.threshold:.6g}"
        if prediction.gamma is not None:
            limit = f"γ {prediction.gamma:.6g}"
        words += [f"{prediction.decides} {prediction.score:.4g}", limit]
        words.append(guarantee_in_words(prediction.guarantee))
        near = f"; nearest: {describe(prediction.neighbours)}" if prediction.neighbours else ""
        return f"{prediction.label} ({', '.join(words)}) {classes}{near}"

    def to_json(self, prediction: Prediction) -> dict[str, Any]:
        """Converts a prediction to a dictionary; an infinite threshold becomes ``None``."""
        fields = prediction._asdict() | {"neighbours": listed(prediction.neighbours)}
        if not self.neighbours:
            del fields["neighbours"]
        if not math.isfinite(prediction.threshold):
            fields["threshold"] = None
        return fields

    def to_row(self, prediction: Prediction) -> dict[str, data.Cell]:
        """Converts a prediction to a row, with ``probability_CLASS`` for every trained class.

        ``neighbour_1_label`` is the class of the nearest training chip. ``probability_is`` becomes
        ``known_probability_is``, to avoid a clash with a class name.
        """
        fields = self.to_json(prediction)
        probabilities = flattened(fields.pop("probabilities"), "probability_")
        fields["known_probability_is"] = fields.pop("probability_is")
        fields["neighbour"] = fields.pop("neighbours", [])
        return flattened(fields) | probabilities

    def columns(self) -> dict[str, type]:
        """Returns the columns of a row."""
        numbers = dict.fromkeys(self.classes[: len(self.classes) - len(self.further)], 0.0)
        near = blank(self.neighbours)
        empty = Prediction("", "", 0.0, 0.0, 0.0, numbers, "", 0.0, 0.0, "", near, 0.0)
        return types_of(self.to_row(empty))

    def digest(self) -> str:
        """Returns the SHA-256 of the network, the preprocessing and the decision."""
        about = super().digest(), self.kept, repr(self.chip)
        return digest([*about, openset.to_arrays(self.decision), self._parameters()])

    def _parameters(self) -> PyTree:
        """Returns the arrays of the networks."""
        run = self.session.run
        return run.variables, run.mean, run.std


def _at(values: np.ndarray | None, index: int) -> float | None:
    return None if values is None else float(values[index])
