"""The network of a finished run: the only place of this room that runs it."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.inference import stacked_batches
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.sessions import OWN, check_runtime, divided
from jaxatr.tasks.open_set import reframing
from jaxatr.tasks.open_set.needs import COMPUTED, given_by
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import kept_as, outputs_of, views_of
from jaxatr.tasks.runtime import Infer, engine_note, exported, forms_of, ready_network
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, PyTree, Shaped

FEATURES = "features"
"""The output of a network by which the nearest training chips are found."""

_BATCH = 32
_OBSERVED = 256  # chips on which activations are measured


Network = Callable[[TrainedRun, Collection[str]], Infer]
"""Builds ``(variables, raw inputs) -> outputs`` of a run, with the inputs of some scores."""


def of_single_images(run: TrainedRun, needs: Collection[str]) -> Infer:
    """Builds the function of a network of single images, averaged over the run's views."""
    module, views = run.module, views_of(run.config)
    reframing.check_present(run.variables, run.config, run.workdir, run.step)

    def infer(variables: PyTree, images: ArrayLike) -> dict[str, jax.Array]:
        chips = reframing.reframed(module, variables, images, run.normalize)
        found = outputs_of(module, variables, run.normalize(chips), needs, views)
        cut_anew = reframing.COLLECTION in variables and "image" in needs
        return found | {"image": chips} if cut_anew else found

    return infer


class _Validated(NamedTuple):
    """Outputs for validation examples, and the SHA-256 of their chips."""

    outputs: openset.Outputs
    fingerprints: Shaped[np.ndarray, " n"]


