"""Splits a network at one of its layers, for methods that need the feature map in between."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float


class TwoParts(NamedTuple):
    """A network as two functions, ``head(features(images)) = logits``.

    Attributes:
      layer: path of the module whose output is the feature map.
      features: maps images ``[b, h, w, c]`` to feature maps ``[b, h', w', f]``.
      head: maps feature maps to logits ``[b, k]``.
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
    """Splits a network after its last module with a sufficiently large feature map.

    The logits must depend on the images through that map alone. A layer inside a residual block,
    which a shortcut bypasses, is therefore skipped.

    Args:
      apply: maps images to logits, by one linen module with its variables, in test mode. It must
        not be jitted, because modules do not run again once jit has traced them; jit the two
        resulting functions instead.
      images: ``[b, h, w, c]``; only the shape is used.
      least: fewest rows and columns of the map.

    Raises:
      ValueError: no module has such a map, or no module ran at all.
    """
    shape = (1, *jnp.shape(images)[1:])
    maps: dict[tuple[str, ...], tuple[int, ...]] = {}

    def note(run, args, kwargs, context) -> Any:
        out = run(*args, **kwargs)
        if context.method_name == "__call__" and isinstance(out, jax.Array) and out.ndim == 4:
            maps.pop(context.module.path, None)  # to keep the order in which modules finish
            maps[context.module.path] = out.shape
        return out

    def noted(images: Array) -> Array:
        with nn.intercept_methods(note):
            return apply(images)

    jax.eval_shape(noted, jax.ShapeDtypeStruct(shape, jnp.float32))
    if not maps:
        raise ValueError("apply: no linen module with a map ran; pass it without jit")
    large = [path for path, (_, rows, columns, _) in maps.items() if min(rows, columns) >= least]
    if not large:
        raise ValueError(
            f"no module of the network has a map of at least {least} × {least} pixels for chips of "
            f"{shape[1]} × {shape[2]} pixels"
        )
    for layer in reversed(large):
        parts = TwoParts(layer, _features(apply, layer), _head(apply, layer, shape))
        if _depends_on_map_alone(parts, shape, maps[layer]):
            return parts
    raise ValueError(
        f"no module of the network has a map of at least {least} × {least} pixels that is not "
        "bypassed"
    )


def _features(apply: Callable[..., Any], layer: tuple[str, ...]) -> Callable[[ArrayLike], Array]:
    def features(images: ArrayLike) -> Array:
        maps = []

        def keep(run, args, kwargs, context) -> Any:
            out = run(*args, **kwargs)
            if context.module.path == layer and context.method_name == "__call__":
                maps.append(out)
            return out

        with nn.intercept_methods(keep):
            apply(images)
        return maps[-1]

    return features


def _head(
    apply: Callable[..., Any], layer: tuple[str, ...], shape: tuple[int, ...]
) -> Callable[..., Array]:
    def head(given: ArrayLike, images: ArrayLike | None = None) -> Array:
        def put(run, args, kwargs, context) -> Any:
            here = context.module.path == layer and context.method_name == "__call__"
            # The modules before the layer run on zeros; their result is unused, and XLA drops them.
            return given if here else run(*args, **kwargs)

        with nn.intercept_methods(put):
            return apply(jnp.zeros((len(given), *shape[1:])) if images is None else images)

    return head


def _depends_on_map_alone(
    network: TwoParts, shape: tuple[int, ...], of_map: tuple[int, ...]
) -> bool:
    """Checks whether the second part depends on the images through the map alone."""
    given, images = (jax.ShapeDtypeStruct(one, jnp.float32) for one in (of_map, shape))
    jaxpr = jax.make_jaxpr(network.head)(given, images).jaxpr
    needed = set(map(id, jaxpr.outvars))
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(map(id, equation.outvars)):
            needed.update(map(id, equation.invars))
    return id(jaxpr.invars[1]) not in needed
