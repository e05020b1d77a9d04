"""Attention and rotary embedding operators."""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.dtypes import NAMES, dtype_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_results


def _heads(x: Value, count: int | None, name: str) -> Value:
    """Reshapes ``[b, t, n d]`` to ``[b, n, t, d]``."""
    if not count or x.shape[-1] % count:
        raise ValueError(f"{name}: got {count} heads, wanted a divisor of {x.shape[-1]}")
    return jnp.swapaxes(jnp.reshape(x, (*x.shape[:2], count, x.shape[-1] // count)), 1, 2)


def _joined(x: Value) -> Value:
    """Reshapes ``[b, n, t, d]`` to ``[b, t, n d]``."""
    return jnp.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


@register("Attention")
def attention(
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    nonpad_kv_seqlen: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int = 1,
) -> Any:
    """Returns scaled dot-product attention (ONNX Attention-25).

    Args:
      q: ``[b, n, t, d]``, or ``[b, t, n d]`` with ``q_num_heads``.
      k: ``[b, m, s, d]``, or ``[b, s, m d]`` with ``kv_num_heads``; n is a multiple of m.
      v: ``[b, m, s, e]``, or ``[b, s, m e]``.
      attn_mask: mask that broadcasts to ``[b, n, t, s]``: booleans (true to attend) or numbers to
        add to the scores. Keys beyond the end of the mask are masked.
      past_key: earlier keys ``[b, m, p, d]``, placed before ``k``.
      past_value: earlier values ``[b, m, p, e]``, placed before ``v``.
      nonpad_kv_seqlen: number of valid keys of each example, ``[b]``.
      is_causal: whether each query attends only to keys up to its own position.
      kv_num_heads: number m of heads of keys and values.
      q_num_heads: number n of heads of queries.
      left_window_size: number of earlier keys that a query attends to; −1 for all.
      right_window_size: number of later keys that a query attends to; −1 for all.
      qk_matmul_output_mode: the fourth output: the scores (0), the scores after the softcap (1) or
        the mask (2), or the probabilities (3).
      scale: factor of the scores, 1/√d by default.
      softcap: bound c on the scores, ``c tanh(x / c)``; 0 for none.
      softmax_precision: type number of the softmax.
      outputs: number of outputs, 1 to 4.

    Returns:
      The result in the layout of ``q``, all keys, all values, and the scores.
    """
    flat = q.ndim == 3
    if flat:
        q = _heads(q, q_num_heads, "q")
        k, v = _heads(k, kv_num_heads, "k"), _heads(v, kv_num_heads, "v")
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key, past_value: got one of them, wanted both or neither")
    offset: Any = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k, v = jnp.concatenate([past_key, k], 2), jnp.concatenate([past_value, v], 2)
    elif nonpad_kv_seqlen is not None:
        offset = jnp.reshape(nonpad_kv_seqlen, (-1, 1, 1, 1)) - q.shape[2]
    keys, values = k, v
    groups = q.shape[1] // k.shape[1]
    if groups != 1:
        k, v = jnp.repeat(k, groups, 1), jnp.repeat(v, groups, 1)
    root = jnp.asarray(math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale), q.dtype)
    products = jnp.matmul(q * root, jnp.swapaxes(k, -1, -2) * root)
    capped = softcap * jnp.tanh(products / softcap) if softcap > 0 else products
    bias = _bias(
        q,
        k,
        attn_mask,
        nonpad_kv_seqlen,
        offset,
        bool(is_causal),
        left_window_size,
        right_window_size,
    )
    masked = capped + bias
    precise = masked if softmax_precision is None else masked.astype(dtype_of(softmax_precision))
    shares = _softmax(precise, jnp.isneginf(jnp.max(bias, -1, keepdims=True)))
    shown = (products, capped, masked, shares)[qk_matmul_output_mode].astype(q.dtype)
    result = jnp.matmul(shares.astype(q.dtype), v)
    return first_results((_joined(result) if flat else result, keys, values, shown), outputs)


def _softmax(x: Value, empty: Value) -> Value:
    """Returns the softmax, with zeros for queries that attend to nothing."""
    return jnp.where(empty, 0, jax.nn.softmax(jnp.where(empty, 0, x), axis=-1))


def _bias(
    q: Value,
    k: Value,
    mask: Value | None,
    lengths: Value | None,
    offset: Any,
    causal: bool,
    left: int,
    right: int,
) -> Value:
    """Returns the number to add to each score: −∞ for masked keys."""
    count, total = q.shape[2], k.shape[2]
    distance = jnp.arange(count)[:, None] + offset - jnp.arange(total)
    allowed = jnp.ones((count, total), bool)
    if causal:
        allowed = allowed & (distance >= 0)
    if left >= 0:
        allowed = allowed & (distance <= left)
    if right >= 0:
        allowed = allowed & (-distance <= right)
    if lengths is not None:
        allowed = allowed & (jnp.arange(total) < jnp.reshape(lengths, (-1, 1, 1, 1)))
    minus = jnp.asarray(-jnp.inf, q.dtype)
    if mask is None:
        return jnp.where(allowed, jnp.zeros((), q.dtype), minus)
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
    if mask.dtype == bool:
        mask = jnp.pad(mask, missing)
        return jnp.where(allowed & mask, jnp.zeros((), q.dtype), minus)
    mask = jnp.pad(mask, missing, constant_values=-jnp.inf)
    return jnp.where(allowed, mask.astype(q.dtype), minus)


@register("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: Value,
    k: Value,
    v: Value,
    *,
    score_mod: Any = None,
    prob_mod: Any = None,
    scale: float | None = None,
    softmax_precision: int | None = None,
) -> Value:
    """Returns attention with functions that modify scores and probabilities (FlexAttention-1).

    Args:
      q: ``[b, n, t, d]``.
      k: ``[b, m, s, d]``.
      v: ``[b, m, s, e]``.
      score_mod: function from scores ``[b, n, t, s]`` to a tuple of one tensor of this shape.
      prob_mod: function from probabilities ``[b, n, t, s]`` to a tuple of one tensor of this shape.
      scale: factor of the scores, 1/√d by default.
      softmax_precision: type number of the softmax; at least float32 by default.
    """
    groups = q.shape[1] // k.shape[1]
    if groups != 1:
        k, v = jnp.repeat(k, groups, 1), jnp.repeat(v, groups, 1)
    wide = dtype_of(NAMES[softmax_precision] if softmax_precision else "float32")
    wide = jnp.promote_types(wide, q.dtype) if not softmax_precision else wide
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2)).astype(wide) * factor
    scores = scores if score_mod is None else score_mod(scores)[0]
    shares = jax.nn.softmax(scores, axis=-1)
    shares = shares if prob_mod is None else prob_mod(shares)[0]
    return jnp.matmul(shares.astype(v.dtype), v).astype(q.dtype)


