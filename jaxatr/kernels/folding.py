"""A function of weights and inputs, specialised to its weights: batch norms fold into convolutions.

The function is traced. Everything that depends on the weights alone is computed once, in advance.
If a convolution's result is read only by a ``sub``, ``add``, ``mul`` or ``div`` by known numbers,
one per feature, this step is folded into the convolution, and so are further steps of this kind:
``(conv(x, w) - mean) * f + b`` becomes ``conv(x, f w) + (b - f mean)``. This is how a batch norm
with running statistics is folded, with or without a bias before it. Transposes on the way, as in
models read from ONNX, move the features to another axis but do not prevent the folding, nor do
changes between bfloat16 and float32. Results differ by rounding.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.jax_internals import JaxprEqn, Literal, Var
from jaxatr.kernels.ops.channels import spread_p
from jaxatr.kernels.ops.convolution.dead_taps import live_weights, without_dead_taps
from jaxatr.kernels.ops.convolution.primitive import bind, convolution_p

_DTYPES = ({"float32"}, {"float64"}, {"bfloat16"})
# The most pixels of all results for which oneDNN on padded images beats the chosen algorithm.
_PADDED = 32
Values = dict[Var, Any]


class _Chain(NamedTuple):
    """A convolution and the equations after it that are folded into it.

    Attributes:
      convolution: the convolution.
      after: steps by known numbers, and transposes.
      order: the axes of the convolution's result in the order of the last equation's result.
    """

    convolution: JaxprEqn
    after: tuple[JaxprEqn, ...]
    order: tuple[int, ...]


class Specialised:
    """A traced function, specialised to its weights when :meth:`function` is called.

    Attributes:
      text: the traced program, without the values of the weights.
      multiplications: number of multiplications in its convolutions in float32 and bfloat16.
      narrow: whether convolutions are in bfloat16.
      joined: number of steps that are folded into convolutions.
    """

    def __init__(self, traced: jax.stages.Traced, weights: Sequence[jax.Array]):
        """Analyses a traced function; nothing is computed yet.

        Args:
          traced: ``jax.jit(function).trace(weights, *inputs)``. Arrays that the function closes
            over count as weights too.
          weights: the sequence of arrays that was the first argument of ``trace``.
        """
        self._weights = tuple(weights)
        closed = traced.jaxpr
        self._jaxpr, self._consts = closed.jaxpr, closed.consts
        self._tree = jax.tree.structure(traced.out_info)
        self.text = str(closed)
        known = {*self._jaxpr.constvars, *self._jaxpr.invars[: len(self._weights)]}
        self._early, self._late = list[JaxprEqn](), list[JaxprEqn]()
        for eqn in self._jaxpr.eqns:
            if _is_known(eqn, known):
                known.update(eqn.outvars)
                self._early.append(eqn)
            else:
                self._late.append(eqn)
        self._known = known
        self._vectors = {
            result: vector
            for eqn in self._late
            if eqn.primitive is spread_p
            for result, vector in zip(eqn.outvars, eqn.invars, strict=True)
            if vector in known
        }  # known numbers, one per feature, that are broadcast to the size of an image
        self._chains = _chains(self._late, self._jaxpr.outvars, known, self._vectors)
        self.joined = sum(_is_combination(eqn) for chain in self._chains for eqn in chain.after)
        convolutions = [(eqn, _convolves_in(eqn)) for eqn in self._late]
        self.narrow = any(dtype == "bfloat16" for _, dtype in convolutions)
        self.multiplications = sum(
            _multiplications(eqn) for eqn, dtype in convolutions if dtype in ("float32", "bfloat16")
        )

    def function(self) -> Callable[..., Any]:
        """Computes everything that depends on the weights alone, and returns the rest.

        The rest is a function of the inputs. It uses XLA's convolution, whatever is chosen
        elsewhere, except for many images of fewer pixels than the kernel has taps.
        """
        inside = {id(eqn) for chain in self._chains for eqn in (chain[0], *chain.after)}
        asked = [atom for eqn in self._late if id(eqn) not in inside for atom in eqn.invars]
        asked += [chain.convolution.invars[0] for chain in self._chains]  # images may be weights
        reads = dict.fromkeys(
            atom
            for atom in [*asked, *self._jaxpr.outvars]
            if not isinstance(atom, Literal) and atom in self._known
        )
        held, joined = self._prepared(reads, self._chains)
        ends = {
            id(chain.after[-1]): (chain, *arrays)
            for chain, arrays in zip(self._chains, joined, strict=True)
        }

        def infer(*inputs: Any) -> Any:
            values: Values = dict(zip(reads, held, strict=True))
            own = self._jaxpr.invars[len(self._weights) :]
            values |= zip(own, jax.tree.leaves(inputs), strict=True)
            for eqn in self._late:
                if end := ends.get(id(eqn)):
                    chain, kernel, bias = end
                    x = _read(chain.convolution.invars[0], values)
                    result = _convolve(chain.convolution, x, kernel).astype(bias.dtype) + bias
                    values[eqn.outvars[0]] = jnp.transpose(result, chain.order)
                elif id(eqn) not in inside:
                    _run(eqn, values)
            return self._tree.unflatten(_read(atom, values) for atom in self._jaxpr.outvars)

        return infer

    def _prepared(self, reads: Iterable[Var], chains: Iterable[_Chain]) -> tuple[Any, Any]:
        """Returns the values of known variables, and the kernel and the bias of each chain."""

        def prepare(weights: Sequence[jax.Array]) -> Any:
            values: Values = dict(zip(self._jaxpr.constvars, self._consts, strict=True))
            values |= zip(self._jaxpr.invars, weights, strict=False)
            for eqn in self._early:
                _run(eqn, values)
            numbers = values | {a: _read(b, values) for a, b in self._vectors.items()}
            # Only products are rounded to bfloat16, not also their factors.
            for eqn in filter(_rounds, self._early):
                numbers[eqn.outvars[0]] = _read(eqn.invars[0], values)
            return [values[name] for name in reads], [_joined(chain, numbers) for chain in chains]

        return jax.jit(prepare)(self._weights)


def _is_known(eqn: JaxprEqn, known: Collection[Var]) -> bool:
    """Returns whether an equation depends on known values alone and its results are no larger."""
    own = [atom for atom in eqn.invars if not isinstance(atom, Literal)]
    if not own or eqn.effects or not all(atom in known for atom in own):
        return False
    size = sum(math.prod(_aval(atom).shape) for atom in own)
    return sum(math.prod(_aval(var).shape) for var in eqn.outvars) <= size


def _chains(
    eqns: Sequence[JaxprEqn],
    outvars: Sequence[Any],
    known: Collection[Var],
    vectors: Collection[Var],
) -> list[_Chain]:
    """Finds the convolutions by known kernels whose results are read only by per-feature steps.

    Args:
      eqns: equations in the order of the program.
      outvars: results of the program.
      known: variables that depend on the weights alone.
      vectors: results of :func:`jaxatr.kernels.ops.channels.spread` of known vectors.
    """
    count = Counter(
        atom
        for atom in [*(atom for eqn in eqns for atom in eqn.invars), *outvars]
        if not isinstance(atom, Literal)
    )
    reader = {
        atom: eqn for eqn in eqns for atom in eqn.invars if not isinstance(atom, Literal)
    }  # used only for variables that have a single reader
    found = []
    for eqn in eqns:
        axes = _feature_axes(eqn)
        if axes is None or isinstance(eqn.invars[1], Literal) or eqn.invars[1] not in known:
            continue
        after, last = list[JaxprEqn](), eqn.outvars[0]
        order = tuple(range(_aval(last).ndim))
        while count[last] == 1 and last in reader:
            following = reader[last]
            if following.primitive.name == "transpose":
                order = tuple(order[axis] for axis in following.params["permutation"])
            elif not _rounds(following) and not _is_step(
                following, last, known, vectors, order.index(axes[1])
            ):
                break
            after.append(following)
            last = following.outvars[0]
        if any(map(_is_combination, after)):
            found.append(_Chain(eqn, tuple(after), order))
    return found


def _feature_axes(eqn: JaxprEqn) -> tuple[int, int] | None:
    """Returns the feature axes of a convolution's kernel and result; None for other equations."""
    kind = eqn.primitive.name
    if kind not in (convolution_p.name, "conv_general_dilated"):
        return None
    if {str(_aval(atom).dtype) for atom in (*eqn.invars, *eqn.outvars)} not in _DTYPES:
        return None
    if kind == convolution_p.name:
        return (3, 3) if eqn.params["problem"].direction == "forward" else None
    if eqn.params["batch_group_count"] != 1:
        return None
    numbers = eqn.params["dimension_numbers"]
    return numbers.rhs_spec[0], numbers.out_spec[1]


