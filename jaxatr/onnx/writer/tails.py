"""Formulas that stay accurate where their values are close to zero.

onnxruntime computes ``Sigmoid`` with an absolute error of 1e-7, so that it is 0 below -18, and ONNX
has no complementary error function; 1 - ``Erf`` is 0 from 4 on. That is enough where the value is
multiplied by its own argument, as in SiLU and GELU, and only there.
"""

import numpy as np

from jaxatr.onnx.writer.fusion import Finder, either_way, rewrite
from jaxatr.onnx.writer.graph import Graph, Node
from jaxatr.onnx.writer.translate import Tensor, Translator, number_like

_ERFC = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)
"""Coefficients of Press et al., Numerical Recipes, whose relative error is below 1.2e-7."""


def settle_tails(graph: Graph) -> None:
    """Replaces ``Erfc``, which is not an operator of ONNX, and ``Sigmoid`` where necessary."""
    rewrite(graph, _accurate)


def _accurate(find: Finder, node: Node) -> bool:
    quick = node.op in ("Erfc", "Sigmoid") and _only_scales_its_argument(find, node)
    if node.op not in ("Erfc", "Sigmoid") or (quick and node.op == "Sigmoid"):
        return False
    t = Translator(find.graph)
    given = t.tensor(node.inputs[0])
    x = given if given.dtype == np.float64 else t.cast(given, np.float32)
    if node.op == "Sigmoid":
        power = t.pointwise("Exp", t.pointwise("Neg", x))
        result = t.pointwise("Reciprocal", t.pointwise("Add", power, number_like(x, 1)))
    elif quick:
        result = t.pointwise("Sub", number_like(x, 1), t.pointwise("Erf", x))
    else:
        result = _erfc(t, x)
    find.graph.put("Identity", [t.name(t.cast(result, given.dtype))], node.outputs[0])
    return True


def _erfc(t: Translator, x: Tensor) -> Tensor:
    """Computes u exp(-x² + p(u)) with u = 1 / (1 + |x| / 2); 2 minus that if x is negative."""
    size = t.pointwise("Abs", x)
    half = t.pointwise("Mul", size, number_like(x, 0.5))
    u = t.pointwise("Reciprocal", t.pointwise("Add", half, number_like(x, 1)))
    power = number_like(x, _ERFC[0])
    for coefficient in _ERFC[1:]:
        power = t.pointwise("Add", t.pointwise("Mul", u, power), number_like(x, coefficient))
    power = t.pointwise("Sub", power, t.pointwise("Mul", x, x))
    positive = t.pointwise("Mul", u, t.pointwise("Exp", power))
    negative = t.pointwise("Sub", number_like(x, 2), positive)
    below = t.pointwise("Less", x, number_like(x, 0), dtype=np.bool_)
    return t.pointwise("Where", below, negative, positive, dtype=x.dtype)


def _only_scales_its_argument(find: Finder, node: Node) -> bool:
    """Returns whether all readers multiply the value by a multiple of its argument."""
    (value,), root = node.outputs, _root(find, node.inputs[0])
    readers = find.readers.get(value, [])
    return value not in find.graph.outputs and all(
        reader.op == "Mul"
        and any(one == value and _root(find, other) == root for one, other in either_way(reader))
        for reader in readers
    )


def _root(find: Finder, name: str) -> str:
    """Returns the value that a value is a multiple of, possibly itself."""
    while node := find.maker(name, "Div", "Mul", "Neg"):
        if node.op == "Neg":
            (name,) = node.inputs
        elif find.number(node.inputs[1]) is not None:
            name = node.inputs[0]
        elif node.op == "Mul" and find.number(node.inputs[0]) is not None:
            name = node.inputs[1]
        else:
            break
    return name
