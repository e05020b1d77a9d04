"""A network in two parts at one of its layers, for methods that need the feature map between."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float


class TwoParts(NamedTuple):
    """A network as two functions, ``head(features(images)) = logits``.

    Attributes:
      layer: path of the module whose output is handed over.
      features: images ``[b, h, w, c]`` to maps ``[b, h', w', f]``.
      head: these maps to logits ``[b, k]``.
    """

    layer: tuple[str, ...]
    features: Callable[[ArrayLike], Array]
    head: Callable[[ArrayLike], Array]


def in_two_parts(
    apply: Callable[..., Float[Array, "b k"]],
    images: Float[ArrayLike, "b h w c"],
    *,
    least: int = 8,
) -> TwoParts:
    """Divides a network after its last module with a map of at least so many rows and columns.

    Everything goes through that map: a layer inside a residual block, which a shortcut goes round,
    does not count.

    Args:
      apply: of one linen module and its variables, in test mode: images to logits. Not jitted: what
        jit has traced once runs no module again; jit the two functions instead.
      images: ``[b, h, w, c]``, for their shape alone.
      least: rows and columns.

    Raises:
      ValueError: no module has such a map, or none ran at all.
    """
    shape = (1, *jnp.shape(images)[1:])
    maps: dict[tuple[str, ...], tuple[int, ...]] = {}

    def note(run, args, kwargs, context) -> Any:
        out = run(*args, **kwargs)
        if context.method_name == "__call__" and isinstance(out, jax.Array) and out.ndim == 4:
            maps.pop(context.module.path, None)  # in the order in which they end
            maps[context.module.path] = out.shape
        return out

    def noted(images: Array) -> Array:
        with nn.intercept_methods(note):
            return apply(images)

    jax.eval_shape(noted, jax.ShapeDtypeStruct(shape, jnp.float32))
    if not maps:
        raise ValueError("apply: no linen module with a map ran; give it without jit")
    large = [path for path, (_, rows, columns, _) in maps.items() if min(rows, columns) >= least]
    if not large:
        raise ValueError(
            f"no module of the network has a map of at least {least} × {least} for chips of "
            f"{shape[1]} × {shape[2]} pixels"
        )
    for layer in reversed(large):
        found = TwoParts(layer, _features(apply, layer), _head(apply, layer, shape))
        if _goes_through(found, shape, maps[layer]):
            return found
    raise ValueError(
        f"no module of the network has a map of at least {least} × {least} that everything goes "
        "through"
    )


def _features(apply: Callable[..., Any], layer: tuple[str, ...]) -> Callable[[ArrayLike], Array]:
    def features(images: ArrayLike) -> Array:
        found = []

        def keep(run, args, kwargs, context) -> Any:
            out = run(*args, **kwargs)
            if context.module.path == layer and context.method_name == "__call__":
                found.append(out)
            return out

        with nn.intercept_methods(keep):
            apply(images)
        return found[-1]

    return features


def _head(
    apply: Callable[..., Any], layer: tuple[str, ...], shape: tuple[int, ...]
) -> Callable[..., Array]:
    def head(given: ArrayLike, images: ArrayLike | None = None) -> Array:
        def put(run, args, kwargs, context) -> Any:
            here = context.module.path == layer and context.method_name == "__call__"
            # What comes before is computed of nothing and used by nobody: XLA leaves it out.
            return given if here else run(*args, **kwargs)

        with nn.intercept_methods(put):
            return apply(jnp.zeros((len(given), *shape[1:])) if images is None else images)

    return head


def _goes_through(network: TwoParts, shape: tuple[int, ...], of_map: tuple[int, ...]) -> bool:
    """Says whether the second half needs nothing of the images but the map."""
    given, images = (jax.ShapeDtypeStruct(one, jnp.float32) for one in (of_map, shape))
    jaxpr = jax.make_jaxpr(network.head)(given, images).jaxpr
    needed = set(map(id, jaxpr.outvars))
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(map(id, equation.outvars)):
            needed.update(map(id, equation.invars))
    return id(jaxpr.invars[1]) not in needed
