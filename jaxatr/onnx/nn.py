"""Layers with ONNX's conventions, of which generated modules are made.

flax's own layers take channels last and other layouts of weights: with them a generated module
would have to turn its arrays round, and could not call the functions that :func:`jaxatr.onnx.load`
calls. These take channels first, keep each weight in the shape that it has in the file, and name
attributes as ONNX does.
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
    """Returns a decorator for the ``__call__`` of a whole model.

    It brings the inputs to the declared types, and keeps 64-bit types while the method runs,
    whatever jax's setting is.

    Args:
      **inputs: for each parameter its type and shape (None for an unknown rank, a symbol for a
        dimension that is free); None for what is no tensor.
    """
    facts = {name: fact or (None, None) for name, fact in inputs.items()}
    infos = [ValueInfo(name, shape, dtype) for name, (dtype, shape) in facts.items()]

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self, *values, **options):
            with wide():
                given = [as_declared(v, wanted) for v, wanted in zip(values, infos, strict=True)]
                result = method(self, *given, **options)
                return (
                    tuple(on_device(list(result))) if type(result) is tuple else on_device(result)
                )

        return call

    return decorate


def key(module: nn.Module) -> Any:
    """Returns a new key of the stream ``dropout``, or None where the caller gave none."""
    return module.make_rng("dropout") if module.has_rng("dropout") else None


def first(result: Any) -> Any:
    """Returns the first of several results, or the only one."""
    return result[0] if isinstance(result, tuple) else result


def held(module: nn.Module, collection: str, name: str, shape: Ints, dtype: str) -> Any:
    """Returns an array of one of a module's collections; ones where ``init`` makes it."""
    return module.variable(collection, name, jnp.ones, shape, dtype_of(dtype)).value


def operator(name: str, domain: str, opset: int) -> Callable:
    """Returns the function that is registered for an operator.

    Raises:
      ValueError: none is: what registers it must be imported first.
    """
    found = find(name, domain, opset)
    if found is None:
        raise ValueError(
            f"operator: nothing is registered for {name!r} of {domain!r}, opset {opset}; "
            "import first what calls jaxatr.onnx.register"
        )
    return found.function


def array(values: Any, dtype: str, shape: Ints | None = None) -> np.ndarray:
    """Returns numbers in one of ONNX's types, those that NumPy has not included.

    >>> array([1, 2], "bfloat16").dtype.itemsize
    2
    """
    made = np.array(values, dtype_of(dtype))
    return made if shape is None else made.reshape(shape)


