"""Every method that explains a network as one call, and what its maps are worth."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import explainers, metrics, models
from jaxatr.data import Truth
from jaxatr.resolve import nearest
from jaxatr.typing import ArrayLike, Float, Int

RIVALS = (
    "grad_cam",
    "grad_cam_plus_plus",
    "rise",
    "lime",
    "occlusion",
    "integrated_gradients",
    "smoothgrad",
)
"""The methods that a trained surrogate is compared with: they need nothing but the network."""

_SPELLINGS = {"gradcam": "grad_cam", "gradcam++": "grad_cam_plus_plus"}
_RANDOM = ("rise", "lime", "smoothgrad")
_MASKING = ("rise", "lime", "occlusion")  # one image at a time, in batches of its copies
_REPEATING = ("integrated_gradients", "smoothgrad")  # many passes of all images


def rivals(names: str | Collection[str]) -> tuple[str, ...]:
    """Returns methods by name, or all of them.

    Args:
      names: ``"all"``, names with commas between them, or a collection of names.

    Raises:
      ValueError: there is no such method.
    """
    wanted = [name for name in names.split(",") if name] if isinstance(names, str) else [*names]
    if wanted == ["all"]:
        return RIVALS
    return tuple(dict.fromkeys(method_name(name, RIVALS) for name in wanted))


def method_name(name: str, among: Sequence[str]) -> str:
    """Returns a method's name as records have it: ``"gradcam"`` is ``"grad_cam"``.

    Raises:
      ValueError: it is not among those.
    """
    found = _SPELLINGS.get(name, name)
    if found not in among:
        raise ValueError(
            f"method: got {name!r}, wanted one of {', '.join(among)}{nearest(name, among)}"
        )
    return found


def rival(
    name: str,
    predict: Callable[[ArrayLike], jax.Array],
    mean: Float[ArrayLike, " c"],
    *,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Callable[[ArrayLike], jax.Array]:
    """Returns a method as a function from chips to saliency maps, in [0, 1] unless ``raw``.

    Args:
      name: one of :data:`RIVALS`.
      predict: chips ``[b, h, w, c]`` in their raw units to logits; not jitted.
      mean: ``[c]``, of the training images. RISE hides behind it, as its authors do.
      seed: of the methods that draw.
      progress: show a bar at a terminal, of those that try masked copies.
      options: of the method, as :mod:`jaxatr.explainers` has them.
    """
    method = getattr(explainers, name)
    if name in _MASKING:
        options = {"progress": progress, **options}
    if name in _RANDOM:
        options = {"key": jax.random.key(seed), **options}
    if name == "rise":
        options = {"baseline": np.asarray(mean, np.float32), **options}
    if not name.startswith("grad_cam"):
        return functools.partial(method, predict, **options)

    @functools.cache  # functions of their own, which are compiled once
    def parts(shape: tuple[int, ...]) -> models.Cut:
        return models.cut(predict, np.zeros((1, *shape), np.float32))

    def by_parts(images: ArrayLike) -> jax.Array:
        cut = parts(np.shape(images)[1:])
        return method(cut.features, cut.head, images, **options)

    return by_parts


def maps_of(
    name: str,
    explain: Callable[[ArrayLike], ArrayLike],
    images: Float[np.ndarray, "n h w c"],
    batch_size: int,
) -> Float[np.ndarray, "n h w"]:
    """Returns the maps of n images, no more of which are on the device at a time than may be.

    Methods that mask get all images, as they take one after the other. Of one pass, the last batch
    is filled up, so that all run one compiled program; where a method takes many passes the
    filling would cost more than it saves.

    Args:
      name: ``"surrogate"``, or one of :data:`RIVALS`.
      explain: the method, from images to maps.
      images: ``[n, h, w, c]``, n at least 1.
      batch_size: images at a time.
    """
    if name in _MASKING:
        return np.asarray(explain(images))
    maps, count = [], len(images)
    for start in range(0, count, batch_size):
        end = min(start + batch_size, count) if name in _REPEATING else start + batch_size
        rows = np.minimum(np.arange(start, end), count - 1)
        maps.append(np.asarray(explain(images[rows]))[: count - start])
    return np.concatenate(maps)


def spread(rows: Int[np.ndarray, " n"], count: int) -> Int[np.ndarray, " m"]:
    """Returns so many of the rows at most, evenly spread in their order."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]


