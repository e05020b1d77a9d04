"""Every score that a trained network gives without a training of its own, by name.

Some are functions of the outputs; others are first fitted to the outputs on training examples of
the known classes. All are higher for the known.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import conflabel, mahalanobis, nearest_neighbour, openmax, vim
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.scores import cbc_score, energy_score, max_logit_score, softmax_score
from jaxatr.resolve import nearest
from jaxatr.typing import Array, Float

_NEIGHBOUR = 50  # of the nearest-neighbour score, where there are as many training examples


class Head(NamedTuple):
    """The closed-set classifier's last layer: ``logits = features @ kernel + bias``.

    Attributes:
      kernel: ``[d, k]``.
      bias: ``[k]``, or None.
    """

    kernel: Float[np.ndarray, "d k"]
    bias: Float[np.ndarray, " k"] | None


class Detector(NamedTuple):
    """A score, and what it needs.

    Attributes:
      score: ``(model, outputs) -> [n]``.
      fit: ``(outputs on training examples, head) -> model``; None for a score without one.
      needs: fields of :class:`Outputs` beside the logits.
    """

    score: Callable[[Any, Outputs], Any]
    fit: Callable[[Outputs, Head], Any] | None = None
    needs: tuple[str, ...] = ()


_DETECTORS: Mapping[str, Detector] = {
    # Ranked by its logarithm: the same order, without ties at 1.0.
    "softmax": Detector(lambda _, out: softmax_score(out.logits, log=True)),
    "mls": Detector(lambda _, out: max_logit_score(out.logits)),
    "cbc": Detector(lambda _, out: cbc_score(out.logits, out.open_logits)),
    "energy": Detector(lambda _, out: energy_score(out.logits)),
    "openmax": Detector(
        lambda model, out: openmax.score(model, out.logits),
        lambda out, _: openmax.fit(out.logits, out.labels),
    ),
    "odin": Detector(lambda _, out: out.odin, needs=("odin",)),
    "mahalanobis": Detector(
        lambda model, out: mahalanobis.score(model, out.features),
        lambda out, _: mahalanobis.fit(out.features, out.labels),
        ("features",),
    ),
    "knn": Detector(
        lambda model, out: nearest_neighbour.score(
            model, out.features, k=min(_NEIGHBOUR, len(model.features))
        ),
        lambda out, _: nearest_neighbour.fit(out.features),
        ("features",),
    ),
    "nearest": Detector(
        lambda model, out: nearest_neighbour.score(model, out.features, k=1),
        lambda out, _: nearest_neighbour.fit(out.features),
        ("features",),
    ),
    "vim": Detector(
        lambda model, out: vim.score(model, out.features, out.logits),
        lambda out, head: vim.fit(out.features, out.logits, head.kernel, head.bias),
        ("features",),
    ),
    "conflabel": Detector(
        lambda _, out: conflabel.sum_score(out.gradient_norms), needs=("gradient_norms",)
    ),
}

_OWN_TRAINING: Mapping[str, Detector] = {
    "conflabel_detector": Detector(
        lambda model, out: conflabel.detector_score(model, out.gradient_norms),
        needs=("gradient_norms",),
    ),
    "gopenmax": Detector(
        lambda model, out: openmax.score(model, _all_logits(out), extra=out.extra_logits.shape[1]),
        lambda out, _: openmax.fit(_all_logits(out), out.labels),
        ("extra_logits",),
    ),
}

_ALL = {**_DETECTORS, **_OWN_TRAINING}

DEFAULT = ("softmax", "mls", "cbc")
"""The scores of the paper's method and of the two that share its network."""

OWN_TRAINING = tuple(_OWN_TRAINING)
"""The scores for which something is trained besides: a detector, or a network of their own."""

FITTED = tuple(name for name, detector in _ALL.items() if detector.fit)
"""The scores that are fitted to the outputs on training examples."""

NEEDS: Mapping[str, tuple[str, ...]] = {name: detector.needs for name, detector in _ALL.items()}
"""Name of a score to the fields of :class:`Outputs` that it needs beside the logits."""


class Fitted(NamedTuple):
    """Scores that are ready to use.

    Attributes:
      scores: name to ``outputs -> [n]``.
      models: name to what was fitted, a pytree of arrays; of the scores that are fitted.
    """

    scores: dict[str, Callable[[Outputs], Array]]
    models: dict[str, Any]


def names(wanted: str) -> tuple[str, ...]:
    """Returns the scores that a comma-separated list names.

    ``"all"`` names every one that needs no training of its own.

    Raises:
      ValueError: there is no such score.
    """
    if wanted == "all":
        return tuple(_DETECTORS)
    chosen = tuple(name.strip() for name in wanted.split(",") if name.strip())
    for name in chosen:
        if name not in _ALL:
            raise ValueError(
                f"scores: got {name!r}, wanted 'all' or some of {', '.join(_ALL)}"
                f"{nearest(name, _ALL)}"
            )
    if not chosen:
        raise ValueError(f"scores: got none, wanted 'all' or some of {', '.join(_ALL)}")
    return chosen


def fit_detectors(
    chosen: Collection[str],
    training: Outputs | None = None,
    head: Head | None = None,
    *,
    trained: Mapping[str, Any] | None = None,
    leave_out: bool = False,
) -> Fitted:
    """Returns the chosen scores, fitted where they have to be.

    Args:
      chosen: names of scores.
      training: outputs on the training examples of the known classes, as at test time; needed by
        the scores that are fitted.
      head: the closed-set classifier's last layer, for ViM.
      trained: name to what the score's own training brought.
      leave_out: leave a score out, with a warning, whose fit refuses the outputs.

    Raises:
      ValueError: a score that has to be fitted and no outputs to fit it to; or the score's own fit
        refuses them, named by the score.
    """
    scores, models = {}, dict(trained or {})
    for name in chosen:
        detector = _ALL[name]
        if name in _OWN_TRAINING and detector.fit is None and name not in models:
            raise ValueError(f"{name}: wanted what its own training brought")
        if detector.fit is not None:
            if training is None or head is None:
                raise ValueError(f"{name}: wanted the outputs on training examples to fit it to")
            try:
                models[name] = detector.fit(training, head)
            except ValueError as error:
                if not leave_out:
                    raise ValueError(f"{name}: {error}") from error
                warnings.warn(f"{name} is left out: {error}", stacklevel=2)
                continue
        scores[name] = _bound(detector, models.get(name))
    return Fitted(scores, models)


def _all_logits(outputs: Outputs) -> Float[np.ndarray, "n k"]:
    assert outputs.extra_logits is not None
    return np.concatenate([outputs.logits, outputs.extra_logits], axis=1)


def _bound(detector: Detector, model: Any) -> Callable[[Outputs], Array]:
    return lambda outputs: detector.score(model, outputs)
