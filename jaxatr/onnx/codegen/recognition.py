"""Recognises calls as layers of :mod:`jaxatr.onnx.nn`, if no other call uses their weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxatr.onnx import ops
from jaxatr.onnx.reader.program import Call

POSITIONAL = {"Conv": 2, "ConvTranspose": 2, "Embed": 2, "Dense": 1, "Linear": 1, "GroupNorm": 1}
POSITIONAL |= {"Dropout": 1, "LSTM": 1, "GRU": 1, "RNN": 1}
"""Number of settings of a layer that are printed as positional arguments."""


@dataclass(frozen=True)
class LayerMatch:
    """A recognised layer.

    Attributes:
      layer: name of its class.
      options: its settings.
      weights: maps the layer's names of its arrays to their names in the model.
      operands: names of its inputs.
      calls: the calls that it replaces.
    """

    layer: str
    options: dict[str, Any]
    weights: dict[str, str]
    operands: tuple[str, ...]
    calls: tuple[Call, ...]


Exclusive = Callable[[str], Any]
"""Returns the weight with a name if only one call uses it, else None."""


def recognised(
    call: Call,
    exclusive: Exclusive,
    follower: Callable[[Call], Call | None],
    known: Mapping[str, np.ndarray],
) -> LayerMatch | None:
    """Returns the layer that a call forms, possibly with the call after it, or None.

    Args:
      call: the call.
      exclusive: returns the weight with a name if only one call uses it, else None.
      follower: returns the only call that uses the result of a call, or None.
      known: arrays that are part of the program.
    """
    function = call.operator.function
    if function is ops.matmul:
        return _linear(call, exclusive, follower)
    if function is ops.dropout:
        return _dropout(call, known)
    if function is ops.gather:
        return _embed(call, exclusive)
    if function not in _FORMS:
        return None
    layer, leaves, settings = _FORMS[function]
    operands = call.operator.operands[: len(call.inputs)]
    given = dict(zip(operands, call.inputs, strict=True))
    held, shapes = {}, {}
    for operand, leaf in leaves.items():
        if not given.get(operand):
            continue
        weight = exclusive(given[operand])
        if weight is None or weight.collection == "constants":
            return None
        held[leaf], shapes[leaf] = given[operand], weight
    if len({weight.dtype for weight in shapes.values()}) != 1:
        return None
    options = settings(call, {leaf: weight.shape for leaf, weight in shapes.items()})
    if options is None:
        return None
    others = tuple(given[operand] for operand in operands if operand not in leaves)
    while others and not others[-1]:
        others = others[:-1]
    return LayerMatch(layer, options, held, others, (call,))


def _attributes(call: Call, *without: str) -> dict[str, Any]:
    """Returns a call's attributes, except those equal to the default."""
    attributes = {key: value for key, value in call.attributes.items() if key not in without}
    for key, plain in (("strides", 1), ("dilations", 1), ("pads", 0)):
        if all(number == plain for number in attributes.get(key, ())):
            attributes.pop(key, None)
    return attributes


def _biased(shapes: Mapping[str, tuple], features: int) -> dict[str, Any] | None:
    """Returns the setting for a layer's bias, or None if the bias has an unexpected shape."""
    if "bias" not in shapes:
        return {"use_bias": False}
    return {} if shapes["bias"] == (features,) else None


