"""Image operators: resizing, sampling, assembly from blocks, decoding."""

import io
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, axes_of, known, known_ints, sized
from jaxatr.onnx.ops.windows import Ints, windows


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Returns the weights of cubic convolution (Keys 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _sources(
    mode: str, count: int, length: int, scale: np.float32, roi: tuple[float, float]
) -> np.ndarray:
    """Returns the source coordinate of each of ``count`` results on an axis of ``length``.

    Everything is computed in float32, as in ONNX Runtime and PyTorch: a rounding error decides
    which pixel is the nearest.
    """
    at, wanted = np.arange(count, dtype=np.float32), np.float32(scale) * np.float32(length)
    scale, start, end = (np.float32(number) for number in (scale, *roi))
    half, length = np.float32(0.5), np.float32(length)  # pyright: ignore[reportAssignmentType]
    if mode == "half_pixel":
        return (at + half) / scale - half
    if mode == "half_pixel_symmetric":
        return length / 2 * (1 - np.float32(count) / wanted) + (at + half) / scale - half
    if mode == "pytorch_half_pixel":
        return (at + half) / scale - half if count > 1 else np.zeros_like(at)
    if mode == "align_corners":
        return at * (length - 1) / (wanted - 1) if wanted != 1 else np.zeros_like(at)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + half) / scale
    if mode != "tf_crop_and_resize":
        raise ValueError(f"coordinate_transformation_mode: got {mode!r}")
    if wanted == 1:
        return np.full_like(at, half * (start + end) * (length - 1))
    return start * (length - 1) + at * (end - start) * (length - 1) / (wanted - 1)


def _nearest(at: np.ndarray, mode: str) -> np.ndarray:
    rounding = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounding:
        raise ValueError(f"nearest_mode: got {mode!r}, wanted one of {list(rounding)}")
    return rounding[mode](at)


