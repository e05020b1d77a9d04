"""im2col on a few images at a time, to bound the memory of the patches."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import matmul
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

_CACHE = 8e6  # bytes of patches that stay in a processor's cache
_MOST = 64e6  # the most bytes of patches of a block of more than one image


def run(images: int, problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction, on ``images`` images at a time."""
    batch, *rest = problem.x_shape
    part = dataclasses.replace(problem, x_shape=(images, *rest))

    def cut(array: Array) -> Array:
        return array.reshape(batch // images, images, *array.shape[1:])

    if problem.direction != "weight":
        whole = jax.lax.map(lambda a: matmul.run(part, a, b), cut(a))
        return whole.reshape(problem.result_shape)
    wide = jnp.promote_types(a.dtype, jnp.float32)  # a sum over many blocks

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        return total + matmul.run(part, *block).astype(wide), None

    total, _ = jax.lax.scan(add, jnp.zeros(problem.w_shape, wide), (cut(a), cut(b)))
    return total.astype(a.dtype)


class Blocked(Solver):
    """Solves batches of more than one image; tuned by the number of images in a block."""

    name = "blocked"
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the batch can be divided and the algorithm needs patches."""
        return bool(self.configs(problem)) and matmul.patch_bytes(problem) > 0

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the patches of the largest block."""
        images = max(int(dict(config)["images"]) for config in self.configs(problem))
        return matmul.patch_bytes(problem) // problem.x_shape[0] * images

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns block sizes: the largest whose patches fit the cache, then others."""
        smaller = problem.batch_divisors[:-1]
        if not smaller:
            return []
        each = matmul.patch_bytes(problem) // problem.x_shape[0]
        counts = [count for count in smaller if count == 1 or count * each <= _MOST]
        first = max((count for count in counts if count * each <= _CACHE), default=1)
        others = [count for count in counts if count != first]
        return [(("images", count),) for count in (first, *others)]


PART = Blocked()
