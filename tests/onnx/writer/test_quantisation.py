"""Networks in int8 and float16: what is rounded, how well, and what stays as it is."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr.onnx import export, load  # noqa: E402
from jaxatr.onnx.writer import half_precision, quantisation, sensitivity  # noqa: E402


class Mobile(nn.Module):
    """A stem, an inverted residual with a depthwise convolution, and two heads."""

    @nn.compact
    def __call__(self, images, train=False):
        def unit(x, features, size, groups=1, act=True):
            x = nn.Conv(features, (size, size), feature_group_count=groups, use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train)(x)
            return jnp.clip(x, 0, 6) if act else x

        x = unit(images, 8, 3)
        inner = unit(unit(x, 16, 1), 16, 3, groups=16)
        x = nn.relu(x + unit(inner, 8, 1, act=False))
        features = unit(x, 12, 3).mean((1, 2))
        return nn.Dense(5)(features), nn.Dense(3)(features)


@pytest.fixture(scope="module")
def network():
    module, images = Mobile(), np.zeros((2, 12, 12, 3), np.float32)
    variables = jax.jit(module.init)(jax.random.key(0), images)
    rng = np.random.default_rng(1)
    statistics = {
        name: {
            "mean": np.float32(rng.normal(0, 0.2, norm["mean"].shape)),
            "var": np.float32(rng.uniform(0.3, 1.5, norm["var"].shape)),
        }
        for name, norm in variables["batch_stats"].items()
    }
    variables = {
        **variables,
        "batch_stats": statistics,
        "decision": {"gallery": np.float32(rng.normal(size=(5, 4)))},
    }

    def decided(variables, images):
        own = {name: variables[name] for name in ("params", "batch_stats")}
        logits, other = module.apply(own, images)
        return logits, other, logits @ variables["decision"]["gallery"]

    return decided, variables


@pytest.fixture(scope="module")
def model(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    return export(*network, np.zeros((2, 12, 12, 3), np.float32), path)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(2).normal(size=(24, 12, 12, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def batches(images):
    return [[images[:12]], [images[12:]]]


@pytest.fixture(scope="module")
def observed(model, batches):
    return quantisation.observe(model, batches)


@pytest.fixture(scope="module")
def quantised(model, observed):
    return quantisation.int8(model, observed)


def outputs(model, images):
    loaded = load(model)
    return [np.asarray(one) for one in jax.jit(loaded.apply)(loaded.variables, images)]


def arrays(model):
    return {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}


def test_answers_are_close_and_types_are_kept(network, model, quantised, images):
    function, variables = network
    expected = [np.asarray(one) for one in jax.jit(function)(variables, images)]
    for made, within in ((quantised, 0.06), (half_precision.float16(model), 2e-3)):
        onnx.checker.check_model(made, full_check=True)
        assert [one.type for one in made.graph.output] == [one.type for one in model.graph.output]
        for one, other in zip(outputs(made, images), expected, strict=True):
            assert one.dtype == np.float32
            assert np.abs(one - other).max() < within * np.ptp(other)


def test_the_first_and_the_last_layers_and_the_decision_stay_in_float(model, quantised):
    before, after = arrays(model), arrays(quantised)
    whole = [name for name, one in after.items() if one.dtype == np.int8 and one.ndim > 1]
    assert len(whole) == 4  # of five convolutions
    assert not any("Conv_0" in name for name in whole)
    for name in ("params/Dense_0/kernel", "params/Dense_1/kernel", "decision/gallery"):
        np.testing.assert_array_equal(after[name], before[name])


def test_rounded_weights_are_within_half_a_step_of_the_folded_ones(network, quantised):
    _, variables = network
    stored, params = arrays(quantised), variables["params"]
    name = "params/Conv_2/kernel"  # the depthwise one
    norm, moments = params["BatchNorm_2"], variables["batch_stats"]["BatchNorm_2"]
    factor = np.float64(norm["scale"]) / np.sqrt(np.float64(moments["var"]) + 1e-5)
    expected = np.moveaxis(np.float64(params["Conv_2"]["kernel"]) * factor, (2, 3), (1, 0))
    scales = stored[f"{name}/folded/scale"]
    assert scales.shape == (16,)  # one for each channel
    restored = stored[f"{name}/folded/int8"] * np.float64(scales)[:, None, None, None]
    assert (np.abs(restored - expected) <= 0.5001 * scales[:, None, None, None]).all()
    assert np.abs(stored[f"{name}/folded/int8"]).max(axis=(1, 2, 3)).tolist() == [127] * 16


def test_the_integers_survive_loading(quantised):
    loaded = load(quantised)
    assert not any("/scale" in name for name in loaded.variables["params"])
    held = {name: one for group in loaded.variables.values() for name, one in group.items()}
    held |= loaded.known
    for name, array in arrays(quantised).items():
        if array.dtype == np.int8 and array.ndim > 1:
            np.testing.assert_array_equal(np.asarray(held[name]), array)


def run_by_onnxruntime(model, images, tmp_path):
    """Compares the outputs with JAX's; returns the operators of onnxruntime's optimised graph."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options, path = onnxruntime.SessionOptions(), tmp_path / "optimised.onnx"
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found = session.run(None, {"images": images})
    for one, other in zip(found, outputs(model, images), strict=True):
        assert np.abs(one - other).max() < 0.03 * np.ptp(other)  # integers round differently
    return [node.op_type for node in onnx.load(path).graph.node]


