"""Flax layers with ONNX's conventions, the building blocks of generated modules.

flax's own layers are channels-last and store weights in other layouts. A generated module would
have to transpose its arrays, and could not make the same calls as :func:`jaxatr.onnx.load`. These
layers are channels-first, keep the shape that each weight has in the file, and name attributes as
ONNX does.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx import ops
from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.ops.precision import wide
from jaxatr.onnx.ops.registry import find
from jaxatr.onnx.reader.inputs import as_declared, on_device
from jaxatr.onnx.reader.program import ValueInfo

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BatchNorm",
    "Conv",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Embed",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "array",
    "entry",
    "first",
    "held",
    "key",
    "operator",
]

Ints = tuple[int, ...]

_HE = nn.initializers.variance_scaling(2.0, "fan_in", "normal", in_axis=1, out_axis=0)
_ONES, _ZEROS = nn.initializers.ones, nn.initializers.zeros


def entry(**inputs: tuple[str, tuple[int | str | None, ...] | None] | None) -> Callable:
    """Returns a decorator for the ``__call__`` of a model's outermost module.

    It converts the inputs to the declared types, and keeps 64-bit types while the method runs,
    whatever jax's setting.

    Args:
      **inputs: type and shape of each parameter, or None if it is not a tensor. The shape is None
        for an unknown rank, and has a symbol for a free dimension.
    """
    facts = {name: fact or (None, None) for name, fact in inputs.items()}
    infos = [ValueInfo(name, shape, dtype) for name, (dtype, shape) in facts.items()]

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self, *values, **options):
            with wide():
                given = [as_declared(v, wanted) for v, wanted in zip(values, infos, strict=True)]
                result = method(self, *given, **options)
                placed = on_device(result)  # a list of several
                return tuple(placed) if type(result) is tuple else placed

        return call

    return decorate


def key(module: nn.Module) -> Any:
    """Returns a new key from the stream ``dropout``, or None if the caller passed none."""
    return module.make_rng("dropout") if module.has_rng("dropout") else None


def first(result: Any) -> Any:
    """Returns the first of several results, or the only one."""
    return result[0] if isinstance(result, tuple) else result


def held(module: nn.Module, collection: str, name: str, shape: Ints, dtype: str) -> Any:
    """Returns an array from a collection of a module; ``init`` fills it with ones."""
    return module.variable(collection, name, jnp.ones, shape, dtype_of(dtype)).value


def operator(name: str, domain: str, opset: int) -> Callable:
    """Returns the function that is registered for an operator.

    Args:
      name: name of the operator.
      domain: domain of the operator; empty for ONNX's standard domain.
      opset: version of the domain.

    Raises:
      ValueError: no function is registered for it.
    """
    registered = find(name, domain, opset)
    if registered is None:
        raise ValueError(
            f"operator: nothing is registered for {name!r} of {domain!r}, opset {opset}; "
            "first import the module that calls jaxatr.onnx.register"
        )
    return registered.function


def array(values: Any, dtype: str, shape: Ints | None = None) -> np.ndarray:
    """Returns an array of any ONNX type, including those that NumPy lacks.

    >>> array([1, 2], "bfloat16").dtype.itemsize
    2
    """
    result = np.array(values, dtype_of(dtype))
    return result if shape is None else result.reshape(shape)


class _Convolution(nn.Module):
    """Base of the convolutions: a kernel, a bias, and the operator's attributes."""

    features: int
    kernel_shape: Ints
    strides: Ints | None = None
    dilations: Ints | None = None
    pads: Ints | None = None
    auto_pad: str = "NOTSET"
    group: int = 1
    use_bias: bool = True

    def arguments(self, x: Any, *shape: int, **further: Any) -> tuple[tuple, dict[str, Any]]:
        """Returns the arguments of the operator, with a kernel of ``shape`` and the taps."""
        kernel = self.param("kernel", _HE, (*shape, *self.kernel_shape), x.dtype)
        bias = self.param("bias", _ZEROS, (self.features,), x.dtype) if self.use_bias else None
        names = ("strides", "dilations", "pads", "auto_pad", "group")
        return (x, kernel, bias), {name: getattr(self, name) for name in names} | further