def _is_combination(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in ("sub", "add", "mul", "div")


def _rounds(eqn: JaxprEqn) -> bool:
    """Returns whether an equation only changes the type, between float32 and bfloat16."""
    types = {str(_aval(atom).dtype) for atom in (*eqn.invars, *eqn.outvars)}
    return eqn.primitive.name == "convert_element_type" and types <= {"float32", "bfloat16"}


def _is_step(
    eqn: JaxprEqn, var: Var, known: Collection[Var], vectors: Collection[Var], axis: int
) -> bool:
    """Returns whether an equation combines ``var`` with one known number per feature."""
    if not _is_combination(eqn) or (eqn.primitive.name == "div" and eqn.invars[0] is not var):
        return False
    if (
        _aval(eqn.outvars[0]).shape != _aval(var).shape
        or _aval(eqn.outvars[0]).dtype != _aval(var).dtype
    ):
        return False
    other = eqn.invars[1] if eqn.invars[0] is var else eqn.invars[0]
    shape = _aval(other).shape
    if isinstance(other, Literal) or other in known:
        features = len(shape) == _aval(var).ndim and math.prod(shape) == shape[axis]
        return math.prod(shape) == 1 or features
    return other in vectors and axis == len(shape) - 1


def _joined(chain: _Chain, numbers: Values) -> tuple[jax.Array, jax.Array]:
    """Computes the kernel and the bias of a convolution with its steps folded in."""
    axes = _feature_axes(chain.convolution)
    assert axes is not None
    var = chain.convolution.outvars[0]
    kernel = _read(chain.convolution.invars[1], numbers)
    features, dtype = _aval(var).shape[axes[1]], jnp.promote_types(kernel.dtype, "float32")
    factor, added = jnp.ones(features, dtype), jnp.zeros(features, dtype)
    for eqn in chain.after:
        if _is_combination(eqn):
            first = eqn.invars[0] is var
            number = jnp.ravel(_read(eqn.invars[1] if first else eqn.invars[0], numbers))
            match eqn.primitive.name:
                case "add":
                    added = added + number
                case "sub":
                    sign = 1 if first else -1
                    factor, added = sign * factor, sign * (added - number)
                case "mul":
                    factor, added = factor * number, added * number
                case _:
                    factor, added = factor / number, added / number
        var = eqn.outvars[0]
    to_kernel, to_result = [1] * kernel.ndim, [1] * _aval(var).ndim
    to_kernel[axes[0]] = to_result[axes[1]] = features
    kernel = kernel * factor.reshape(to_kernel)
    kernel = kernel.astype(_aval(chain.convolution.invars[1]).dtype)
    return kernel, added.reshape(to_result).astype(_aval(chain.after[-1].outvars[0]).dtype)


def _run(eqn: JaxprEqn, values: Values) -> None:
    """Evaluates an equation as ``jax.core.eval_jaxpr`` does."""
    given = [_read(atom, values) for atom in eqn.invars]
    if eqn.primitive.name == convolution_p.name:
        values[eqn.outvars[0]] = _convolve(eqn, *given)
        return
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # until jax 0.11
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*functions, *given, **params)
    values.update(
        zip(eqn.outvars, results if eqn.primitive.multiple_results else [results], strict=True)
    )


