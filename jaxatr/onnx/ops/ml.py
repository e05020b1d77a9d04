"""The feature, label and linear-model operators of ``ai.onnx.ml``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from jaxatr.onnx.ops.dtypes import is_text
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.shaping import flatten
from jaxatr.onnx.ops.values import Value, first_place, known

ML = "ai.onnx.ml"
Floats = tuple[float, ...]
Ints = tuple[int, ...]
Texts = tuple[str, ...]


@register("Binarizer", domain=ML)
def binarizer(x: Value, *, threshold: float = 0.0) -> Value:
    """Returns 1 where x exceeds the threshold, else 0 (ONNX ML Binarizer-1)."""
    return (jnp.asarray(x) > threshold).astype(x.dtype)


@register("Scaler", domain=ML)
def scaler(x: Value, *, offset: Floats = (0.0,), scale: Floats = (1.0,)) -> Value:
    """Returns ``(x − offset) · scale`` for each feature (ONNX ML Scaler-1)."""
    wide = jnp.asarray(x).astype("float32")
    return (wide - jnp.asarray(offset, "float32")) * jnp.asarray(scale, "float32")


@register("Normalizer", domain=ML)
def normalizer(x: Value, *, norm: str = "MAX") -> Value:
    """Divides each row by its norm: MAX, L1 or L2 (ONNX ML Normalizer-1)."""
    norms = {
        "MAX": lambda v: jnp.max(v, -1, keepdims=True),
        "L1": lambda v: jnp.sum(jnp.abs(v), -1, keepdims=True),
        "L2": lambda v: jnp.sqrt(jnp.sum(jnp.square(v), -1, keepdims=True)),
    }
    if norm not in norms:
        raise ValueError(f"norm: got {norm!r}, wanted one of {list(norms)}")
    wide = jnp.asarray(x).astype("float32")
    size = norms[norm](wide)
    return jnp.where(size == 0, wide, wide / jnp.where(size == 0, 1, size))


@register("Imputer", domain=ML)
def imputer(
    x: Value,
    *,
    imputed_value_floats: Floats | None = None,
    imputed_value_int64s: Ints | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:
    """Replaces a given value, or NaN, in each feature by a constant (ONNX ML Imputer-1)."""
    x = jnp.asarray(x)
    if x.dtype.kind in "iu":
        made = jnp.asarray(imputed_value_int64s or (0,), x.dtype)
        return jnp.where(x == replaced_value_int64, made, x)
    gone = jnp.isnan(x) if np.isnan(replaced_value_float) else x == replaced_value_float
    return jnp.where(gone, jnp.asarray(imputed_value_floats or (0.0,), x.dtype), x)


@register("FeatureVectorizer", domain=ML)
def feature_vectorizer(*values: Value, inputdimensions: Ints = ()) -> Value:
    """Concatenates the features of all operands (ONNX ML FeatureVectorizer-1).

    As in ONNX Runtime, an operand of another size than the stated one is cut or filled with zeros.
    """
    rows = [flatten(jnp.asarray(v).astype("float32")) for v in values]
    sizes = inputdimensions or [row.shape[1] for row in rows]
    if len(sizes) != len(rows):
        raise ValueError(f"inputdimensions: got {len(sizes)} numbers for {len(rows)} inputs")
    sized = zip((row[:, :size] for row, size in zip(rows, sizes, strict=True)), sizes, strict=True)
    return jnp.concatenate([jnp.pad(r, [(0, 0), (0, size - r.shape[1])]) for r, size in sized], 1)


@register("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Value,
    *,
    cats_int64s: Ints | None = None,
    cats_strings: Texts | None = None,
    zeros: int = 1,
) -> Value:
    """Encodes categories one-hot along a new axis (ONNX ML OneHotEncoder-1)."""
    if cats_strings is not None:
        matches: Any = np.asarray(x)[..., None] == np.array(cats_strings, object)
    else:
        whole = jnp.asarray(x).astype("int64")  # as the specification says, even for floats
        matches = whole[..., None] == jnp.asarray(cats_int64s or ())
    if not zeros and not known("x", matches).any(-1).all():
        raise ValueError("x: got a value that is not a category")
    return matches.astype("float32")


@register("LabelEncoder", domain=ML, since=2)
def label_encoder(
    x: Value,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: Floats | None = None,
    keys_int64s: Ints | None = None,
    keys_strings: Texts | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Floats | None = None,
    values_int64s: Ints | None = None,
    values_strings: Texts | None = None,
    values_tensor: np.ndarray | None = None,
) -> Value:
    """Maps keys to values, and unknown keys to a default (ONNX ML LabelEncoder-4).

    If keys or values are strings, ``x`` must be known.
    """
    if values_strings is not None:
        values = np.array(values_strings, object)
    elif values_int64s is not None:
        values = np.array(values_int64s, np.int64)
    elif values_floats is not None:
        values = np.array(values_floats, np.float32)
    else:
        values = np.asarray(values_tensor)
    default: Any = default_float if values.dtype.kind == "f" else default_int64
    if values.dtype == object:
        default = default_string
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    listed = ((keys_strings, object), (keys_int64s, np.int64), (keys_floats, np.float32))
    for given, dtype in listed:
        if given is not None:
            keys = np.array(given, dtype)
            break
    else:
        keys = np.asarray(keys_tensor)
    if keys.shape != values.shape or keys.ndim != 1:
        raise ValueError(f"keys: got shape {keys.shape}, wanted 1-D like values {values.shape}")
    if keys.dtype == object or values.dtype == object:
        return _looked_up(known("x", x), keys, values, default)
    same = jnp.asarray(x)[..., None] == keys
    same = same | (jnp.isnan(x)[..., None] & np.isnan(keys)) if keys.dtype.kind == "f" else same
    picked = jnp.asarray(values)[first_place(jax.lax.argmax, same, -1)]
    return jnp.where(same.any(-1), picked, jnp.asarray(default, values.dtype))


@register("LabelEncoder", domain=ML)
def label_encoder_classes(
    x: Value,
    *,
    classes_strings: Texts = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:
    """Maps strings to their indices in a list, or indices to strings (ONNX ML LabelEncoder-1)."""
    positions = tuple(range(len(classes_strings)))
    return category_mapper(
        x,
        cats_int64s=positions,
        cats_strings=classes_strings,
        default_int64=default_int64,
        default_string=default_string,
    )


@register("CategoryMapper", domain=ML)
def category_mapper(
    x: Value,
    *,
    cats_int64s: Ints,
    cats_strings: Texts,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:
    """Maps strings to numbers, or numbers to strings (ONNX ML CategoryMapper-1)."""
    if len(cats_int64s) != len(cats_strings):
        raise ValueError(f"cats_int64s: got {len(cats_int64s)} for {len(cats_strings)} strings")
    numbers, texts = np.array(cats_int64s, np.int64), np.array(cats_strings, object)
    array = known("x", x)
    if is_text(array.dtype):
        return _looked_up(array, texts, numbers, default_int64)
    return _looked_up(array, numbers, texts, default_string)


@register("Labels", domain="jaxatr", host=True)
def labelled(best: Value, labels: Ints | Texts = ()) -> Value:
    """Returns the labels of class indices, which must be known if labels are strings.

    The importer makes this call of its own out of a classifier with labels that are strings, so
    that the rest can be compiled.

    Args:
      best: class of each row; itself the label if there are no labels.
      labels: label of each class.
    """
    if labels and isinstance(labels[0], str):
        return np.array(labels, object)[known("x", best)]
    return jnp.asarray(best, "int64") if not labels else jnp.asarray(labels, "int64")[best]


def _looked_up(x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: Any) -> np.ndarray:
    def plain(key):  # all NaNs are one key
        return "nan key" if isinstance(key, float) and key != key else key

    table = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        table.setdefault(plain(key), value)
    made = [table.get(plain(key), default) for key in x.reshape(-1).tolist()]
    return np.array(made, values.dtype).reshape(x.shape)


def transformed(scores: Value, post_transform: str) -> Value:
    """Applies a model's ``post_transform`` to scores ``[b, k]``."""
    if post_transform == "NONE":
        return scores
    if post_transform == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if post_transform == "SOFTMAX":
        return jax.nn.softmax(scores, -1)
    if post_transform == "SOFTMAX_ZERO":
        shares = jnp.where(scores == 0, 0, jnp.exp(scores - scores.max(-1, keepdims=True)))
        return shares / jnp.maximum(shares.sum(-1, keepdims=True), jnp.finfo(scores.dtype).tiny)
    if post_transform == "PROBIT":
        return ndtri(scores)
    raise ValueError(f"post_transform: got {post_transform!r}")


