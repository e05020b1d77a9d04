"""Ensembles: several runs combined into one recogniser (:mod:`jaxatr.openset.ensemble`).

The threshold is fitted to the validation examples that all members share. The guarantee of the
conformal test requires examples on which no member was trained. Runs that were trained in folds
share none; their threshold is fitted to the examples that each of them has not seen.
"""

import functools
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from jaxatr import openset, training
from jaxatr.inference import stacked_batches
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.sessions import divided
from jaxatr.recognition import enrolment_file, evaluation, labelled_set, store
from jaxatr.recognition.choice import RunDecision, as_configured, facts
from jaxatr.recognition.decision import as_number, load_decision, of_field, open_task
from jaxatr.recognition.measures import judge
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.display import HeatMap
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import ids
from jaxatr.training import Checkpoint, TrainedRun, digest
from jaxatr.typing import Int

# Arrays of a member's threshold, which does not affect the ensemble.
_OWN = ("threshold", "calibration.tpr", "calibration.per_class")


class Member(NamedTuple):
    """A run of an ensemble, with its recogniser."""

    run: TrainedRun
    recogniser: Recogniser


class Ensemble(Recogniser):
    """A recogniser that combines several runs.

    Attributes:
      members: the recognisers of the runs.
    """

    def __init__(self, members: Sequence[Recogniser], decision: openset.Decision):
        """Combines recognisers with the same classes and chips by a decision on their outputs."""
        first = members[0]
        self.members, self.gamma = tuple(members), None
        self.classes, self.further = first.classes, ()
        self.chip, self.step, self.workdir = first.chip, first.step, first.workdir
        self.decision = decision
        self.kept, self.runtime = decision.score.name, first.runtime
        self.note = first.engine

    @property
    def forms(self) -> Mapping[str, Form]:
        """The forms of the first member's network; the others have the same shapes."""
        return self.members[0].forms

    def _heat_maps(self, chips: Sequence[np.ndarray], method: str) -> list[HeatMap]:
        """Raises an error: heat maps are defined for single networks only."""
        raise ValueError("heat_map: not supported by an ensemble: load one of its runs")

    def suggest(
        self, pool: str | os.PathLike | Sequence[str | os.PathLike], count: int = 50, **options: Any
    ) -> NoReturn:
        """Raises an error: the networks have no features in common."""
        raise ValueError("suggest: not supported by an ensemble: load one of its runs")

    def _parameters(self) -> list[str]:
        """Returns the digests of the members."""
        return [member.digest() for member in self.members]

    def outputs(
        self, chips: Iterable[np.ndarray], *, batch_size: int | None = None
    ) -> Iterator[openset.Outputs]:
        """Yields the pooled outputs for batches of chips, by default of 32."""
        for stacked, count in stacked_batches(chips, batch_size or 32):
            outputs = [member.session.batch(stacked, count=count) for member in self.members]
            yield openset.pool([member.deciding for member in self.members], outputs)


