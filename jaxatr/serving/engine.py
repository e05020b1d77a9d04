"""Predicts batches of chips with a trained run: verdicts, neighbours and saliency maps."""

import abc
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import openset
from jaxatr.data.image_facts import facts_by
from jaxatr.explain import Explainer
from jaxatr.kernels.onednn import Form
from jaxatr.recognition.drift import Reference, reference_of
from jaxatr.recognition.extension import takers
from jaxatr.recognition.neighbours import TrainingChips
from jaxatr.recognition.prediction import Prediction
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.session import FEATURES
from jaxatr.tasks.embedding.predictor import (
    Match,
    Retriever,
)
from jaxatr.tasks.neighbour import Neighbour
from jaxatr.tasks.open_set.needs import given_by
from jaxatr.training import TrainedRun
from jaxatr.typing import Float, Shaped

Chips = Shaped[np.ndarray, "b h w c"]
Verdict = dict[str, Any]
"""The fields of :class:`jaxatr.serving.schemas.Verdict`."""


class Scale(NamedTuple):
    """A score that the console can decide by.

    Attributes:
      name: name of the score.
      title: name to display.
      unit: ``"logit"``, ``"log"``, ``"distance"`` or ``"plain"``, see
        :data:`jaxatr.openset.score.Scale`.
      threshold: the run's threshold; None if each class has its own, or if there is none.
    """

    name: str
    title: str
    unit: str
    threshold: float | None


class Answer(NamedTuple):
    """The prediction for one chip.

    Attributes:
      verdicts: verdicts by the score's name: that of the run's own score, then at least those of
        the requested scores.
      neighbours: the nearest training chips, nearest first; empty unless requested.
      facts: the chip's facts, in the order of :data:`jaxatr.data.FACTS`.
      reference: what the chip is compared with, that of the engine that has answered.
    """

    verdicts: Mapping[str, Verdict]
    neighbours: tuple[Neighbour, ...]
    facts: Float[np.ndarray, " f"]
    reference: Reference


class Engine(abc.ABC):
    """A trained run, ready for batches of chips of any fixed size.

    Attributes:
      run: the run's folder.
      kind: ``"recogniser"`` or ``"retriever"``.
      classes: names of the known classes.
      intake: converts an image to the chip that the network sees.
      scales: the scores to decide by, the run's own first.
      examples: the training chips to search, or None.
      missing: the reason why there are no examples; empty if there are.
      explainer: computes saliency maps; None for none.
      note: a note for the user about the decision; may be empty.
      takers: names of the scores that accept enrolled classes.
      runtime: engine that runs the network.
      reference: what the served chips are compared with, to notice a drift.
    """

    kind = ""
    runtime = "jax"
    reference = Reference({}, "the chips of an embedding are not compared with the training")
    takers: tuple[str, ...] = ()

    def __init__(
        self,
        run: TrainedRun,
        scales: Sequence[Scale],
        explainer: Explainer | None,
        note: str = "",
    ):
        self.run, self.classes, self.intake = run.workdir, run.classes, run.intake
        self.step, self.scales, self.explainer, self.note = run.step, scales, explainer, note
        self.examples: TrainingChips | None = None
        self.missing = "not looked for"

    @property
    def blank(self) -> Shaped[np.ndarray, "h w c"]:
        """A chip of zeros."""
        return np.zeros(self.intake.shape, self.intake.dtype)

    @abc.abstractmethod
    def answer(
        self, chips: Chips, *, neighbours: bool = False, scores: Collection[str] = ()
    ) -> list[Answer]:
        """Predicts each chip of a batch.

        Args:
          chips: ``[b, h, w, c]``.
          neighbours: whether to return the nearest training chips.
          scores: names of scores to decide by, in addition to the run's own.
        """

    def saliency(self, chip: Shaped[np.ndarray, "h w c"]) -> tuple[str, Float[np.ndarray, "h w"]]:
        """Explains the nearest class of a chip.

        Returns:
          The class, and the saliency map in [0, 1].

        Raises:
          ValueError: the run is served without saliency maps.
        """
        if self.explainer is None:
            raise ValueError(f"a {self.kind} without an explainer has no saliency maps")
        image = chip[None].astype(np.float32)
        (label,) = self.explainer.explained(image)
        return label, self.explainer.saliency(image)[0]

    def warm(self, sizes: Sequence[int]) -> None:
        """Compiles everything that requests need, for the given batch sizes."""
        for size in sizes:
            chips = np.repeat(self.blank[None], size, axis=0)
            self.answer(chips)
            self.answer(chips, neighbours=True, scores=[scale.name for scale in self.scales])
        if self.explainer is not None:
            self.saliency(self.blank)
        forms = [f"{shapes}: {form}" for shapes, form in self.forms.items()]
        self.note = "; ".join(filter(None, [self.note, *forms]))

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return {}


