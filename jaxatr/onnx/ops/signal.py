"""Signal operators: Fourier transforms, window functions and mel filters."""

import math

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import (
    Known,
    Value,
    axis_of,
    known,
    known_int,
    library,
    sized,
)


def _complex(x: Value) -> Value:
    """Combines the last axis, (real) or (real, imaginary), into real or complex numbers."""
    wide = jnp.asarray(x).astype(jnp.promote_types(x.dtype, "float32"))
    if x.shape[-1] not in (1, 2):
        raise ValueError(
            f"x: got shape {x.shape}, wanted a last axis of 1 (real) or 2 (real, imaginary)"
        )
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(x: Value, dtype: np.dtype) -> Value:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


@register("DFT", static=("dft_length", "axis"), since=20)
def dft(
    x: Value,
    dft_length: Known | None = None,
    axis: Known | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Returns the discrete Fourier transform along an axis (ONNX DFT-20).

    Args:
      x: ``[…, 1]`` (real) or ``[…, 2]`` (complex).
      dft_length: length to which the axis is cropped or zero-padded.
      axis: axis of ``x`` to transform; −2 by default, the last axis of the signal.
      inverse: whether to compute the inverse transform.
      onesided: whether to return only the nonredundant half of the transform of a real signal; with
        ``inverse``, whether ``x`` is such a half, so that the result is real, ``[…, 1]``.
    """
    along = axis_of(-2 if axis is None else known_int("axis", axis), x.ndim)
    length = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
    if dft_length is not None:
        (length,) = sized((known_int("dft_length", dft_length),))
    signal = _complex(x)
    if inverse and onesided:
        return jnp.fft.irfft(signal, length, along)[..., None].astype(x.dtype)
    result = (jnp.fft.ifft if inverse else jnp.fft.fft)(signal, length, along)
    if onesided:
        result = jnp.take(result, jnp.arange(length // 2 + 1), along)
    return _parts(result, x.dtype)


@register("DFT", static=("dft_length",), since=17)
def dft_along(
    x: Value,
    dft_length: Known | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Applies :func:`dft` with the axis as an attribute (ONNX DFT-17)."""
    return dft(x, dft_length, axis, inverse=inverse, onesided=onesided)


@register("STFT", settings=("window",), static=("frame_step", "frame_length"))
def stft(
    x: Value,
    frame_step: Known,
    window: Value | None = None,
    frame_length: Known | None = None,
    *,
    onesided: int = 1,
) -> Value:
    """Returns the short-time Fourier transform ``[b, frames, frequencies, 2]`` (ONNX STFT-17).

    Args:
      x: ``[b, t, 1]`` (real) or ``[b, t, 2]`` (complex).
      frame_step: step between frames.
      window: window function ``[frame_length]``.
      frame_length: length of a frame; by default that of the window.
      onesided: whether to return only the nonredundant half of the frequencies.
    """
    step = known_int("frame_step", frame_step)
    if frame_length is not None:
        length = known_int("frame_length", frame_length)
    else:
        length = x.shape[1] if window is None else window.shape[0]
    if step < 1 or not 0 < length <= x.shape[1]:
        raise ValueError(
            f"frame_length, frame_step: got {length}, {step}, wanted frames within {x.shape[1]}"
        )
    count = (x.shape[1] - length) // step + 1
    frames = jnp.asarray(x)[:, np.arange(count)[:, None] * step + np.arange(length)]
    if window is not None:
        frames = frames * jnp.asarray(window).reshape(-1, 1)
    return dft(frames, axis=2, onesided=onesided)


def _window(size: Known, periodic: int, dtype: int, *shares: float) -> Value:
    """Returns a cosine-sum window with the given coefficients."""
    count = known_int("size", size)
    lib = library(shape=(count,))
    at = 2 * np.pi * lib.arange(count) / max(count if periodic else count - 1, 1)
    total = sum(share * lib.cos(k * at) for k, share in enumerate(shares))
    return lib.asarray(total).astype(dtype_of(dtype))


@register("HannWindow", static=("size",), folds=True)
def hann_window(size: Known, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    """Returns the Hann window (ONNX HannWindow-17)."""
    return _window(size, periodic, output_datatype, 0.5, -0.5)


@register("HammingWindow", static=("size",), folds=True)
def hamming_window(size: Known, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    """Returns the Hamming window, with coefficient 25/46 (ONNX HammingWindow-17)."""
    return _window(size, periodic, output_datatype, 25 / 46, -21 / 46)


@register("BlackmanWindow", static=("size",), folds=True)
def blackman_window(size: Known, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    """Returns the Blackman window (ONNX BlackmanWindow-17)."""
    return _window(size, periodic, output_datatype, 0.42, -0.5, 0.08)


@register("MelWeightMatrix", static=("*",), folds=True)
def mel_weight_matrix(*values: Known, output_datatype: int = 1) -> Value:
    """Returns triangular mel filters ``[frequencies, bins]`` (ONNX MelWeightMatrix-17).

    Args:
      *values: number of bins, length of the transform, sampling rate in hertz, lowest and highest
        frequency in hertz.
      output_datatype: type number of the result.
    """
    numbers = [float(known("operand", value).reshape(())) for value in values]
    bins, length, rate = (int(n) for n in numbers[:3])
    low, high = (2595 * math.log10(1 + edge / 700) for edge in numbers[3:])
    library(shape=(length // 2 + 1, bins))
    mels = np.arange(bins + 2) * (high - low) / (bins + 2) + low
    edges = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bins))
    rows = np.arange(len(matrix))
    for i in range(bins):
        left, centre, right = edges[i : i + 3]
        rising = (rows - left) / max(centre - left, 1)
        falling = (right - rows) / max(right - centre, 1)
        matrix[:, i] = np.where((rows >= left) & (rows <= centre), rising, 0)
        matrix[:, i] = np.where((rows >= centre) & (rows < right), falling, matrix[:, i])
        if left == centre:
            matrix[centre, i] = 1
    return matrix.astype(dtype_of(output_datatype))
