"""Broadcasts of channel vectors over pixels, and sums over pixels: each other's transpose.

With jax's own operations, XLA:CPU computes each sum of a gradient separately and first writes its
terms to memory. Here all sums of a gradient are computed in one loop
(:mod:`jaxatr.kernels.ops.sums`).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.jax_internals import Primitive, ShapedArray, ad, batching, mlir
from jaxatr.kernels.ops.checks import refuse_varying
from jaxatr.kernels.ops.sums import sums
from jaxatr.kernels.ops.windows import Shape
from jaxatr.typing import Array, ArrayLike

spread_p, totals_p = Primitive("jaxatr_spread"), Primitive("jaxatr_totals")
spread_p.multiple_results = totals_p.multiple_results = True


def spread(shape: Shape, *vectors: Array) -> list[Array]:
    """Broadcasts each vector ``[c]`` to ``[*shape, c]``."""
    return spread_p.bind(*vectors, shape=tuple(shape))


def totals(*arrays: Array) -> list[Array]:
    """Sums each array ``[..., c]`` over all axes but the last; all have one shape and type."""
    return totals_p.bind(*arrays)


def _spread(*vectors: ArrayLike, shape: Shape) -> list[Array]:
    return [jnp.broadcast_to(v, (*shape, *jnp.shape(v))) for v in vectors]


def _totals(*arrays: ArrayLike) -> list[Array]:
    return [jnp.sum(jnp.asarray(a), tuple(range(jnp.ndim(a) - 1))) for a in arrays]


#: The primitives in terms of jax.numpy, for translating programs into other formats.
PLAIN: dict[str, Callable[..., list[Array]]] = {"spread": _spread, "totals": _totals}


def _totals_in_blocks(*arrays: Array) -> list[Array]:
    batch, *pixels, channels = arrays[0].shape
    if not all(isinstance(side, int) and side for side in (batch, *pixels)):
        return _totals(*arrays)  # symbolic dimensions of jax.export, or nothing to divide
    height = pixels[0] if len(pixels) > 1 else 1
    images = [a.reshape(batch, height, math.prod(pixels) // height, channels) for a in arrays]
    terms = [lambda start, stop, a=a: a[:, start:stop] for a in images]
    return list(sums(terms, height))


@spread_p.def_abstract_eval
def _spread_shapes(*vectors, shape):
    refuse_varying("batch norm", *vectors)
    return [ShapedArray((*shape, *v.shape), v.dtype) for v in vectors]


@totals_p.def_abstract_eval
def _totals_shapes(*arrays):
    refuse_varying("batch norm", *arrays)
    return [ShapedArray(a.shape[-1:], a.dtype) for a in arrays]


def _instantiated(cotangents: Sequence[object]) -> list[Array]:
    return [ad.instantiate_zeros(one) for one in cotangents]


ad.deflinear2(spread_p, lambda cotangents, *_, shape: totals(*_instantiated(cotangents)))
ad.deflinear2(
    totals_p,
    lambda cotangents, first, *_: spread(first.aval.shape[:-1], *_instantiated(cotangents)),
)


def _batch(plain, arguments, dims, **options):
    """Applies ``plain`` to each argument, under ``vmap`` if the argument is batched."""
    results = [
        plain(a, **options)[0] if d is None else jax.vmap(lambda a: plain(a, **options)[0], d)(a)
        for a, d in zip(arguments, dims, strict=True)
    ]
    return results, [d if d is None else 0 for d in dims]


for _primitive, _plain in ((spread_p, _spread), (totals_p, _totals)):
    _primitive.def_impl(_plain)
    batching.primitive_batchers[_primitive] = partial(_batch, _plain)
    mlir.register_lowering(_primitive, mlir.lower_fun(_plain, multiple_results=True))
mlir.register_lowering(
    totals_p, mlir.lower_fun(_totals_in_blocks, multiple_results=True), platform="cpu"
)
