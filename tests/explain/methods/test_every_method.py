"""Properties that all methods share: values, classes, keys, errors, one compilation."""

import io
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from tqdm import tqdm

from jaxatr.explain import masking
from jaxatr.explain.inputs import checked_images
from jaxatr.explain.methods.grad_cam import grad_cam
from jaxatr.explain.methods.grad_cam_plus_plus import grad_cam_plus_plus
from jaxatr.explain.methods.integrated_gradients import integrated_gradients
from jaxatr.explain.methods.lime import lime
from jaxatr.explain.methods.occlusion import occlusion
from jaxatr.explain.methods.rise import rise
from jaxatr.explain.methods.smoothgrad import smoothgrad

KEY = jax.random.key(3)


def halves(image):
    """Four superpixels."""
    rows, columns = np.indices(image.shape[:2])
    return 2 * (rows >= len(rows) // 2) + (columns >= len(columns[0]) // 2)


RANDOM = {
    "rise": partial(rise, samples=12, cells=3, batch_size=5),
    "lime": partial(lime, samples=12, segmentation=halves, batch_size=5),
    "smoothgrad": partial(smoothgrad, samples=3),
}
PREDICTING = {
    **RANDOM,
    "occlusion": partial(occlusion, window=(4, 5), stride=3, batch_size=5),
    "integrated_gradients": partial(integrated_gradients, steps=4),
}
IN_TWO_PARTS = {
    "grad_cam": grad_cam,
    "grad_cam_plus_plus": grad_cam_plus_plus,
}
MANY_OPERATIONS = ("rise", "lime", "smoothgrad", "occlusion")
EVERY = [*PREDICTING, *IN_TWO_PARTS]
every = pytest.mark.parametrize("name", EVERY)


def explain(name, network, images, *, key=KEY, **options):
    if name in IN_TWO_PARTS:
        return IN_TWO_PARTS[name](network.features, network.head, images, **options)
    if name in RANDOM:
        options["key"] = key
    return PREDICTING[name](network.predict, images, **options)


@every
def test_each_map_is_scaled_by_its_own_values(name, network, images):
    raw = np.asarray(explain(name, network, images, raw=True))
    maps = np.asarray(explain(name, network, images))
    assert raw.shape == maps.shape == images.shape[:3] and maps.dtype == np.float32
    least, span = raw.min((1, 2), keepdims=True), np.ptp(raw, axis=(1, 2), keepdims=True)
    assert (span > 0).all()
    np.testing.assert_allclose(maps, (raw - least) / span, atol=1e-5)


@every
def test_the_class_is_the_predictions_own_or_the_given_one(name, network, images):
    predicted = np.argmax(network.predict(images), axis=1)
    own, others = (
        np.asarray(explain(name, network, images, raw=True, targets=targets))
        for targets in (predicted, (predicted + 1) % 4)
    )
    np.testing.assert_allclose(explain(name, network, images, raw=True), own, atol=1e-6)
    assert np.abs(own - others).max() > 1e-3


@every
def test_a_map_does_not_depend_on_the_other_images(name, network, images):
    together = explain(name, network, images, raw=True)
    alone = [explain(name, network, images[i : i + 1], raw=True)[0] for i in range(3)]
    np.testing.assert_allclose(together, alone, atol=1e-5)


@every
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_black_and_constant_images(name, value, network):
    maps = np.asarray(explain(name, network, np.full((3, 12, 10, 3), value, np.float32)))
    assert np.isfinite(maps).all() and maps.min() >= 0 and maps.max() <= 1


@pytest.mark.parametrize("name", PREDICTING)
def test_one_class(name, images, linear):
    network = linear(12, 10, 3)
    network.predict = partial(lambda predict, x: predict(x)[:, :1], network.predict)
    raw = np.asarray(explain(name, network, images, raw=True, targets=np.zeros(3, int)))
    if name in ("lime", "occlusion"):  # the probability is 1 whatever is hidden
        np.testing.assert_array_equal(raw, 0)
        np.testing.assert_array_equal(explain(name, network, images), 0)
    assert np.isfinite(raw).all()


@pytest.mark.parametrize("name", RANDOM)
def test_a_key_gives_the_same_map_again_and_another_key_another(name, network, images):
    first, again = (np.asarray(explain(name, network, images)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = np.asarray(explain(name, network, images, key=jax.random.key(4)))
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize("name", ["rise", "lime", "occlusion"])
def test_the_batch_size_is_of_memory_only(name, network, images):
    few, all_at_once = (explain(name, network, images, raw=True, batch_size=n) for n in (5, 100))
    np.testing.assert_allclose(few, all_at_once, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        # Those with many operations take long, and agree with NumPy loops as well.
        pytest.param(name, marks=pytest.mark.slow if name in MANY_OPERATIONS else ())
        for name in EVERY
    ],
)
def test_compiled_equals_operation_by_operation(name, network, images):
    few = {"samples": 2} if name in RANDOM else {}
    compiled = explain(name, network, images[:1], raw=True, **few)
    with jax.disable_jit():
        eager = explain(name, network, images[:1], raw=True, **few)
    np.testing.assert_allclose(compiled, eager, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "lime"])
def test_a_method_can_be_part_of_jitted_code(name, network, images):
    targets, images = np.array([2]), images[:1]

    @jax.jit
    def mapped(images, targets):
        return explain(name, network, images, targets=targets)

    expected = explain(name, network, images, targets=targets)
    np.testing.assert_allclose(mapped(images, targets), expected, atol=1e-4)


@every
def test_gray_images_of_one_channel(name, images):
    def features(x):
        return jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], axis=-1)

    def head(maps):
        return jnp.stack([(maps[..., 0] ** 2).mean((1, 2)), maps[..., 1].mean((1, 2))], axis=1)

    def predict(x):
        return head(features(x))

    gray = SimpleNamespace(predict=predict, features=features, head=head)
    maps = np.asarray(explain(name, gray, images[..., :1]))
    assert maps.shape == (3, 12, 10) and np.isfinite(maps).all()
    np.testing.assert_allclose(maps.max((1, 2)), 1, rtol=1e-6)


