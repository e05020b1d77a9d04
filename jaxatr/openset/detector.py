"""A score that stands alone: it is fitted to arrays and computed from arrays."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.openset import graph
from jaxatr.openset.fit import Fitted, calibrate_one, fit_one, members_first, weigh_one
from jaxatr.openset.head import Head
from jaxatr.openset.inputs import as_classes, as_floats, as_numpy, known_labels
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Shaped

Kind = Literal["fit", "calibrate", "score"]

ARRAYS = frozenset(
    {"open_logits", "image", "odin", "gradient_norms", "extra_logits", "map_stem"}
    | {f"map_stage{stage}" for stage in (1, 2, 3, 4)}
)
"""Names of the arrays that the package's scores need, besides features."""

AXES = {
    "features": "n, d",
    "logits": "n, k",
    "open_logits": "n, k",
    "extra_logits": "n, e",
    "gradient_norms": "n, m",
    "odin": "n",
    "labels": "n",
    "image": "n, h, w, c",
    "map_stem": "n, h, w, c",
} | {f"map_stage{stage}": "n, h, w, c" for stage in (1, 2, 3, 4)}
"""The axes of the arrays by name."""


class Needs(NamedTuple):
    """Names of the arrays that each method of a detector takes.

    Attributes:
      fit: those of :meth:`Detector.fit`.
      calibrate: those of :meth:`Detector.calibrate`.
      score: those of :meth:`Detector.score`.
    """

    fit: tuple[str, ...]
    calibrate: tuple[str, ...]
    score: tuple[str, ...]


