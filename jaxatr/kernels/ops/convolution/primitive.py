"""The convolution as one bilinear primitive, closed under differentiation and batching.

A ``custom_vjp`` would lose forward mode and second derivatives. The primitive is instead declared
to be bilinear, and the transpose of each direction is another direction of the same convolution
(see :class:`ConvProblem`), so that derivatives of any order follow. The chooser of the algorithm is
fixed when a program is traced; it is called when the program is lowered, because only then is the
platform known.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.jax_internals import Primitive, ShapedArray, ad, batching, mlir
from jaxatr.kernels import choosing
from jaxatr.kernels.device import PLATFORMS, of_platform
from jaxatr.kernels.ops.checks import refuse_varying
from jaxatr.kernels.ops.convolution import dead_taps
from jaxatr.kernels.ops.convolution.operation import OPERATION, function
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Direction
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.solver import Choice

convolution_p = Primitive("jaxatr_convolution")

_ROLES: dict[Direction, str] = {"forward": "xwy", "data": "ywx", "weight": "xyw"}


def bind(
    a: jax.Array, b: jax.Array, problem: ConvProblem, algorithm: str | choosing.Chooser
) -> jax.Array:
    """Computes one direction of a convolution.

    Args:
      a: the direction's first argument.
      b: the direction's second argument.
      problem: the problem to compute.
      algorithm: the name of a solver, a chooser, or ``"auto"`` for the current chooser.
    """
    if algorithm == "auto":
        algorithm = choosing.current()
    return convolution_p.bind(a, b, problem=problem, algorithm=algorithm)


@convolution_p.def_impl
def _run(a, b, *, problem, algorithm):
    # Under disable_jit this would recurse; jax's own primitives do the same.
    with jax.disable_jit(False):
        return _jitted(a, b, problem, algorithm)


_jitted = jax.jit(bind, static_argnums=(2, 3))


@convolution_p.def_abstract_eval
def _abstract(a, b, *, problem, algorithm):
    refuse_varying("convolution", a, b)
    return ShapedArray(problem.result_shape, jnp.dtype(problem.result_dtype))


# Differentiation: the transpose of (x, w) -> y in x is (y, w) -> x, and so on in a circle.


def _transpose_first(cotangent, a, b, *, problem, algorithm):
    del a
    if problem.direction == "weight":  # (x, y) -> w
        return bind(b, cotangent, problem.in_direction("data"), algorithm)
    direction = "data" if problem.direction == "forward" else "forward"
    return bind(cotangent, b, problem.in_direction(direction), algorithm)


def _transpose_second(cotangent, a, b, *, problem, algorithm):
    del b
    if problem.direction == "data":  # (y, w) -> x
        return bind(cotangent, a, problem.in_direction("weight"), algorithm)
    direction = "weight" if problem.direction == "forward" else "forward"
    return bind(a, cotangent, problem.in_direction(direction), algorithm)


ad.defbilinear(convolution_p, _transpose_first, _transpose_second)


# Batching: n convolutions are one larger convolution. Which dimension grows depends on which of x,
# w and y have the batch axis: x and y share the images, w and y the features, x and w the channels;
# if all three have it, the n convolutions become n times the groups.

_GROWS = {"xy": "images", "wy": "features", "wx": "channels", "wxy": "groups"}


def _batch(arguments, dims, *, problem, algorithm):
    roles = _ROLES[problem.direction]
    batched = {role for role, dim in zip(roles[:2], dims, strict=True) if dim is not None}
    grows = _GROWS["".join(sorted(batched | {roles[2]}))]
    n = next(a.shape[d] for a, d in zip(arguments, dims, strict=True) if d is not None)
    if n == 0:
        return jnp.zeros((0, *problem.result_shape), problem.result_dtype), 0
    first, second = (
        argument if dim is None else _fold(jnp.moveaxis(argument, dim, 0), role, grows, problem)
        for argument, dim, role in zip(arguments, dims, roles[:2], strict=True)
    )
    result = bind(first, second, _grown(problem, grows, n), algorithm)
    return _unfold(result, roles[2], grows, problem, n), 0


batching.primitive_batchers[convolution_p] = _batch


def _grown(problem: ConvProblem, grows: str, n: int) -> ConvProblem:
    """Returns the one convolution that computes ``n`` copies of ``problem``."""
    images, height, width, channels = problem.x_shape
    *window, depth, features = problem.w_shape
    images *= n if grows == "images" else 1
    channels *= n if grows in ("channels", "groups") else 1
    depth *= n if grows == "channels" else 1
    features *= n if grows in ("features", "groups") else 1
    return dataclasses.replace(
        problem,
        x_shape=(images, height, width, channels),
        w_shape=(*window, depth, features),
        groups=problem.groups * (n if grows == "groups" else 1),
    )


def _axis(role: str, grows: str, problem: ConvProblem) -> tuple[int, int]:
    """Returns the axis of an argument that absorbs the batch, and the number of blocks before it.

    Channels and features are ordered (group, member). The batch goes between the two if it extends
    the members, and before both if it extends the groups.
    """
    if grows == "images":
        return 0, 1
    axis = 2 if (role, grows) == ("w", "channels") else 3
    inside_a_group = grows != "groups" and axis == 3
    return axis, problem.groups if inside_a_group else 1


def _fold(argument, role, grows, problem):
    """Moves the leading batch axis of an argument into the axis that absorbs it."""
    axis, blocks = _axis(role, grows, problem)
    n, *shape = argument.shape
    split = argument.reshape(n, *shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :])
    shape[axis] *= n
    return jnp.moveaxis(split, 0, axis + 1).reshape(shape)


def _unfold(result, role, grows, problem, n):
    """Inverts :func:`_fold`, for the result."""
    axis, blocks = _axis(role, grows, problem)
    shape = list(result.shape)
    shape[axis] //= n
    split = result.reshape(*shape[:axis], blocks, n, shape[axis] // blocks, *shape[axis + 1 :])
    return jnp.moveaxis(split, axis + 1, 0).reshape(n, *shape)


def _lower(a, b, *, problem, algorithm, platform):
    if math.prod((*problem.x_shape, *problem.w_shape, *problem.y_shape)) == 0:
        return jnp.zeros(problem.result_shape, problem.result_dtype)
    device = of_platform(platform)
    if isinstance(algorithm, str):
        return function(problem, _named(algorithm, problem, device), device)(a, b)
    pinned = isinstance(algorithm, choosing.Choices) and problem.key in algorithm
    small = problem if pinned else OPERATION.canonical(problem, device)
    choice = algorithm.choose(OPERATION, small, device)
    # The solver "taps" skips dead taps by itself, which saves the copy of the live ones.
    whole = small.w_shape == problem.w_shape or choice.algorithm == "taps"
    if small == problem or (whole and not OPERATION.refusal(problem, choice, device)):
        return function(problem, choice, device)(a, b)
    run = function(small, choice, device)
    if problem.direction == "weight":
        return dead_taps.whole_gradient(problem, run(a, b))
    return run(a, dead_taps.live_weights(problem, b))


def _named(name, problem, device):
    """Returns the solver's default choice, or XLA for a direction that it cannot compute."""
    if not SOLVERS[name].applies(problem, device):
        return Choice("xla")
    return Choice(name, SOLVERS[name].configs(problem)[0])


for _name, _platform in PLATFORMS.items():
    mlir.register_lowering(
        convolution_p,
        mlir.lower_fun(partial(_lower, platform=_platform), multiple_results=False),
        platform=_name,
    )
