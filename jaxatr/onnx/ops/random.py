"""Random operators, and dropout.

A draw uses the key ``rng`` or, without one, ``seed`` (default 0). Numbers are drawn in 32 bits,
whatever the type of the result.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, first_place, known, sized

Seed: TypeAlias = int | float | None


def _draw(function: Callable[..., Any], rng: Any, seed: Seed, *arguments: Any) -> Any:
    """Draws from a jax distribution in 32 bits.

    A jit outside the scope ``wide`` cannot lower 64-bit draws.
    """
    with jax.enable_x64(False):
        if rng is None:  # ONNX's seed is a float, jax's an integer: use its bits
            rng = jax.random.key(int(np.float32(seed or 0).view(np.uint32)))
        return function(rng, *arguments)


@register("Dropout", static=("training_mode",), ignored=("consumed_inputs", "is_test"))
def dropout(
    x: Value,
    ratio: Value | float | None = None,
    training_mode: Known | None = None,
    *,
    seed: Seed = None,
    rng: Any = None,
    training: bool = False,
    opset: int = 22,
    outputs: int = 1,
) -> Value | tuple[Value, Value]:
    """Drops elements at random in training, and scales up the others (ONNX Dropout-22).

    Args:
      x: array of any shape.
      ratio: fraction of elements to drop, 0.5 by default.
      training_mode: whether the model asks for dropout; without a key, ``seed`` is then used.
      seed: seed of a draw without a key.
      rng: a key, or None.
      training: whether the caller asks for dropout; without a key, this has no effect.
      opset: version of the domain; before 10 the mask has the type of ``x``.
      outputs: 1 for the result alone, 2 for the result and the mask of the elements kept.
    """
    asked = training_mode is not None and bool(known("training_mode", training_mode).all())
    mask = jnp.ones(x.shape, bool)
    share = jnp.asarray(0.5 if ratio is None else ratio, jnp.promote_types(x.dtype, "float32"))
    if asked or (training and rng is not None):
        mask = _draw(jax.random.uniform, rng, seed, x.shape) >= share
        x = jnp.where(mask, x / (1 - share), 0).astype(x.dtype)
    return x if outputs == 1 else (x, mask if opset >= 10 else mask.astype(x.dtype))


@register("RandomNormal", dtypes=("dtype",))
def random_normal(
    *,
    shape: tuple[int, ...],
    dtype: str = "float32",
    mean: float = 0.0,
    scale: float = 1.0,
    seed: Seed = None,
    rng: Any = None,
) -> Value:
    """Draws from a normal distribution (ONNX RandomNormal-22)."""
    drawn = _draw(jax.random.normal, rng, seed, sized(shape))
    return (mean + scale * drawn).astype(dtype_of(dtype))


@register("RandomUniform", dtypes=("dtype",))
def random_uniform(
    *,
    shape: tuple[int, ...],
    dtype: str = "float32",
    low: float = 0.0,
    high: float = 1.0,
    seed: Seed = None,
    rng: Any = None,
) -> Value:
    """Draws from a uniform distribution over [``low``, ``high``) (ONNX RandomUniform-22)."""
    drawn = _draw(jax.random.uniform, rng, seed, sized(shape))
    return (low + (high - low) * drawn).astype(dtype_of(dtype))


@register("RandomNormalLike", dtypes=("dtype",))
def random_normal_like(
    x: Value,
    *,
    dtype: str | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: Seed = None,
    rng: Any = None,
) -> Value:
    """Draws from a normal distribution in the shape of ``x`` (ONNX RandomNormalLike-22)."""
    return random_normal(
        shape=x.shape, dtype=dtype or x.dtype.name, mean=mean, scale=scale, seed=seed, rng=rng
    )


@register("RandomUniformLike", dtypes=("dtype",))
def random_uniform_like(
    x: Value,
    *,
    dtype: str | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: Seed = None,
    rng: Any = None,
) -> Value:
    """Draws from a uniform distribution in the shape of ``x`` (ONNX RandomUniformLike-22)."""
    return random_uniform(
        shape=x.shape, dtype=dtype or x.dtype.name, low=low, high=high, seed=seed, rng=rng
    )


@register("Bernoulli", dtypes=("dtype",))
def bernoulli(x: Value, *, dtype: str | None = None, seed: Seed = None, rng: Any = None) -> Value:
    """Draws 1 with probability ``x``, else 0 (ONNX Bernoulli-22)."""
    drawn = _draw(jax.random.uniform, rng, seed, x.shape) < x
    return drawn.astype(x.dtype if dtype is None else dtype_of(dtype))


@register("Multinomial", dtypes=("dtype",))
def multinomial(
    x: Value,
    *,
    dtype: str = "int32",
    sample_size: int = 1,
    seed: Seed = None,
    rng: Any = None,
) -> Value:
    """Draws classes ``[b, sample_size]`` from log-probabilities ``[b, k]`` (Multinomial-22)."""
    shape = sized((x.shape[0], sample_size, x.shape[1]))
    noise = _draw(jax.random.gumbel, rng, seed, shape)
    drawn = first_place(jax.lax.argmax, jnp.asarray(x, noise.dtype)[:, None] + noise, 2)
    return drawn.astype(dtype_of(dtype))