class Conv(nn.Module):
    """Convolution, ``[b, c, …]`` → ``[b, features, …]``: :func:`jaxatr.onnx.ops.conv`."""

    features: int
    kernel_shape: Ints
    strides: Ints | None = None
    dilations: Ints | None = None
    pads: Ints | None = None
    auto_pad: str = "NOTSET"
    group: int = 1
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the convolution."""
        shape = (self.features, x.shape[1] // self.group, *self.kernel_shape)
        return ops.conv(
            x,
            self.param("kernel", _HE, shape, x.dtype),
            self.param("bias", _ZEROS, (self.features,), x.dtype) if self.use_bias else None,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            auto_pad=self.auto_pad,
            group=self.group,
        )


class ConvTranspose(nn.Module):
    """Transposed convolution: :func:`jaxatr.onnx.ops.conv_transpose`."""

    features: int
    kernel_shape: Ints
    strides: Ints | None = None
    dilations: Ints | None = None
    pads: Ints | None = None
    output_padding: Ints | None = None
    output_shape: Ints | None = None
    auto_pad: str = "NOTSET"
    group: int = 1
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns the transposed convolution."""
        shape = (x.shape[1], self.features // self.group, *self.kernel_shape)
        return ops.conv_transpose(
            x,
            self.param("kernel", _HE, shape, x.dtype),
            self.param("bias", _ZEROS, (self.features,), x.dtype) if self.use_bias else None,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            output_padding=self.output_padding,
            output_shape=self.output_shape,
            auto_pad=self.auto_pad,
            group=self.group,
        )


class Dense(nn.Module):
    """``alpha · x kernel + beta · bias``, ``[b, i]`` → ``[b, features]``: ONNX's Gemm.

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
    """``x kernel + bias`` over the last axis: ONNX's MatMul, and the Add behind it."""

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
    """Rows of a table ``[num_embeddings, features]``: ONNX's Gather."""

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
    """Each channel of ``[b, c, …]`` normalised: :func:`jaxatr.onnx.ops.batch_normalization`.

    The running values ``mean`` and ``var`` are in the collection ``batch_stats``.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        """Returns x normalised; in training by the batch, whose statistics are then kept."""
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
    """x normalised over the axes from ``axis`` on: :func:`jaxatr.onnx.ops.layer_normalization`."""

    axis: int = -1
    epsilon: float = 1e-5
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and moved."""
        shape = x.shape[self.axis :]
        scale = self.param("scale", _ONES, shape, x.dtype)
        bias = self.param("bias", _ZEROS, shape, x.dtype) if self.use_bias else None
        return ops.layer_normalization(x, scale, bias, axis=self.axis, epsilon=self.epsilon)


class RMSNorm(nn.Module):
    """x over its root mean square: :func:`jaxatr.onnx.ops.rms_normalization`."""

    axis: int = -1
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised and scaled."""
        scale = self.param("scale", _ONES, x.shape[self.axis :], x.dtype)
        return ops.rms_normalization(x, scale, axis=self.axis, epsilon=self.epsilon)


class InstanceNorm(nn.Module):
    """Each channel of each example normalised: :func:`jaxatr.onnx.ops.instance_normalization`."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and moved."""
        scale = self.param("scale", _ONES, (x.shape[1],), x.dtype)
        bias = self.param("bias", _ZEROS, (x.shape[1],), x.dtype)
        return ops.instance_normalization(x, scale, bias, epsilon=self.epsilon)


class GroupNorm(nn.Module):
    """Each group of channels normalised: :func:`jaxatr.onnx.ops.group_normalization`."""

    num_groups: int
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x normalised, scaled and moved by channel."""
        scale = self.param("scale", _ONES, (x.shape[1],), x.dtype)
        bias = self.param("bias", _ZEROS, (x.shape[1],), x.dtype)
        groups, epsilon = self.num_groups, self.epsilon
        return ops.group_normalization(x, scale, bias, num_groups=groups, epsilon=epsilon)


class Dropout(nn.Module):
    """Drops elements in training, by a key of the stream ``dropout``: ONNX's Dropout."""

    ratio: float = 0.5

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        """Returns x, with elements dropped in training if the caller gave a key."""
        rng = key(self) if train else None
        return ops.dropout(x, np.array(self.ratio, np.float32), training=train, rng=rng)


class _Recurrent(nn.Module):
    """The base of recurrent layers: ``w`` of the input, ``r`` of the state, the bias ``b``."""

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
        """Returns ``w``, ``r`` and ``b`` of so many gates."""
        count, h = 2 if self.direction == "bidirectional" else 1, self.hidden_size
        w = self.param("w", _HE, (count, gates * h, x.shape[-1]), x.dtype)
        r = self.param("r", _HE, (count, gates * h, h), x.dtype)
        b = self.param("b", _ZEROS, (count, 2 * gates * h), x.dtype) if self.use_bias else None
        return w, r, b

    def settings(self) -> dict[str, Any]:
        """Returns the keywords of the operator's function; the activations if not the default."""
        names = ("direction", "layout", "activation_alpha", "activation_beta", "clip", "outputs")
        found = {name: getattr(self, name) for name in names}
        return found if self.activations is None else found | {"activations": self.activations}


class RNN(_Recurrent):
    """A recurrent layer, ``[t, b, i]`` → ``[t, directions, b, hidden_size]``: ONNX's RNN."""

    @nn.compact
    def __call__(self, x: Any, sequence_lens: Any = None, initial_h: Any = None) -> Any:
        """Returns all hidden states, and with two ``outputs`` the last ones."""
        return ops.rnn(x, *self.weights(1, x), sequence_lens, initial_h, **self.settings())


class GRU(_Recurrent):
    """Gated recurrent units, ``[t, b, i]`` → ``[t, directions, b, hidden_size]``: ONNX's GRU."""

    linear_before_reset: int = 0

    @nn.compact
    def __call__(self, x: Any, sequence_lens: Any = None, initial_h: Any = None) -> Any:
        """Returns all hidden states, and with two ``outputs`` the last ones."""
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
        """Returns all hidden states, with two ``outputs`` the last ones, with three the cells."""
        w, r, b = self.weights(4, x)
        shape = (w.shape[0], 3 * self.hidden_size)
        p = self.param("p", _ZEROS, shape, x.dtype) if self.peepholes else None
        settings: dict[str, Any] = self.settings() | {"input_forget": self.input_forget}
        return ops.lstm(x, w, r, b, sequence_lens, initial_h, initial_c, p, **settings)
