"""The explanation network, and the surrogate of student and explanation network."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxatr import config, models, parallel

WIDTH = 4
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # quick to compile


def surrogate(stem="7x7", axis_name=None, **fields):
    fields |= {"axis_name": axis_name}
    block = models.resnet.BasicBlock
    backbone = models.ResNet((1,) * 4, block, width=8, stem=stem, attention=models.CBAM, **fields)
    student = models.Student(backbone, num_classes=5)
    return models.Surrogate(student, models.ExplanationNetwork(WIDTH, **fields))


def normal(*shape, seed=0):
    return jnp.float32(np.random.default_rng(seed).normal(size=shape))


IMAGES = normal(4, 32, 32, 3)


def random_variables(init, *inputs):
    """Returns random variables, because some gradients are zero at the initial values."""
    draw = np.random.default_rng(0)

    def value(path, leaf):
        if path[-1].key == "kernel":
            return jnp.float32(draw.normal(size=leaf.shape) * np.prod(leaf.shape[:-1]) ** -0.5)
        return jnp.float32(draw.uniform(0.5, 1, leaf.shape))

    shapes = jax.eval_shape(init, jax.random.key(0), *inputs)
    return jax.tree_util.tree_map_with_path(value, shapes)


SURROGATE = surrogate()
VARIABLES = random_variables(SURROGATE.init, IMAGES)
APPLY = jit(SURROGATE.apply)


@pytest.mark.parametrize(
    ("stem", "shape", "strides"),
    [
        ("7x7", (32, 32, 3), (8, 16, 32)),
        ("7x7", (64, 64, 1), (8, 16, 32)),
        ("7x7", (72, 72, 3), (8, 16, 32)),
        ("7x7", (224, 224, 3), (8, 16, 32)),
        ("7x7", (45, 100, 1), (8, 16, 32)),
        ("3x3", (32, 32, 3), (2, 4, 8)),
        ("3x3", (64, 64, 3), (2, 4, 8)),
        ("3x3", (33, 47, 1), (2, 4, 8)),
    ],
)
def test_shapes(stem, shape, strides):
    model, images = surrogate(stem), jnp.zeros((2, *shape))
    out, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), images)
    assert (out.logits.shape, out.saliency.shape) == ((2, 5), (2, *shape[:2]))
    sizes = [(-(-shape[0] // stride), -(-shape[1] // stride)) for stride in strides]
    assert [delta.shape for delta in out.deltas] == [
        (2, *size, channels) for size, channels in zip(sizes, (16, 32, 64), strict=True)
    ]
    assert set(variables["params"]) == {"student", "explainer"}
    kernels = {
        path[0]: leaf.shape[-2:]
        for path, leaf in flatten_dict(variables["params"]["explainer"]).items()
        if path[1] == "conv1"
    }
    assert kernels == {  # Δf beside what comes from the block before
        "upsample1": (64, 4 * WIDTH),
        "upsample2": (32 + 4 * WIDTH, 2 * WIDTH),
        "upsample3": (16 + 2 * WIDTH, WIDTH),
    }


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["7x7", "3x3"])
def test_saliency_is_in_0_to_1_and_follows_the_image(stem):
    model = surrogate(stem)
    apply = APPLY if stem == "7x7" else jit(model.apply)
    images = jnp.concatenate([IMAGES[:2], jnp.zeros_like(IMAGES[:1]), 100 * IMAGES[2:3]])
    saliency = apply(random_variables(model.init, IMAGES), images).saliency
    assert saliency.dtype == jnp.float32 and np.isfinite(saliency).all()
    assert saliency.min() >= 0 and saliency.max() <= 1
    assert np.std(saliency, axis=(1, 2)).min() > 1e-3
    assert np.abs(saliency[0] - saliency[1]).max() > 1e-3


@pytest.mark.slow
def test_jit_equals_eager():
    found, expected = (
        APPLY(VARIABLES, IMAGES),
        SURROGATE.apply(VARIABLES, IMAGES),
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), found, expected
    )


def test_the_explanation_network_by_hand():
    """Compares with an independent computation, for Δf of odd sizes."""
    explainer = models.ExplanationNetwork(WIDTH, axis_name=None)
    deltas = normal(2, 9, 7, 6), normal(2, 5, 4, 8, seed=1), normal(2, 3, 2, 10, seed=2)
    explain = partial(explainer.apply, size=(70, 50))
    variables = random_variables(partial(explainer.init, size=(70, 50)), deltas)
    host = jax.tree.map(np.asarray, variables)

    def norm(x, name, block):
        params, stats = host["params"][block][name], host["batch_stats"][block][name]
        x = (x - stats["mean"]) / np.sqrt(stats["var"] + 1e-5)
        return np.maximum(x * params["scale"] + params["bias"], 0)

    def conv(x, name, block):
        kernel = host["params"][block][name]["kernel"]
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        return np.einsum("bhwcij,ijcf->bhwf", windows, kernel)

    def along(x, size, axis):
        """Interpolates linearly between pixel centres, with constant edges."""
        place = (np.arange(size) + 0.5) * x.shape[axis] / size - 0.5
        place = np.clip(place, 0, x.shape[axis] - 1)
        low = np.minimum(np.floor(place).astype(int), x.shape[axis] - 1)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        share = np.expand_dims(place - low, [a for a in range(x.ndim) if a != axis])
        return (1 - share) * np.take(x, low, axis) + share * np.take(x, high, axis)

    def grown(x, size):
        return along(along(x, size[0], 1), size[1], 2)

    x = np.zeros((2, 3, 2, 0))
    for number, delta, size in zip(
        (1, 2, 3), deltas[::-1], [(5, 4), (9, 7), (18, 14)], strict=True
    ):
        block = f"upsample{number}"
        x = norm(conv(np.concatenate([x, delta], axis=-1), "conv1", block), "norm1", block)
        x = norm(conv(grown(x, size), "conv2", block), "norm2", block)
    score = x @ host["params"]["score"]["kernel"] + host["params"]["score"]["bias"]
    expected = 1 / (1 + np.exp(-grown(score, (70, 50))[..., 0]))
    found = jit(explain)(variables, deltas)
    assert found.shape == (2, 70, 50) and expected.std() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-5)


@cache
def trained(end_to_end):
    """Returns gradients of saliency map and logits, the output and the batch statistics."""

    def run(params):
        variables = {**VARIABLES, "params": params}
        return SURROGATE.apply(
            variables, IMAGES, train=True, end_to_end=end_to_end, mutable=["batch_stats"]
        )

    def both(params):
        out, pull, state = jax.vjp(run, params, has_aux=True)
        none = jax.tree.map(jnp.zeros_like, out)
        saliency = none._replace(saliency=normal(*out.saliency.shape))
        logits = none._replace(logits=normal(*out.logits.shape))
        return pull(saliency)[0], pull(logits)[0], out, state["batch_stats"]

    *slopes, out, state = jit(both)(VARIABLES["params"])
    largest = [
        {path: float(np.abs(leaf).max()) for path, leaf in flatten_dict(tree).items()}
        for tree in slopes
    ]
    return *largest, out, state


@pytest.mark.slow
def test_two_stages_the_saliencys_gradient_ends_at_the_explanation_network():
    saliency, _, _, state = trained(False)
    assert all((size > 0) == (path[0] == "explainer") for path, size in saliency.items())
    before = flatten_dict(VARIABLES["batch_stats"])
    for path, leaf in flatten_dict(state).items():  # the student stays as it was trained
        assert np.any(leaf != before[path]) == (path[0] == "explainer"), path


@pytest.mark.slow
def test_end_to_end_it_reaches_attention_and_all_before_it():
    saliency, _, _, state = trained(True)
    past = {"shortcut_conv", "shortcut_norm"}  # of the last stage: to the classifier alone
    for path, size in saliency.items():
        unused = "closed_head" in path or ("stage4_block1" in path and bool(past & set(path)))
        assert (size > 0) != unused, path
    before = flatten_dict(VARIABLES["batch_stats"])
    assert all(np.any(leaf != before[path]) for path, leaf in flatten_dict(state).items())


@pytest.mark.slow
@pytest.mark.parametrize("end_to_end", [pytest.param(False, marks=pytest.mark.slow), True])
def test_gradients_are_finite(end_to_end):
    """With ``jnp.max`` in the channel gate, XLA computes its map twice, and gradients are NaN."""
    saliency, logits, _, _ = trained(end_to_end)
    assert all(np.isfinite(size) for size in (*saliency.values(), *logits.values()))


@pytest.mark.slow
@pytest.mark.parametrize("end_to_end", [False, True])
def test_the_logits_gradient_is_the_students(end_to_end):
    _, logits, _, _ = trained(end_to_end)
    assert all((size > 0) == (path[0] == "student") for path, size in logits.items())


@pytest.mark.slow  # compiles the whole network
def test_the_student_alone_classifies():
    alone = jit(SURROGATE.student.apply)
    found = alone({name: tree["student"] for name, tree in VARIABLES.items()}, IMAGES)
    whole = APPLY(VARIABLES, IMAGES)
    np.testing.assert_allclose(found.logits, whole.logits, rtol=1e-4, atol=1e-5)
    method = partial(SURROGATE.apply, method="classify", mutable=["batch_stats"])
    shapes, state = jax.eval_shape(partial(method, train=True), VARIABLES, IMAGES)
    assert isinstance(shapes, models.StudentOutput) and set(state["batch_stats"]) == {
        "student",
        "explainer",
    }


@pytest.mark.slow
def test_halves_of_a_batch_share_their_statistics():
    """Batch norm of all networks is computed over all devices."""
    _, _, whole, state = trained(True)
    shared = surrogate(axis_name=parallel.AXIS)
    options = {"train": True, "end_to_end": True, "mutable": ["batch_stats"]}
    apply = jax.vmap(lambda x: shared.apply(VARIABLES, x, **options), axis_name=parallel.AXIS)
    halves, states = jit(apply)(IMAGES.reshape(2, 2, *IMAGES.shape[1:]))
    np.testing.assert_allclose(np.concatenate(halves.logits), whole.logits, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.concatenate(halves.saliency), whole.saliency, atol=1e-3)
    for half in range(2):
        jax.tree.map(
            lambda a, b, half=half: np.testing.assert_allclose(a[half], b, rtol=1e-3, atol=1e-4),
            states["batch_stats"],
            state,
        )


@pytest.mark.slow
def test_bfloat16_runs_near_float32():
    low = surrogate(dtype=jnp.bfloat16)
    shapes = jax.eval_shape(low.init, jax.random.key(0), IMAGES)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    found, full = jit(low.apply)(VARIABLES, IMAGES), APPLY(VARIABLES, IMAGES)
    assert found.saliency.dtype == found.logits.dtype == jnp.float32
    assert {delta.dtype for delta in found.deltas} == {jnp.dtype("bfloat16")}
    assert 0 < np.abs(found.saliency - full.saliency).max() < 0.05


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_build(name):
    fields = config.of_task("jaxatr.tasks.distillation:Distillation")
    fields.model.update({"backbone": name, "stem": "3x3", "width": 8, "dtype": "bfloat16"})
    fields.surrogate.update({"width": 6, "deltas": "sum"})
    model = models.build_surrogate(fields, 7)
    assert (model.student.num_classes, model.student.deltas) == (7, "sum")
    assert (model.explainer.width, model.explainer.dtype) == (6, jnp.bfloat16)
    backbone = model.student.backbone
    assert (backbone.stem, backbone.dtype, backbone.attention) == (
        "3x3",
        jnp.bfloat16,
        models.CBAM,
    )
    out, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), IMAGES)
    assert (out.logits.shape, out.saliency.shape) == ((4, 7), (4, 32, 32))


@pytest.mark.slow
def test_attention_of_a_mobile_student_is_open_at_first():
    fields = config.of_task("jaxatr.tasks.distillation:Distillation")
    x = 1 + jnp.abs(normal(2, 4, 4, 32))
    shares = {}
    for name in ("resnet18", "mobilenet_v2"):
        fields.model.backbone = name
        backbone = models.build_surrogate(fields, 7).student.backbone
        norm = models.resnet.batch_norm(backbone.clone(parent=None), False)
        passed, _ = backbone.attention(norm=norm).init_with_output(jax.random.key(0), x)
        shares[name] = np.mean(passed / x)
    assert shares["resnet18"] < 0.5 and shares["mobilenet_v2"] > 0.8


@pytest.mark.parametrize(
    ("name", "message"),
    [("resnet51", "did you mean 'resnet50'"), ("flax.linen:Dense", "got 'flax.linen:Dense', want")],
)
def test_only_a_built_in_backbone_has_attention(name, message):
    fields = config.of_task("jaxatr.tasks.distillation:Distillation")
    fields.model.backbone = name
    with pytest.raises(ValueError, match=f"model.backbone: .*{message}"):
        models.build_surrogate(fields, 3)
