"""From a jaxpr to a graph: walks the equations, and asks a rule for each primitive.

A value keeps the shape that it was computed in for as long as broadcasting gives the rest: the
``[c]`` of a bias stays ``[c]`` where jax has made ``[b, h, w, c]`` of it, as ONNX's operators
broadcast by themselves. What depends on constants alone is computed at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from jaxatr.kernels.ops import channels
from jaxatr.kernels.ops.convolution.solvers import xla
from jaxatr.onnx.writer.dimensions import (
    Dimensions,
    broadcast,
    is_static,
    reshaping,
    stripped,
)
from jaxatr.onnx.writer.graph import Graph, Shape, Unsupported


class Tensor(NamedTuple):
    """A value of the graph, or a constant that is not in it yet.

    Attributes:
      shape: the shape it was computed in, which broadcasts to the shape that it has in jax.
      dtype: of the elements.
      name: in the graph, or None of a constant.
      array: the constant, or None.
    """

    shape: Shape
    dtype: Any
    name: str | None = None
    array: Any = None


class Equation(NamedTuple):
    """The equation that a rule translates.

    Attributes:
      primitive: its name.
      params: of the primitive.
      inputs: its operands.
      takes: their shapes and dtypes in jax.
      gives: those of the results.
    """

    primitive: str
    params: Mapping[str, Any]
    inputs: list[Tensor]
    takes: list[Any]
    gives: list[Any]


Rule = Callable[["Translator", Equation], Tensor | list[Tensor]]

RULES: dict[str, Rule] = {}
COMPUTED: dict[str, Callable[[Mapping[str, Any]], Callable[..., Any] | None]] = {
    "jaxatr_convolution": lambda params: partial(xla.run, params["problem"]),
    "jaxatr_spread": lambda params: partial(channels.PLAIN["spread"], **params),
    "jaxatr_totals": lambda params: channels.PLAIN["totals"],
}
"""Primitives of this package, from their parameters to what jax would compute; None: by a rule."""

_LATER = {"platform_index", "dim_as_value"}  # no constants, though nothing goes in
_INLINED = {
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Makes a function the rule of the primitives of these names."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return add


class Translator:
    """Adds a jaxpr's equations to a graph.

    Attributes:
      graph: that is added to.
      dimensions: sizes that are known only when the model runs.
      missing: what has no rule, ``(primitive, reason, place)`` each.
    """

    def __init__(self, graph: Graph):
        """Takes the graph, whose inputs are declared already."""
        self.graph = graph
        self.dimensions = Dimensions(graph.root)
        self.missing: list[tuple[str, str, str]] = []
        self._prefix = self._place = ""

    def within(self, body: Graph) -> "Translator":
        """Returns a translator for a body of this graph, which notes what is missing here."""
        inner = Translator(body)
        inner.dimensions, inner.missing = self.dimensions, self.missing
        inner._prefix, inner._place = self.graph.name_scope, self._place
        return inner

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Tensor]) -> list[Tensor]:
        """Adds a jaxpr.

        Args:
          jaxpr: an open one.
          consts: arrays for its constant variables.
          arguments: for its other variables.

        Returns:
          Its results.
        """
        env = dict(zip(jaxpr.constvars, map(constant, consts), strict=True))
        env |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Tensor:
            if not isinstance(atom, jex.Literal):
                return env[atom]
            aval: Any = atom.aval
            return constant(np.asarray(atom.val, aval.dtype))

        equations = _live(jaxpr)
        env |= _computed(jaxpr, equations, env)
        for equation in equations:
            if equation.outvars[0] not in env:
                results = self._translate(equation, [read(atom) for atom in equation.invars])
                env |= dict(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _translate(self, equation: Any, inputs: list[Tensor]) -> list[Tensor]:
        name, params = equation.primitive.name, equation.params
        outer = self.graph.name_scope, self._place
        # Library code that jax has traced before has no place of its own, but its call has.
        self._place = source_info_util.summarize(equation.source_info) or self._place
        stack = str(equation.source_info.name_stack)
        self.graph.name_scope = "/".join(part for part in (self._prefix, stack) if part)
        try:
            if name in _INLINED:
                return self._inline(params[_INLINED[name]], inputs)
            if name in COMPUTED and (run := COMPUTED[name](params)) is not None:
                takes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
                return self._inline(jax.make_jaxpr(run)(*takes), inputs)
            return self._by_rule(equation, inputs)
        except Unsupported as error:
            self.missing.append((name, str(error), self._place))
            return [self._placeholder(var.aval) for var in equation.outvars]
        finally:
            self.graph.name_scope, self._place = outer

    def _inline(self, jaxpr: Any, inputs: list[Tensor]) -> list[Tensor]:
        """Adds a called jaxpr, whose names stand below the call's."""
        before, self._prefix = self._prefix, self.graph.name_scope
        try:
            return self.run(getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ()), inputs)
        finally:
            self._prefix = before

    def _by_rule(self, equation: Any, inputs: list[Tensor]) -> list[Tensor]:
        name, gives = equation.primitive.name, [var.aval for var in equation.outvars]
        takes = [var.aval for var in equation.invars]
        if name not in RULES:
            raise Unsupported("has no rule")
        results = RULES[name](self, Equation(name, equation.params, inputs, takes, gives))
        return [results] if isinstance(results, Tensor) else results

    def _placeholder(self, aval: Any) -> Tensor:
        """Returns something in the place of a result that has no rule, so that others are found."""
        dtype = aval.dtype if is_plain(aval) else np.dtype(np.uint32)
        return Tensor(aval.shape, dtype, self.graph.declare("missing", aval.shape, dtype))

    # The vocabulary of rules.

    def name(self, value: Tensor) -> str:
        """Returns a value's name in the graph, in the shape that it was computed in."""
        return self.graph.constant(value.array) if value.name is None else value.name

    def tensor(self, name: str) -> Tensor:
        """Returns the value of a name in the graph."""
        return Tensor(*self.graph.types[name], name)

    def add(
        self, op: str, inputs: list[str], shape: Shape, dtype: Any = None, /, **attributes: Any
    ) -> Tensor:
        """Adds a node, as :meth:`Graph.add` does, and returns its output."""
        return self.tensor(self.graph.add(op, inputs, shape, dtype, **attributes))

    def full(self, value: Tensor, shape: Shape) -> str:
        """Returns the name of a value in the shape that it has in jax."""
        if value.array is not None and is_static(shape):
            return self.graph.constant(np.broadcast_to(value.array, shape))
        if tuple(value.shape) == tuple(shape):
            return self.name(value)
        if stripped(value.shape) == stripped(shape):
            return self.graph.add(
                "Unsqueeze",
                [self.name(value)],
                shape,
                axes=list(range(len(shape) - len(value.shape))),
            )
        if is_static(shape):
            return self.graph.add("Expand", [self.name(value)], shape, shape=list(map(int, shape)))
        return self.graph.add("Expand", [self.name(value), self.dimensions.shape(shape)], shape)

    def read(self, equation: Equation, index: int) -> str:
        """Returns the name of an operand in the shape that it has in jax."""
        return self.full(equation.inputs[index], equation.takes[index].shape)

    def operand(self, equation: Equation, index: int) -> Tensor:
        """Returns an operand in the shape that it has in jax; a constant stays one."""
        value, shape = equation.inputs[index], equation.takes[index].shape
        if value.array is not None and is_static(shape):
            return Tensor(shape, value.dtype, array=np.broadcast_to(value.array, shape))
        return self.tensor(self.full(value, shape))

    def pointwise(self, op: str, *values: Tensor, dtype: Any = None, **attributes: Any) -> Tensor:
        """Adds an operator that broadcasts; the result is of the first operand's dtype."""
        shape = broadcast(*(value.shape for value in values))
        dtype = values[0].dtype if dtype is None else dtype
        return self.add(op, [self.name(value) for value in values], shape, dtype, **attributes)

    def cast(self, value: Tensor, dtype: Any) -> Tensor:
        """Returns the value in another dtype."""
        if value.dtype == np.dtype(dtype):
            return value
        if value.array is not None:
            return Tensor(value.shape, np.dtype(dtype), array=value.array.astype(dtype))
        return self.add("Cast", [self.name(value)], value.shape, dtype, to=np.dtype(dtype))

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """Returns the name of a value with its axes in another order."""
        if list(order) == sorted(order):
            return name
        shape = self.graph.types[name].shape
        order = [int(axis) for axis in order]
        return self.graph.add("Transpose", [name], tuple(shape[axis] for axis in order), perm=order)

    def reshape(self, name: str, shape: Shape) -> str:
        """Returns the name of a value in another shape."""
        before = self.graph.types[name].shape
        if tuple(before) == tuple(shape):
            return name
        found = reshaping(before, shape)
        if found is None:
            return self.graph.add("Reshape", [name, self.dimensions.shape(shape)], shape)
        op, attributes = found
        return self.graph.add(op, [name], shape, **attributes)