def test_an_engine_with_integer_kernels_fuses_every_pair(quantised, images, tmp_path):
    kinds = run_by_onnxruntime(quantised, images, tmp_path)
    assert kinds.count("QLinearConv") == 4 and kinds.count("QLinearAdd") == 1
    assert kinds.count("QuantizeLinear") == kinds.count("DequantizeLinear") == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_large_neighbours_do_not_saturate(tmp_path, groups):
    class Dense(nn.Module):
        @nn.compact
        def __call__(self, images, train=False):
            x = nn.relu(nn.Conv(6, (1, 1), use_bias=False)(images))
            x = nn.relu(nn.Conv(8, (3, 3), feature_group_count=groups, use_bias=False)(x))
            x = nn.relu(nn.Dense(16)(x.mean((1, 2))))
            return nn.Dense(2)(x), nn.Dense(3)(x)

    images = np.random.default_rng(0).uniform(0.5, 1, (4, 5, 5, 3)).astype(np.float32)
    variables = jax.jit(Dense().init)(jax.random.key(1), images)
    variables = jax.tree.map(jnp.ones_like, variables)  # everything is as large as it can be
    model = export(Dense(), variables, images, tmp_path / "dense.onnx")
    made = quantisation.int8(model, quantisation.observe(model, [[images]]))
    kernels = [one for one in arrays(made).values() if one.dtype == np.int8 and one.ndim > 1]
    assert [one.ndim for one in kernels] == [4, 2]
    assert all(one.max() == 64 for one in kernels)  # 63.5, so that two are at most 128
    assert "QLinearConv" in run_by_onnxruntime(made, images, tmp_path)


def without(observed, *names):
    return {name: one._replace(rounded=name not in names) for name, one in observed.items()}


def error(model, observed, images, expected):
    """The largest error of an output in its standard deviations, from the converted file itself."""
    found = outputs(quantisation.int8(model, observed), images)
    return max(
        float(np.sqrt(np.mean((one - exact) ** 2) / np.mean((exact - exact.mean(axis=0)) ** 2)))
        for one, exact in zip(found, expected, strict=True)
    )


def test_the_activations_that_cost_most_stay_in_float(model, observed, batches, images):
    expected = outputs(model, images)
    switched = sensitivity._Switched(model, observed, batches)
    whole = switched.error([])
    alone = {name: switched.error([name]) for name in observed}
    first, second, *_ = sorted(observed, key=alone.get)
    both = switched.error([first, second])
    # The files' biases are rounded, too.
    for names in ((), *((name,) for name in observed), (first, second)):
        made = error(model, without(observed, *names), images, expected)
        assert made == pytest.approx(switched.error(names), rel=0.05)
    assert both < alone[first] < alone[second] < whole

    def kept(loss):
        spared = sensitivity.spared(model, observed, batches, loss=loss)
        assert {name: one._replace(rounded=True) for name, one in spared.items()} == observed
        return {name for name, one in spared.items() if not one.rounded}

    assert kept(whole) == set()
    assert kept((alone[first] + whole) / 2) == {first}
    assert kept((alone[first] + both) / 2) == {first, second}
    assert kept(0.0) == {name for name in observed if alone[name] < whole}


