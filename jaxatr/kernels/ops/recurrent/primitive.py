"""A recurrent layer as one primitive, whose algorithm is chosen when a program is lowered.

Only then is the platform known. As a primitive, the layer is also one equation for readers of
programs, such as the ONNX export, instead of the loop of an algorithm. The derivative is that of
the algorithm for the backward direction, which is chosen when a program is traced.
"""

import dataclasses
from functools import partial
from typing import Any

import jax

from jaxatr.jax_internals import Primitive, ShapedArray, batching, mlir
from jaxatr.kernels import choosing
from jaxatr.kernels.device import PLATFORMS, of_platform
from jaxatr.kernels.ops.checks import refuse_varying
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS, scan
from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.operation import OPERATION
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array

layer_p = Primitive("jaxatr_recurrent")
layer_p.multiple_results = True


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def layer(
    problem: RecurrentProblem,
    reverse: bool,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
) -> tuple[Array, State]:
    """Runs a layer by the algorithm chosen for its problem.

    If it is differentiated, the algorithm is that chosen for the backward problem.

    Args:
      problem: the forward problem.
      reverse: whether to run from the last step to the first.
      weights: the layer's weights.
      x: ``[t, b, d]``.
      state: the initial state.
      mask: ``[t, b, 1]`` or None.
    """
    leaves, tree = jax.tree.flatten((weights, x, state, mask))
    chooser = choosing.current()
    hs, *final = layer_p.bind(*leaves, problem=problem, reverse=reverse, tree=tree, chooser=chooser)
    return hs, tuple(final)


@layer.defjvp
def _derivative(problem, reverse, primals, tangents):
    mask, backward = primals[3], dataclasses.replace(problem, direction="backward")
    run = _algorithm(backward, choosing.current(), jax.default_backend())
    return jax.jvp(lambda *given: run(problem, *given, mask, reverse), primals[:3], tangents[:3])


def _algorithm(problem: RecurrentProblem, chooser: choosing.Chooser, platform: str) -> Any:
    choice = chooser.choose(OPERATION, problem, of_platform(platform))
    unroll = int(dict(choice.config)["unroll"])
    return partial(ALGORITHMS[choice.algorithm].run, unroll=unroll)


def _run(*leaves, problem, reverse, tree, chooser, platform):
    run = _algorithm(problem, chooser, platform)
    hs, final = run(problem, *jax.tree.unflatten(tree, leaves), reverse)
    return [hs, *final]


@layer_p.def_abstract_eval
def _abstract(*avals, problem, reverse, tree, chooser):
    del chooser
    refuse_varying("recurrent", *avals)
    run: Any = partial(scan.run, problem)
    given = jax.tree.unflatten(
        tree, [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    )
    hs, final = jax.eval_shape(lambda *given: run(*given, reverse), *given)
    return [ShapedArray(one.shape, one.dtype) for one in (hs, *final)]


@partial(jax.jit, static_argnames=("problem", "reverse", "tree", "chooser"))
def _jitted(*leaves, **settings):
    return layer_p.bind(*leaves, **settings)


@layer_p.def_impl
def _impl(*leaves, **settings):
    # Under disable_jit this would recurse; jax's own primitives do the same.
    with jax.disable_jit(False):
        return _jitted(*leaves, **settings)


def _batch(arguments, dims, **settings):
    run = partial(_run, **settings, platform=jax.default_backend())
    results = jax.vmap(run, in_axes=tuple(dims))(*arguments)
    return results, [0] * len(results)


batching.primitive_batchers[layer_p] = _batch

for _name, _platform in PLATFORMS.items():
    mlir.register_lowering(
        layer_p,
        mlir.lower_fun(partial(_run, platform=_platform), multiple_results=True),
        platform=_name,
    )
