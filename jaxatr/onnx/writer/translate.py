"""Translates a jaxpr to a graph with a rule for each primitive.

ONNX's operators broadcast, so a value keeps the shape in which it was computed as long as it
broadcasts to its shape in jax: a bias ``[c]`` stays ``[c]`` where jax broadcasts it to
``[b, h, w, c]``. Equations that depend only on constants are computed during translation.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    jaxpr_as_fun,
    jaxprs_in_params,
    source_info_util,
)
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
    """A value of the graph, or a constant that has not been added to it.

    Attributes:
      shape: the shape in which it was computed, which broadcasts to its shape in jax.
      dtype: type of the elements.
      name: name in the graph; None for a constant.
      array: array of a constant; None for a value of the graph.
    """

    shape: Shape
    dtype: Any
    name: str | None = None
    array: Any = None


class Params(Mapping[str, Any]):
    """The parameters of a primitive, which remember those that were read."""

    def __init__(self, params: Mapping[str, Any]):
        """Wraps parameters of which none has been read."""
        self._params, self._read = params, set[str]()

    def __getitem__(self, name: str) -> Any:
        """Returns a parameter."""
        self._read.add(name)
        return self._params[name]

    def __iter__(self) -> Iterator[str]:
        """Yields the names."""
        return iter(self._params)

    def __len__(self) -> int:
        """Returns the number of parameters."""
        return len(self._params)

    def replaced(self, **changed: Any) -> "Params":
        """Returns the parameters with other values, for the same rule."""
        copy = Params({**self._params, **changed})
        copy._read = self._read
        return copy

    def unread(self) -> set[str]:
        """Returns the names of the parameters that were not read."""
        return set(self) - self._read


class Equation(NamedTuple):
    """The equation that a rule translates.

    Attributes:
      primitive: name of the primitive.
      params: parameters of the primitive, each of which the rule must read.
      inputs: the operands.
      in_avals: shapes and dtypes of the operands in jax.
      out_avals: shapes and dtypes of the results in jax.
    """

    primitive: str
    params: Params
    inputs: list[Tensor]
    in_avals: list[Any]
    out_avals: list[Any]


Rule = Callable[["Translator", Equation], Tensor | list[Tensor]]

RULES: dict[str, Rule] = {}
_UNREAD: dict[str, frozenset[str]] = {}  # for each of them, the parameters that it may ignore
COMPUTED: dict[str, Callable[[Mapping[str, Any]], Callable[..., Any] | None]] = {
    "jaxatr_convolution": lambda params: partial(xla.run, params["problem"]),
    "jaxatr_spread": lambda params: partial(channels.PLAIN["spread"], **params),
    "jaxatr_totals": lambda params: channels.PLAIN["totals"],
}
"""For a primitive, a function from its parameters to an equivalent jax function of others.

