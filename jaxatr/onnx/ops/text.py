"""Operators on strings, which are NumPy object arrays and never traced."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, known, sized


def _each(function: Callable[..., Any], dtype: Any, *arrays: np.ndarray) -> np.ndarray:
    """Applies a function elementwise to arrays, which are broadcast."""
    together = np.broadcast_arrays(*arrays)
    made = np.empty(together[0].shape, dtype)
    for place in np.ndindex(made.shape):
        made[place] = function(*(array[place] for array in together))
    return made


@register("StringConcat")
def string_concat(x: Value, y: Value) -> Value:
    """Concatenates strings elementwise (ONNX StringConcat-20)."""
    return _each(lambda a, b: a + b, object, np.asarray(x), np.asarray(y))


@register("StringSplit")
def string_split(
    x: Value, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Value, Value]:
    """Splits strings at a delimiter, by default at whitespace (ONNX StringSplit-20).

    Returns:
      The parts along a new axis, padded with empty strings, and the number of parts.
    """
    parts = _each(
        lambda text: text.split(delimiter or None, -1 if maxsplit is None else maxsplit),
        object,
        np.asarray(x),
    )
    counts = _each(len, np.int64, parts)
    filled = np.full((*parts.shape, counts.max(initial=0)), "", object)
    for place in np.ndindex(parts.shape):
        filled[(*place, slice(0, len(parts[place])))] = parts[place]
    return filled, counts


@register("RegexFullMatch")
def regex_full_match(x: Value, *, pattern: str) -> Value:
    """Returns whether each string fully matches a pattern (ONNX RegexFullMatch-20).

    ONNX specifies RE2's syntax. Python's ``re``, which is used here, supports it except for a few
    character classes. Unlike RE2, it can take exponential time, so patterns must come from trusted
    models.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern: {pattern!r}: {error}") from error
    return _each(lambda text: compiled.fullmatch(text) is not None, bool, np.asarray(x))


@register("StringNormalizer", ignored=("locale",))
def string_normalizer(
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: tuple[str, ...] = (),
) -> Value:
    """Removes stop words and changes the case of strings (ONNX StringNormalizer-10).

    Args:
      x: ``[c]`` or ``[1, c]``.
      case_change_action: NONE, LOWER or UPPER.
      is_case_sensitive: whether the comparison with stop words is case-sensitive.
      stopwords: strings to remove; if nothing remains, the result is one empty string.
    """
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    if case_change_action not in change:
        raise ValueError(f"case_change_action: got {case_change_action!r}, wanted {list(change)}")
    fold = str if is_case_sensitive else str.lower
    stops = {fold(word) for word in stopwords}
    kept = [
        change[case_change_action](t) for t in np.asarray(x).reshape(-1) if fold(t) not in stops
    ]
    made = np.array(kept or [""], object)
    return made[None] if np.ndim(x) == 2 else made


@register("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
) -> Value:
    """Counts the occurrences of listed n-grams in each row (ONNX TfIdfVectorizer-9).

    Args:
      x: ``[c]`` or ``[b, c]``; must be known.
      max_gram_length: length of the longest n-grams.
      max_skip_count: maximum number of elements skipped between neighbours of an n-gram.
      min_gram_length: length of the shortest n-grams.
      mode: TF (counts), IDF (weights of n-grams that occur) or TFIDF (weights times counts).
      ngram_counts: positions in the pool where the n-grams of length 1, 2, … begin.
      ngram_indexes: column of each n-gram in the result.
      pool_int64s: the concatenated n-grams, if ``x`` holds integers.
      pool_strings: the concatenated n-grams, if ``x`` holds strings.
      weights: weight of each n-gram; 1 by default.
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode: got {mode!r}, wanted TF, IDF or TFIDF")
    if min_gram_length < 1 or max_skip_count < 0:
        raise ValueError(
            f"min_gram_length, max_skip_count: got {min_gram_length}, {max_skip_count}, "
            "wanted at least 1 and 0"
        )
    pool = pool_strings if pool_int64s is None else pool_int64s
    grams = _grams(tuple(pool or ()), ngram_counts)
    if len(grams) != len(ngram_indexes) or min(ngram_indexes, default=0) < 0:
        raise ValueError(f"ngram_indexes: got {len(ngram_indexes)}, wanted one for each n-gram")
    columns = {gram: place for place, gram in enumerate(grams)}
    array = known("x", x)
    rows = array.reshape(1, -1) if array.ndim < 2 else array
    result = np.zeros(sized((len(rows), max(ngram_indexes, default=-1) + 1)), np.float32)
    for row, values in zip(result, rows, strict=True):
        seen = _seen(values.tolist(), min_gram_length, max_gram_length, max_skip_count)
        for gram, count in seen.items():
            if gram in columns:
                place = columns[gram]
                weight = 1.0 if weights is None or mode == "TF" else weights[place]
                row[ngram_indexes[place]] = weight * (1 if mode == "IDF" else count)
    return result[0] if array.ndim < 2 else result


def _grams(pool: tuple, starts: tuple[int, ...]) -> list[tuple]:
    """Splits a pool of concatenated n-grams."""
    if (
        list(starts) != sorted(starts)
        or min(starts, default=0) < 0
        or max(starts, default=0) > len(pool)
    ):
        raise ValueError(f"ngram_counts: got {starts}, wanted positions in a pool of {len(pool)}")
    grams = []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(pool)
        grams += [pool[at : at + i + 1] for at in range(start, end, i + 1)]
    return grams


def _seen(values: list, shortest: int, longest: int, skip: int) -> Counter:
    """Counts all n-grams with a constant step of 1 to ``skip + 1`` between their elements."""
    seen: Counter = Counter()
    for length in range(shortest, min(longest, len(values)) + 1):
        furthest = (len(values) - 1) // (length - 1) if length > 1 else 1
        for step in range(1, min(skip + 1, furthest) + 1):
            for start in range(len(values) - (length - 1) * step):
                seen[tuple(values[start : start + length * step : step][:length])] += 1
    return seen