@register("RotaryEmbedding", settings=("cos_cache", "sin_cache"))
def rotary_embedding(
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Value:
    """Rotates pairs of features by position-dependent angles (ONNX RotaryEmbedding-23).

    Args:
      x: ``[b, n, t, d]``, or ``[b, t, n d]`` with ``num_heads``.
      cos_cache: cosines ``[b, t, r/2]``, or ``[positions, r/2]`` with ``position_ids``.
      sin_cache: sines in the same shape.
      position_ids: position of each token, ``[b, t]``.
      interleaved: whether the features of a pair are adjacent; otherwise they are r/2 apart.
      num_heads: number n of heads.
      rotary_embedding_dim: number r of features that are rotated; 0 for all.
    """
    heads = _heads(x, num_heads, "num_heads") if x.ndim == 3 else jnp.asarray(x)
    count = rotary_embedding_dim or heads.shape[-1]
    cos, sin = (
        (jnp.asarray(c) if position_ids is None else jnp.asarray(c)[position_ids])[:, None]
        for c in (cos_cache, sin_cache)
    )
    turned, rest = heads[..., :count], heads[..., count:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : count // 2], turned[..., count // 2 :]
    pair = (cos * a - sin * b, sin * a + cos * b)
    if interleaved:
        turned = jnp.stack(pair, -1).reshape(turned.shape)
    else:
        turned = jnp.concatenate(pair, -1)
    result = jnp.concatenate([turned, rest], -1).astype(x.dtype)
    return _joined(result) if x.ndim == 3 else result


@register("LinearAttention", ignored=("chunk_size",))
def linear_attention(
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: Literal["linear", "gated", "delta", "gated_delta"] = "gated_delta",
) -> tuple[Value, Value]:
    """Returns linear attention with a recurrent state (ONNX LinearAttention-27).

    Args:
      query: ``[b, t, n d]``.
      key: ``[b, t, m d]``.
      value: ``[b, t, m e]``.
      past_state: initial state ``[b, m, d, e]``, zeros by default.
      decay: logarithm of the state's decay, ``[b, t, m]`` or ``[b, t, m d]``; for gated rules.
      beta: step size of the update, ``[b, t, m]`` or ``[b, t, 1]``; for delta rules.
      kv_num_heads: number m of heads of keys and values.
      q_num_heads: number n of heads of queries, a multiple of m.
      scale: factor of the result; 0 for 1/√d.
      update_rule: linear, gated, delta or gated_delta.

    Returns:
      ``[b, t, n e]`` and the last state.
    """
    rules = ("linear", "gated", "delta", "gated_delta")
    if update_rule not in rules:
        raise ValueError(f"update_rule: got {update_rule!r}, wanted one of {rules}")
    gated, corrected = "gated" in update_rule, "delta" in update_rule
    for name, given, wanted in (("decay", decay, gated), ("beta", beta, corrected)):
        if (given is not None) != wanted:
            raise ValueError(f"{name}: {'wanted' if wanted else 'not wanted'} with {update_rule!r}")

    def steps(x, heads, name):
        """Returns ``[t, b, heads, …]`` in float32."""
        return jnp.moveaxis(_heads(x, heads, name), 2, 0).astype("float32")

    q = steps(query, q_num_heads, "query")
    k, v = steps(key, kv_num_heads, "key"), steps(value, kv_num_heads, "value")
    g = (
        steps(decay, kv_num_heads, "decay")
        if decay is not None
        else jnp.zeros((len(q), 1, 1, 1), "float32")
    )
    b = jnp.ones((len(q), 1, 1, 1), "float32")
    if beta is not None:
        b = jnp.moveaxis(jnp.asarray(beta), 1, 0)[..., None].astype("float32")
    factor = scale or 1 / math.sqrt(q.shape[-1])

    def step(state, now):
        q, k, v, g, b = now
        state = state * jnp.exp(g)[..., None]
        if corrected:
            v = b * (v - jnp.einsum("bhdm,bhd->bhm", state, k))
        state = state + k[..., :, None] * v[..., None, :]
        read = jnp.repeat(state, q_num_heads // kv_num_heads, 1)
        return state, factor * jnp.einsum("bhd,bhdm->bhm", q, read)

    dtype = query.dtype if past_state is None else past_state.dtype
    shape = (*k.shape[1:], v.shape[-1])
    start = jnp.zeros(shape, "float32") if past_state is None else past_state
    last, read = jax.lax.scan(step, jnp.asarray(start).astype("float32"), (q, k, v, g, b))
    return _joined(jnp.moveaxis(read, 0, 2)).astype(query.dtype), last.astype(dtype)
