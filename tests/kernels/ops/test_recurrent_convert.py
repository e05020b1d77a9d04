"""Converted weights of flax, torch and ONNX give the same results there and here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxatr.kernels import gru, lstm, recurrent, rnn

FLAX = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell, "tanh": nn.SimpleCell}


def draw(shape, seed=0):
    return np.float32(np.random.default_rng(seed).standard_normal(shape))


def run(cell, params, x, **options):
    """Returns the outputs of one jitted program, which compiles faster than single operations."""
    return jax.jit(lambda params, x: outputs(cell, params, x, **options))(params, x)


def outputs(cell, params, x, **options):
    if cell == "lstm":
        return lstm(params, x, **options)[0]
    if cell == "gru":
        return gru(params, x, **options)[0]
    return rnn(params, x, activation=cell, **options)[0]


def same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), tree, other)


@pytest.mark.slow
@pytest.mark.parametrize("cell", FLAX)
def test_flax(cell):
    module, x = nn.RNN(FLAX[cell](features=4)), draw((2, 5, 3))
    variables = jax.jit(module.init)(jax.random.key(0), x)
    variables = jax.tree.map(lambda a: np.asarray(a) + draw(a.shape, a.size) / 8, variables)
    (tree,) = variables["params"].values()
    weights = recurrent.from_flax(cell, tree)
    ours = run(cell, ((weights,),), jnp.asarray(x))
    np.testing.assert_allclose(ours, jax.jit(module.apply)(variables, x), atol=1e-5)
    same(recurrent.to_flax(cell, weights), tree)


def test_flax_without_a_part(unchecked):
    with pytest.raises(ValueError, match=r"params: no \['hf'.*wanted the parameters of flax's"):
        recurrent.from_flax("lstm", {"ii": {}, "if": {}, "ig": {}, "io": {}, "hi": {}})
    weights = recurrent.init(jax.random.key(0), "tanh", 3, 3, skip=True)[0][0]
    with pytest.raises(ValueError, match="flax's cells have an input matrix"):
        recurrent.to_flax("tanh", weights)
    with pytest.raises(ValueError, match="cell: got 'elman'"):
        recurrent.to_flax("elman", weights)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", ["lstm", "gru", "relu"])
def test_torch(cell, bias):
    torch = pytest.importorskip("torch")
    options = {"num_layers": 2, "bidirectional": True, "bias": bias, "batch_first": True}
    if cell == "relu":
        module = torch.nn.RNN(3, 4, nonlinearity="relu", **options)
    else:
        module = getattr(torch.nn, cell.upper())(3, 4, **options)
    state = {name: array.numpy() for name, array in module.state_dict().items()}
    params, x, lengths = recurrent.from_torch(cell, state), draw((3, 5, 3)), [2, 5, 4]
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.from_numpy(x), lengths, batch_first=True, enforce_sorted=False
    )
    with torch.no_grad():
        theirs, _ = torch.nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)
    ours = run(cell, params, jnp.asarray(x), lengths=jnp.asarray(lengths))
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)
    back = recurrent.to_torch(cell, params)
    assert {k: v.shape for k, v in back.items()} == {k: v.shape for k, v in state.items()}
    same(recurrent.from_torch(cell, back), params)


def test_torch_refuses(unchecked):
    weight = np.zeros((8, 2))
    with pytest.raises(ValueError, match="state: no 'weight_ih_l0'"):
        recurrent.from_torch("lstm", {"weight": weight})
    with pytest.raises(ValueError, match="a projected state is not supported"):
        recurrent.from_torch("lstm", {"weight_ih_l0": weight, "weight_hr_l0": weight})


@pytest.mark.parametrize(
    ("cell", "attributes"),
    [("lstm", {}), ("gru", {}), ("gru", {"linear_before_reset": 1}), ("tanh", {})],
)
def test_onnx(cell, attributes):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rows = {"lstm": 16, "gru": 12, "tanh": 4}[cell]
    w, r, b = draw((2, rows, 3)), draw((2, rows, 4), 1), draw((2, 2 * rows), 2)
    x, lengths = draw((5, 2, 3), 3), np.int32([5, 3])
    operator = "RNN" if cell == "tanh" else cell.upper()
    node = onnx.helper.make_node(
        operator,
        ["x", "w", "r", "b", "lengths"],
        ["y"],
        hidden_size=4,
        direction="bidirectional",
        **attributes,
    )
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [
            onnx.helper.make_tensor_value_info("x", 1, x.shape),
            onnx.helper.make_tensor_value_info("lengths", 6, lengths.shape),
        ],
        [onnx.helper.make_tensor_value_info("y", 1, (5, 2, 2, 4))],
        [onnx.numpy_helper.from_array(a, name) for a, name in ((w, "w"), (r, "r"), (b, "b"))],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, {"x": x, "lengths": lengths})
    layer = recurrent.from_onnx(cell, w, r, b)
    options = {"reset": "after" if attributes else "before"} if cell == "gru" else {}
    x = jnp.asarray(x.swapaxes(0, 1))
    ours = run(cell, (layer,), x, lengths=tuple(lengths.tolist()), **options)
    np.testing.assert_allclose(ours, theirs.transpose(2, 0, 1, 3).reshape(2, 5, 8), atol=1e-5)
    back = recurrent.to_onnx(cell, layer)
    np.testing.assert_array_equal(back[0], w)
    np.testing.assert_array_equal(back[1], r)
    same(recurrent.from_onnx(cell, *back), layer)
    assert recurrent.to_onnx(cell, tuple(one._replace(b=None, rb=None) for one in layer))[2] is None