The latter is None for parameters that a rule translates.
"""

_IRRELEVANT = frozenset(
    # Shapes and types of the results are those of ``Equation.out_avals``.
    "dtype index_dtype new_dtype new_sizes out_dtype preferred_element_type shape weak_type "
    # Where arrays lie, and how exactly or fast they are computed.
    "accuracy out_sharding precision sharding unroll "
    # What the caller promises about the operands.
    "indices_are_sorted unique_indices".split()
)
"""Parameters that do not affect the results of any primitive with a rule."""

_LATER = {"platform_index", "dim_as_value"}  # not constants, although they have no operands
_INLINED = {
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}


def rule(*primitives: str, unread: str = "") -> Callable[[Rule], Rule]:
    """Returns a decorator that registers a function as the rule for some primitives.

    An equation is refused if its rule reads neither a parameter that it has nor names it here, so
    that a parameter which a new version of jax adds is not ignored.

    Args:
      *primitives: names of the primitives.
      unread: names of the parameters that the rule has no need to read.
    """

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        _UNREAD.update(dict.fromkeys(primitives, _IRRELEVANT | set(unread.split())))
        return function

    return add


class Translator:
    """Adds a jaxpr's equations to a graph.

    Attributes:
      graph: the graph to add to.
      dimensions: the symbolic dimensions.
      missing: ``(primitive, reason, source location)`` of each equation without a rule.
    """

    def __init__(self, graph: Graph):
        """Prepares for a graph whose inputs are declared."""
        self.graph = graph
        self.dimensions = Dimensions(graph.root)
        self.missing: list[tuple[str, str, str]] = []
        self._prefix = self._place = ""

    def within(self, body: Graph) -> "Translator":
        """Returns a translator for a body of this graph, which shares the list ``missing``."""
        inner = Translator(body)
        inner.dimensions, inner.missing = self.dimensions, self.missing
        inner._prefix, inner._place = self.graph.name_scope, self._place
        return inner

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Tensor]) -> list[Tensor]:
        """Adds a jaxpr and returns its results."""
        env = {
            var: constant(np.asarray(value, var.aval.dtype) if is_plain(value) else value)
            for var, value in zip(jaxpr.constvars, consts, strict=True)
        }
        env |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Tensor:
            if not isinstance(atom, Literal):
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
        # Library code that jax traced earlier has no source location; its caller has one.
        self._place = source_info_util.summarize(equation.source_info) or self._place
        stack = str(equation.source_info.name_stack)
        self.graph.name_scope = "/".join(part for part in (self._prefix, stack) if part)
        try:
            if name in _INLINED:
                return self._inline(params[_INLINED[name]], inputs)
            return self._by_rule(equation, inputs)
        except Unsupported as error:
            self.missing.append((name, str(error), self._place))
            return [self._placeholder(var.aval) for var in equation.outvars]
        finally:
            self.graph.name_scope, self._place = outer

    def _inline(self, jaxpr: Any, inputs: list[Tensor]) -> list[Tensor]:
        """Adds a called jaxpr, with its name scopes inside that of the call."""
        before, self._prefix = self._prefix, self.graph.name_scope
        try:
            return self.run(getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ()), inputs)
        finally:
            self._prefix = before

    def _by_rule(self, equation: Any, inputs: list[Tensor]) -> list[Tensor]:
        name, params = equation.primitive.name, Params(equation.params)
        avals = ([var.aval for var in atoms] for atoms in (equation.invars, equation.outvars))
        given = Equation(name, params, inputs, *avals)
        if name in COMPUTED and (run := COMPUTED[name](params)) is not None:
            return self.written(run, given)
        if name not in RULES:
            raise Unsupported("has no rule")
        results = RULES[name](self, given)
        if unread := params.unread() - _UNREAD[name]:
            raise Unsupported(f"has parameters that its rule does not read: {sorted(unread)}")
        return [results] if isinstance(results, Tensor) else results

    def _placeholder(self, aval: Any) -> Tensor:
        """Returns a placeholder for a result without a rule, so that translation can continue."""
        dtype = aval.dtype if is_plain(aval) else np.dtype(np.uint32)
        return Tensor(aval.shape, dtype, self.graph.declare("missing", aval.shape, dtype))

    # Methods for rules.

    def written(self, run: Callable[..., Any], equation: Equation) -> list[Tensor]:
        """Adds a jax function of an equation's operands in its place, and returns the results."""
        avals = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in equation.in_avals]
        with _as_wide_as(*equation.in_avals, *equation.out_avals):
            called = jax.make_jaxpr(run)(*avals)
        return self._inline(called, equation.inputs)

    def name(self, value: Tensor) -> str:
        """Returns a value's name in the graph, in the shape in which it was computed."""
        return self.graph.constant(value.array) if value.name is None else value.name

    def tensor(self, name: str) -> Tensor:
        """Returns the value of a name in the graph."""
        return Tensor(*self.graph.types[name], name)

    def add(
        self, op: str, inputs: list[str], shape: Shape, dtype: Any = None, /, **attributes: Any
    ) -> Tensor:
        """Adds a node with :meth:`Graph.add`, and returns its output."""
        return self.tensor(self.graph.add(op, inputs, shape, dtype, **attributes))

    def full(self, value: Tensor, shape: Shape) -> str:
        """Returns the name of a value broadcast to its shape in jax."""
        if value.array is not None and is_static(shape):
            return self.graph.constant(_broadcast(value.array, shape))
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
        """Returns the name of an operand broadcast to its shape in jax."""
        return self.full(equation.inputs[index], equation.in_avals[index].shape)

    def operand(self, equation: Equation, index: int) -> Tensor:
        """Returns an operand broadcast to its shape in jax; a constant stays a constant."""
        value, shape = equation.inputs[index], equation.in_avals[index].shape
        if value.array is not None and is_static(shape):
            return Tensor(shape, value.dtype, array=np.broadcast_to(value.array, shape))
        return self.tensor(self.full(value, shape))

    def pointwise(self, op: str, *values: Tensor, dtype: Any = None, **attributes: Any) -> Tensor:
        """Adds an operator that broadcasts; by default the result has the first operand's dtype."""
        shape = broadcast(*(value.shape for value in values))
        dtype = values[0].dtype if dtype is None else dtype
        return self.add(op, [self.name(value) for value in values], shape, dtype, **attributes)

    def cast(self, value: Tensor, dtype: Any) -> Tensor:
        """Converts a value to another dtype."""
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
        """Returns the name of a value reshaped to another shape."""
        before = self.graph.types[name].shape
        if tuple(before) == tuple(shape):
            return name
        operator = reshaping(before, shape)
        if operator is None:
            return self.graph.add("Reshape", [name, self.dimensions.shape(shape)], shape)
        op, attributes = operator
        return self.graph.add(op, [name], shape, **attributes)