class Lasting(NamedTuple):
    """The parts of an engine that do not depend on the enrolled classes.

    Attributes:
      run: the run, its variables on the device.
      network: computes the features of neighbours, and the outputs for all scores that were
        offered at the start, below float32 for the one that decided; its decision is not used.
      explainer: computes saliency maps; None for none.
      examples: the training chips to search, or None.
      missing: the reason why there are no examples; empty if there are.
    """

    run: TrainedRun
    network: Recogniser
    explainer: Explainer | None
    examples: TrainingChips | None
    missing: str


class RecogniserEngine(Engine):
    """A recogniser of single images, with one or more scores to decide by.

    Attributes:
      lasting: what a later engine of the run can use again.
    """

    kind = "recogniser"

    def __init__(self, lasting: Lasting, recognisers: Sequence[Recogniser], note: str = ""):
        """Takes a network, and a recogniser per score that decides by the network's outputs."""
        run = lasting.run
        super().__init__(run, [_scale(one) for one in recognisers], lasting.explainer, note)
        self.lasting = lasting
        self.examples, self.missing = lasting.examples, lasting.missing
        self.classes = recognisers[0].classes  # includes the enrolled ones
        loaded = (one.decision.score for one in recognisers)  # some may be the user's own
        able = (one for one in loaded if one.takes_classes)
        every = (*takers(given_by(run.module, run.config)), *able)
        self.takers = tuple(dict.fromkeys(one.name for one in every))
        self._recognisers, self.reference = recognisers, reference_of(recognisers[0])
        self.runtime = lasting.network.runtime

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return self.lasting.network.forms

    def answer(
        self, chips: Chips, *, neighbours: bool = False, scores: Collection[str] = ()
    ) -> list[Answer]:
        """Predicts each chip of a batch."""
        outputs_of = functools.cache(lambda session: session.batch(chips, count=len(chips)))
        network, wanted = self.lasting.network.session, {self.scales[0].name, *scores}
        columns: dict[str, list[Verdict]] = {}
        for scale, recogniser in zip(self.scales, self._recognisers, strict=True):
            if scale.name in wanted:
                outputs = outputs_of(network.wider(recogniser.decision.score.all_needs))
                columns[scale.name] = [_verdict(recogniser, o) for o in recogniser.decide(outputs)]
        near: Sequence[tuple[Neighbour, ...]] = [()] * len(chips)
        if neighbours and self.examples is not None:
            near = self.examples.nearest(outputs_of(network).more[FEATURES])
        return [
            Answer(
                {name: column[row] for name, column in columns.items()},
                _finitely_near(near[row]),
                facts,
                self.reference,
            )
            for row, facts in enumerate(_facts_of(chips))
        ]


class RetrieverEngine(Engine):
    """An embedding: the class is that of the nearest training chip."""

    kind = "retriever"

    def __init__(self, run: TrainedRun, retriever: Retriever):
        limit = retriever.max_distance
        score = openset.SCORES["nearest"]
        threshold = None if limit is None else -limit
        super().__init__(run, [Scale(score.name, score.title, score.scale, threshold)], None)
        self._retriever = retriever
        self.runtime, self.note = retriever.runtime, retriever.note

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far."""
        return self._retriever.forms

    def answer(
        self, chips: Chips, *, neighbours: bool = False, scores: Collection[str] = ()
    ) -> list[Answer]:
        """Predicts each chip of a batch; the only score is the distance."""
        del scores
        matches = list(self._retriever.search(self._retriever.of_chips(chips)))
        name = self.scales[0].name
        return [
            Answer(
                {name: _of_match(name, one)},
                _finitely_near(one.neighbours if neighbours else ()),
                facts,
                self.reference,
            )
            for one, facts in zip(matches, _facts_of(chips), strict=True)
        ]


_facts = jax.jit(functools.partial(facts_by, jnp))


def _facts_of(chips: Chips) -> Float[np.ndarray, "b f"]:
    """Computes the facts of chips in a program, which lets other threads run only once."""
    return np.asarray(_facts(chips))


def _scale(recogniser: Recogniser) -> Scale:
    decision = recogniser.decision
    of_network = len(recogniser.classes) - len(recogniser.further)
    score, thresholds = decision.score, decision.thresholds(of_network)
    one = float(thresholds[0])
    shared = math.isfinite(one) and np.all(thresholds == one)
    return Scale(score.name, score.title, score.scale, one if shared else None)


def _verdict(recogniser: Recogniser, prediction: Prediction) -> Verdict:
    fields = recogniser.to_json(prediction)
    del fields["gamma"]  # the threshold in another unit
    return _finite(fields)


def _of_match(name: str, match: Match) -> Verdict:
    limit = match.max_distance
    fields = {
        "label": match.label,
        "nearest": match.neighbours[0].label,
        "score": -match.distance,
        "known_probability": None,
        "probabilities": {},
        "decides": name,
        "threshold": None if limit is None else -limit,
        "p_value": None,
        "guarantee": None,
        "probability_is": "",
    }
    return _finite(fields)


def _finitely_near(neighbours: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """Leaves out chips at no finite distance, as all are where the network overflows."""
    return tuple(one for one in neighbours if math.isfinite(one.distance))


def _finite(value: Any) -> Any:
    """Replaces non-finite floats, which JSON does not have, by None, also in dictionaries."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