class Members:
    """The runs of an ensemble; their data is opened when needed."""

    def __init__(
        self,
        workdirs: Sequence[str | os.PathLike],
        *,
        checkpoint: Checkpoint = "latest",
        score: str | None = None,
        where: Mapping[str, str] | None = None,
        runtime: str = "jax",
    ):
        """Loads the runs.

        Args:
          workdirs: the runs' folders.
          checkpoint: ``"latest"``, ``"best"`` or a step, of every run.
          score: name of the score that decides in every run; None for the configured ones.
          where: fields of ``config.data`` to change, if the data has moved.
          runtime: engine that runs the networks, one of :data:`jaxatr.onnx.sessions.RUNTIMES`.

        Raises:
          ValueError: there are no runs, or two of them are incompatible; the message names them.
        """
        if not workdirs:
            raise ValueError("an ensemble: got no runs, wanted one or more")
        if divided(runtime)[1]:
            raise ValueError("precision: an ensemble runs in float32 only")
        self._where = where or {}
        self.members: list[Member] = []
        for workdir in workdirs:
            run = training.load_run(workdir, checkpoint)
            training.check_predictor(run, Recogniser)
            if self.members:
                _check_alike(self.members[0].run, run)
            if (enrolment := enrolment_file.read(run.workdir)) is not None:
                listed = ", ".join(enrolment.counts())
                raise ValueError(
                    f"{workdir}: has the enrolled classes {listed}, which ensembles do not "
                    "support: use the run alone, or jaxatr enrol --remove=NAME"
                )
            loaded = load_decision(run, score, None, self._where, checkpoint, field=False)
            recogniser = Recogniser(run, loaded.rule, gamma=loaded.gamma, runtime=runtime)
            self.members.append(Member(run, recogniser))

    @property
    def decisions(self) -> list[openset.Decision]:
        """The decisions of the members."""
        return [member.recogniser.decision for member in self.members]

    @functools.cached_property
    def tasks(self) -> list[OpenSet]:
        """The tasks of the members, with their data.

        Raises:
          ValueError: the data of a run is missing or has changed; the message names the run.
        """
        tasks = []
        for run, _ in self.members:
            try:
                tasks.append(open_task(run, self._where))
            except (ValueError, OSError) as error:
                raise ValueError(
                    f"{run.workdir}: an ensemble is calibrated to validation examples, but the "
                    f"data cannot be read: {error}"
                ) from error
        return tasks

    def pooled(self, part: str, shared: Int[np.ndarray, " n"]) -> openset.Outputs:
        """Pools the members' outputs for some examples of a part.

        Args:
          part: name of the part.
          shared: ``[n]``, ids of examples that all members have in this part.
        """
        outputs = []
        for (run, recogniser), task in zip(self.members, self.tasks, strict=True):
            needs = recogniser.decision.score.all_needs
            every = task.decided_outputs(run.variables, part, needs)
            own = ids(task.parts[part])
            order = np.argsort(own)
            outputs.append(every.select(order[np.searchsorted(own, shared, sorter=order)]))
        return openset.pool(self.decisions, outputs)

    def shared(self, part: str) -> Int[np.ndarray, " n"]:
        """Returns the ids of the examples that all members have in a part, ascending.

        Raises:
          ValueError: there are none; the message names the runs.
        """
        for (run, _), task in zip(self.members, self.tasks, strict=True):
            if part not in task.parts:
                raise ValueError(f"{run.workdir}: there are no {part} examples")
        every = [ids(task.parts[part]) for task in self.tasks]
        both = functools.reduce(np.intersect1d, every)
        if not len(both):
            names = ", ".join(str(run.workdir) for run, _ in self.members)
            raise ValueError(
                f"{names} share no {part} examples: train them with the same data.validation_seed"
            )
        return both

    def decision(self) -> openset.Decision:
        """Reads the decision of the ensemble, or fits it and saves it in the first run's folder.

        Raises:
          ValueError: the data is missing, or the members share no validation examples.
        """
        if (out_of_fold := self._out_of_fold()) is not None:
            return out_of_fold
        first, name = self.members[0].run, f"{openset.ENSEMBLE.name}.{self._digest()}"
        found = store.load(first.workdir, first.step, name, openset.ENSEMBLE)
        if found is not None:
            pooled = openset.as_pooled(found, self.decisions)
            return as_configured(pooled, first.config)
        validation = self.pooled("validation", self.shared("validation"))
        fields = first.config.open_set
        training = [ids(task.parts["train"]) for task in self.tasks]
        decision = openset.fit_ensemble(
            self.decisions,
            validation,
            tpr=fields.tpr,
            per_class=fields.per_class,
            same_training=all(np.array_equal(training[0], one) for one in training),
        )
        runs = [{"workdir": str(run.workdir), "step": run.step} for run, _ in self.members]
        made = {"decides": openset.ENSEMBLE.name, "members": runs, **facts(decision, validation)}
        try:
            store.save(first.workdir, first.step, name, decision, made)
        except OSError as error:
            warnings.warn(f"the fit of the ensemble could not be saved: {error}", stacklevel=2)
        return decision

    def _out_of_fold(self) -> openset.Decision | None:
        """Fits the decision of runs that were trained in folds; None for other runs.

        Each run's threshold is fitted to examples that its network has not seen. Together they are
        all known examples, so that no data is needed.
        """
        fields = [run.config.data for run, _ in self.members]
        numbers = {one.fold for one in fields}
        if "" in numbers or len(numbers) < max(2, len(fields)):
            return None
        first = self.members[0].run.config.open_set
        return openset.fit_out_of_fold(self.decisions, tpr=first.tpr, per_class=first.per_class)

    def _digest(self) -> str:
        """Returns a hash of the members' networks and decisions, in order."""
        sha256 = hashlib.sha256()
        for run, recogniser in self.members:
            arrays = openset.to_arrays(recogniser.decision)
            kept = digest({name: arrays[name] for name in arrays if name not in _OWN})
            sha256.update(f"{recogniser.kept} {digest(run.variables)} {kept}".encode())
        return sha256.hexdigest()[:16]