def _conv(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    kernel, group = shapes["kernel"], call.attributes.get("group", 1)
    transposed = call.operator.function is ops.conv_transpose
    features = kernel[1] * group if transposed else kernel[0]
    biased = _biased(shapes, features)
    if biased is None or len(kernel) < 3:
        return None
    if call.attributes.get("kernel_shape", kernel[2:]) != kernel[2:]:
        return None
    settings = _attributes(call, "kernel_shape")
    return {"features": features, "kernel_shape": kernel[2:], **settings, **biased}


def _dense(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    if call.attributes.get("transA") or len(shapes["kernel"]) != 2:
        return None
    features = shapes["kernel"][0 if call.attributes.get("transB") else 1]
    biased = _biased(shapes, features)
    return None if biased is None else {"features": features, **_attributes(call), **biased}


def _batch_norm(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    if call.attributes.get("training_mode") or len(call.outputs) > 1 or len(shapes) != 4:
        return None
    if "spatial" in call.attributes:
        return None
    return _attributes(call)


def _layer_norm(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    axis = call.attributes.get("axis", -1)
    if "stash_type" in call.attributes or len(call.outputs) > 1 or axis != -len(shapes["scale"]):
        return None
    if 1 in shapes["scale"]:  # may be broadcast over a longer axis
        return None
    if shapes.get("bias", shapes["scale"]) != shapes["scale"]:  # is broadcast to the scale
        return None
    return {**_attributes(call), **({} if "bias" in shapes else {"use_bias": False})}


def _rms_norm(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    axis = call.attributes.get("axis", -1)
    if "stash_type" in call.attributes or axis != -len(shapes["scale"]) or 1 in shapes["scale"]:
        return None
    return _attributes(call)


def _channel_norm(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    return None if "stash_type" in call.attributes else _attributes(call)


def _recurrent(call: Call, shapes: Mapping[str, tuple]) -> dict[str, Any] | None:
    if len(shapes.get("w", ())) != 3 or len(shapes.get("r", ())) != 3 or "" in call.outputs:
        return None
    options = {"hidden_size": shapes["r"][2], **_attributes(call, "hidden_size")}
    options |= {} if "b" in shapes else {"use_bias": False}
    options |= {"peepholes": True} if "p" in shapes else {}
    return options | ({"outputs": len(call.outputs)} if len(call.outputs) > 1 else {})


_NORM = {"scale": "scale", "b": "bias"}
_GROUP = {"scale": "scale", "bias": "bias"}
_STATISTICS = {"input_mean": "mean", "input_var": "var"}
_KERNEL = {"w": "kernel", "b": "bias"}
_GATES = {"w": "w", "r": "r", "b": "b"}

# Function to its layer, the layer's names of the weight operands, and the layer's settings.
_FORMS: dict[Callable, tuple[str, dict[str, str], Callable]] = {
    ops.conv: ("Conv", _KERNEL, _conv),
    ops.conv_transpose: ("ConvTranspose", _KERNEL, _conv),
    ops.gemm: ("Dense", {"b": "kernel", "c": "bias"}, _dense),
    ops.batch_normalization: ("BatchNorm", _NORM | _STATISTICS, _batch_norm),
    ops.layer_normalization: ("LayerNorm", _NORM, _layer_norm),
    ops.rms_normalization: ("RMSNorm", {"scale": "scale"}, _rms_norm),
    ops.instance_normalization: ("InstanceNorm", _NORM, _channel_norm),
    ops.group_normalization: ("GroupNorm", _GROUP, _channel_norm),
    ops.rnn: ("RNN", _GATES, _recurrent),
    ops.gru: ("GRU", _GATES, _recurrent),
    ops.lstm: ("LSTM", _GATES | {"p": "p"}, _recurrent),
}


def _linear(call: Call, exclusive: Exclusive, follower: Callable) -> LayerMatch | None:
    kernel = exclusive(call.inputs[1])
    if kernel is None or kernel.collection != "params" or len(kernel.shape) != 2:
        return None
    options: dict[str, Any] = {"features": kernel.shape[1]}
    bare = LayerMatch(
        "Linear",
        options | {"use_bias": False},
        {"kernel": kernel.name},
        call.inputs[:1],
        (call,),
    )
    following = follower(call)
    if following is None or following.operator.function is not ops.add:
        return bare
    (other,) = [name for name in following.inputs if name != call.outputs[0]] or [""]
    bias = exclusive(other)
    if bias is None or bias.collection != "params" or bias.shape != kernel.shape[1:]:
        return bare
    weights = {"kernel": kernel.name, "bias": bias.name}
    return LayerMatch("Linear", options, weights, call.inputs[:1], (call, following))


def _dropout(call: Call, known: Mapping[str, np.ndarray]) -> LayerMatch | None:
    x, ratio, mode, *_ = (*call.inputs, "", "")
    if len(call.outputs) > 1 or "seed" in call.attributes or (ratio and ratio not in known):
        return None
    if mode and (mode not in known or known[mode].any()):
        return None
    share = float(str(known[ratio].reshape(()))) if ratio else call.attributes.get("ratio", 0.5)
    return LayerMatch("Dropout", {"ratio": share}, {}, (x,), (call,))


def _embed(call: Call, exclusive: Exclusive) -> LayerMatch | None:
    table = exclusive(call.inputs[0])
    if table is None or len(table.shape) != 2 or call.attributes.get("axis"):
        return None
    if table.collection != "params":
        return None
    options: dict[str, Any] = {"num_embeddings": table.shape[0], "features": table.shape[1]}
    options |= {} if table.dtype == "float32" else {"dtype": table.dtype}
    return LayerMatch("Embed", options, {"embedding": table.name}, call.inputs[1:], (call,))
