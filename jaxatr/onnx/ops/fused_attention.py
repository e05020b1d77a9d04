"""Attention of ``com.microsoft`` as ONNX Runtime's optimiser and quantiser write it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.convolution import matmul_integer
from jaxatr.onnx.ops.dtypes import widened
from jaxatr.onnx.ops.microsoft import MICROSOFT
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_results


def _split(x: Value, heads: int) -> Value:
    """Returns ``[b, t, n d]`` as ``[b, n, t, d]``."""
    return jnp.swapaxes(jnp.reshape(x, (*x.shape[:2], heads, -1)), 1, 2)


def _attended(
    queries: Value,
    keys: Value,
    values: Value,
    mask: Value | None,
    bias: Value | None,
    *,
    scale: float | None,
    filter_value: float,
    unidirectional: int,
) -> Value:
    """Returns attention of ``[b, n, t, d]``, as ``[b, t, n d]``."""
    batch, _, count, _ = queries.shape
    total = keys.shape[2]
    scores = jnp.matmul(widened(queries), jnp.swapaxes(widened(keys), -1, -2))
    added = jnp.where(_masked_keys(mask, batch, count, total), np.float32(filter_value), 0)
    added = added if bias is None else added + bias
    scores = scores * (scale or 1 / math.sqrt(queries.shape[-1])) + added
    if unidirectional:
        later = jnp.arange(total) > jnp.arange(count)[:, None] + (total - count)
        scores = jnp.where(later, -jnp.inf, scores)
    shares = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    result = jnp.swapaxes(jnp.matmul(shares, values), 1, 2)
    return jnp.reshape(result, (batch, count, -1))


def _masked_keys(mask: Value | None, batch: int, count: int, total: int) -> Value:
    """Returns which keys are masked, to broadcast with ``[b, n, t, s]``."""
    if mask is None:
        return jnp.zeros((), bool)
    mask = jnp.asarray(mask)
    if mask.shape == (batch, total):
        return mask[:, None, None] <= 0
    if mask.shape == (batch, count, total):
        return mask[:, None] <= 0
    if mask.shape not in ((batch,), (2 * batch,)):
        raise ValueError(
            f"mask_index: got shape {mask.shape}, wanted ({batch},), ({2 * batch},), "
            f"({batch}, {total}) or ({batch}, {count}, {total})"
        )
    ends, *starts = (
        jnp.reshape(part, (-1, 1, 1, 1)) for part in jnp.split(mask, mask.size // batch)
    )
    masked = jnp.arange(total) >= ends
    return masked | (jnp.arange(total) < starts[0]) if starts else masked


def _self_attention(
    projected: Value,
    mask: Value | None,
    past: Value | None,
    bias: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int,
    scale: float | None,
    mask_filter_value: float,
    do_rotary: int,
    past_present_share_buffer: int,
    outputs: int,
    sizes: tuple[int, ...] = (),
) -> Any:
    """Returns :func:`packed_attention` of projections ``[b, t, q + k + v]``."""
    for name, value in (
        ("do_rotary", do_rotary),
        ("past_present_share_buffer", past_present_share_buffer),
    ):
        if value:
            raise ValueError(f"{name}: got {value}, wanted 0: not implemented")
    parts = jnp.split(projected, np.cumsum(sizes)[:2].tolist() if sizes else 3, axis=-1)
    queries, keys, values = (_split(part, num_heads) for part in parts)
    if past is not None:
        keys, values = (
            jnp.concatenate([old, new], 2) for old, new in zip(past, (keys, values), strict=True)
        )
    result = _attended(
        queries,
        keys,
        values,
        mask,
        bias,
        scale=scale,
        filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )
    return result if outputs == 1 else (result, jnp.stack([keys, values]))


@register(
    "Attention",
    domain=MICROSOFT,
    weights=("weights", "bias"),
    optional=("bias", "mask_index", "past"),
)
def packed_attention(
    input: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    outputs: int = 1,
) -> Any:
    """Returns self-attention with its projections (com.microsoft Attention-1).

    Args:
      input: ``[b, t, i]``.
      weights: ``[i, q + k + v]``: the projections to queries, keys and values.
      bias: ``[q + k + v]``.
      mask_index: see :func:`qattention`.
      past: earlier keys and values, ``[2, b, n, p, d]``.
      attention_bias: added to the scores, ``[b or 1, n or 1, t, s]``.
      num_heads: number n of heads.
      unidirectional: whether each query attends only to keys up to its own position.
      scale: factor of the scores, 1/√d by default.
      mask_filter_value: number that is added to the scores of masked keys.
      qkv_hidden_sizes: the numbers q, k and v; equal by default.
      do_rotary: rotary positions, which are not implemented.
      past_present_share_buffer: a form of ``past`` that is not implemented.
      outputs: 2 for the keys and values as well.

    Returns:
      ``[b, t, v]``; and keys and values, ``[2, b, n, s, d]``.

    Raises:
      ValueError: a mask has another shape, or an option is not implemented.
    """
    projected = jnp.matmul(input, weights)
    return _self_attention(
        projected if bias is None else projected + bias,
        mask_index,
        past,
        attention_bias,
        num_heads=num_heads,
        unidirectional=unidirectional,
        scale=scale,
        mask_filter_value=mask_filter_value,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
        outputs=outputs,
        sizes=qkv_hidden_sizes,
    )


@register(
    "QAttention",
    domain=MICROSOFT,
    settings=("input_scale", "weight_scale"),
    weights=("bias",),
)
def qattention(
    input: Value,
    weight: Value,
    bias: Value,
    input_scale: Value,
    weight_scale: Value,
    mask_index: Value | None = None,
    input_zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    past: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    outputs: int = 1,
) -> Any:
    """Returns self-attention whose projections are quantised (QAttention-1).

    Args:
      input: 8 bits, ``[b, t, i]``.
      weight: 8 bits, ``[i, 3 n d]``: the projections to queries, keys and values.
      bias: ``[3 n d]``.
      input_scale: a scalar.
      weight_scale: a scalar or ``[3 n d]``.
      mask_index: 0 for masked keys, ``[b, s]`` or ``[b, t, s]`` with s = p + t; or the number of
        keys of each example, ``[b]``, and after these the first key of each, ``[2 b]``.
      input_zero_point: a scalar.
      weight_zero_point: a scalar or ``[3 n d]``.
      past: earlier keys and values, ``[2, b, n, p, d]``.
      num_heads: number n of heads.
      unidirectional: whether each query attends only to keys up to its own position.
      scale: factor of the scores, 1/√d by default.
      mask_filter_value: number that is added to the scores of masked keys.
      do_rotary: rotary positions, which are not implemented.
      past_present_share_buffer: a form of ``past`` that is not implemented.
      outputs: 2 for the keys and values as well.

    Returns:
      ``[b, t, n d]``; and keys and values, ``[2, b, n, s, d]``.

    Raises:
      ValueError: a mask has another shape, or an option is not implemented.
    """
    scales = jnp.asarray(input_scale) * jnp.asarray(weight_scale)
    product = matmul_integer(input, weight, input_zero_point, weight_zero_point)
    return _self_attention(
        product.astype("float32") * scales + bias,
        mask_index,
        past,
        num_heads=num_heads,
        unidirectional=unidirectional,
        scale=scale,
        mask_filter_value=mask_filter_value,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
        outputs=outputs,
    )


@register(
    "MultiHeadAttention",
    domain=MICROSOFT,
    weights=("bias",),
    optional=("bias", "key_padding_mask", "attention_bias"),
)
def multi_head_attention(
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float | None = None,
    mask_filter_value: float = -10000.0,
    outputs: int = 1,
) -> Any:
    """Returns attention of several heads (MultiHeadAttention-1).

    Args:
      query: ``[b, t, n d]``.
      key: ``[b, s, n d]`` or ``[b, n, s, d]``.
      value: ``[b, s, n e]`` or ``[b, n, s, e]``.
      bias: of queries, keys and values, ``[n d + n d + n e]``.
      key_padding_mask: 0 for masked keys; or numbers of keys: see
        :func:`qattention`.
      attention_bias: added to the scores, ``[b or 1, n or 1, t, s]``.
      past_key: earlier keys ``[b, n, p, d]``.
      past_value: earlier values ``[b, n, p, e]``.
      num_heads: number n of heads.
      unidirectional: whether each query attends only to keys up to its own position.
      scale: factor of the scores, 1/√d by default.
      mask_filter_value: number that is added to the scores of masked keys.
      outputs: up to 3 for the keys and the values, each ``[b, n, s, d]``, as well.

    Returns:
      ``[b, t, n e]``; keys and values.

    Raises:
      ValueError: queries, keys and values are in one array, which is not implemented, or
        ``unidirectional`` is given with other numbers of queries and keys.
    """
    if query.ndim == 5 or key is None or key.ndim == 5:
        shapes = [None if x is None else x.shape for x in (query, key)]
        raise ValueError(f"query, key: got {shapes}, wanted both: packed ones are not implemented")
    if value is None:
        raise ValueError(f"value: got none beside a key of shape {key.shape}")
    queries = _split(query, num_heads)
    keys, values = (jnp.asarray(x) if x.ndim == 4 else _split(x, num_heads) for x in (key, value))
    if bias is not None:
        sizes = np.cumsum([num_heads * x.shape[-1] for x in (queries, keys)]).tolist()
        added = [b.reshape(num_heads, 1, -1) for b in jnp.split(jnp.asarray(bias), sizes)]
        whole = key.ndim == 4  # the keys of another sequence, which are ready
        queries = queries + added[0]
        keys, values = (keys, values) if whole else (keys + added[1], values + added[2])
    if unidirectional and keys.shape[2] != queries.shape[2]:  # ONNX Runtime masks all rows but one
        raise ValueError(
            f"unidirectional: got {queries.shape[2]} queries and {keys.shape[2]} new keys, wanted "
            "equally many"
        )
    if past_key is not None and past_value is not None:
        keys = jnp.concatenate([past_key, keys], 2)
        values = jnp.concatenate([past_value, values], 2)
    result = _attended(
        queries,
        keys,
        values,
        key_padding_mask,
        attention_bias,
        scale=scale,
        filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )
    return first_results((result, keys, values), outputs)