@every
def test_other_variables_need_no_new_compilation(name, network, images):
    traced = []

    def count(function):
        def counted(scale, x):
            traced.append(1)
            return scale * function(x)

        return counted

    parts = {part: count(getattr(network, part)) for part in ("predict", "features", "head")}

    counts = []
    for scale in (1.0, 2.0):
        scaled = {part: Partial(parts[part], jnp.float32(scale)) for part in parts}
        explain(name, SimpleNamespace(**scaled), images, targets=np.array([0, 1, 2]))
        counts.append(len(traced))
    assert counts[0] == counts[1] > 0


@every
def test_wrong_images_are_named(name, network, images, unchecked):
    with pytest.raises(ValueError, match=r"images: got shape \(12, 10, 3\), wanted \[b, h, w, c\]"):
        explain(name, network, images[0])
    with pytest.raises(ValueError, match=r"images: got shape \(0, 12, 10, 3\)"):
        explain(name, network, images[:0])
    with pytest.raises(ValueError, match="images: got uint8, wanted floats"):
        explain(name, network, images.astype(np.uint8))


@every
def test_wrong_targets_are_named(name, network, images, unchecked):
    with pytest.raises(ValueError, match=r"targets: got 4 at 1, wanted classes .* 0 to 3"):
        explain(name, network, images, targets=np.array([0, 4, 1]))
    with pytest.raises(ValueError, match=r"targets: got -1 at 0, wanted classes .* 0 to 3"):
        explain(name, network, images, targets=np.array([-1, 0, 1]))
    with pytest.raises(ValueError, match=r"targets: got shape \(2,\), wanted .* \(3,\)"):
        explain(name, network, images, targets=np.array([0, 1]))
    with pytest.raises(ValueError, match="targets: got float32, wanted integers"):
        explain(name, network, images, targets=np.float32([0, 1, 2]))


@every
def test_wrong_logits_are_named(name, network, images):
    wrong = SimpleNamespace(
        features=network.features,
        head=lambda maps: network.head(maps).max(axis=1),
        predict=lambda x: network.predict(x).max(axis=1),
    )
    with pytest.raises(ValueError, match=r"logits: got shape \(3,\), wanted .* \(3, k\)"):
        explain(name, wrong, images)


@pytest.mark.parametrize("name", ["rise", "occlusion", "integrated_gradients"])
def test_a_baseline_is_a_number_a_colour_or_an_image(name, network, images):
    maps = [
        explain(name, network, images, baseline=baseline)
        for baseline in (0.3, np.full(3, 0.3, np.float32), np.full((12, 10, 3), 0.3, np.float32))
    ]
    np.testing.assert_array_equal(maps[0], maps[1])
    np.testing.assert_array_equal(maps[0], maps[2])
    assert np.abs(np.asarray(maps[0]) - explain(name, network, images)).max() > 1e-3
    with pytest.raises(ValueError, match=r"baseline: got shape \(2,\), wanted"):
        explain(name, network, images, baseline=np.zeros(2, np.float32))


@pytest.mark.parametrize("name", ["rise", "lime", "occlusion"])
def test_a_bar_counts_every_copy(name, network, images, monkeypatch):
    bars = []

    def bar(*arguments, **options):
        bars.append(tqdm(*arguments, **options | {"disable": False, "file": io.StringIO()}))
        return bars[-1]

    monkeypatch.setattr(masking, "tqdm", bar)
    explain(name, network, images, progress=True)
    assert bars[0].n == bars[0].total > 0


def test_the_caller_may_fill_the_images_anew(read_in_place):
    images = read_in_place(np.ones((2, 8, 8, 3), np.float32))
    given = checked_images(images)
    images[...] = 0
    np.testing.assert_array_equal(given, np.ones((2, 8, 8, 3)))


@every
def test_promotion_and_byte_order_change_nothing(name):
    images = np.random.default_rng(0).normal(size=(2, 12, 10, 2)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    network = SimpleNamespace(
        predict=lambda x: jnp.tanh(x.mean(axis=(1, 2))) @ weights,
        features=lambda x: jax.nn.relu(x),
        head=lambda maps: jnp.square(maps.mean(axis=(1, 2))) @ weights,
    )
    wanted = explain(name, network, images, targets=np.array([1, 2]))
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        found = explain(name, network, images.astype(">f4"), targets=np.array([1, 2], ">i8"))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
