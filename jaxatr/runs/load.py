"""Loads the predictor of a finished run of any kind."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from jaxatr import resolve, training
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs.options import check_options
from jaxatr.training import Predictor

if TYPE_CHECKING:
    from jaxatr.recognition.tracks import TrackRecogniser
    from jaxatr.tasks.detection.predictor import Detector
    from jaxatr.tasks.embedding.predictor import Retriever

    Loaded: TypeAlias = Recogniser | TrackRecogniser | Retriever | Detector
else:
    Loaded = Predictor


def load_predictor(
    workdir: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    trust: bool = False,
    **options: Any,
) -> Loaded:
    """Loads the predictor of a run: a recogniser, a retriever, a detector, or one of another kind.

    The type says which of the package's predictors it may be, for editors; a kind of your own has
    its own class, whose ``load`` returns it.

    Args:
      workdir: the run's folder; several, or a folder of several runs (``train(repeats=…)``), for
        an ensemble of recognisers of single images. The threshold of runs that were trained in
        folds is fitted to the examples that each of them has not seen, without reading the data.
      trust: allow the run to name code outside the package, such as a backbone of one's own
        (:func:`jaxatr.trust`). Only for runs of a known origin: this code is executed.
      **options: options of the kind's predictor, such as ``gamma`` and ``checkpoint`` of a
        recogniser, or ``neighbours`` and ``max_distance`` of a retriever.

    Raises:
      ValueError: there is no such run, its kind has no predictor or does not have an option, the
        runs cannot form an ensemble, or a run names code that is not trusted.
    """
    resolve.trust_names_in(options)  # the user's own
    with resolve.trusting(trust):
        if not isinstance(workdir, str | os.PathLike):
            return _ensemble(workdir, options)
        if (several := training.read_repeats(workdir)) is not None:
            return _ensemble(several.runs, options)
        task = training.task_of(workdir)
        kind = training.predictor_class(task)
        check_options(workdir, task.kind(), kind.load, options)
        return cast(Loaded, kind.load(workdir, **options))


def _ensemble(workdirs: Sequence[str | os.PathLike], options: dict[str, Any]) -> Loaded:
    for workdir in workdirs:
        task = training.task_of(workdir)
        kind = training.predictor_class(task)
        if not issubclass(kind, Recogniser):
            raise ValueError(
                f"{workdir}: got a run of {task.kind()}, wanted recognisers of single images for "
                "an ensemble"
            )
        check_options(workdir, task.kind(), kind.load, options)
    return cast(Loaded, Recogniser.load(workdirs, **options))