@pytest.mark.parametrize(
    ("spared", "expected"), [("", ""), ("d", "cde"), ("b", "bc"), ("ad", "sabcde")]
)
def test_edges_move_to_small_activations_behind_few_multiplications(tmp_path, spared, expected):
    class Chain(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            x = nn.Conv(16, (1, 1), name="s")(x)  # 1,024 numbers; always computed in float32
            x = nn.Conv(64, (3, 3), name="a")(x)  # 4,096 numbers, 590,000 multiplications
            x = nn.Conv(16, (1, 1), name="b")(x)  # 1,024, 66,000
            x = nn.Conv(64, (1, 1), name="c")(x)  # 4,096, 66,000
            x = nn.Conv(64, (3, 3), strides=2, feature_group_count=64, name="d")(x)  # 1,024, 9,000
            x = nn.Conv(128, (3, 3), name="e")(x)  # 2,048, 1,180,000
            return nn.Dense(3)(x.mean((1, 2)))

    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    model = export(Chain(), Chain().init(jax.random.key(0), images), images, tmp_path / "c.onnx")
    observed = quantisation.observe(model, [[images]])
    letters = {name: name.split("/")[1] for name in observed}
    sizes = {letters[name]: one.size for name, one in observed.items()}
    assert sizes == {"s": 1024, "a": 4096, "b": 1024, "c": 4096, "d": 1024, "e": 2048}
    given = without(observed, *(name for name in observed if letters[name] in list(spared)))
    found = sensitivity.settled(model, given)
    assert {letters[name] for name, one in found.items() if not one.rounded} == set(expected)
    assert {name: one._replace(rounded=True) for name, one in found.items()} == observed


def test_layers_beside_a_float_activation_keep_int8_weights(model, observed, images, tmp_path):
    name = next(name for name, one in observed.items() if len(one.means) == 16)
    made = quantisation.int8(model, without(observed, name))
    onnx.checker.check_model(made, full_check=True)
    stored = [one for one in arrays(made).values() if one.dtype == np.int8 and one.ndim > 1]
    assert len(stored) == 4
    kinds = run_by_onnxruntime(made, images, tmp_path)
    assert kinds.count("QLinearConv") == 2 and "Cast" not in kinds  # float kernels are constants


def test_a_range_gives_up_a_rare_outlier_but_no_mass():
    counts = np.zeros(quantisation.BINS)
    counts[: quantisation.BINS // 2] = 1000  # uniform on [0, 0.5) …
    counts[-1] = 1  # … and one value at 1
    low, high = quantisation._range(0.0, 1.0, counts)
    assert low == 0 and 0.49 < high < 0.56
    counts[:] = 1000
    assert quantisation._range(0.0, 1.0, counts)[1] > 0.99


@pytest.mark.slow
def test_biases_make_up_for_the_mean_error_of_the_weights(tmp_path):
    class Wide(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            x = nn.relu(nn.Conv(64, (1, 1))(x))
            return nn.Dense(2)(nn.Conv(32, (1, 1))(x).mean((1, 2)))

    images = np.random.default_rng(0).normal(2, 0.1, (16, 4, 4, 3)).astype(np.float32)
    variables = Wide().init(jax.random.key(1), images)
    model = export(Wide(), variables, images, tmp_path / "wide.onnx")
    observed = quantisation.observe(model, [[images]])
    expected = outputs(model, images)[0].mean(axis=0)

    def shift(observed):
        found = outputs(quantisation.int8(model, observed), images)[0]
        return np.abs(found.mean(axis=0) - expected).max()

    uncorrected = {key: one._replace(means=0 * one.means) for key, one in observed.items()}
    assert shift(observed) < 0.5 * shift(uncorrected)


def test_what_cannot_be_converted_is_refused(model, images, tmp_path):
    def shallow(variables, images):
        return images @ variables["params"]["kernel"]

    weights = {"params": {"kernel": np.full((3, 2), 1e6, np.float32)}}
    one = export(shallow, weights, np.zeros((2, 3), np.float32), tmp_path / "shallow.onnx")
    with pytest.raises(ValueError, match="no layer between"):
        quantisation.int8(one, {})
    with pytest.raises(ValueError, match="params/kernel: 1e.06 exceeds float16"):
        half_precision.float16(one)
    with pytest.raises(ValueError, match="got none"):
        quantisation.observe(model, [])
    with pytest.raises(ValueError, match="range was not measured"):
        quantisation.int8(model, {})
    with pytest.raises(ValueError, match="not finite"):
        quantisation.observe(model, [[np.full_like(images, np.nan)]])
