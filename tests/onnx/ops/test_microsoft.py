"""The operators of quantised files that ONNX Runtime's tools write, against ONNX Runtime."""

import re

import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.ops import fused, fused_attention, microsoft

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
RNG = np.random.default_rng(0)


def scale(value=0.05):
    return np.float32(value)


def bytes_(*shape, dtype=np.uint8):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


U, S, U2 = bytes_(2, 3, 4, 5), bytes_(2, 3, 4, 5, dtype=np.int8), bytes_(3, 1, 5)
S2 = bytes_(5, dtype=np.int8)
U7, S3, ZERO = np.uint8(7), np.int8(-3), np.uint8(128)
W, R = bytes_(2, 3, 16, dtype=np.int8), bytes_(2, 4, 16, dtype=np.int8)
PER_DIRECTION = np.float32([0.01, 0.02]), np.zeros(2, np.int8)
PER_GATE = (
    np.float32(RNG.uniform(0.005, 0.02, (2, 16))),
    np.zeros((2, 16), np.int8),
)
AB = (bytes_(3, 8), scale(), ZERO, bytes_(8, 4, dtype=np.int8), scale(0.02), np.int8(3))
C = RNG.integers(-99, 99, 4, np.int32)
QKV = bytes_(2, 3, 5), bytes_(5, 18, dtype=np.int8), normal(18)
QKV_SCALES = scale(0.02), np.float32(RNG.uniform(0.005, 0.02, 18))
NBITS = {"K": 40, "N": 6, "block_size": 16}

