"""The attentive student: position of attention, outputs and initialisation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxatr import models
from jaxatr.models import pretrained

CBAM = models.CBAM
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # quick to compile
SHALLOW = models.ResNet(
    (1, 2, 1, 1), models.resnet.BasicBlock, width=8, axis_name=None, attention=CBAM
)
STUDENT = models.Student(SHALLOW, num_classes=5)
IMAGES = jnp.float32(np.random.default_rng(0).normal(size=(4, 32, 32, 3)))


def random_variables(model, images=IMAGES, seed=0):
    """Returns random variables, because some gradients are zero at the initial values."""
    draw = np.random.default_rng(seed)

    def value(path, leaf):
        name = path[-1].key
        if name == "kernel":
            return jnp.float32(draw.normal(size=leaf.shape) * np.prod(leaf.shape[:-1]) ** -0.5)
        return jnp.float32(draw.uniform(0.5, 1, leaf.shape))

    shapes = jax.eval_shape(model.init, jax.random.key(0), images)
    return jax.tree_util.tree_map_with_path(value, shapes)


VARIABLES = random_variables(STUDENT)
APPLY = jit(STUDENT.apply)

INVERTED = models.MobileNet(
    ((3, 1, 1, 1, 8), (3, 1, 2, 2, 8), (3, 2, 2, 2, 16), (3, 1, 1, 2, 24), (3, 1, 2, 2, 32)),
    axis_name=None,
    attention=CBAM,
)
"""Its maps are 16 pixels wide (stage 1), then 8, 4 (stages 3 and 4) and 2."""


def changed(variables, endings, value):
    """Returns the variables, with those at paths with these endings set to a value."""
    flat = flatten_dict(variables)
    new = {
        path: jnp.full_like(leaf, value) if path[-2:] in endings else leaf
        for path, leaf in flat.items()
    }
    assert any(path[-2:] in endings for path in flat)
    return unflatten_dict(new)


def gates_open(variables):
    """Sets biases so that both sigmoids are 1 in float32."""
    return changed(variables, {("channel_out", "bias"), ("spatial_norm", "bias")}, 1e3)


def without_attention(variables):
    return {
        collection: unflatten_dict(
            {path: leaf for path, leaf in flatten_dict(tree).items() if "attention" not in path}
        )
        for collection, tree in variables.items()
    }


def backbone(variables):
    return {collection: tree["backbone"] for collection, tree in variables.items()}


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("resnet18", [0, 2, 2, 2]),
        ("resnet34", [0, 4, 6, 3]),
        ("resnet50", [0, 4, 6, 3]),
        ("resnet101", [0, 4, 23, 3]),
    ],
)
def test_attention_modules_of_each_stage(name, modules):
    model = models.backbones.BACKBONES[name].build(width=4, attention=CBAM)
    params = jax.eval_shape(model.init, jax.random.key(0), IMAGES)["params"]
    blocks = [block for block, parts in params.items() if "attention" in parts]
    counts = [sum(block.startswith(f"stage{stage}_") for block in blocks) for stage in (1, 2, 3, 4)]
    assert counts == modules


def test_without_attention_all_is_as_in_the_plain_network():
    plain = SHALLOW.clone(attention=None)
    shapes, attended = (
        jax.eval_shape(model.init, jax.random.key(0), IMAGES) for model in (plain, SHALLOW)
    )
    assert shapes == without_attention(attended)
    block = {"conv1", "conv2", "norm1", "norm2"}
    assert set(shapes["params"]["stage2_block2"]) == block
    assert set(shapes["params"]["stage2_block1"]) == block | {"shortcut_conv", "shortcut_norm"}
    out = jax.eval_shape(lambda v: plain.apply(v, IMAGES, method="attended"), shapes)
    assert out.deltas == ((), (), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("mobilenet_v2", [0, 0, 3, 4, 3, 3, 1]),
        ("efficientnet_lite0", [0, 0, 2, 3, 3, 4, 1]),
        ("efficientnet_lite2", [0, 0, 3, 4, 4, 5, 1]),
    ],
)
def test_attention_modules_of_inverted_residuals(name, modules):
    model = models.backbones.BACKBONES[name].build(attention=CBAM)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    blocks = [block for block, parts in shapes["params"].items() if "attention" in parts]
    counts = [sum(block.startswith(f"stage{stage}_") for block in blocks) for stage in range(1, 8)]
    assert counts == modules
    plain = jax.eval_shape(model.clone(attention=None).init, jax.random.key(0), IMAGES)
    assert plain == without_attention(shapes)


@pytest.mark.slow
def test_stages_of_inverted_residuals_are_the_three_smallest_map_sizes():
    variables = random_variables(INVERTED)
    apply = partial(
        INVERTED.apply, method="attended", capture_intermediates=True, mutable=["intermediates"]
    )
    out, state = jit(apply)(variables, IMAGES)
    calls = state["intermediates"]
    blocks = [["stage2_block1"], ["stage3_block1", "stage3_block2", "stage4_block1"]]
    blocks.append(["stage5_block1"])
    assert [x.shape for x in out.stages] == [(4, 8, 8, 8), (4, 4, 4, 24), (4, 2, 2, 32)]
    for stage, own, deltas in zip(out.stages, blocks, out.deltas, strict=True):
        np.testing.assert_array_equal(stage, calls[own[-1]]["__call__"][0][0])
        for block, delta in zip(own, deltas, strict=True):
            (before,) = calls[block]["project_norm"]["__call__"]
            (after,) = calls[block]["attention"]["__call__"]
            np.testing.assert_allclose(delta, after - before, atol=1e-5)
    # The second block of stage 3 alone has a shortcut.
    (x, _), (y, _) = (calls[f"stage3_block{i}"]["__call__"][0] for i in (1, 2))
    np.testing.assert_allclose(y, calls["stage3_block2"]["attention"]["__call__"][0] + x, atol=1e-5)
    (last,) = calls["stage5_block1"]["attention"]["__call__"]
    np.testing.assert_allclose(out.stages[-1], last, atol=1e-6)


@pytest.mark.slow
def test_open_gates_change_nothing_in_inverted_residuals():
    opened = gates_open(random_variables(INVERTED))
    features = jit(partial(INVERTED.apply, method="attended"))(opened, IMAGES).features
    plain = jit(INVERTED.clone(attention=None).apply)(without_attention(opened), IMAGES)
    np.testing.assert_allclose(features, plain, rtol=1e-4, atol=1e-5)
    closed = jit(INVERTED.apply)(random_variables(INVERTED), IMAGES)
    assert np.abs(closed - features).max() > 0.01


@pytest.mark.slow
def test_open_gates_change_nothing():
    opened = gates_open(VARIABLES)
    exactly = {"xla_backend_optimization_level": 0}
    if jax.__version_info__ < (0, 11):
        # The other emitters' sigmoid, which conftest.py chooses, ends just below 1.
        exactly["xla_cpu_use_fusion_emitters"] = True
    found = jax.jit(STUDENT.apply, compiler_options=exactly)(opened, IMAGES)
    assert all((delta == 0).all() for delta in found.deltas)
    plain = SHALLOW.clone(attention=None)
    features = jit(plain.apply)(without_attention(backbone(opened)), IMAGES)
    np.testing.assert_allclose(found.features, features, rtol=1e-5, atol=1e-6)
    closed = APPLY(VARIABLES, IMAGES)
    assert all(np.abs(delta).max() > 0.01 for delta in closed.deltas)
    assert np.abs(closed.features - features).max() > 0.01


def test_attention_is_after_the_last_norm_and_before_the_addition():
    """Compares with a direct computation of branch, attention, shortcut and activation."""
    block = models.resnet.Bottleneck(
        8, 1, models.resnet.batch_norm(SHALLOW.clone(parent=None), False), attention=CBAM
    )
    x = jnp.float32(np.random.default_rng(2).normal(size=(2, 5, 6, 32)))
    variables = random_variables(block, x)
    apply = partial(block.apply, capture_intermediates=True, mutable=["intermediates"])
    (out, delta), state = jit(apply)(variables, x)
    calls = state["intermediates"]
    (before,), (after,) = calls["norm3"]["__call__"], calls["attention"]["__call__"]
    np.testing.assert_allclose(out, np.maximum(after + x, 0), atol=1e-6)
    np.testing.assert_allclose(delta, after - before, atol=1e-6)
    assert np.abs(delta).max() > 0.01 and before.min() < 0


@pytest.mark.slow
def test_deltas_of_the_last_module_or_of_all():
    @jit
    def both(variables):
        attended = SHALLOW.apply(backbone(variables), IMAGES, method="attended")
        return attended.deltas, STUDENT.clone(deltas="sum").apply(variables, IMAGES)

    last, (stages, total) = APPLY(VARIABLES, IMAGES), both(VARIABLES)
    assert [len(stage) for stage in stages] == [2, 1, 1]
    np.testing.assert_allclose(last.logits, total.logits, rtol=1e-4, atol=1e-5)
    for stage, one, every in zip(stages, last.deltas, total.deltas, strict=True):
        np.testing.assert_allclose(one, stage[-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(every, np.sum(stage, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_stages_own_features_in_the_place_of_deltas():
    student = STUDENT.clone(deltas="features")

    @jit
    def found(variables):
        attended = SHALLOW.apply(backbone(variables), IMAGES, method="attended")
        return attended, student.apply(variables, IMAGES)

    attended, out = found(VARIABLES)
    assert [x.shape for x in out.deltas] == [x.shape for x in APPLY(VARIABLES, IMAGES).deltas]
    for stage, handed in zip(attended.stages, out.deltas, strict=True):
        np.testing.assert_array_equal(stage, handed)
    pooled = np.mean(out.deltas[-1], axis=(1, 2))
    np.testing.assert_allclose(out.features, pooled, rtol=1e-5, atol=1e-6)


def test_the_classifier_is_linear_in_the_features():
    found = APPLY(VARIABLES, IMAGES)
    head = VARIABLES["params"]["closed_head"]
    np.testing.assert_allclose(found.logits, found.features @ head["kernel"] + head["bias"], 1e-4)
    shapes = jax.eval_shape(STUDENT.clone(head_bias=False).init, jax.random.key(0), IMAGES)
    assert set(shapes["params"]["closed_head"]) == {"kernel"}


def test_arguments_that_do_not_fit_are_named(unchecked):
    with pytest.raises(ValueError, match="backbone: got a network without attention"):
        STUDENT.clone(backbone=models.ResNet18(width=4)).init(jax.random.key(0), IMAGES)
    with pytest.raises(ValueError, match="deltas: got 'first', wanted 'last', 'sum' or 'features'"):
        STUDENT.clone(deltas="first").init(jax.random.key(0), IMAGES)


def test_begins_with_pretrained_weights(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    plain = without_attention(backbone(random_variables(STUDENT, seed=1)))
    safetensors.save_file(pretrained.to_torch(plain), tmp_path / "w.safetensors")
    loaded = pretrained.load(tmp_path / "w.safetensors", SHALLOW)
    jax.tree.map(np.testing.assert_array_equal, loaded, plain)
    drawn = backbone(VARIABLES)
    found = flatten_dict(pretrained.put_into(drawn, loaded))
    for path, leaf in flatten_dict(drawn).items():
        expected = leaf if "attention" in path else flatten_dict(loaded)[path]
        np.testing.assert_array_equal(found[path], expected, err_msg="/".join(path))
    assert len(found) == len(flatten_dict(drawn)) > len(flatten_dict(loaded))


def test_values_without_a_place_in_the_network_are_refused():
    with pytest.raises(ValueError, match="network has no variables params/b, params/c/d"):
        pretrained.put_into({"params": {"a": 1}}, {"params": {"a": 2, "b": 3, "c": {"d": 4}}})