def load(
    workdirs: Sequence[str | os.PathLike],
    *,
    checkpoint: Checkpoint = "latest",
    gamma: float | str | None = None,
    score: str | None = None,
    where: Mapping[str, str] | None = None,
    runtime: str = "jax",
) -> Ensemble:
    """Loads several runs as one recogniser.

    Args:
      workdirs: the runs' folders.
      checkpoint: ``"latest"``, ``"best"`` or a step, of every run.
      gamma: a threshold of the mean standardised score; None or ``"fitted"`` for the fitted one.
      score: name of the score that decides in every run; None for the configured ones.
      where: fields of ``config.data`` to change, if the data has moved.
      runtime: engine that runs the networks, one of :data:`jaxatr.onnx.sessions.RUNTIMES`.

    Raises:
      ValueError: there are no runs, two of them are incompatible, the data to fit the threshold is
        missing, or the runs share no validation examples.
    """
    asked = {"checkpoint": checkpoint, "score": score, "where": where}
    members = Members(workdirs, **asked, runtime=runtime)
    decision = members.decision()
    if (threshold := as_number(gamma)) is not None:
        decision = decision.at(threshold)
    made = Ensemble([member.recogniser for member in members.members], decision)
    calibrated = [
        str(run.workdir)
        for run, one in members.members
        if of_field(run.workdir, run.step, one.kept, one.decision.score)[0] is not None
    ]
    if calibrated:
        described = (
            f"{', '.join(calibrated)}: the calibration to field chips "
            "applies only to the single run, and is ignored in an ensemble"
        )
        made.note = "; ".join(filter(None, [described, made.note]))
    return made


def evaluate(
    workdirs: Sequence[str | os.PathLike],
    *,
    checkpoint: Checkpoint = "latest",
    score: str | None = None,
    where: Mapping[str, str] | None = None,
    data: str | os.PathLike | tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Evaluates an ensemble on the test examples, with the metrics of a run's evaluation.

    Only the fit of the ensemble is written.

    Args:
      workdirs: the runs' folders.
      checkpoint: ``"latest"``, ``"best"`` or a step, of every run.
      score: name of the score that decides in every run; None for the configured ones.
      where: fields of ``config.data`` to change, if the data has moved.
      data: another set to measure instead of the test examples (:func:`labelled_set.of`).

    Raises:
      ValueError: the runs cannot be loaded as an ensemble (:func:`load`), have different test
        examples, or the set cannot be measured.
    """
    members = Members(workdirs, checkpoint=checkpoint, score=score, where=where)
    decision, task = members.decision(), members.tasks[0]
    found = None if data is None else labelled_set.of(task, data)
    if found is not None:
        for one in members.tasks:
            one.examples.replace_test(found.part)
    own = ids(task.parts["test"])
    for (run, _), other in zip(members.members, members.tasks, strict=True):
        if not np.array_equal(ids(other.parts["test"]), own):
            raise ValueError(
                f"{run.workdir} and {members.members[0].run.workdir} have different test examples"
            )
    test = members.pooled("test", own)
    scores, nearest = decision.score_of(test)
    values = {"test": {openset.ENSEMBLE.name: scores}}
    if decision.calibration is not None:
        values["validation"] = {openset.ENSEMBLE.name: decision.calibration.reference}
    named = {"test": {openset.ENSEMBLE.name: nearest}} if decision.gallery else {}
    scored = evaluation.ScoreValues((openset.ENSEMBLE,), values, named)
    groups = evaluation.groups_of(task, task.parts, scored, {"test": test})
    measured = evaluation.summary(task, groups, [openset.ENSEMBLE])
    measured["members"] = [str(run.workdir) for run, _ in members.members]
    made = RunDecision(decision, {"decides": openset.ENSEMBLE.name, "by": f"{len(workdirs)} runs"})
    judge(made, test, measured, {})
    if found is not None:
        labelled_set.describe(measured, found.record)
    return measured


def _check_alike(one: TrainedRun, other: TrainedRun) -> None:
    """Checks that two runs can be members of one ensemble."""

    def fields(run: TrainedRun) -> dict[str, Any]:
        open_set = run.config.open_set
        return {
            "known classes": ", ".join(run.classes),
            "chips": f"{run.intake.shape} of {run.intake.dtype}",
            "geometry": run.intake.chip,
            "split": run.record["split"],
            "data": run.record["dataset"]["fingerprint"],
            "open_set.tpr": open_set.tpr,
            "open_set.per_class": open_set.per_class,
        }

    first, second = fields(one), fields(other)
    for name, value in first.items():
        if second[name] != value:
            raise ValueError(
                f"{one.workdir} and {other.workdir} cannot form an ensemble: their {name} differ, "
                f"{value} and {second[name]}"
            )
