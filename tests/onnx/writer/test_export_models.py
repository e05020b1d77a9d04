"""Export of this package's networks: equal outputs, names of weights, no superfluous nodes."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels, models

pytest.importorskip("onnx")

TINY = functools.partial(models.ResNet18, width=8, stage_sizes=(1,), stem="3x3")
SMALL = functools.partial(models.ResNet18, width=8, stage_sizes=(1, 1))


def drawn(module, *inputs, seed=0, **options):
    """Returns random variables of a network, with positive variances."""
    rng = np.random.default_rng(seed)
    init = functools.partial(module.init, **options)
    shapes = jax.eval_shape(init, jax.random.key(0), *map(jnp.asarray, inputs))

    def draw(leaf):
        if leaf.ndim == 1:
            return rng.uniform(0.5, 1.5, leaf.shape).astype(np.float32)
        scale = np.prod(leaf.shape[:-1]) ** -0.5
        return rng.normal(0, scale, leaf.shape).astype(np.float32)

    return jax.tree.map(draw, shapes)


def images(size=32, channels=3, count=3):
    rng = np.random.default_rng(1)
    return rng.normal(size=(count, size, size, channels)).astype(np.float32)


def test_an_open_set_classifier_with_a_large_stem(exported, count):
    network, x = models.OpenSetClassifier(SMALL(), 4), images()
    variables = drawn(network, x)
    model = exported(network, variables, x, apart=True)
    assert [value.name for value in model.graph.input] == ["images"]
    assert [value.name for value in model.graph.output] == ["logits", "open_logits", "features"]
    assert [count(model, op) for op in ("Conv", "BatchNormalization", "MaxPool")] == [6, 6, 1]
    # One transposing of the images, and a heads' two products with their biases.
    assert count(model, "Transpose") == 1 and count(model, "Gemm") == 2
    assert count(model) == 6 + 6 + 5 + 2 + 1 + 1 + 1 + 2
    # Every weight keeps its name.
    expected = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(variables)
    }
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    assert set(expected) <= set(found)
    import onnx

    for name, leaf in expected.items():
        array = onnx.numpy_helper.to_array(found[name])
        if leaf.ndim == 4:  # features first, as ONNX's convolutions want them
            array = array.transpose(2, 3, 1, 0)
        np.testing.assert_array_equal(array, leaf)


def test_a_bottleneck_with_a_small_stem(exported, count):
    backbone = models.ResNet50(width=8, stage_sizes=(1, 1), stem="3x3")
    network, x = models.OpenSetClassifier(backbone, 4, head_bias=False), images(16, 1)
    model = exported(network, drawn(network, x), x, apart=True)
    assert count(model, "Transpose") == 1 and count(model, "MatMul") == 2
    assert count(model) == 9 + 9 + 7 + 2 + 1 + 1 + 2


@pytest.mark.slow
def test_resnet18_has_as_many_nodes_as_torch_would_write(exported, count):
    network, x = models.ResNet18(), images(64)
    model = exported(network, drawn(network, x), x, apart=True)
    # torch's exporter writes 49 nodes with folded batch norm, and 69 without folding. Two of these
    # belong to the classifier, which is missing here, and one here transposes the images.
    assert count(model) == 68
    assert count(model, "Transpose") == 1


def test_an_embedding(exported, count):
    network, x = models.EmbeddingNetwork(TINY(), 2, 4, dimension=8), images(16)
    model = exported(network, drawn(network, x), x, apart=True)
    names = [value.name for value in model.graph.output]
    assert names == ["embeddings", "coarse_logits", "fine_logits"]
    assert count(model, "Gemm") == 3


@pytest.mark.slow
def test_a_surrogate_with_attention_and_decoder(exported, count):
    backbone = models.ResNet18(width=8, attention=models.CBAM, stage_sizes=(1, 1, 1, 1))
    network = models.Surrogate(models.Student(backbone, 4), models.ExplanationNetwork(8))
    x = images(40)
    model = exported(network, drawn(network, x), x, apart=True)
    names = [value.name for value in model.graph.output]
    assert names == ["logits", "saliency", "deltas/0", "deltas/1", "deltas/2"]
    assert [count(model, op) for op in ("Conv", "BatchNormalization")] == [21, 21]


def test_attention(exported, count):
    network, x = models.CBAM(functools.partial(nn.BatchNorm, use_running_average=True)), images(6)
    model = exported(network, drawn(network, x), x, apart=True)
    # Maxima and means of whole maps are no reductions of reshaped ones.
    assert count(model, "Reshape") == 0


def test_a_decoder_of_several_scales(exported):
    decoder, fine, coarse = Decoder(models.ExplanationNetwork(4)), images(4, 6), images(3, 5)
    exported(decoder, drawn(decoder, fine, coarse), fine, coarse, apart=True)


class Decoder(nn.Module):
    explainer: models.ExplanationNetwork

    def __call__(self, fine, coarse):
        return self.explainer((fine, coarse), (9, 9))


def test_a_generator_and_its_discriminator(exported):
    rng = np.random.default_rng(2)
    noise, x = rng.normal(size=(3, 8)).astype(np.float32), images(16, 1)
    mixture = np.eye(4, dtype=np.float32)[:3]
    generator = models.Generator(16, 1, 8)
    model = exported(generator, drawn(generator, noise, mixture), noise, mixture, apart=True)
    assert [value.name for value in model.graph.input] == ["noise", "mixture"]
    discriminator = models.Discriminator(16, 4, 8)
    judge = functools.partial(discriminator.apply, train=False)
    variables = drawn(discriminator, x, mixture, train=False)

    exported(judge, variables, x, mixture, apart=True)


@pytest.mark.parametrize(
    "cell",
    [
        nn.OptimizedLSTMCell,
        pytest.param(nn.LSTMCell, marks=pytest.mark.slow),  # as in both directions, below
        nn.GRUCell,
        nn.SimpleCell,
    ],
)
def test_recurrent_layers(exported, count, cell):
    tracks = np.random.default_rng(3).normal(size=(3, 5, 4)).astype(np.float32)
    for options in ({}, {"reverse": True, "keep_order": True}):
        network = nn.RNN(cell(6), **options)
        model = exported(network, drawn(network, tracks), tracks, apart=True)
        assert count(model, "Scan") == 1


def test_both_directions(exported, count):
    tracks = np.random.default_rng(4).normal(size=(3, 5, 4)).astype(np.float32)
    network = nn.Bidirectional(nn.RNN(nn.LSTMCell(6)), nn.RNN(nn.LSTMCell(6)))
    model = exported(network, drawn(network, tracks), tracks, apart=True)
    assert count(model, "Scan") == 2


def by_track(found):
    """Returns the results of a recurrent network, with tracks as the first axis of states too."""
    outputs, states = found
    return outputs, jax.tree.map(lambda state: state.swapaxes(0, 1), states)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru", "relu", "tanh"])
def test_the_kernels_networks(exported, count, cell):
    key, rng = jax.random.key(0), np.random.default_rng(5)
    params = kernels.recurrent.init(key, cell, 4, 6, layers=2, bidirectional=True)
    params = jax.tree.map(lambda a: a + 0.1 * jax.random.normal(key, a.shape), params)
    tracks = rng.normal(size=(3, 5, 4)).astype(np.float32)
    lengths = np.int32([5, 2, 4])

    def run(variables, tracks, lengths):
        if cell in ("relu", "tanh"):
            found = kernels.rnn(variables, tracks, lengths=lengths, activation=cell)
        else:
            found = getattr(kernels, cell)(variables, tracks, lengths=lengths)
        return by_track(found)

    model = exported(run, params, tracks, lengths, apart=True)
    operator = cell.upper() if cell in ("lstm", "gru") else "RNN"
    assert count(model, operator) == 4 and count(model, "Scan") == 0


def test_a_gated_network_whose_reset_acts_before_the_product(exported, count):
    init = functools.partial(kernels.recurrent.init, cell="gru", inputs=4, hidden=6, bias=False)
    params = jax.jit(init)(jax.random.key(1))
    tracks = np.random.default_rng(6).normal(size=(3, 5, 4)).astype(np.float32)

    def run(variables, tracks):
        return by_track(kernels.gru(variables, tracks, reset="before"))

    assert count(exported(run, params, tracks, apart=True), "GRU") == 1


def test_a_skip_input_has_no_operator(exported, count):
    init = functools.partial(kernels.recurrent.init, cell="lstm", inputs=6, hidden=6, skip=True)
    params = jax.jit(init)(jax.random.key(1))
    tracks = np.random.default_rng(6).normal(size=(3, 5, 6)).astype(np.float32)
    model = exported(lambda v, x: by_track(kernels.lstm(v, x)), params, tracks, apart=True)
    assert count(model, "LSTM") == 0 and count(model, "Scan") == 1


def test_a_function_of_a_network(exported):
    network, x = models.OpenSetClassifier(TINY(), 4), images(16)

    def probabilities(variables, chips):
        out = network.apply(variables, chips / 255)
        return {"closed": jax.nn.softmax(out.logits), "open": jax.nn.sigmoid(out.open_logits)}

    model = exported(probabilities, drawn(network, x), x, apart=True)
    assert [value.name for value in model.graph.input] == ["chips"]
    assert [value.name for value in model.graph.output] == ["closed", "open"]


def test_half_precision(exported):
    network, x = TINY(dtype=jnp.float16), images(16)
    exported(network, drawn(network, x), x, apart=True, atol=2e-2)
