"""The run that the console serves: its options, and the engine that is loaded for it."""

import os
from typing import Any, NamedTuple

import jax

from jaxatr import openset, training
from jaxatr.explain import Explainer
from jaxatr.explain.target import check_surrogate
from jaxatr.onnx.sessions import OWN, check_runtime, divided
from jaxatr.recognition import store
from jaxatr.recognition.choice import RunDecision
from jaxatr.recognition.decision import load_decision, open_task
from jaxatr.recognition.neighbours import NEAREST, build_examples
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.session import FEATURES
from jaxatr.serving.engine import Engine, Lasting, RecogniserEngine, RetrieverEngine
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.tasks.embedding.predictor import Retriever, fitted_distance, load_indexed
from jaxatr.tasks.open_set.deciders import RULE
from jaxatr.tasks.open_set.needs import in_jax_alone
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.training import Checkpoint, TrainedRun


class Wanted(NamedTuple):
    """A run to serve, and its options. Most of them apply to recognisers only.

    Attributes:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` or a step (recognisers).
      score: the score that decides; None for the run's (recognisers).
      gamma: the threshold, see :meth:`Recogniser.load` (recognisers).
      scores: additional scores to offer; CBC and scores that are already fitted are always offered
        (recognisers).
      source, data_dir: present location of the training data; None if it has not moved.
      method: method of the saliency maps; None for the surrogate's or Grad-CAM, empty for no maps
        (recognisers).
      surrogate: folder of the run whose surrogate computes the saliency maps; None for none
        (recognisers).
      examples: largest number of training chips to search; 0 for none (recognisers).
      runtime: engine that runs the network, see :meth:`Recogniser.load`, and that of the detector,
        in float32; saliency maps always use jax.
      detector: folder of the run that finds targets in scenes; None for none.
    """

    workdir: str | os.PathLike
    checkpoint: Checkpoint = "latest"
    score: str | None = None
    gamma: float | str | None = None
    scores: tuple[str, ...] = ()
    source: str | None = None
    data_dir: str | None = None
    method: str | None = None
    surrogate: str | None = None
    examples: int = 5000
    runtime: str = "jax"
    detector: str | os.PathLike | None = None

    @property
    def where(self) -> dict[str, str]:
        """Fields of ``config.data`` to change if the data has moved."""
        moved = {"source": self.source, "data_dir": self.data_dir}
        return {name: value for name, value in moved.items() if value is not None}


def load_engine(wanted: Wanted, before: Engine | None = None) -> Engine:
    """Loads a run to serve; :meth:`Engine.warm` compiles it for the batch sizes.

    Args:
      wanted: the run and its options.
      before: the engine that served the run until a class was enrolled. Its network, training chips
        and explainer do not depend on enrolled classes and are used again. jax keeps what it has
        compiled, so a process that compiled the network for every class would run out of memory.

    Raises:
      ValueError: there is no such run, its kind does not take single images or lacks a given
        option, or a score or method cannot be used.
    """
    task = training.task_of(wanted.workdir)
    kind = training.predictor_class(task)
    if issubclass(kind, Recogniser):
        return _recogniser(wanted, before.lasting if isinstance(before, RecogniserEngine) else None)
    if issubclass(kind, Retriever):
        return _retriever(wanted)
    beside = "; a detector is served beside one: --detector=DIR"
    raise ValueError(
        f"{wanted.workdir}: a run of {task.kind()} cannot be served, wanted a recogniser or a "
        f"retriever of single images{beside if issubclass(kind, Detector) else ''}"
    )


def load_detector(wanted: Wanted) -> Detector | None:
    """Loads the detector to serve beside a run, if there is one.

    Raises:
      ValueError: its folder is not that of a detector's finished run.
    """
    if wanted.detector is None:
        return None
    return Detector.load(wanted.detector, runtime=divided(wanted.runtime)[0])


def _recogniser(wanted: Wanted, lasting: Lasting | None) -> Engine:
    check_runtime(wanted.runtime)
    if lasting is None:
        run = training.load_run(wanted.workdir, wanted.checkpoint)
        run = run._replace(variables=jax.device_put(run.variables))  # once, for every score
    else:
        run = lasting.run
    session = None if lasting is None else lasting.network.session

    def load(score: str | None, gamma: float | str | None = None) -> RunDecision:
        options = {"session": session, "runtime": wanted.runtime}
        return load_decision(run, score, gamma, wanted.where, wanted.checkpoint, **options)

    def recogniser(one: RunDecision, **options: Any) -> Recogniser:
        options |= {"runtime": wanted.runtime, "task": lambda: open_task(run, wanted.where)}
        return Recogniser(run, one.rule, **options)

    own = load(wanted.score, wanted.gamma)
    kept, left = _kept_scores(run), []
    if divided(wanted.runtime)[0] not in OWN:
        out = [name for name in kept if in_jax_alone(openset.SCORES[name])]
        kept = [name for name in kept if name not in out]
        left += [f"not offered, because only jax computes them: {', '.join(out)}"] if out else []
    loaded = {own.rule.score.name: own}
    for name in (*kept, *wanted.scores):
        if name in loaded:
            continue
        try:
            one = load(name)
        except ValueError as error:
            if name in wanted.scores:
                raise
            left.append(f"{name} is not offered: {error}")
        else:
            loaded.setdefault(one.rule.score.name, one)  # that of "auto" may be there
    recognisers = [recogniser(one, gamma=one.gamma, further=one.further) for one in loaded.values()]
    if lasting is None:
        # Below float32 each score has the network that its threshold is fitted to: Session.wider.
        served = [own] if divided(wanted.runtime)[1] else loaded.values()
        needs = frozenset({FEATURES}).union(*(one.rule.score.all_needs for one in served))
        network = recogniser(own, needs=needs)
        about = {"runtime": wanted.runtime, "needs": needs}
        found = build_examples(run, wanted.where, network.features, wanted.examples, **about)
        lasting = Lasting(run, network, _explainer(wanted, run), *found)
    note = "; ".join(filter(None, [own.note, lasting.network.engine, *left]))
    return RecogniserEngine(lasting, recognisers, note)


def _kept_scores(run: TrainedRun) -> list[str]:
    """Lists CBC, if it was trained, and the scores that are already fitted for the checkpoint."""
    rule = [RULE] if run.config.loss.open != "none" else []
    return rule + [
        name
        for name in openset.SCORES
        if name != RULE
        and store.path_of(run.workdir, run.step, kept_as(name, run.config)).is_file()
    ]


def _retriever(wanted: Wanted) -> Engine:
    recognisers_own = ("checkpoint", "score", "gamma", "scores", "method", "surrogate")
    for name in recognisers_own:
        if getattr(wanted, name) != Wanted._field_defaults[name] and getattr(wanted, name) != "":
            raise ValueError(f"--{name} is for recognisers, but {wanted.workdir} is a retriever")
    check_runtime(wanted.runtime)
    run, index = load_indexed(wanted.workdir)
    engine = RetrieverEngine(
        run,
        Retriever(
            run,
            index,
            neighbours=min(NEAREST, len(index.ids)),
            max_distance=fitted_distance(wanted.workdir),
            runtime=wanted.runtime,
        ),
    )
    engine.examples, engine.missing = build_examples(run, wanted.where, None, wanted.examples)
    return engine


def _explainer(wanted: Wanted, run: TrainedRun) -> Explainer | None:
    if wanted.method == "":
        return None
    if wanted.surrogate:
        check_surrogate(wanted.surrogate, run)
        return Explainer.load(wanted.surrogate, wanted.method)
    return Explainer.of_run(run, wanted.method)