class Conv(_Convolution):
    """Convolution, ``[b, c, …]`` → ``[b, features, …]``: :func:`jaxatr.onnx.ops.conv`."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the convolution."""
        arrays, settings = self.arguments(x, self.features, x.shape[1] // self.group)
        return ops.conv(*arrays, **settings)


class ConvTranspose(_Convolution):
    """Transposed convolution: :func:`jaxatr.onnx.ops.conv_transpose`."""

    output_padding: Ints | None = None
    output_shape: Ints | None = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the transposed convolution."""
        further = {"output_padding": self.output_padding, "output_shape": self.output_shape}
        arrays, settings = self.arguments(x, x.shape[1], self.features // self.group, **further)
        return ops.conv_transpose(*arrays, **settings)


class Dense(nn.Module):
    """ONNX's Gemm: ``alpha · x kernel + beta · bias``, ``[b, i]`` → ``[b, features]``.

    With ``transB`` the kernel is ``[features, i]``.
    """

    features: int
    alpha: float = 1.0
    beta: float = 1.0
    transB: int = 0
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the product."""
        shape = (x.shape[1], self.features)
        return ops.gemm(
            x,
            self.param("kernel", _HE, shape[::-1] if self.transB else shape, x.dtype),
            self.param("bias", _ZEROS, (self.features,), x.dtype) if self.use_bias else None,
            alpha=self.alpha,
            beta=self.beta,
            transB=self.transB,
        )


class Linear(nn.Module):
    """ONNX's MatMul with an optional Add: ``x kernel + bias`` over the last axis."""

    features: int
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the product."""
        kernel = self.param("kernel", _HE, (x.shape[-1], self.features), x.dtype)
        x = ops.matmul(x, kernel)
        if not self.use_bias:
            return x
        return ops.add(x, self.param("bias", _ZEROS, (self.features,), x.dtype))


class Embed(nn.Module):
    """Looks up rows of a table ``[num_embeddings, features]``: ONNX's Gather."""

    num_embeddings: int
    features: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, indices: Any) -> Any:
        """Returns the row at each index."""
        shape = (self.num_embeddings, self.features)
        table = self.param("embedding", nn.initializers.normal(0.02), shape, dtype_of(self.dtype))
        return ops.gather(table, indices)


class BatchNorm(nn.Module):
    """Batch normalisation of ``[b, c, …]``: :func:`jaxatr.onnx.ops.batch_normalization`.

    The running statistics ``mean`` and ``var`` are in the collection ``batch_stats``.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        """Returns x normalised; training uses batch statistics and updates the running ones."""
        shape = (x.shape[1],)
        scale = self.param("scale", _ONES, shape, x.dtype)
        bias = self.param("bias", _ZEROS, shape, x.dtype)
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape, x.dtype)
        var = self.variable("batch_stats", "var", jnp.ones, shape, x.dtype)
        settings: dict[str, Any] = {"epsilon": self.epsilon, "momentum": self.momentum}
        values = (x, scale, bias, mean.value, var.value)
        if not train:
            return ops.batch_normalization(*values, **settings)
        x, *new = ops.batch_normalization(*values, **settings, training=True)
        if self.is_mutable_collection("batch_stats") and not self.is_initializing():
            mean.value, var.value = (jnp.asarray(value) for value in new)
        return x


class LayerNorm(nn.Module):
    """Normalises over the axes from ``axis`` on: :func:`jaxatr.onnx.ops.layer_normalization`."""

    axis: int = -1
    epsilon: float = 1e-5
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and shifted."""
        shape = x.shape[self.axis :]
        scale = self.param("scale", _ONES, shape, x.dtype)
        bias = self.param("bias", _ZEROS, shape, x.dtype) if self.use_bias else None
        return ops.layer_normalization(x, scale, bias, axis=self.axis, epsilon=self.epsilon)


class RMSNorm(nn.Module):
    """Divides by the root mean square: :func:`jaxatr.onnx.ops.rms_normalization`."""

    axis: int = -1
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised and scaled."""
        scale = self.param("scale", _ONES, x.shape[self.axis :], x.dtype)
        return ops.rms_normalization(x, scale, axis=self.axis, epsilon=self.epsilon)


class InstanceNorm(nn.Module):
    """Normalises each channel of each example: :func:`jaxatr.onnx.ops.instance_normalization`."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and shifted."""
        scale = self.param("scale", _ONES, (x.shape[1],), x.dtype)
        bias = self.param("bias", _ZEROS, (x.shape[1],), x.dtype)
        return ops.instance_normalization(x, scale, bias, epsilon=self.epsilon)