def constant(array: Any) -> Tensor:
    """Returns a constant; one with the same element everywhere is kept as that element."""
    if not is_plain(array):
        return Tensor(array.shape, array.dtype, array=array)
    array = np.asarray(array)
    if array.size > 1 and array.dtype.kind in "fiub" and np.all(array == array.flat[0]):
        array = array.flat[0].reshape(())
    if array.dtype in (np.float64, np.int64):  # a Python number: x64 is off
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
    return Tensor(array.shape, array.dtype, array=array)


def is_plain(array: Any) -> bool:
    """Says whether an array's elements are numbers, and not random keys."""
    return not (hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.extended))


def _computed(jaxpr: Any, equations: list[Any], env: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
    """Returns the results of equations that depend on constants alone."""
    known = {var for var, value in env.items() if value.array is not None}
    fixed = []
    for equation in equations:
        if all(isinstance(a, jex.Literal) or a in known for a in equation.invars):
            if _is_fixed(equation):
                fixed.append(equation)
                known.update(equation.outvars)
    if not fixed:
        return {}
    taken = [var for var in env if any(var in equation.invars for equation in fixed)]
    made = [var for equation in fixed for var in equation.outvars]
    # As a function of its own, compiled at once where it is long: each part would be compiled too.
    part = jex.Jaxpr(taken, [], made, fixed, debug_info=jaxpr.debug_info)
    run = jex.jaxpr_as_fun(
        jex.ClosedJaxpr(part, [_whole(env[var].array, var.aval.shape) for var in taken])
    )
    results = (jax.jit(run) if len(fixed) > 3 else run)()
    return dict(zip(made, map(constant, results), strict=True))


def _is_fixed(equation: Any) -> bool:
    if equation.primitive.name in _LATER:
        return False
    inner = [e for jaxpr in jex.jaxprs_in_params(equation.params) for e in jaxpr.eqns]
    return all(is_static(v.aval.shape) for v in equation.outvars) and all(map(_is_fixed, inner))


def _whole(array: Any, shape: Shape) -> Any:
    return np.broadcast_to(array, shape) if is_plain(array) else array


def _live(jaxpr: Any) -> list[Any]:
    """Returns the equations that the results depend on."""
    wanted = {atom for atom in jaxpr.outvars if not isinstance(atom, jex.Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if any(var in wanted for var in equation.outvars):
            kept.append(equation)
            wanted |= {atom for atom in equation.invars if not isinstance(atom, jex.Literal)}
    return kept[::-1]