class Session:
    """A run's network at a checkpoint, which computes the inputs of scores from chips.

    Attributes:
      run: the run.
      needs: names of the outputs other than logits (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
      runtime: the engine, one of :data:`jaxatr.onnx.sessions.RUNTIMES`.
      areas: AUROC on held-out known classes, by score, once they are compared for an enrolment.
    """

    def __init__(
        self,
        run: TrainedRun,
        needs: Collection[str] = (),
        *,
        runtime: str = "jax",
        network: Network = of_single_images,
        examples: Sequence[np.ndarray] | None = None,
        task: Callable[[], OpenSet] | None = None,
    ):
        """Compiles nothing yet: the network is compiled, or opened in another engine, on first use.

        Args:
          run: the run.
          needs: names of the outputs to compute in addition to the logits.
          runtime: the engine.
          network: builds the network's function.
          examples: example inputs, a batch of one; by default a chip.
          task: opens the run's task with its data, for a precision below float32.

        Raises:
          ValueError: there is no such engine.
        """
        check_runtime(runtime)
        if divided(runtime)[0] in OWN:  # once on the device, for every call
            run = run._replace(variables=jax.device_put(run.variables))
        self.run, self.needs, self.runtime = run, frozenset(needs), runtime
        self._network, self._inputs, self._task = network, examples, task
        self._wider: dict[frozenset[str], Session] = {}
        self._validated: _Validated | None = None
        self.areas: dict[str, float] = {}

    @functools.cached_property
    def _infer(self) -> Callable[..., Mapping[str, ArrayLike]]:
        return ready_network(
            self.run,
            lambda run: self._network(run, self.needs),
            self.run.variables,
            self._example,
            runtime=self.runtime,
            about={*self.needs, *map(repr, views_of(self.run.config))},
            reduce=self.reduce if self._task and divided(self.runtime)[1] else None,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the compiled network, which a copy compiles anew, also in another process."""
        return {name: value for name, value in vars(self).items() if name != "_infer"}

    @property
    def _example(self) -> Sequence[np.ndarray]:
        intake = self.run.intake
        return self._inputs or [np.zeros((1, *intake.shape), intake.dtype)]

    @functools.cached_property
    def _observed(self) -> Mapping[str, Any]:
        """Measurements of the network's activations on validation chips, for int8."""
        from jaxatr.onnx.writer import quantisation, sensitivity  # these need the extra onnx

        assert self._task is not None
        network = exported(self.run, self._network(self.run, self.needs), self._example)
        batches = calibration_batches(self._task())
        spared = sensitivity.spared(network, quantisation.observe(network, batches), batches)
        return sensitivity.settled(network, spared)

    def reduce(self, model: Any) -> Any:
        """Converts a file with this network, and perhaps more, to the precision of the engine.

        Args:
          model: the ``ModelProto`` in float32.

        Raises:
          ValueError: the network cannot be converted, or its data cannot be read.
        """
        from jaxatr.onnx.writer import half_precision, quantisation  # these need the extra onnx

        if divided(self.runtime)[1] == "int8":
            return quantisation.int8(model, self._observed)
        return half_precision.float16(model)

    @property
    def engine(self) -> str:
        """A note that names the engine of the network and its version; empty for plain jax."""
        return engine_note(self._infer)

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return forms_of(self._infer)

    def key(self, name: str) -> str:
        """Returns the name under which something fitted to the outputs is kept in the folder."""
        return kept_as(name, self.run.config)

    @property
    def given(self) -> frozenset[str]:
        """Names of the outputs, other than logits, that scores may need."""
        return given_by(self.run.module, self.run.config)

    def wider(self, needs: Collection[str]) -> "Session":
        """Returns a session with further needs, always the same one, so that it compiles once.

        In a precision below float32 it has these needs alone: what is rounded depends on the
        outputs, and thresholds are fitted to the network with the needs of their score.
        """
        wanted = frozenset(needs)
        every = wanted if divided(self.runtime)[1] else self.needs | wanted
        if every <= self.needs and not (self.needs - every) & COMPUTED:
            return self
        if every not in self._wider:
            self._wider[every] = Session(
                self.run,
                every,
                runtime=self.runtime,
                network=self._network,
                examples=self._inputs,
                task=self._task,
            )
        return self._wider[every]

    def validation(
        self, task: Callable[[], OpenSet | None], without: Collection[str]
    ) -> openset.Outputs | None:
        """Computes the outputs for the run's validation examples, once in the session's life.

        Args:
          task: opens the run's task, with its data; None if they cannot be read. It is called
            until it has opened them once.
          without: SHA-256 of chips to leave out, such as enrolled ones.

        Returns:
          The outputs, or None if there are no such examples.
        """
        if self._validated is None:
            if (opened := task()) is None or "validation" not in opened.parts:
                return None
            outputs = self.of_validation(opened)
            self._validated = _Validated(outputs, opened.examples.fingerprints("validation"))
        kept = ~np.isin(self._validated.fingerprints, list(without))
        return self._validated.outputs.select(kept) if kept.any() else None

    def of_validation(self, task: OpenSet) -> openset.Outputs:
        """Computes the outputs for the validation examples in the precision of the engine."""
        plain = task.decided_outputs(self.run.variables, "validation", self.needs)
        if not divided(self.runtime)[1]:
            return plain
        batches = task.examples.eval_batches(task.decided_part("validation"))
        chips = np.concatenate([batch["image"][batch["mask"]] for batch in batches])
        return self.outputs(chips, plain.labels)

    def batch(self, *inputs: Shaped[np.ndarray, "b ..."], count: int) -> openset.Outputs:
        """Computes the outputs for the first ``count`` inputs of a batch, labelled unknown.

        Args:
          *inputs: chips ``[b, h, w, c]``; for tracks, ``[b, t, h, w, c]`` and their lengths.
          count: number of inputs; those after it are padding.
        """
        out = {"image": inputs[0], **self._infer(*inputs)}
        rows = {name: np.asarray(value)[:count] for name, value in out.items()}
        wanted = self.needs | {FEATURES}
        more = {name: value for name, value in rows.items() if name in wanted}
        labels = np.full(count, openset.UNKNOWN)
        return openset.Outputs(rows["logits"], rows["open_logits"], labels, more)

    def outputs(
        self, chips: Shaped[np.ndarray, "n h w c"], labels: Shaped[np.ndarray, " n"]
    ) -> openset.Outputs:
        """Computes the outputs for at least one chip, with their labels.

        Every batch has one size, so that a process that enrols class after class compiles once.
        """
        batches = stacked_batches(chips, _BATCH, full=True)
        parts = [self.batch(batch, count=count) for batch, count in batches]
        return openset.concatenated(parts)._replace(labels=labels)


def calibration_batches(task: OpenSet) -> list[list[Shaped[np.ndarray, "b h w c"]]]:
    """Returns validation chips in batches, or training chips if there are none.

    Args:
      task: the run's task, with its data.
    """
    part = task.decided_part("validation" if "validation" in task.parts else "train")
    if len(part.labels) > _OBSERVED:
        part = part.sample(_OBSERVED, task.config.seed)
    batches = task.examples.eval_batches(part)
    return [[batch["image"]] for batch in batches]


def head(variables: PyTree, prefix: str = "") -> openset.Head:
    """Returns the closed-set classifier's last layer from a network's variables.

    A head of reciprocal points is converted to a linear layer. Its logits differ by the same
    constant for all classes of an example, the mean square of the features.
    """
    layer = variables["params"][f"{prefix}closed_head"]
    if "points" in layer:
        points = layer["points"]
        kernel = -(1 + 2 / points.shape[-1]) * points.T
        return openset.Head(kernel, (points**2).mean(axis=-1))
    return openset.Head(layer["kernel"], layer.get("bias"))