# Operator, inputs (None: absent), attributes, and the number of outputs if it is not 1.
CASES = [
    ("QLinearAdd", (U, scale(), U7, U2, scale(0.02), ZERO, scale(0.06), U7), {}),
    ("QLinearAdd", (S, scale(), S3, S2, scale(0.02), S3, scale(0.0593), S3), {}),
    ("QLinearMul", (U, scale(), U7, U2, scale(0.02), ZERO, scale(0.06), U7), {}),
    ("QLinearSigmoid", (U, scale(), ZERO, scale(1 / 256), np.uint8(0)), {}),
    ("QLinearSigmoid", (S, scale(), S3, scale(1 / 128), S3), {}),
    ("QLinearLeakyRelu", (U, scale(), ZERO, scale(0.03), U7), {"alpha": 0.2}),
    ("QLinearSoftmax", (U, scale(), ZERO, scale(1 / 256), np.uint8(0)), {"axis": 1, "opset": 13}),
    ("QLinearSoftmax", (U, scale(), ZERO, scale(1 / 256), np.uint8(0)), {"axis": 2, "opset": 12}),
    ("QLinearWhere", (U > 99, U, scale(), U7, U2, scale(0.02), ZERO, scale(0.06), U7), {}),
    ("QLinearConcat", (scale(0.06), U7, U, scale(), U7, U, scale(0.02), ZERO), {"axis": 1}),
    ("QLinearAveragePool", (U, scale(), U7, scale(0.04), ZERO),
     {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    ("QLinearAveragePool", (U, scale(), U7, scale(0.04), ZERO),
     {"kernel_shape": [2, 2], "channels_last": 1, "count_include_pad": 1, "pads": [1, 1, 1, 1]}),
    ("QLinearGlobalAveragePool", (U, scale(), U7, scale(0.04), ZERO), {}),
    ("QLinearGlobalAveragePool", (U, scale(), U7, scale(0.04), ZERO), {"channels_last": 1}),
    ("QGemm", (*AB, C, scale(0.3), U7), {"alpha": 0.5}),
    ("QGemm", (AB[0].T.copy(), *AB[1:3], AB[3].T.copy(), np.float32([.01, .02, .03, .04]),
               np.int8([1, 2, 3, 4]), C), {"transA": 1, "transB": 1}),
    ("MatMulIntegerToFloat", (AB[0], AB[3], AB[1], AB[4], AB[2], AB[5], normal(4)), {}),
    ("DynamicQuantizeMatMul", (normal(3, 8), AB[3], AB[4], AB[5], normal(4)), {}),
    ("MatMulNBits", (normal(2, 5, 40), bytes_(6, 3, 8), normal(18)), {**NBITS, "bits": 4}),
    ("MatMulNBits", (normal(5, 40), bytes_(6, 3, 8), normal(18), bytes_(12)),
     {**NBITS, "bits": 4}),
    ("QuantizeLinear", (normal(2, 3), scale(), np.uint16(300)), {}),
    ("DequantizeLinear", (S, np.float32([.1, .2, .3]), np.int8([1, 2, 3])), {"axis": 1}),
    ("DynamicQuantizeLSTM", (normal(5, 2, 3), W, R, normal(2, 32), None, None, None, None,
     *PER_DIRECTION, *PER_DIRECTION), {"hidden_size": 4, "direction": "bidirectional"},
     3),
    ("DynamicQuantizeLSTM", (normal(5, 2, 3), W[:1], R[:1], None, np.int32([5, 5]),
     normal(1, 2, 4), normal(1, 2, 4), normal(1, 12), *(v[:1] for v in PER_GATE * 2)),
     {"hidden_size": 4, "clip": 2.0}, 3),
    ("DynamicQuantizeLSTM", (normal(6, 5, 3) * np.arange(1, 7, dtype=np.float32)[:, None, None],
     W, R, normal(2, 32), np.int32([5, 2, 4, 1, 3]), normal(2, 5, 4), normal(2, 5, 4), None,
     *PER_DIRECTION, *PER_DIRECTION), {"hidden_size": 4, "direction": "bidirectional"}, 3),
    ("DynamicQuantizeLSTM", (normal(6, 2, 3), W[:1], R[:1], None, np.int32([2, 6]), None, None,
     None, *(v[:1] for v in PER_GATE * 2)), {"hidden_size": 4, "direction": "reverse"}, 3),
    ("QAttention", (*QKV, *QKV_SCALES), {"num_heads": 2}),
    ("QAttention", (*QKV, scale(0.02), scale(0.01), np.int32([2, 4, 0, 1]), ZERO, np.int8(3),
     normal(2, 2, 2, 1, 3)), {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, 2),
    ("QAttention", (*QKV, *QKV_SCALES, np.int32([1, 3]), ZERO, bytes_(18, dtype=np.int8)),
     {"num_heads": 3, "mask_filter_value": -2.0}, 2),
    ("QAttention", (*QKV, *QKV_SCALES, np.int32([[0, 1, 1], [1, 1, 0]])), {"num_heads": 1}),
    ("QAttention", (*QKV, *QKV_SCALES, RNG.integers(0, 2, (2, 3, 3), np.int32)), {"num_heads": 1}),
]  # fmt: skip
WIDE, ROW = normal(2, 3, 6), normal(6)
HEADS = normal(2, 3, 6), normal(2, 4, 6)
PADDING = np.int32([[0, 1, 1, 1], [1, 1, 0, 1]])
EMBED = (
    np.int32([[1, 0, 4], [2, 2, 3]]),
    np.int32([[0, 1, 1], [0, 0, 1]]),
    normal(5, 6),
    normal(4, 6),
    normal(2, 6),
    ROW,
    normal(6),
)
IMAGE = normal(2, 4, 5, 6), normal(6, 2, 3, 2), normal(6)
FUSED = [
    ("Gelu", (WIDE,), {}),
    ("BiasGelu", (WIDE, ROW), {}),
    ("FastGelu", (WIDE,), {}),
    ("FastGelu", (WIDE, ROW), {}),
    ("QuickGelu", (WIDE,), {}),
    ("QuickGelu", (WIDE,), {"alpha": 0.7}),
    ("SkipLayerNormalization", (WIDE, normal(2, 3, 6), ROW, normal(6)), {}),
    ("SkipLayerNormalization", (WIDE, normal(1, 3, 6), ROW, None, normal(6)), {"epsilon": 0.1}),
    ("SkipSimplifiedLayerNormalization", (WIDE, normal(2, 3, 6), ROW, normal(6)), {}),
    ("EmbedLayerNormalization", (*EMBED, np.int32([[1, 1, 0], [1, 0, 0]])), {}, 2),
    ("EmbedLayerNormalization", (EMBED[0], None, *EMBED[2:4], None, *EMBED[5:], None,
                                 np.int32([[2, 0, 1]])), {"epsilon": 0.1}, 2),
    ("FusedMatMul", (normal(2, 4, 3), normal(2, 5, 4)), {"alpha": 0.3, "transA": 1, "transB": 1}),
    ("FusedMatMul", (normal(4, 2, 3), normal(2, 3, 5)), {"transBatchA": 1}),
    ("FusedMatMul", (normal(4, 2, 3), normal(4, 2, 5)),
     {"transA": 1, "transBatchA": 1, "transBatchB": 1}),
    ("FusedGemm", (normal(3, 4), normal(5, 4), normal(5)),
     {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5, "transB": 1}),
    ("FusedConv", (*IMAGE, normal(2, 6, 3, 5)), {"activation": "Relu", "group": 2}),
    ("FusedConv", IMAGE, {"activation": "Clip", "activation_params": [-0.5, 0.4], "group": 2}),
    ("FusedGemm", (normal(3, 4), normal(4, 5)), {"activation": "Softplus"}),
    ("FusedConv", IMAGE, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4],
                          "group": 2, "pads": [1, 0, 0, 1], "strides": [2, 1]}),
    ("Attention", (WIDE, normal(6, 18), normal(18)), {"num_heads": 2}),
    ("Attention", (WIDE, normal(6, 18), normal(18), np.int32([2, 4, 0, 1]), normal(2, 2, 2, 1, 3)),
     {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, 2),
    ("Attention", (WIDE, normal(6, 18), normal(18), None, None, normal(2, 1, 3, 3)),
     {"num_heads": 2}),
    ("Attention", (WIDE, normal(6, 16), normal(16), np.int32([[0, 1, 1], [1, 1, 0]])),
     {"num_heads": 2, "qkv_hidden_sizes": [4, 4, 8], "mask_filter_value": -2.0}),
    ("MultiHeadAttention", (HEADS[0], HEADS[1], normal(2, 4, 8), normal(20), PADDING),
     {"num_heads": 2}),
    ("MultiHeadAttention", (HEADS[0], HEADS[1], normal(2, 4, 6), None, None, normal(1, 2, 3, 4)),
     {"num_heads": 2, "scale": 0.4}),
    ("MultiHeadAttention", (HEADS[0], normal(2, 2, 4, 3), normal(2, 2, 4, 3)), {"num_heads": 2}),
    ("MultiHeadAttention", (*[normal(2, 3, 6)] * 3, normal(18), None, None,
                            normal(2, 2, 1, 3), normal(2, 2, 1, 3)),
     {"num_heads": 2, "unidirectional": 1}, 3),
    ("MultiHeadAttention", (*[np.float16(normal(2, 4, 6))] * 3, None, PADDING), {"num_heads": 2}),
    ("SkipLayerNormalization", (np.float16(WIDE * 500), np.float16(WIDE), np.float16(ROW)), {}, 4),
]  # fmt: skip
CONSTANT = {
    "DynamicQuantizeLSTM": (1, 2, 8, 9, 10, 11),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulNBits": (1, 2, 3),
    "QAttention": (1, 3, 4, 6, 7),
    "QGemm": (4, 5),
}
ALL = [*CASES, *FUSED]


@pytest.mark.parametrize("case", ALL, ids=[f"{c[0]}-{i}" for i, c in enumerate(ALL)])
def test_onnxruntime_agrees(case, built, onnxruntime):
    operator, inputs, attributes, outputs = (*case, 1)[:4]
    held = CONSTANT.get(operator, ())
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    arrays = {name: np.asarray(v) for name, v in zip(names, inputs, strict=True) if name}
    weights = {names[i]: arrays.pop(names[i]) for i in held if i < len(names)}
    made = node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    made.domain = "com.microsoft"
    infos = {name: (value.dtype.name, value.shape) for name, value in arrays.items()}
    proto = built([made], infos, list(made.output), weights, domains=["com.microsoft"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several threads quantise parts of a batch separately
    # By default it saturates products of int8 on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    expected = session.run(None, arrays)
    model = importer.load(proto)
    assert not model.variables["params"]
    found = model(*arrays.values())
    for one, other in zip(found if outputs > 1 else (found,), expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        whole = other.dtype.kind in "iu"  # ONNX Runtime multiplies by reciprocals
        difference = np.abs(np.asarray(one, np.float64) - other)
        near = 2e-5 if other.dtype == np.float32 else 2e-3
        assert difference.max() <= (1 if whole else near * max(1, np.abs(other).max()))
        assert not whole or (difference > 0).mean() < 0.05


EVERY, HALF = np.arange(256, dtype=np.uint8), np.float32(0.5)
ONE, NINE = np.float32(1), np.uint8(9)
TIES = [
    ("QLinearAdd", (EVERY, HALF, U7, NINE, HALF, U7, ONE, U7), (np.arange(256) - 7) / 2 + 8, {}),
    ("QLinearMul", (EVERY, HALF, U7, NINE, HALF, U7, ONE, U7), (np.arange(256) - 7) / 2 + 7, {}),
    ("QLinearAveragePool", (EVERY[None, None], HALF, U7, HALF, U7), np.arange(255)[None, None] + .5,
     {"kernel_shape": (2,)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "inputs", "exact", "attributes"), TIES, ids=lambda v: str(v)[:9]
)
def test_halves_are_rounded_with_their_zero_point_as_onnxruntime_does(
    operator, inputs, exact, attributes
):
    function = getattr(microsoft, re.sub("(?<=[a-z])(?=[A-Z])", "_", operator).lower())
    found = function(*inputs, **attributes)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.clip(np.rint(exact), 0, 255))


def test_an_attention_says_what_it_lacks():
    with pytest.raises(ValueError, match="do_rotary: got 1, wanted 0"):
        fused_attention.qattention(*QKV, *QKV_SCALES, num_heads=1, do_rotary=1)
    with pytest.raises(ValueError, match=r"mask_index: got shape \(3,\), wanted \(2,\)"):
        fused_attention.qattention(*QKV, *QKV_SCALES, np.int32([1, 2, 3]), num_heads=1)


def test_unknown_forms_of_fused_operators_are_named():
    with pytest.raises(ValueError, match="do_rotary: got 1"):
        fused_attention.packed_attention(WIDE, normal(6, 18), num_heads=2, do_rotary=1)
    with pytest.raises(ValueError, match="activation: got 'Softmax', wanted one of Relu"):
        fused.fused_gemm(normal(2, 3), normal(3, 2), activation="Softmax")
    with pytest.raises(ValueError, match=r"query, key: got .*\(2, 3, 2, 3, 4\).* not implemented"):
        fused_attention.multi_head_attention(normal(2, 3, 2, 3, 4), num_heads=2)
    with pytest.raises(ValueError, match="unidirectional: got 3 queries and 4 new keys"):
        fused_attention.multi_head_attention(*HEADS, HEADS[1], num_heads=2, unidirectional=1)
    with pytest.raises(ValueError, match="value: got none"):
        fused_attention.multi_head_attention(*HEADS, num_heads=2)