def _convolve(eqn: JaxprEqn, x: Any, kernel: Any) -> Any:
    if eqn.primitive.name != convolution_p.name:
        return eqn.primitive.bind(x, kernel, **eqn.params)
    problem = eqn.params["problem"]
    if problem.direction != "forward":  # a gradient, which has other arguments
        return bind(x, kernel, problem, "xla")
    if x.dtype == "bfloat16" and problem.groups == problem.x_shape[3] > 1:
        # oneDNN's depthwise convolutions in bfloat16 take 2 to 30 times those in float32.
        params = eqn.params | {"problem": dataclasses.replace(problem, dtype="float32")}
        wide = eqn.replace(params=params)
        return _convolve(wide, x.astype("float32"), kernel.astype("float32")).astype(x.dtype)
    problem = without_dead_taps(eqn.params["problem"])
    if math.prod(problem.w_shape[:2]) <= math.prod(problem.x_shape[1:3]):
        return bind(x, live_weights(eqn.params["problem"], kernel), problem, "xla")
    # If a kernel has more taps than the image has pixels, XLA swaps the two, and oneDNN does not
    # take the resulting convolution.
    if math.prod(problem.y_shape[:3]) > _PADDED:
        return bind(x, kernel, eqn.params["problem"], eqn.params["algorithm"])
    kernel = live_weights(eqn.params["problem"], kernel)
    edges = [(before, after, 0) for before, after in ((0, 0), *problem.padding, (0, 0))]
    # jnp.pad takes no negative edges. Without the barrier, XLA makes the padding part of the
    # convolution again.
    x = jax.lax.optimization_barrier(jax.lax.pad(x, jnp.zeros((), x.dtype), edges))
    problem = dataclasses.replace(problem, x_shape=x.shape, padding=((0, 0), (0, 0)))
    return bind(x, kernel, problem, "xla")


def _read(atom: Any, values: Values) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _aval(atom: Any) -> Any:
    """Returns the shape and type of a variable or a literal."""
    return atom.aval


def _convolves_in(eqn: JaxprEqn) -> str:
    """Returns the type of a convolution; empty for other equations."""
    return "" if _feature_axes(eqn) is None else str(_aval(eqn.outvars[0]).dtype)


def _multiplications(eqn: JaxprEqn) -> int:
    """Counts the multiplications of a convolution."""
    kernel, result = _aval(eqn.invars[1]), _aval(eqn.outvars[0])
    axes = _feature_axes(eqn)
    assert axes is not None
    return math.prod(result.shape) * math.prod(kernel.shape) // max(kernel.shape[axes[0]], 1)