def constant(array: Any) -> Tensor:
    """Returns an array as a constant; if all elements are equal, only one is kept."""
    if not is_plain(array):
        return Tensor(array.shape, array.dtype, array=array)
    array = np.asarray(array)
    if array.size > 1 and array.dtype.kind in "fiub" and np.all(array == array.flat[0]):
        array = array.flat[0].reshape(())
    return Tensor(array.shape, array.dtype, array=array)


def number_like(value: Tensor, number: float | int) -> Tensor:
    """Returns a number in the type of a value, as a constant."""
    return constant(np.asarray(number, value.dtype))


def is_plain(array: Any) -> bool:
    """Returns whether an array's elements are numbers, not random keys."""
    return not (hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.extended))


def _computed(jaxpr: Any, equations: list[Any], env: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
    """Returns the results of equations that depend only on constants."""
    known = {var for var, value in env.items() if value.array is not None}
    fixed = []
    for equation in equations:
        if all(isinstance(a, Literal) or a in known for a in equation.invars):
            if _is_fixed(equation):
                fixed.append(equation)
                known.update(equation.outvars)
    if not fixed:
        return {}
    taken = [var for var in env if any(var in equation.invars for equation in fixed)]
    computed = [var for equation in fixed for var in equation.outvars]
    # Long parts are compiled as one function; otherwise jax would compile each primitive.
    part = Jaxpr(taken, [], computed, fixed, debug_info=jaxpr.debug_info)
    run = jaxpr_as_fun(
        ClosedJaxpr(part, [_broadcast(env[var].array, var.aval.shape) for var in taken])
    )
    atoms = (atom for one in fixed for atom in (*one.invars, *one.outvars))
    with _as_wide_as(*(atom.aval for atom in atoms)):
        results = (jax.jit(run) if len(fixed) > 3 else run)()
    return dict(zip(computed, map(constant, results), strict=True))


def _as_wide_as(*avals: Any) -> contextlib.AbstractContextManager:
    """Returns a scope that keeps 64-bit types if there are any.

    A function can have them although jax's setting is another: ``Model`` of generated source code
    keeps its file's.
    """
    plain = [aval.dtype for aval in avals if is_plain(aval)]
    wanted = any(dtype.kind in "iuf" and dtype.itemsize == 8 for dtype in plain)
    return jax.enable_x64(True) if wanted else contextlib.nullcontext()


def _is_fixed(equation: Any) -> bool:
    if equation.primitive.name in _LATER:
        return False
    inner = [e for jaxpr in jaxprs_in_params(equation.params) for e in jaxpr.eqns]
    values = (*equation.invars, *equation.outvars)  # a constant may fill an array of any size
    return all(is_static(one.aval.shape) for one in values) and all(map(_is_fixed, inner))


def _broadcast(array: Any, shape: Shape) -> Any:
    return np.broadcast_to(array, shape) if is_plain(array) else array


def _live(jaxpr: Any) -> list[Any]:
    """Returns the equations that the results depend on."""
    wanted = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if any(var in wanted for var in equation.outvars):
            kept.append(equation)
            wanted |= {atom for atom in equation.invars if not isinstance(atom, Literal)}
    return kept[::-1]