def blurred(
    images: Float[ArrayLike, "b h w c"],
    blur: metrics.Blur = metrics.Blur(),  # noqa: B008 (frozen)
) -> Float[jax.Array, "b h w c"]:
    """Returns what ``blur(images)`` does, inside a jitted function."""
    weights, images = blur.weights(), jnp.asarray(images)
    mode = {"reflect": "symmetric", "zeros": "constant"}[blur.border]
    for axis in (1, 2):
        beyond = [(0, 0)] * 4
        beyond[axis] = (blur.size // 2, blur.size // 2)
        padded, size = jnp.pad(images, beyond, mode=mode), images.shape[axis]
        shifted = (
            weight * jax.lax.slice_in_dim(padded, first, first + size, axis=axis)
            for first, weight in enumerate(weights.tolist())
        )
        images = functools.reduce(jnp.add, shifted)
    return images


def judge(
    predict: Callable[[ArrayLike], jax.Array],
    images: Float[np.ndarray, "n h w c"],
    saliency: Float[np.ndarray, "n h w"],
    *,
    pixels_per_step: int = 0,
    batch_size: int = 64,
    truth: Truth = Truth(),  # noqa: B008 (immutable)
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Returns what saliency maps are worth, and the convention of insertion and deletion.

    Args:
      predict: as :func:`rival` has it.
      images: ``[n, h, w, c]``, in their raw units.
      saliency: ``[n, h, w]`` in [0, 1].
      pixels_per_step: of insertion and deletion; 0 for one row of the chip.
      batch_size: images at a time.
      truth: where the targets are.

    Returns:
      ``(values, convention)``: name to ``[n]``: ``insertion`` and ``deletion``, the areas;
      ``fidelity``, the first less the second; ``mean_intensity``; where masks are known
      ``share_inside``, 0 for a map of zeros; where boxes are known ``pointing_game``.
    """
    step = pixels_per_step or saliency.shape[2]
    options: dict[str, Any] = {"pixels_per_step": step, "batch_size": batch_size}
    inserted = metrics.insertion(predict, images, saliency, **options)
    deleted = metrics.deletion(predict, images, saliency, **options)
    values = {
        "insertion": inserted.auc,
        "deletion": deleted.auc,
        "fidelity": inserted.auc - deleted.auc,
        "mean_intensity": metrics.mean_intensity(saliency),
    }
    if truth.masks is not None:
        values["share_inside"] = np.nan_to_num(metrics.share_inside(saliency, truth.masks))
    if truth.boxes is not None:
        pointed = metrics.pointing_game(saliency, truth.boxes)
        values["pointing_game"] = pointed.astype(np.float64)
    return values, [dataclasses.asdict(found.convention) for found in (inserted, deleted)]


def recorded(
    values: Mapping[str, Mapping[str, np.ndarray]],
    maps: Mapping[str, Float[np.ndarray, "n h w"]],
    *,
    each: int = 8,
) -> dict[str, np.ndarray]:
    """Returns what is recorded of some methods' explanations of n chips.

    Args:
      values: method to what :func:`judge` returned of it; one is ``"surrogate"``.
      maps: method to its maps, in [0, 1].
      each: so many of each kind are shown at most.

    Returns:
      ``METHOD_MEASURE`` ``[n]``; ``sheet_worst`` and ``sheet_drawn``, positions in n of what a
      report shows: those with the surrogate's lowest insertion, the lowest first, and others,
      evenly spread in their order; ``METHOD_map`` uint8 ``[m, h, w]``, the maps of these, in that
      order, 255 for 1.
    """
    order = np.argsort(values["surrogate"]["insertion"], kind="stable")
    worst, drawn = order[:each], spread(np.sort(order[each:]), each)
    arrays: dict[str, np.ndarray] = {"sheet_worst": worst, "sheet_drawn": drawn}
    rows = np.concatenate([worst, drawn])
    for name, judged in values.items():
        arrays |= {f"{name}_{measure}": numbers for measure, numbers in judged.items()}
        arrays[f"{name}_map"] = np.rint(255 * maps[name][rows]).astype(np.uint8)
    return arrays
