"""The map operators of ``ai.onnx.ml``. Maps are Python dictionaries and are never traced."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxatr.onnx.ops.ml import ML, Ints, Texts
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, known, sized

CASTS = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}


@register("ZipMap", domain=ML, host=True)
def zip_map(
    x: Value,
    *,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Texts | None = None,
) -> list[dict[Any, float]]:
    """Returns each row of ``[b, k]`` as a map from labels to numbers (ONNX ML ZipMap-1)."""
    labels = classlabels_strings or classlabels_int64s or ()
    rows = np.atleast_2d(known("x", x)).astype(np.float32)
    if rows.shape[1] != len(labels):
        raise ValueError(f"x: got {rows.shape[1]} columns, wanted {len(labels)}, one per label")
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


@register("DictVectorizer", domain=ML, host=True)
def dict_vectorizer(
    x: Mapping[Any, Any] | Sequence[Mapping[Any, Any]],
    *,
    int64_vocabulary: Ints | None = None,
    string_vocabulary: Texts | None = None,
) -> Value:
    """Returns a map's values in vocabulary order, 0 or ``""`` if missing (DictVectorizer-1).

    Args:
      x: a map, or a sequence of maps.
      int64_vocabulary: the vocabulary, if keys are numbers.
      string_vocabulary: the vocabulary, if keys are strings.

    Returns:
      ``[1, keys]``, or one row for each map.

    Raises:
      ValueError: a key is not in the vocabulary.
    """
    keys = string_vocabulary or int64_vocabulary or ()
    maps = [x] if isinstance(x, Mapping) else list(x)
    for one in maps:
        if not set(one) <= set(keys):
            raise ValueError(f"x: got keys {set(one) - set(keys)} that the vocabulary lacks")
    first = np.asarray(next((value for one in maps for value in one.values()), 0.0))
    empty: Any = "" if first.dtype.kind in "OUS" else 0
    dtype = object if first.dtype.kind in "OUS" else first.dtype
    rows = [[one.get(key, empty) for key in keys] for one in maps]
    return np.array(rows, dtype).reshape(len(maps), len(keys))


@register("CastMap", domain=ML, host=True)
def cast_map(
    x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    """Returns a map's values ``[1, n]``, sorted by key (ONNX ML CastMap-1).

    Args:
      x: map from integers to numbers or strings.
      cast_to: TO_FLOAT, TO_INT64 or TO_STRING.
      map_form: DENSE for the values alone; SPARSE for ``max_map`` values, each at the index that is
        its key.
      max_map: number of values in the SPARSE form.

    Raises:
      ValueError: a key is out of range, or an attribute has an invalid value.
    """
    if cast_to not in CASTS or map_form not in ("DENSE", "SPARSE"):
        raise ValueError(
            f"cast_to, map_form: got {cast_to!r}, {map_form!r}, wanted one of {list(CASTS)} and "
            "DENSE or SPARSE"
        )
    text = cast_to == "TO_STRING"
    values = {int(key): str(v) if text else float(v) for key, v in sorted(x.items())}
    if map_form == "DENSE":
        return np.array([list(values.values())], CASTS[cast_to])
    if min(values, default=0) < 0 or max(values, default=0) >= max_map:
        raise ValueError(f"x: got keys {list(values)}, wanted 0 to {max_map - 1}")
    made = np.full(sized((1, max_map)), "" if text else 0, CASTS[cast_to])
    for key, value in values.items():
        made[0, key] = value
    return made
