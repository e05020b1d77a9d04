"""Tells the constants of formulas, which training must not change, from weights, by their use.

Exporters store both as initializers: GELU's 0.5, epsilons, exponents, masks of −∞ and the scales of
quantised values beside the weights.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from jaxatr.onnx import ops
from jaxatr.onnx.reader.program import Call
from jaxatr.resolve import nearest

MASKED = -100.0
"""Greatest number that an additive mask gives to what it hides."""

_MOVED = (
    ops.cast,
    ops.expand,
    ops.flatten,
    ops.identity,
    ops.reshape,
    ops.squeeze,
    ops.tile,
    ops.transpose,
    ops.unsqueeze,
)
"""Functions whose result has the use of their first operand."""

_FEATURES = {ops.conv: 0, ops.conv_transpose: 1, ops.matmul: -1, ops.gemm: 1}
"""Axis of the kernel that counts the features, of the layers whose bias may be a separate sum."""


def constants(
    calls: Sequence[Call],
    inputs: Collection[str],
    outputs: Collection[str],
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, np.ndarray],
) -> set[str]:
    """Returns the names of the initializers that are constants of formulas.

    These are

    - single numbers, unless they are a layer's weight (its bias too, if the layer has one feature);
    - arrays that only operands of this kind read: exponents, scales of quantised values, bounds,
      operands of comparisons (:attr:`jaxatr.onnx.ops.registry.Operator.settings`);
    - masks: arrays with infinite numbers, or only of zeros and of numbers up to :data:`MASKED`, or
      only of zeros and ones, where both occur;
    - the mean and deviation, one number a feature, by which only inputs are normalised.

    Args:
      calls: all calls of a model, including those of its subgraphs, in topological order.
      inputs: names of the model's inputs.
      outputs: names of its outputs.
      shapes: the shapes of its float initializers.
      arrays: those initializers, as far as their values are known.
    """
    uses = _uses(calls, outputs)
    single = {name for name, shape in shapes.items() if math.prod(shape) == 1}
    found = _normalising(calls, inputs, outputs, shapes) | (uses.read - uses.others)
    found |= uses.read & single - _narrow_biases(calls, shapes)
    rest = arrays.keys() - found - uses.layers
    found |= {name for name in rest if _is_mask(arrays[name])}
    return found.intersection(shapes) - uses.layers


def _is_mask(value: np.ndarray) -> bool:
    if not value.size:
        return False
    wide = np.asarray(value, np.float64)
    if np.isinf(wide).any():
        return True
    hidden, zeros = (wide <= MASKED).any(), wide == 0
    others = (wide <= MASKED) if hidden else (wide == 1)
    return bool((zeros | others).all() and others.any() and (hidden or zeros.any()))


@dataclass
class _Uses:
    """Names of values by their use.

    Attributes:
      read: those that calls read.
      layers: those that are a layer's weights.
      others: those with another trainable use.
    """

    read: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)


def _uses(calls: Sequence[Call], outputs: Collection[str]) -> _Uses:
    """Returns the uses of all values."""
    uses = _Uses(others=set(outputs))
    for call in reversed(calls):
        operator, names = call.operator, call.inputs
        uses.read.update(names)
        layer = set(operator.positions(operator.weights + operator.running, len(names)))
        setting = set(operator.positions(operator.settings + operator.static, len(names)))
        for position, name in enumerate(names):
            if position in layer:
                uses.layers.add(name)
            elif operator.function in _MOVED and position == 0 and call.outputs:
                for group in (uses.layers, uses.others):
                    if call.outputs[0] in group:
                        group.add(name)
            elif position not in setting and not operator.shape_only:
                uses.others.add(name)
        for inner in call.subgraphs():
            uses.others.update(inner.outputs)
    return uses


def _narrow_biases(calls: Iterable[Call], shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Returns the names of the single numbers that are added to a layer of one feature."""
    known, one, found = dict(shapes), set[str](), set[str]()
    for call in calls:
        function, names = call.operator.function, call.inputs
        if function is ops.transpose and names[0] in known:
            shape = known[names[0]]
            axes = call.attributes.get("perm", range(len(shape))[::-1])
            known[call.outputs[0]] = tuple(shape[axis] for axis in axes)
        elif function in _FEATURES and len(names) > 1 and known.get(names[1]):
            axis = 0 if call.attributes.get("transB") else _FEATURES[function]
            shape = known[names[1]]
            features = shape[axis] if len(shape) > 1 else 1  # a product with a vector
            if features * call.attributes.get("group", 1) == 1:
                one.update(call.outputs)
        elif function in _MOVED and one.intersection(names[:1]):
            one.update(call.outputs)
        elif function is ops.add and one.intersection(names):
            found.update(name for name in names if name in known)
    return found


def _normalising(
    calls: Sequence[Call],
    inputs: Collection[str],
    outputs: Collection[str],
    shapes: Mapping[str, tuple[int, ...]],
) -> set[str]:
    """Returns the names of the means and deviations by which only inputs are normalised.

    A mean is subtracted; a deviation then divides, or its reciprocal multiplies. Their shapes have
    at most one axis longer than 1, or they would be prototypes with which inputs are compared. A
    model that does nothing else has no such names.
    """
    plain, centred, found = set(inputs), set[str](), set[str]()
    counted = Counter(name for call in calls for name in call.inputs)
    for call in calls:
        function, names = call.operator.function, call.inputs
        if function in (ops.cast, ops.identity, ops.transpose, ops.unsqueeze):
            for group in (plain, centred):
                group.update(call.outputs if names[0] in group else ())
        elif function in (ops.sub, ops.div, ops.mul) and len(names) == 2:
            first, second = names if names[0] in plain or function is not ops.mul else names[::-1]
            shape = shapes.get(second)
            if first not in plain or shape is None or sum(size > 1 for size in shape) > 1:
                continue
            if function is not ops.sub and first not in centred and math.prod(shape) > 1:
                continue
            plain.update(call.outputs)
            if function is ops.sub or first in centred:
                centred.update(call.outputs)
                found.update({second} if counted[second] == 1 else ())
    return set() if centred.intersection(outputs) else found


def matching(argument: str, patterns: Sequence[str], names: Collection[str]) -> set[str]:
    """Returns the names that a user's patterns fit.

    Args:
      argument: name of the argument, for error messages.
      patterns: names, or patterns with ``*`` and ``?``.
      names: names of all float initializers.

    Raises:
      ValueError: a pattern fits no name.
    """
    if isinstance(patterns, str):
        raise ValueError(f"{argument}: got the string {patterns!r}, wanted a list of names")
    found = set()
    for pattern in patterns:
        fitting = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
        if not fitting:
            raise ValueError(
                f"{argument}: the model has no float initializer {pattern!r}"
                f"{nearest(pattern, names)}"
            )
        found |= fitting
    return found