@register("LinearRegressor", domain=ML)
def linear_regressor(
    x: Value,
    *,
    coefficients: Floats = (),
    intercepts: Floats | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Value:
    """Returns a linear function of the features, ``[b, targets]`` (ONNX ML LinearRegressor-1)."""
    weights = np.array(coefficients, np.float32)[: targets * x.shape[1]].reshape(targets, -1)
    scores = jnp.asarray(x).astype("float32") @ weights.T
    scores = scores if intercepts is None else scores + np.array(intercepts, np.float32)
    return transformed(scores, post_transform)


@register(
    "LinearClassifier",
    domain=ML,
    ignored=("multi_class",),
    labels=("classlabels_strings", "classlabels_ints"),
)
def linear_classifier(
    x: Value,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Texts | None = None,
    coefficients: Floats,
    intercepts: Floats | None = None,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """Returns the class and the scores of each row (ONNX ML LinearClassifier-1).

    With two classes and one row of coefficients, the first score is minus the second.
    """
    labels: Any = classlabels_strings or classlabels_ints or (0, 1)
    weights = np.array(coefficients, np.float32)
    # ONNX Runtime reads as many rows as there are intercepts, and ignores what follows.
    if intercepts is not None and weights.size > len(intercepts) * x.shape[1]:
        weights = weights[: len(intercepts) * x.shape[1]]
    weights = weights.reshape(-1, x.shape[1])
    scores = jnp.asarray(x).astype("float32") @ weights.T
    scores = scores if intercepts is None else scores + np.array(intercepts, np.float32)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    if scores.shape[1] != len(labels):
        raise ValueError(f"coefficients: got {scores.shape[1]} rows, wanted {len(labels)}")
    best = first_place(jax.lax.argmax, scores, 1)
    chosen = labelled(best, classlabels_strings or classlabels_ints or ())
    return chosen, transformed(scores, post_transform)
