"""Operators with attributes that ONNX's suite lacks, against onnxruntime, with and without jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx import ops

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
RNG = np.random.default_rng(0)
ML = "ai.onnx.ml"


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


IMAGE, VOLUME, VOICE = normal(2, 4, 9, 8), normal(2, 4, 5, 6, 7), normal(2, 4, 11)
KERNEL = normal(6, 2, 3, 3)
SERIES = normal(5, 2, 3)
GATES = normal(2, 16, 3), normal(2, 16, 4), normal(2, 32)
LENGTHS = np.array([5, 2], np.int32)
BYTES, SIGNED = (
    RNG.integers(0, 255, (1, 4, 6, 6), np.uint8),
    RNG.integers(-9, 9, (6, 4, 3, 3), np.int8),
)

SQUARE = np.arange(225, dtype=np.float32).reshape(1, 1, 15, 15)
# Regions of 1 to 15 pixels, of which each begins at the largest number below a half.
REGIONS = np.float32([[0, 0.49999997, 0.49999997, n, n] for n in range(15)])

# Operator, inputs (None: absent), attributes, and the number of outputs if it is not 1.
CASES = [
    ("Conv", (IMAGE, KERNEL, normal(6)),
     {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 1], "dilations": [1, 1]}),
    ("Conv", (VOICE, normal(3, 4, 4)), {"pads": [2, 0], "strides": [3]}),
    ("Conv", (VOLUME, normal(2, 4, 2, 1, 3)), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ("ConvTranspose", (IMAGE, normal(4, 3, 3, 2), normal(6)),
     {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
    ("ConvTranspose", (VOICE, normal(4, 2, 3)), {"dilations": [2], "strides": [2]}),
    ("MaxPool", (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 0, 1],
                           "ceil_mode": 1, "dilations": [2, 1]}),
    ("MaxPool", (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
    ("MaxPool", (VOLUME,), {"kernel_shape": [2, 3, 2]}),
    ("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0],
                               "ceil_mode": 1, "count_include_pad": 1}),
    ("AveragePool", (VOICE,), {"kernel_shape": [4], "auto_pad": "SAME_UPPER", "strides": [3]}),
    ("LpPool", (IMAGE,), {"kernel_shape": [2, 2], "p": 3}),
    ("GlobalLpPool", (IMAGE,), {"p": 2}),
    ("LRN", (IMAGE,), {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    ("LpNormalization", (IMAGE,), {"p": 1, "axis": 1}),
    ("MeanVarianceNormalization", (IMAGE,), {"axes": [1, 3]}),
    ("LSTM", (SERIES, *GATES, LENGTHS, normal(2, 2, 4), normal(2, 2, 4), normal(2, 12)),
     {"hidden_size": 4, "direction": "bidirectional", "clip": 0.5}, 3),
    ("LSTM", (SERIES, *(g[:1] for g in GATES)), {"hidden_size": 4, "direction": "reverse",
     "activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.3],
     "activation_beta": [0.4]}, 3),
    ("GRU", (SERIES, GATES[0][:, :12], GATES[1][:, :12], GATES[2][:, :24], LENGTHS),
     {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1}, 2),
    ("RNN", (SERIES, GATES[0][:, :4], GATES[1][:, :4], GATES[2][:, :8]),
     {"hidden_size": 4, "direction": "bidirectional", "activations": ["Relu", "Tanh"]}, 2),
    ("QLinearConv", (BYTES, np.float32(0.1), np.uint8(7), SIGNED, np.float32(0.2 + RNG.random(6)),
                     np.zeros(6, np.int8), np.float32(0.5), np.uint8(90)), {"pads": [1, 1, 1, 1]}),
    ("MatMulInteger", (BYTES[0, 0], BYTES[0, 1], np.uint8(3), np.uint8(200)), {}),
    ("TopK", (IMAGE, np.array([3], np.int64)), {"axis": 1, "largest": 0}, 2),
    ("CumSum", (IMAGE, np.int64(-1)), {"exclusive": 1, "reverse": 1}),
    ("Gemm", (normal(3, 4), normal(5, 3), normal(5)),
     {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Einsum", (normal(3, 4, 5), normal(4, 3)), {"equation": "ijk, jm -> km"}),
    ("ScatterElements", (IMAGE, np.zeros((1, 2, 9, 8), np.int64), normal(1, 2, 9, 8)),
     {"axis": 1, "reduction": "add"}),
    ("ConvTranspose", (normal(1, 2, 3, 3), normal(2, 1, 3, 3)),
     {"strides": [3, 2], "output_shape": [11, 6]}),
    ("Scaler", (normal(3, 2),), {"offset": [1.0, 2.0], "scale": [0.5, 3.0]}),
    ("Normalizer", (normal(3, 4),), {"norm": "L1"}),
    ("Normalizer", (normal(3, 4),), {"norm": "L2"}),
    ("Imputer", (np.float32([[1, 7], [7, 2]]),),
     {"imputed_value_floats": [3.0, 4.0], "replaced_value_float": 7.0}),
    ("FeatureVectorizer", (normal(3, 2), normal(3, 1)), {"inputdimensions": [2, 1]}),
    ("FeatureVectorizer", (normal(3, 2), normal(3, 3)), {"inputdimensions": [4, 1]}),
    ("OneHotEncoder", (np.array([3, 1, 9], np.int64),), {"cats_int64s": [1, 3, 5]}),
    ("OneHotEncoder", (np.float32([3.7, 1.0, 9.0]),), {"cats_int64s": [1, 3, 5]}),
    ("MaxRoiPool", (normal(1, 2, 6, 6), np.float32([[0, 8, 24, 40, 56], [0, 0, 8, 8, 8]])),
     {"pooled_shape": [2, 2], "spatial_scale": 1 / 16}),
    ("MaxRoiPool", (SQUARE, REGIONS), {"pooled_shape": [7, 6]}),
    ("DynamicQuantizeLinear", (normal(3, 4),), {}, 3),
    ("DynamicQuantizeLinear", (np.zeros(3, np.float32),), {}, 3),
    ("LinearRegressor", (normal(3, 2),),
     {"coefficients": [1.0, 2.0, 3.0, -1.0], "intercepts": [0.5, -0.5], "targets": 2}),
    ("LinearClassifier", (normal(5, 2),),
     {"classlabels_ints": [4, 8, 6], "coefficients": [1.0, 2.0, 3.0, -1.0, 0.0, 1.0],
       "intercepts": [0.5, -0.5, 0.1], "post_transform": "SOFTMAX"}, 2),
    ("GridSample", (np.full((1, 1, 2, 2), np.inf, np.float32), np.float32([[[[-3, 0], [0, 4]]]])),
     {"mode": "nearest"}),  # both outside
    ("GridSample", (IMAGE, np.float32(RNG.uniform(-1.2, 1.2, (2, 3, 5, 2)))),
     {"mode": "bilinear", "padding_mode": "reflection"}),
    ("NegativeLogLikelihoodLoss", (np.log(np.float32(RNG.uniform(0.1, 1, (3, 4, 5)))),
     RNG.integers(0, 4, (3, 5)), np.float32(RNG.uniform(0.5, 2, 4))), {"ignore_index": 2}),
    ("SoftmaxCrossEntropyLoss", (normal(3, 4, 5), RNG.integers(0, 4, (3, 5))),
     {"reduction": "none"}, 2),
    ("Attention", (normal(2, 3, 16), normal(2, 5, 8), normal(2, 5, 8)),
     {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1, "softcap": 2.0}),
    ("Div", (np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])), {}),
    ("Resize", (normal(1, 1, 3, 4), None, None, np.array([1, 1, 1, 1])),
     {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    # Batches of no examples.
    ("Softmax", (normal(0, 5),), {}),
    ("SpaceToDepth", (normal(0, 2, 4, 4),), {"blocksize": 2}),
    ("CumSum", (normal(0, 4), np.int64(0)), {"exclusive": 1}),
    ("MaxPool", (normal(0, 1, 5, 5),), {"kernel_shape": [2, 2]}, 2),
    ("Resize", (normal(0, 1, 2, 4), None, None, np.array([0, 1, 4, 8])), {"mode": "linear"}),
]  # fmt: skip
OPSET = {"Attention": 23, "Softmax": 11}  # 18 for the others
STATIC = {"CumSum": (1,), "Resize": (3,), "TopK": (1,)}
NAMES = [f"{case[0]}-{i}" for i, case in enumerate(CASES)]


def model_of(operator, inputs, attributes, outputs):
    domain = ML if onnx.defs.has(operator, ML) else ""
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    infos = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
        )
        for n, v in zip(names, inputs, strict=True)
        if n and int(n[1:]) not in STATIC.get(operator, ())
    ]
    weights = [
        onnx.numpy_helper.from_array(np.asarray(inputs[i]), f"x{i}")
        for i in STATIC.get(operator, ())
    ]
    ys = [f"y{i}" for i in range(outputs)]
    results = [onnx.helper.make_value_info(y, onnx.TypeProto()) for y in ys]
    made = node(operator, names, ys, domain=domain, **attributes)
    graph = onnx.helper.make_graph([made], "one", infos, results, weights)
    versions = [
        onnx.helper.make_opsetid("", OPSET.get(operator, 18)),
        onnx.helper.make_opsetid(ML, 3),
    ]
    return onnx.helper.make_model(graph, opset_imports=versions, ir_version=8)


@pytest.mark.parametrize("jit", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_onnxruntime_agrees(case, jit, onnxruntime):
    operator, inputs, attributes, outputs = (*case, 1)[:4]
    arrays = [None if v is None else np.asarray(v) for v in inputs]
    proto = model_of(operator, arrays, attributes, outputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    given = [np.asarray(inputs[int(i.name[1:])]) for i in session.get_inputs()]
    expected = session.run(
        None, {i.name: v for i, v in zip(session.get_inputs(), given, strict=True)}
    )
    model = importer.load(proto)
    got = (jax.jit(model.apply) if jit else model.apply)(model.variables, *given)
    got = got if outputs > 1 else (got,)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_a_kernel_shorter_than_its_stride_is_filled_at_the_end(auto_pad):
    x, w = jnp.arange(1.0, 4).reshape(1, 1, 3), jnp.ones((1, 1, 1))
    y = ops.conv_transpose(x, w, strides=(2,), auto_pad=auto_pad)
    assert y.ravel().tolist() == [1, 0, 2, 0, 3, 0]


def test_quantisation_divides_exactly():
    """-2.5 / (5 / 255) is -127.49999 in float32, but -127.5 by the reciprocal, which rounds off."""
    scale, zero = np.float32(5) / np.float32(255), np.uint8(153)
    x = np.float32([-2.5, 2.0])
    wanted = np.rint(x / scale) + zero
    assert (
        jax.jit(importer.ops.quantize_linear)(x, scale, zero).tolist()
        == wanted.tolist()
        == [26, 255]
    )


@pytest.mark.parametrize("divisor", [7, 41, 47, 255])
@pytest.mark.parametrize("eager", [False, True])
def test_multiples_of_a_whole_number_have_whole_quotients(divisor, eager):
    """41 times the reciprocal of 41 is 0.99999994 in float32, whose floor is 0."""
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [30])
    nodes = [node("Div", ["x", "c"], ["q"]), node("Floor", ["q"], ["y"])]
    result = onnx.helper.make_empty_tensor_value_info("y")
    constant = onnx.numpy_helper.from_array(np.float32(divisor), "c")
    graph = onnx.helper.make_graph(nodes, "one", [info], [result], [constant])
    model = importer.load(onnx.helper.make_model(graph))
    quotients = np.arange(30, dtype=np.float32)
    np.testing.assert_array_equal(model(quotients * divisor, eager=eager), quotients)


@pytest.mark.parametrize("saturate", [0, 1])
def test_numbers_beyond_an_exponent_type(saturate):
    x = np.float32([np.inf, 3.4e38, 2.0, np.nan])
    made = importer.ops.cast(x, to="float8_e8m0fnu", saturate=saturate).astype("float32")
    beyond = 2.0**127 if saturate else np.nan
    np.testing.assert_array_equal(made, np.float32([beyond, beyond, 2, np.nan]))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_an_axis_of_no_elements_splits_into_no_pieces(keepdims):
    assert importer.ops.split_to_sequence(np.zeros((0, 2)), keepdims=keepdims) == []
    pieces = importer.ops.split_to_sequence(np.ones((5, 2)), np.array(2))
    assert [piece.shape for piece in pieces] == [(2, 2), (2, 2), (1, 2)]


@pytest.mark.parametrize(
    ("operator", "shape", "more", "attributes"),
    [
        ("lstm", (3, 0, 2), (np.ones((1, 8, 2)), np.ones((1, 8, 2))), {}),
        ("group_normalization", (0, 4, 3), (np.ones(4), np.ones(4)), {"num_groups": 2}),
        ("batch_normalization", (0, 2, 3), (np.ones((2, 3)),) * 4, {"spatial": 0}),
        ("deform_conv", (0, 1, 4, 4), (np.ones((1, 1, 2, 2)), np.ones((0, 8, 3, 3))), {}),
        ("feature_vectorizer", (0, 4), (), {}),
        ("attention", (0, 3, 8), (np.ones((0, 5, 8)),) * 2, {"q_num_heads": 2, "kv_num_heads": 2}),
    ],
)
def test_batches_of_no_examples_that_onnxruntime_refuses(operator, shape, more, attributes):
    given = [np.float32(v) for v in (np.ones(shape), *more)]
    made = getattr(importer.ops, operator)(*given, **attributes)
    wanted = {"lstm": (3, 1, 0, 2), "deform_conv": (0, 1, 3, 3)}.get(operator, shape)
    assert made.shape == wanted


def test_trees_of_no_rows():
    one, two = (0,), (1, 2)
    made = importer.ops.tree_ensemble_regressor(
        np.ones((0, 3), np.float32),
        nodes_falsenodeids=(2, 0, 0),
        nodes_featureids=one * 3,
        nodes_modes=("BRANCH_LEQ", "LEAF", "LEAF"),
        nodes_nodeids=(0, 1, 2),
        nodes_treeids=one * 3,
        nodes_truenodeids=(1, 0, 0),
        nodes_values=(0.5, 0.0, 0.0),
        target_ids=one * 2,
        target_nodeids=two,
        target_treeids=one * 2,
        target_weights=(1.0, 2.0),
    )
    assert made.shape == (0, 1)


def test_integers_to_a_float_power_are_exact():
    with importer.ops.wide():
        made = importer.ops.power(jnp.int32(5001), np.float32(2))
    assert made == 5001**2 and made.dtype == np.int32  # no float32


def test_sizes_of_an_empty_axis():
    with pytest.raises(ValueError, match="sizes: got .* one of them empty"):
        importer.ops.resize(np.zeros((1, 1, 0), np.float32), sizes=(1, 1, 4))


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_the_nonzero_elements_of_a_scalar(value):
    made = importer.ops.nonzero(np.float32(value))
    assert made.shape == (0, int(value != 0)) and made.dtype == np.int64


FLOOR = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@pytest.mark.parametrize(
    ("length", "scale", "settings", "pixels"),
    [  # those of PyTorch and ONNX Runtime; 0.7 as a float32 is a little less than 0.7
        (10, 0.7, FLOOR, [0, 1, 2, 4, 5, 7, 8]),
        (5, 1.4, FLOOR, [0, 0, 1, 2, 2, 3, 4]),
        (5, 1.8, FLOOR, [0, 0, 1, 1, 2, 2, 3, 3, 4]),
        (4, 4 / 3, FLOOR, [0, 0, 1, 2, 3]),
        (6, 0.7, {}, [0, 2, 3, 4]),
    ],
)
def test_scales_are_float32(length, scale, settings, pixels):
    made = importer.ops.resize(np.arange(length), None, np.float32([scale]), **settings)
    assert made.tolist() == pixels


def test_an_empty_auto_pad_is_none_at_all():
    made = importer.ops.conv(VOICE, np.ones((1, 4, 3), np.float32), auto_pad="", pads=(1, 1))
    assert made.shape == (2, 1, 11)


@pytest.mark.parametrize("operator", ["conv", "conv_transpose", "conv_integer"])
def test_padding_is_given_once_and_a_kernel_has_its_shape(operator):
    x, w = np.ones((1, 1, 4), np.uint8), np.ones((1, 1, 3), np.uint8)
    function = getattr(importer.ops, operator)
    if operator != "conv_integer":
        x, w = x.astype(np.float32), w.astype(np.float32)
    alone, beside = ({"auto_pad": "VALID", "pads": pads} for pads in ((0, 0), (1, 0)))
    assert function(x, w, **alone).tolist() == function(x, w).tolist()
    with pytest.raises(ValueError, match=r"pads: got \(1, 0\) beside auto_pad='VALID'"):
        function(x, w, **beside)
    with pytest.raises(ValueError, match="auto_pad: got 'SAME'"):
        function(x, w, auto_pad="SAME")
    with pytest.raises(ValueError, match="kernel_shape: got"):
        function(x, w, kernel_shape=(2,))


@pytest.mark.parametrize(
    ("bounds", "count"), [((0.3, 1.5, 0.2), 6), ((1.8, 6.0, 0.7), 7), ((0.2, 1.2, 0.2), 6)]
)
def test_a_range_of_floats_has_the_length_that_onnxruntime_gives(bounds, count):
    made = importer.ops.range_(*(np.asarray(v, np.float32) for v in bounds))
    assert made.size == count


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
def test_products_of_bytes_are_exact_however_long(left, right):
    a = RNG.choice(np.array([0, 255], "uint8"), (3, 2500)).view(left)  # 0 and the largest, or −1
    b = RNG.integers(0, 256, (2500, 4)).astype("uint8").view(right)
    zeros = np.arange(3, dtype=left), np.arange(100, 104).astype(right)
    centred = a.astype(int) - zeros[0][:, None], b.astype(int) - zeros[1].astype(int)
    np.testing.assert_array_equal(ops.matmul_integer(a, b, *zeros), centred[0] @ centred[1])


def test_strings_are_chosen_by_computed_places():
    """Generated source calls the functions themselves, with places that jax computed."""
    names, places = np.array(["a", "b", "c", "d"], object), jnp.array([2, 0])
    square = names.reshape(2, 2)
    cases = {
        "c a": lambda i: ops.gather(names, i),
        "a c": lambda i: ops.gather_elements(names, i[::-1]),
        "c": lambda i: ops.gather_nd(square, i // jnp.array([2, 1])),
        "a d": lambda i: ops.gather_nd(square, i[::-1, None] // 2, batch_dims=1),
        "yes no": lambda i: ops.where(i > 1, np.array("yes", object), np.array("no", object)),
        "c a d": lambda i: ops.concat(ops.gather(names, i), names[3:], axis=0),
    }
    for wanted, run in cases.items():
        assert " ".join(np.ravel(run(places))) == wanted
        with pytest.raises(ValueError, match=r"strings .* cannot be compiled; .*eager=True"):
            jax.jit(run)(places)


FREE_BATCHES = {
    "Pad": lambda x: ops.pad(x, (0, 1, 0, 0, 1, -1), mode="edge"),
    "Resize": lambda x: ops.resize(x, None, np.float32([1, 1, 1.5]), mode="linear"),
    "Expand": lambda x: ops.expand(x[:, None], (1, 2, 1, 4)),
    "OneHot": lambda x: ops.one_hot(jnp.argmax(x, 1), 3, np.float32([0, 2])),
    "GatherElements": lambda x: ops.gather_elements(x, jnp.argsort(x, 1), axis=1),
    "ScatterElements": lambda x: ops.scatter_elements(
        x, jnp.argsort(x, 1)[:, :2], x[:, 1:], axis=1, reduction="add"
    ),
    "EmbedLayerNormalization": lambda x: ops.embed_layer_normalization(
        jnp.argsort(x[:, 0]), None, x[0], x[1], None, x[2, 0], x[2, 1], outputs=3
    )[0],
    "TensorScatter": lambda x: ops.tensor_scatter(x, x[:, :1]),
    "BatchNormalization": lambda x: ops.batch_normalization(
        x, *[np.ones((3, 4), "float32")] * 4, spatial=0
    ),
    "SVMClassifier": lambda x: ops.svm_classifier(
        x[:, 0],
        classlabels_ints=(0, 1),
        coefficients=(0.5, -0.5),
        prob_a=(-1.0,),
        prob_b=(0.5,),
        rho=(0.1,),
        support_vectors=(1.0,) * 8,
        vectors_per_class=(1, 1),
    )[1],
}


@pytest.mark.parametrize("name", FREE_BATCHES)
def test_a_batch_whose_size_is_free(name):
    """Such a batch has a symbol for its size, as in an export."""
    (size,) = jax.export.symbolic_shape("batch")
    function, x = jax.jit(FREE_BATCHES[name]), normal(5, 3, 4)
    with jax.enable_x64(True):
        free = jax.export.export(function)(jax.ShapeDtypeStruct((size, 3, 4), "float32"))
        np.testing.assert_allclose(free.call(x), function(x), rtol=1e-5)
