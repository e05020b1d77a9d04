"""Per-example gradient norms, layer by layer, from one backward pass.

``vmap(grad)`` would compute the gradient of every parameter for every example. Instead, the
gradient norm of a layer's parameters is computed from the layer's input and the gradient of its
output, which one backward pass gives for the whole batch.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers.matmul import shifted
from jaxatr.models.convolution import Conv
from jaxatr.typing import Array, Float, Network, PyTree


def squared_gradient_norms(
    module: Network, variables: PyTree, loss: Callable[[Any], Array], *inputs: Any, **options: Any
) -> dict[str, Float[Array, " b"]]:
    """Computes the squared l2 norm of each example's gradient, for each parameter array.

    The result is exact: it equals the sum of squares of ``vmap(grad)`` of the loss of one example.
    The memory needed is that of one backward pass plus, per example and for one layer at a time,
    a convolution's patches (``pixels * taps * channels``) and the smaller of its kernel and
    ``pixels ** 2``, or the parameters of another layer.

    Args:
      module: a network whose outputs for one example do not depend on the others of the batch;
        batch norm, for example, must use its running statistics.
      variables: variables of ``module``.
      loss: maps the network's output to a loss per example, ``[b]``.
      *inputs: inputs of the network, each ``[b, ...]``.
      **options: further arguments of the network, the same for all examples.

    Returns:
      Squared norms ``[b]`` by the path of the parameters, such as ``"backbone/stem_conv/kernel"``.

    Raises:
      ValueError: a layer is called twice, or returns something other than one array.
    """
    layers: dict[str, tuple[nn.Module, dict[str, Any]]] = {}

    def run(added: Mapping[str, Array] | None) -> tuple[Array, tuple[dict, dict]]:
        taken: dict[str, tuple] = {}
        given: dict[str, Array] = {}

        def tap(call, arguments, named, context):
            result = call(*arguments, **named)
            path = context.module.path
            if context.method_name != "__call__" or not _has_parameters(variables, path):
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
    """Returns the squared norms of one layer's parameters."""
    if (plain := _plain(layer)) is not None:
        stride, pad = plain
        (x,) = inputs
        problem = ConvProblem(
            "weight",
            x.shape,
            variables["params"]["kernel"].shape,
            (stride, stride),
            ((pad, pad), (pad, pad)),
            (1, 1),
            1,
            gradient.dtype.name,
        )
        return {"kernel": _of_kernel(problem, x.astype(gradient.dtype), gradient)}
    return _replayed(layer, variables, inputs, named, gradient)


def _plain(layer: nn.Module) -> tuple[int, int] | None:
    """Returns stride and padding of a convolution as of a residual network; None for others."""
    if not isinstance(layer, Conv) or layer.use_bias or layer.mask is not None:
        return None
    alone = layer.feature_group_count == layer.kernel_dilation == layer.input_dilation == 1
    images = isinstance(layer.kernel_size, tuple) and len(layer.kernel_size) == 2
    stride, padding = layer.strides, layer.padding
    if alone and images and isinstance(stride, int) and isinstance(padding, int):
        return stride, padding
    return None


def _of_kernel(
    problem: ConvProblem, x: Float[Array, "b h w c"], y: Float[Array, "b h2 w2 f"]
) -> Float[Array, " b"]:
    """Returns the squared norms of the gradients of a convolution's kernel.

    The gradient is ``P.T @ Y``, where the rows of ``P`` are patches and those of ``Y`` gradients of
    the output. Its squared norm also equals the sum of ``(P @ P.T) * (Y @ Y.T)``, which is cheaper
    if there are few pixels.
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
    """Returns the squared norms for any layer, by running it again on each example separately."""
    params = variables["params"]
    direct = {name: leaf for name, leaf in params.items() if not isinstance(leaf, Mapping)}

    def one(arguments, gradient):
        def forward(direct):
            single = [argument[None] for argument in arguments]
            return layer.apply({**variables, "params": {**params, **direct}}, *single, **named)

        _, pull = jax.vjp(forward, direct)
        return {
            name: jnp.sum(jnp.square(leaf.astype(jnp.float32)))
            for name, leaf in pull(gradient[None])[0].items()
        }

    return jax.vmap(one)(inputs, gradient)


def _has_parameters(variables: PyTree, path: tuple[str, ...]) -> bool:
    """Returns whether a module has parameters itself, not only in its submodules."""
    params = _variables_at(variables, path).get("params", {})
    return any(not isinstance(leaf, Mapping) for leaf in params.values())


def _variables_at(variables: PyTree, path: tuple[str, ...]) -> dict[str, Any]:
    """Returns a module's variables in each collection that has any."""
    found = {}
    for collection, tree in variables.items():
        for part in path:
            tree = tree.get(part, {})
        if tree:
            found[collection] = tree
    return found