class Detector:
    """Computes how known examples are, from a network's outputs on them.

    Arrays are NumPy's, JAX's, PyTorch's (also with a gradient, or on a GPU), or any others that
    NumPy converts. Those that the score does not need may be given, and are not used. Within
    ``jax.jit``, :meth:`score` and :meth:`answer` compute the score in JAX, if it has such a form.

    Attributes:
      definition: the score's declaration.
      models: the fitted models of the score and of its members, by name.
    """

    def __init__(self, definition: Score, models: Mapping[str, Any] | None = None):
        self.definition = definition
        self.models = dict(models or {})
        self._calibrated = set(self.models)
        self._training: tuple[Outputs, Head | None] | None = None
        self._fitted_shapes: dict[str, tuple[int, ...]] = {}

    @property
    def needs(self) -> Needs:
        """Names of the arrays that its methods take."""
        asks = self.definition.asks
        return Needs(asks("fit"), asks("calibrate"), asks("score"))

    def __repr__(self) -> str:
        """Names the score and what its methods take."""
        takes = (f"{kind}({', '.join(names)})" for kind, names in self.needs._asdict().items())
        return f"<Detector {self.definition.name}: {', '.join(takes)}>"

    def fit(
        self,
        *,
        features: Any = None,
        logits: Any = None,
        maps: Any = None,
        labels: Any = None,
        head: Any = None,
        **more: Any,
    ) -> "Detector":
        """Fits the score to training examples of the known classes; some scores need no fit.

        Args:
          features: ``[n, d]``, the input of the network's last layer.
          logits: ``[n, k]``, its output.
          maps: ``[n, h, w, c]``, the map of the stage that the score needs; or maps by name, such
            as ``{"map_stage2": maps}``.
          labels: ``[n]``, classes from 0 to k - 1.
          head: ``(kernel, bias)`` of the last layer, ``logits = features @ kernel + bias``. The
            bias may be None. PyTorch's ``weight`` is the transpose of ``kernel``.
          **more: further arrays that the score needs, by name, such as ``image`` or
            ``open_logits``.

        Returns:
          The detector itself.

        Raises:
          ValueError: an array is missing, or unsuitable for the score.
        """
        given = self._given(features, logits, maps, labels, head, more)
        outputs = self._outputs("fit", given)
        layer, models = self._head(given, outputs), dict(self.models)

        def act(score: Score) -> None:
            if score.fit is not None:
                models[score.name] = fit_one(score, outputs, layer)

        members_first(self.definition, act, set())
        self.models, self._calibrated, self._training = models, set(), None
        if self.definition.weighed:
            # Copies: the caller may put what it calibrates with into the same arrays.
            self._training = jax.tree.map(np.array, (outputs, layer))
        self._fitted_shapes = {
            name: np.shape(given[name])[1:] for name in self.needs.fit if name != "head"
        }
        return self

    def calibrate(
        self,
        *,
        features: Any = None,
        logits: Any = None,
        maps: Any = None,
        labels: Any = None,
        **more: Any,
    ) -> "Detector":
        """Fits what has to be fitted to known examples that took no part in any training.

        Only some scores, such as ``tempscale``, have such a part. The arguments are those of
        :meth:`fit`.

        Returns:
          The detector itself.

        Raises:
          ValueError: an array is missing, or unsuitable for the score; or the score is not fitted.
        """
        outputs = self._outputs(
            "calibrate", self._given(features, logits, maps, labels, None, more)
        )
        self._check_fitted("fit")
        models, done = dict(self.models), set()

        def act(score: Score) -> None:
            if score.weigh is not None and self._training is not None:
                training, layer = self._training
                models[score.name] = weigh_one(score, models, training, outputs, layer)
            if score.calibrate is not None:
                models[score.name] = calibrate_one(score, models, outputs)

        members_first(self.definition, act, done)
        self.models, self._calibrated = models, done
        return self

    def score(
        self, *, features: Any = None, logits: Any = None, maps: Any = None, **more: Any
    ) -> Shaped[Any, " n"]:
        """Computes the score of n examples, ``[n]``; higher is more known.

        The arguments are those of :meth:`fit`.

        Raises:
          ValueError: an array is missing, or the score is not fitted.
        """
        given = self._given(features, logits, maps, None, None, more)
        return self._answer(self._outputs("score", given)).score

    def answer(
        self, *, features: Any = None, logits: Any = None, maps: Any = None, **more: Any
    ) -> Answer:
        """Computes the score and the class of n examples.

        A score that searches a gallery names the class itself, with the distance to each class.
        Otherwise it is the class with the largest logit. The arguments are those of :meth:`fit`.

        Raises:
          ValueError: an array is missing, or the score is not fitted.
        """
        given = self._given(features, logits, maps, None, None, more)
        if not self.definition.names_class and given.get("logits") is None:
            raise ValueError(f"{self.definition.name}: its class is that of the logits; got none")
        return self._answer(self._outputs("score", given))

    def _answer(self, outputs: Outputs) -> Answer:
        self._check_fitted("score")
        score = self.definition
        if any(isinstance(array, Tracer) for array in jax.tree.leaves(outputs)):
            if missing := graph.without_form(score):
                raise ValueError(f"{missing}: this score cannot be part of a traced function")
            with jax.ensure_compile_time_eval():  # the models are no part of what is traced
                fitted = graph.parts(score, self.models)
            return graph.answer(score, *fitted, outputs)
        return jax.tree.map(_finished, Fitted((score,), self.models).answers(outputs)[score.name])

    def _check_fitted(self, kind: Literal["fit", "score"]) -> None:
        """Raises an error if a model is missing, also one of a member."""

        def act(score: Score) -> None:
            missing = score.name not in self.models
            if missing and score.fit is not None:
                raise ValueError(f"not fitted, call fit() with {', '.join(self.needs.fit)}")
            if missing and score.training is not None:
                raise ValueError("it has a training of its own, whose model is missing")
            uncalibrated = score.calibrate is not None and score.name not in self._calibrated
            if uncalibrated and kind == "score":
                raise ValueError(
                    f"not calibrated, call calibrate() with {', '.join(self.needs.calibrate)} of "
                    "known examples that took no part in training"
                )

        members_first(self.definition, act, set())

    def _given(
        self, features: Any, logits: Any, maps: Any, labels: Any, head: Any, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Collects what a method was given, by name; maps get the names of their stages."""
        named = {"features": features, "logits": logits, "labels": labels, "head": head}
        asked = self.definition.all_needs | ARRAYS
        named |= {name: more[name] for name in ("labels", "head") if name in more}
        more = {name: array for name, array in more.items() if name not in named}
        by_name = maps if isinstance(maps, Mapping) else {}
        if unknown := sorted({*more, *by_name} - asked):
            raise ValueError(
                f"{self.definition.name}: got {', '.join(unknown)}, wanted some of "
                f"{', '.join(sorted({*named, 'maps', *asked}))}"
            )
        if isinstance(maps, Mapping):
            named |= maps
        elif maps is not None:
            stages = [name for name in self.definition.all_needs if name.startswith("map_")]
            if len(stages) > 1:
                raise ValueError(
                    f"{self.definition.name}: maps: got one array, wanted arrays by name, of "
                    f"{', '.join(sorted(stages))}"
                )
            named |= dict.fromkeys(stages, maps)
        return {name: value for name, value in (named | dict(more)).items() if value is not None}

    def _outputs(self, kind: Kind, given: Mapping[str, Any]) -> Outputs:
        """Converts what a method needs of what it was given; the rest is not looked at.

        Scores read outputs that have logits. Where a score does not ask for them, they are NaN, and
        only their number of classes counts.
        """
        name, asked = self.definition.name, self.definition.asks(kind)
        if missing := [one for one in asked if one not in given]:
            raise ValueError(
                f"{name}: {kind}() needs {', '.join(asked)}; {', '.join(missing)} missing"
            )
        used = [*asked, *({"logits"} & {*given} - {*asked})]
        arrays = {one: _array(one, given[one]) for one in used if one != "head"}
        counts = {one: array.shape[0] if array.ndim else 0 for one, array in arrays.items()}
        if len({*counts.values()}) > 1:
            raise ValueError(f"{name}: got different numbers of examples, {counts}")
        for one, array in arrays.items():
            self._check_shape(kind, one, array.shape)
        count = next(iter(counts.values()), 0)
        labels = as_classes(f"{name}: labels", arrays.pop("labels", np.full(count, UNKNOWN)))
        if "logits" not in arrays:
            classes = int(labels.max(initial=0)) + 1
            if kind != "fit":
                classes = max([classes, *map(_classes, self.models.values())])
            arrays["logits"] = np.full((count, classes), np.nan, np.float32)
        logits = arrays.pop("logits")
        open_logits = arrays.pop("open_logits", np.full(logits.shape, np.nan, np.float32))
        if open_logits.shape != logits.shape:
            raise ValueError(
                f"{name}: open_logits: got shape {open_logits.shape}, wanted that of the logits, "
                f"{logits.shape}"
            )
        if "labels" in asked and "extra_logits" not in asked:  # otherwise, of a further class too
            labels = known_labels(labels, *logits.shape, name=f"{name}: labels")
        return Outputs(logits, open_logits, labels, arrays)

    def _check_shape(self, kind: Kind, array: str, shape: tuple[int, ...]) -> None:
        """Raises an error if an array has other axes than it should, or than in the fit."""
        axes, fitted = AXES.get(array), self._fitted_shapes.get(array)
        if axes is not None and len(shape) != len(axes.split(", ")):
            wanted = f"[{axes}]"
        elif kind != "fit" and fitted is not None and shape[1:] != fitted:
            wanted = f"[{', '.join(['n', *map(str, fitted)])}] as in fit()"
        else:
            return
        raise ValueError(f"{self.definition.name}: {array}: got shape {shape}, wanted {wanted}")

    def _head(self, given: Mapping[str, Any], outputs: Outputs) -> Head | None:
        """Converts the last layer, if the score asks for it."""
        name, layer = self.definition.name, given.get("head")
        if layer is None or "head" not in self.needs.fit:
            return None
        if not isinstance(layer, tuple | list) or len(layer) != 2:
            raise ValueError(f"{name}: head: got a {type(layer).__name__}, wanted (kernel, bias)")
        kernel, bias = as_numpy(layer[0]), None if layer[1] is None else as_numpy(layer[1])
        width = np.shape(outputs.more.get("features", kernel.T))[-1]
        if kernel.ndim != 2 or kernel.shape[0] != width:
            raise ValueError(
                f"{name}: head: got a kernel of shape {kernel.shape}, wanted {width} features by "
                "classes; the weight of PyTorch is its transpose"
            )
        return Head(kernel, bias)


def _array(name: str, value: Any) -> Any:
    """Converts an array; features, logits and the like to float32 or float64.

    Chips and maps, which are large, stay as they are: scores convert what they keep of them.
    """
    numbers = name in AXES and name != "labels" and "h" not in AXES[name]
    if isinstance(value, Tracer):
        return value.astype(np.promote_types(value.dtype, np.float32)) if numbers else value
    return as_floats(value) if numbers else as_numpy(value)


def _finished(value: Any) -> Any:
    """Copies an array of NumPy's, which may be the caller's, and waits for one of jax's.

    jax reads the caller's arrays while it computes.
    """
    return value.copy() if isinstance(value, np.ndarray) else jax.block_until_ready(value)


def _classes(model: Any) -> int:
    """Returns the number of classes that a gallery is of."""
    return int(getattr(model, "classes", 1))