def _taps(
    at: np.ndarray, length: int, mode: str, scale: float, a: float, exclude: int, antialias: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source indices and weights of each result, both ``[count, taps]``."""
    squeeze = min(scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / squeeze
    sized((max(len(at), 1), math.ceil(2 * reach)))
    offsets = np.arange(math.floor(-reach) + 1, math.ceil(reach) + 1)
    at = at.astype(np.float64)
    positions = np.floor(at)[:, None] + offsets
    distance = (positions - at[:, None]) * squeeze
    shares = np.maximum(0, 1 - np.abs(distance)) if mode == "linear" else _cubic(distance, a)
    if exclude:
        shares = np.where((positions >= 0) & (positions < length), shares, 0)
    if exclude or antialias:
        shares = shares / shares.sum(1, keepdims=True)
    return np.clip(positions, 0, length - 1).astype(np.int64), shares


def _mixed(x: Value, axis: int, positions: np.ndarray, shares: np.ndarray) -> Value:
    """Replaces an axis by weighted sums of its elements."""
    wide = jnp.promote_types(x.dtype, "float32")
    taken = jnp.take(x.astype(wide), positions, axis)
    shape = [1] * x.ndim
    shape[axis : axis + 1] = shares.shape
    return jnp.sum(taken * jnp.asarray(shares.reshape(shape), wide), axis + 1)


@register("Resize", static=("roi", "scales", "sizes"), since=11)
def resize(
    x: Value,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """Resizes a tensor by interpolation along its axes (ONNX Resize-19).

    Args:
      x: array of any shape.
      roi: region of interest for tf_crop_and_resize, as fractions of the axes:
        ``(start_1, …, start_n, end_1, …, end_n)``.
      scales: scale factor of each axis.
      sizes: length of each axis of the result; an alternative to ``scales``.
      antialias: whether to smooth when downscaling.
      axes: axes to which ``roi``, ``scales`` and ``sizes`` refer; all by default.
      coordinate_transformation_mode: rule that maps result coordinates to source coordinates.
      cubic_coeff_a: coefficient of cubic interpolation.
      exclude_outside: whether weights outside the tensor are set to zero.
      extrapolation_value: value of results outside the tensor, for tf_crop_and_resize.
      keep_aspect_ratio_policy: stretch (to ``sizes``); or not_larger or not_smaller (than
        ``sizes``), which keep the aspect ratio.
      mode: nearest, linear or cubic.
      nearest_mode: round_prefer_floor, round_prefer_ceil, floor or ceil.
    """
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode: got {mode!r}, wanted nearest, linear or cubic")
    along = axes_of(range(x.ndim) if axes is None else axes, x.ndim)
    lengths = [x.shape[axis] for axis in along]
    factors, counts = _lengths(lengths, scales, sizes, keep_aspect_ratio_policy)
    region = np.asarray([0.0] * len(along) + [1.0] * len(along))
    if roi is not None and np.size(roi):
        region = known("roi", roi).astype(np.float64)
    result, outside = jnp.asarray(x), None
    for i, axis in enumerate(along):
        part = (float(region[i]), float(region[i + len(along)]))
        transformation = coordinate_transformation_mode
        if counts[i] == lengths[i] and factors[i] == 1 and transformation != "tf_crop_and_resize":
            continue
        at = _sources(transformation, counts[i], lengths[i], factors[i], part)
        if mode == "nearest":
            positions = np.clip(_nearest(at, nearest_mode), 0, lengths[i] - 1).astype(np.int64)
            result = jnp.take(result, positions, axis)
        else:
            scale = float(factors[i])
            taps = _taps(at, lengths[i], mode, scale, cubic_coeff_a, exclude_outside, antialias)
            result = _mixed(result, axis, *taps)
        if transformation == "tf_crop_and_resize":
            beyond = ((at < 0) | (at > lengths[i] - 1)).reshape(
                [-1 if j == axis else 1 for j in range(x.ndim)]
            )
            outside = beyond if outside is None else outside | beyond
    if outside is not None:
        result = jnp.where(outside, jnp.asarray(extrapolation_value, result.dtype), result)
    return _as(result, x.dtype)


def _as(x: Value, dtype: Any) -> Value:
    return jnp.round(x).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


def _lengths(
    lengths: Sequence[Any], scales: Known | None, sizes: Known | None, policy: str
) -> tuple[list[np.float32], list[Any]]:
    """Returns the scale factor, float32 as in the file, and the new length of each axis."""
    if scales is not None and np.size(scales):
        factors = [np.float32(s) for s in known("scales", scales).reshape(-1)]
        if len(factors) != len(lengths) or not all(0 < f < 1e6 for f in factors):
            raise ValueError(f"scales: got {factors}, wanted {len(lengths)} positive numbers")
        return factors, list(
            sized(
                n if f == 1 else math.floor(f * np.float32(n))
                for f, n in zip(factors, lengths, strict=True)
            )
        )
    if sizes is None:
        raise ValueError("scales: got neither scales nor sizes")
    wanted = sized(known_ints("sizes", sizes))
    if len(wanted) != len(lengths):
        raise ValueError(f"sizes: got {wanted}, wanted {len(lengths)} numbers")
    if any(w > 0 and n == 0 for w, n in zip(wanted, lengths, strict=True)):
        raise ValueError(f"sizes: got {wanted} for axes of lengths {lengths}, one of them empty")
    pairs = zip(map(np.float32, wanted), map(np.float32, lengths), strict=True)
    ratios = [np.float32(1.0) if n == 0 else w / n for w, n in pairs]
    if policy == "stretch":
        return ratios, list(wanted)
    if policy not in ("not_larger", "not_smaller"):
        raise ValueError(
            f"keep_aspect_ratio_policy: got {policy!r}, wanted stretch, not_larger or not_smaller"
        )
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [ratio] * len(lengths), list(sized(math.floor(ratio * n + 0.5) for n in lengths))


@register("Resize", static=("scales",), since=10)
@register("Upsample", static=("scales",), since=7)
def upsample(x: Value, scales: Known, *, mode: str = "nearest") -> Value:
    """Resizes each axis by its factor in ``scales`` (ONNX Upsample-9, Resize-10)."""
    return resize(
        x,
        None,
        scales,
        mode="linear" if mode == "bilinear" else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@register("Upsample", since=1)
def upsample_image(
    x: Value, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Value:
    """Resizes the height and width of ``[b, c, h, w]`` (ONNX Upsample-1)."""
    return upsample(x, (1.0, 1.0, height_scale, width_scale), mode=mode)


@register("AffineGrid", static=("size",))
def affine_grid(theta: Value, size: Known, *, align_corners: int = 0) -> Value:
    """Returns the grid of sampling positions of an affine map (ONNX AffineGrid-20).

    Args:
      theta: affine matrices ``[b, 2, 3]``, or ``[b, 3, 4]`` in three dimensions.
      size: ``(b, c, [d,] h, w)``.
      align_corners: whether −1 and 1 are the centres of the corner pixels, not their edges.

    Returns:
      Coordinates ``[b, [d,] h, w, 2 or 3]`` in the order x, y[, z].
    """
    spatial = sized(known_ints("size", size))[2:]
    axes = []
    for length in spatial:
        step = np.linspace(-1, 1, length) if length > 1 else np.zeros(1)
        axes.append(step if align_corners else (2 * np.arange(length) + 1) / length - 1)
    grid = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(spatial)], -1)
    return jnp.einsum("bij,...j->b...i", theta, jnp.asarray(grid, theta.dtype))


@register("GridSample")
def grid_sample(
    x: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    """Samples a tensor at the positions of a grid (ONNX GridSample-22).

    Args:
      x: ``[b, c, …]`` with r spatial axes.
      grid: coordinates ``[b, …, r]`` from −1 to 1, the last axis of ``x`` first.
      align_corners: whether −1 and 1 are the centres of the corner pixels, not their edges.
      mode: linear (bilinear), nearest or cubic (bicubic).
      padding_mode: zeros, border or reflection.

    Returns:
      ``[b, c, …]``, with the spatial shape of ``grid``.
    """
    spatial = x.shape[2:]
    ats = []
    for axis, length in enumerate(spatial):
        unit = jnp.asarray(grid)[..., len(spatial) - 1 - axis]
        ats.append(
            (unit + 1) / 2 * (length - 1) if align_corners else ((unit + 1) * length - 1) / 2
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"padding_mode: got {padding_mode!r}, wanted zeros, border or reflection")
    per_axis = [_neighbours(at, mode) for at in ats]
    total: Any = 0
    for choice in np.ndindex(*(len(part) for part in per_axis)):
        share, inside, positions = jnp.ones((), x.dtype), jnp.ones((), bool), []
        for axis, which in enumerate(choice):
            place, weight = per_axis[axis][which]
            place, valid = _padded(place, spatial[axis], padding_mode, align_corners)
            positions.append(place)
            share, inside = share * weight, inside & valid
        taken = jax.vmap(lambda image, at: image[(slice(None), *at)])(
            jnp.asarray(x), tuple(positions)
        )
        share = jnp.where(inside, share, 0)[:, None].astype(x.dtype)
        # 0 times a pixel that is not finite would be NaN.
        total = total + jnp.where(inside[:, None], taken, 0) * share
    return total


def _neighbours(at: Value, mode: str) -> list[tuple[Value, Value]]:
    """Returns the positions along one axis that each sample interpolates, with their weights."""
    if mode == "nearest":
        return [(jnp.round(at), jnp.ones((), at.dtype))]
    low = jnp.floor(at)
    rest = at - low
    if mode in ("linear", "bilinear"):
        return [(low, 1 - rest), (low + 1, rest)]
    if mode not in ("cubic", "bicubic"):
        raise ValueError(f"mode: got {mode!r}, wanted linear, nearest or cubic")
    a = -0.75
    neighbours = []
    for offset in (-1, 0, 1, 2):
        d = jnp.abs(rest - offset)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        neighbours.append((low + offset, near if offset in (0, 1) else far))
    return neighbours


def _padded(place: Value, length: int, mode: str, align_corners: int) -> tuple[Value, Value]:
    """Maps positions into the tensor, and returns them with a mask of those that contribute."""
    inside = (place >= 0) & (place <= length - 1)
    if mode == "reflection" and length > 1:
        low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
        span = high - low
        far = jnp.mod(jnp.abs(place - low), 2 * span)
        place = low + jnp.where(far > span, 2 * span - far, far)
    clipped = jnp.clip(jnp.nan_to_num(place), 0, length - 1).astype("int32")
    return clipped, inside if mode == "zeros" else jnp.ones_like(inside)


@register("Col2Im", static=("image_shape", "block_shape"))
def col2im(
    x: Value,
    image_shape: Known,
    block_shape: Known,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """Sums overlapping blocks into images (ONNX Col2Im-18).

    Args:
      x: ``[b, c · taps, blocks]``.
      image_shape: spatial shape of the result.
      block_shape: number of taps along each axis.
      dilations: dilation of the blocks along each axis; 1 by default.
      pads: numbers of elements cropped from the result, ``(start_1, …, start_n, end_1, …, end_n)``.
      strides: stride of the blocks along each axis; 1 by default.

    Returns:
      ``[b, c, …]``.
    """
    shape, block = known_ints("image_shape", image_shape), known_ints("block_shape", block_shape)
    window = windows(sized(shape), block, strides, dilations, pads, "NOTSET")
    rank, taps = len(shape), int(np.prod(block))
    columns = x.reshape(x.shape[0], x.shape[1] // taps, *block, *window.counts)
    positions = []
    for axis in range(rank):
        tap = np.arange(block[axis]) * window.dilations[axis]
        start = np.arange(window.counts[axis]) * window.strides[axis]
        index = [1] * (2 * rank)
        index[axis], index[rank + axis] = block[axis], window.counts[axis]
        positions.append((tap[:, None] + start).reshape(index))
    padded = [n + b + a for n, (b, a) in zip(shape, window.pads, strict=True)]
    image = jnp.zeros((*columns.shape[:2], *padded), x.dtype)
    image = image.at[(slice(None), slice(None), *positions)].add(columns)
    cut = tuple(slice(b, b + n) for n, (b, _) in zip(shape, window.pads, strict=True))
    return image[(slice(None), slice(None), *cut)]


@register("ImageDecoder")
def image_decoder(encoded_stream: Value, *, pixel_format: str = "RGB") -> Value:
    """Decodes the bytes of an image file to pixels ``[h, w, c]`` (ONNX ImageDecoder-20).

    Raises:
      ValueError: the bytes are not an image, or the format is not RGB, BGR or Grayscale.
    """
    from PIL import Image, UnidentifiedImageError

    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"pixel_format: got {pixel_format!r}, wanted RGB, BGR or Grayscale")
    stream = io.BytesIO(known("encoded_stream", encoded_stream).astype(np.uint8).tobytes())
    try:
        with Image.open(stream) as image:
            pixels = np.asarray(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"encoded_stream: {error}") from error
    if pixel_format == "Grayscale":
        return pixels[..., None]
    return pixels[..., ::-1] if pixel_format == "BGR" else pixels