class GroupNorm(nn.Module):
    """Normalises each group of channels: :func:`jaxatr.onnx.ops.group_normalization`."""

    num_groups: int
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and shifted by channel."""
        scale = self.param("scale", _ONES, (x.shape[1],), x.dtype)
        bias = self.param("bias", _ZEROS, (x.shape[1],), x.dtype)
        groups, epsilon = self.num_groups, self.epsilon
        return ops.group_normalization(x, scale, bias, num_groups=groups, epsilon=epsilon)


class Dropout(nn.Module):
    """ONNX's Dropout, active in training if the caller passes a key for the stream ``dropout``."""

    ratio: float = 0.5

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        """Returns x, with elements dropped in training."""
        rng = key(self) if train else None
        return ops.dropout(x, np.array(self.ratio, np.float32), training=train, rng=rng)


class _Recurrent(nn.Module):
    """Base of the recurrent layers: input weights ``w``, state weights ``r``, biases ``b``."""

    hidden_size: int
    direction: str = "forward"
    layout: int = 0
    activations: tuple[str, ...] | None = None
    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    clip: float | None = None
    use_bias: bool = True
    outputs: int = 1

    def weights(self, gates: int, x: Any) -> tuple[Any, Any, Any]:
        """Returns ``w``, ``r`` and ``b`` for the given number of gates."""
        count, h = 2 if self.direction == "bidirectional" else 1, self.hidden_size
        w = self.param("w", _HE, (count, gates * h, x.shape[-1]), x.dtype)
        r = self.param("r", _HE, (count, gates * h, h), x.dtype)
        b = self.param("b", _ZEROS, (count, 2 * gates * h), x.dtype) if self.use_bias else None
        return w, r, b

    def settings(self) -> dict[str, Any]:
        """Returns the keyword arguments of the operator's function."""
        names = ("direction", "layout", "activation_alpha", "activation_beta", "clip", "outputs")
        settings = {name: getattr(self, name) for name in names}
        return (
            settings if self.activations is None else settings | {"activations": self.activations}
        )


class RNN(_Recurrent):
    """A recurrent layer, ``[t, b, i]`` → ``[t, directions, b, hidden_size]``: ONNX's RNN."""

    @nn.compact
    def __call__(self, x: Any, sequence_lens: Any = None, initial_h: Any = None) -> Any:
        """Returns all hidden states; with two ``outputs`` also the last ones."""
        return ops.rnn(x, *self.weights(1, x), sequence_lens, initial_h, **self.settings())


class GRU(_Recurrent):
    """Gated recurrent units, ``[t, b, i]`` → ``[t, directions, b, hidden_size]``: ONNX's GRU."""

    linear_before_reset: int = 0

    @nn.compact
    def __call__(self, x: Any, sequence_lens: Any = None, initial_h: Any = None) -> Any:
        """Returns all hidden states; with two ``outputs`` also the last ones."""
        settings: dict[str, Any] = self.settings() | {
            "linear_before_reset": self.linear_before_reset
        }
        return ops.gru(x, *self.weights(3, x), sequence_lens, initial_h, **settings)


class LSTM(_Recurrent):
    """Long short-term memory, ``[t, b, i]`` → ``[t, directions, b, hidden_size]``: ONNX's LSTM."""

    input_forget: int = 0
    peepholes: bool = False

    @nn.compact
    def __call__(
        self, x: Any, sequence_lens: Any = None, initial_h: Any = None, initial_c: Any = None
    ) -> Any:
        """Returns all hidden states; with more ``outputs`` also the last hidden and cell states."""
        w, r, b = self.weights(4, x)
        shape = (w.shape[0], 3 * self.hidden_size)
        p = self.param("p", _ZEROS, shape, x.dtype) if self.peepholes else None
        settings: dict[str, Any] = self.settings() | {"input_forget": self.input_forget}
        return ops.lstm(x, w, r, b, sequence_lens, initial_h, initial_c, p, **settings)
