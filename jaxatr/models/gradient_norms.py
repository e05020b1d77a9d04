"""How long the gradient of each example's loss is, layer by layer, from one backward pass.

``vmap(grad)`` would give every example a gradient of every parameter. The gradient of one layer's
parameters is made of what went into the layer and of the gradient of what came out; both are had
for a whole batch at once, and of a convolution's gradient only the norm need be computed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.solvers.matmul import shifted
from jaxatr.models.resnet import Conv
from jaxatr.typing import Array, Float, Network, PyTree


def squared_gradient_norms(
    module: Network, variables: PyTree, loss: Callable[[Any], Array], *inputs: Any, **options: Any
) -> dict[str, Float[Array, " b"]]:
    """Returns the squared l2 norm of each example's gradient, for each array of parameters.

    Exact: for each array, what ``vmap`` of ``grad`` of one example's loss, squared and summed,
    would give. The memory is that of one backward pass, and for the layer at hand, per example, of
    a convolution's patches (``pixels * taps * channels``) and the smaller of its kernel and
    ``pixels ** 2``; of another layer, its parameters.

    Args:
      module: a network in which the examples of a batch do not meet: batch norm, for one, by its
        running statistics.
      variables: of ``module``.
      loss: the network's output to one loss per example, ``[b]``.
      *inputs: of the network, each ``[b, ...]``.
      **options: further arguments of the network, the same for all examples.

    Returns:
      Path of the parameters, ``"backbone/stem_conv/kernel"``, to ``[b]``.

    Raises:
      ValueError: a layer is called twice, or gives something other than one array.
    """
    layers: dict[str, tuple[nn.Module, dict[str, Any]]] = {}

    def run(added: Mapping[str, Array] | None) -> tuple[Array, tuple[dict, dict]]:
        taken: dict[str, tuple] = {}
        given: dict[str, Array] = {}

        def tap(call, arguments, named, context):
            result = call(*arguments, **named)
            path = context.module.path
            if context.method_name != "__call__" or not _own(variables, path):
                return result
            name = "/".join(path)
            if name in taken:
                raise ValueError(f"layer {name}: is called twice, wanted once")
            if not isinstance(result, jax.Array):
                raise ValueError(f"layer {name}: got {type(result).__name__}, wanted one array")
            layers[name] = context.module.copy(parent=None), named
            taken[name], given[name] = arguments, result
            return result if added is None else result + added[name]

        with nn.intercept_methods(tap):
            output = module.apply(variables, *inputs, **options)
        return jnp.sum(loss(output)), (taken, given)

    shapes = jax.eval_shape(lambda: run(None)[1][1])
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    gradients, (taken, _) = jax.grad(run, has_aux=True)(zeros)
    norms = {}
    for name, (layer, named) in layers.items():
        here = _variables_at(variables, tuple(name.split("/")) if name else ())
        for parameter, norm in _norms(layer, here, taken[name], named, gradients[name]).items():
            norms[f"{name}/{parameter}" if name else parameter] = norm
    return norms


def _norms(layer, variables, inputs, named, gradient) -> dict[str, Array]:
    """Returns the squared norms of one layer's own parameters."""
    if isinstance(layer, Conv):
        pad, stride = (layer.kernel_size - 1) // 2, (layer.stride, layer.stride)
        (x,) = inputs
        problem = Problem(
            "weight",
            x.shape,
            variables["params"]["kernel"].shape,
            stride,
            ((pad, pad), (pad, pad)),
            (1, 1),
            1,
            gradient.dtype.name,
        )
        return {"kernel": _of_kernel(problem, x.astype(gradient.dtype), gradient)}
    return _replayed(layer, variables, inputs, named, gradient)


def _of_kernel(
    problem: Problem, x: Float[Array, "b h w c"], y: Float[Array, "b h2 w2 f"]
) -> Float[Array, " b"]:
    """Returns the squared norms of a convolution's gradients of its kernel.

    The gradient is ``P.T @ Y``, where the rows of ``P`` are patches and those of ``Y`` gradients of
    results. Its squared norm is also the sum of ``(P @ P.T) * (Y @ Y.T)``, which is less work
    where the pixels are few.
    """
    patches = jnp.concatenate(shifted(problem, x), axis=-1)
    patches = patches.reshape(len(x), -1, patches.shape[-1]).astype(jnp.float32)
    results = y.reshape(len(y), -1, y.shape[-1]).astype(jnp.float32)
    pixels, features = results.shape[1:]
    depth = math.prod(problem.w_shape[:3])
    if pixels * (depth + features) < depth * features:
        pairs = [jnp.einsum("bpk,bqk->bpq", a, a) for a in (patches, results)]
        return jnp.sum(pairs[0] * pairs[1], axis=(1, 2))
    return jnp.sum(jnp.einsum("bpk,bpf->bkf", patches, results) ** 2, axis=(1, 2))


def _replayed(layer, variables, inputs, named, gradient) -> dict[str, Array]:
    """Returns the squared norms for any layer, which is run once more for each example alone."""
    params = variables["params"]
    own = {name: leaf for name, leaf in params.items() if not isinstance(leaf, Mapping)}

    def one(arguments, gradient):
        def forward(own):
            alone = [argument[None] for argument in arguments]
            return layer.apply({**variables, "params": {**params, **own}}, *alone, **named)

        _, pull = jax.vjp(forward, own)
        return {
            name: jnp.sum(jnp.square(leaf.astype(jnp.float32)))
            for name, leaf in pull(gradient[None])[0].items()
        }

    return jax.vmap(one)(inputs, gradient)


def _own(variables: PyTree, path: tuple[str, ...]) -> bool:
    """Says whether a module has parameters of its own, and not only those of its parts."""
    params = _variables_at(variables, path).get("params", {})
    return any(not isinstance(leaf, Mapping) for leaf in params.values())


def _variables_at(variables: PyTree, path: tuple[str, ...]) -> dict[str, Any]:
    """Returns a module's part of each collection that has one."""
    found = {}
    for collection, tree in variables.items():
        for part in path:
            tree = tree.get(part, {})
        if tree:
            found[collection] = tree
    return found
