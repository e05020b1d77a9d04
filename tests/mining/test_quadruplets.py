import os
import subprocess
import sys
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import mining

KEY = jax.random.key(3)
METHODS = ("nearest_to_negative", "nearest_to_reference", "random")
SLOW = pytest.mark.slow
PAIRS = [
    *product(METHODS[:2], ["any"]),
    (METHODS[0], "drawn"),
    pytest.param(METHODS[1], "drawn", marks=SLOW),  # a program of its own
]


def a_set(n=60, dimensions=3, seed=0, classes=9):
    """Integer embeddings, so that every distance is exact in single precision, with many ties.

    All but the first dimensions are 0. Sets of one shape share what is compiled for it.
    """
    draw = np.random.default_rng(seed)
    fine = draw.integers(0, classes, n)
    embeddings = np.zeros((n, 3), np.float32)
    embeddings[:, :dimensions] = draw.integers(-4, 5, (n, dimensions))
    return embeddings, fine, fine // 3


def select(embeddings, fine, coarse, references, method, sibling_class=None, **options):
    """Returns the quadruplets as NumPy arrays."""
    options |= {"method": method, "sibling_class": sibling_class, "key": KEY}
    return jax.device_get(mining.quadruplets(embeddings, fine, coarse, references, **options))


def select_few(embeddings, fine, coarse, method):
    """Selects for the first of a few points, which are filled up to the shape of the other sets.

    What fills them is not finite and takes no part, as a test below shows.
    """
    rows, width = 60 - len(fine), 3 - embeddings.shape[1]
    filled = np.pad(embeddings, ((0, 0), (0, width)))
    filled = np.concatenate([filled, np.full((rows, 3), np.nan, np.float32)])
    fine, coarse = (np.concatenate([one, np.full(rows, 99)]) for one in (fine, coarse))
    return select(filled, fine, coarse, np.r_[0, np.full(59, 60)], method)


def by_loops(embeddings, fine, coarse, reference, method, sibling_fine=None):
    """Section 3.3 in plain loops; returns positive, sibling and negative, None for missing ones."""

    def distances(centre):
        return np.sum((embeddings.astype(np.float64) - embeddings[centre]) ** 2, axis=1)

    def nearest(candidates, centre):
        return min(candidates, key=distances(centre).__getitem__, default=None)

    others = [i for i in range(len(fine)) if coarse[i] != coarse[reference]]
    negative = nearest(others, reference)
    if negative is None:
        return None, None, None

    def chosen(candidates):
        away = distances(reference)
        outside = [i for i in candidates if away[i] > away[negative]]
        if outside:
            return nearest(outside, negative if method == "nearest_to_negative" else reference)
        return max(candidates, key=away.__getitem__, default=None)

    same = [i for i in range(len(fine)) if fine[i] == fine[reference] and i != reference]
    siblings = [
        i
        for i in range(len(fine))
        if coarse[i] == coarse[reference]
        and fine[i] != fine[reference]
        and (sibling_fine is None or fine[i] == sibling_fine)
    ]
    return chosen(same), chosen(siblings), negative


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize(("dimensions", "classes"), [(3, 9), (2, 9), (1, 9), (3, 40)])
def test_selections_are_those_of_plain_loops(method, dimensions, classes):
    embeddings, fine, coarse = a_set(60, dimensions, 60 + dimensions, classes)
    found = select(embeddings, fine, coarse, np.arange(60), method, "any")
    for i in range(60):
        expected = by_loops(embeddings, fine, coarse, i, method)
        assert bool(found.valid[i]) == (None not in expected)
        if found.valid[i]:
            got = found.positive[i], found.sibling[i], found.negative[i]
            assert tuple(map(int, got)) == expected
    assert found.valid.all() == (classes == 9)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize(("count", "block_size"), [(1024, 7), (2300, 64)])
def test_many_are_searched_in_chunks_and_no_array_is_as_large_as_all_pairs(
    method, count, block_size
):
    draw = np.random.default_rng(count)
    embeddings = draw.integers(-4, 5, (count, 4)).astype(np.float32)  # hundreds of ties
    fine = np.sort(draw.choice(9, count, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.03, 0.015, 0.005]))
    fine = draw.permutation(fine)
    references = draw.permutation(count)
    given = embeddings, fine, fine // 3, references
    options = {"method": method, "sibling_class": "any", "block_size": block_size}
    program = mining.quadruplets.lower(*given, key=KEY, **options).compile()
    memory = program.memory_analysis().temp_size_in_bytes
    assert memory < 20 * 64 * count * 4
    if count == 2300:
        assert memory < count * count * 4
    found = jax.device_get(program(*given, key=KEY))
    for row, i in enumerate(references[:25]):
        expected = by_loops(embeddings, fine, fine // 3, i, method)
        got = found.positive[row], found.sibling[row], found.negative[row]
        assert bool(found.valid[row]) and tuple(map(int, got)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", [METHODS[0], pytest.param(METHODS[1], marks=SLOW)])
def test_a_drawn_sibling_class_is_searched_alone(method):
    embeddings, fine, coarse = a_set()
    found = select(embeddings, fine, coarse, np.arange(60), method, "drawn")
    for i in range(60):
        drawn = fine[found.sibling[i]]
        expected = by_loops(embeddings, fine, coarse, i, method, drawn)
        assert (int(found.positive[i]), int(found.sibling[i])) == expected[:2]


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("copies", [1, 40])
def test_a_tight_cluster_far_from_the_others_is_searched_by_differences(method, copies):
    """With 40 copies of each point, more are equally near than are compared one by one."""
    draw = np.random.default_rng(0)
    embeddings = np.concatenate([draw.normal(size=(30, 3)), draw.normal(size=(30, 3)) * 1e-2])
    embeddings[30:, 0] += 100
    embeddings[30:] = embeddings[30 + np.arange(30) // copies * copies % 30]
    embeddings = embeddings.astype(np.float32)
    fine = np.arange(60) % 6
    found = select(embeddings, fine, fine // 3, np.arange(60), method, "any")
    for i in range(60):
        got = found.positive[i], found.sibling[i], found.negative[i]
        expected = by_loops(embeddings, fine, fine // 3, i, method)
        assert bool(found.valid[i]) and tuple(map(int, got)) == expected


def test_hand_made_points_on_a_line():
    # Reference at 0, the negative at 2: of the positives at 1, 3 and 7, the one at 3 is beyond the
    # negative and nearest to both. Of the siblings at -1 and 1.5 none is beyond: the farther, 1.5.
    line = [0.0, 1.0, 3.0, 7.0, -1.0, 1.5, 2.0, 5.0]
    embeddings = np.stack([line, np.zeros(8)], axis=1).astype(np.float32)
    fine = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    coarse = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    for method in METHODS[:2]:
        found = select_few(embeddings, fine, coarse, method)
        assert [int(index[0]) for index in found] == [0, 2, 5, 6, 1]


def test_the_methods_differ_as_their_definitions_do():
    # Reference at the origin, negative at (2, 0); two positives are beyond it. (0, 2.5) is nearer
    # to the reference, (3, 0) to the negative.
    embeddings = np.array([[0, 0], [0, 2.5], [3, 0], [9, 9], [2, 0], *3 * [[-9, 9]]], np.float32)
    fine, coarse = np.array([0, 0, 0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 0, 1, 0, 0, 1])
    found = [select_few(embeddings, fine, coarse, m).positive[0] for m in METHODS[:2]]
    assert found == [2, 1]


@pytest.mark.parametrize(("method", "sibling_class"), [*PAIRS, ("random", "any")])
def test_members_have_the_labels_they_should(method, sibling_class):
    embeddings, fine, coarse = a_set()
    found = select(embeddings, fine, coarse, np.arange(60), method, sibling_class)
    assert found.valid.all()
    r, p, s, n = found[:4]
    assert (p != r).all() and (fine[p] == fine[r]).all()
    assert (fine[s] != fine[r]).all() and (coarse[s] == coarse[r]).all()
    assert (coarse[n] != coarse[r]).all()
    assert all(column.dtype == jnp.int32 for column in found[:4])


@pytest.mark.parametrize(("method", "sibling_class"), [*PAIRS, ("random", "drawn")])
def test_raw_keys_and_the_caller_s_settings_change_nothing(method, sibling_class):
    embeddings, *labels = a_set()
    given = embeddings, *map(np.int32, (*labels, range(60)))
    raw = {"method": method, "sibling_class": sibling_class, "key": jax.random.key_data(KEY)}
    wanted = select(*given, method, sibling_class)
    jax.tree.map(np.testing.assert_array_equal, mining.quadruplets(*given, **raw), wanted)
    raised, strict = jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict")
    with jax.enable_x64(True), raised, strict:
        jax.tree.map(np.testing.assert_array_equal, select(*given, method, sibling_class), wanted)


@pytest.mark.parametrize("method", METHODS)
def test_shard_map_divides_the_references(method):
    whole, axis = map(jax.P, (None, "data"))
    *given, references = *a_set(), np.arange(60)
    mesh = jax.sharding.Mesh(jax.devices()[:1], "data")
    specs = {"mesh": mesh, "in_specs": (*[whole] * 3, axis), "out_specs": axis}
    mapped = jax.shard_map(lambda *all_: mining.quadruplets(*all_, method=method, key=KEY), **specs)
    wanted = select(*given, references, method)
    jax.tree.map(np.testing.assert_array_equal, mapped(*given, references), wanted)


@pytest.mark.parametrize("sibling_class", ["any", "drawn"])
def test_random_members_are_uniform(sibling_class):
    # Reference 0: positives 1 2, siblings 3 | 4 5 6 (two classes), negatives 7 8.
    fine = np.array([5, 5, 5, 1, 9, 9, 9, 1, 1])
    coarse = np.array([2, 2, 2, 2, 2, 2, 2, 0, 7])
    counts = np.zeros((3, 9))
    select = jax.jit(
        jax.vmap(
            lambda key: mining.quadruplets(
                jnp.zeros((9, 1)),
                jnp.asarray(fine),
                jnp.asarray(coarse),
                jnp.array([0]),
                method="random",
                key=key,
                sibling_class=sibling_class,
            )
        )
    )
    found = select(jax.random.split(KEY, 3000))
    assert found.valid.all()
    for row, column in enumerate(found[1:4]):
        counts[row] = np.bincount(np.asarray(column)[:, 0], minlength=9) / 3000
    lone = 0.5 if sibling_class == "drawn" else 0.25
    rest = (1 - lone) / 3
    expected = [
        [0, 0.5, 0.5, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, lone, rest, rest, rest, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0.5, 0.5],
    ]
    np.testing.assert_allclose(counts, expected, atol=0.04)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ([0, 1, 1, 2, 1, 1, 2, 2], [0, 0, 0, 1, 0, 0, 1, 1]),
        ([0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1]),
        ([0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
    ids=["a fine class of one image", "a coarse class of one fine class", "one coarse class"],
)
def test_where_there_is_no_quadruplet_it_is_not_valid(method, fine, coarse):
    embeddings = np.eye(8, 2, dtype=np.float32)
    fine, coarse = np.array(fine), np.array(coarse)
    if method == "random":  # takes what is not finite, too
        found = select(embeddings, fine, coarse, np.array([0]), method)
    else:
        found = select_few(embeddings, fine, coarse, method)
    assert not found.valid[0]
    assert [int(column[0]) for column in found[:4]] == [0, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_blocks_and_shares_do_not_change_the_answer(method):
    embeddings, fine, coarse = a_set(64, 3)
    references = np.random.default_rng(1).permutation(64)[:48]

    def of(references, block_size=512):
        return select(embeddings, fine, coarse, references, method, block_size=block_size)

    whole = of(references)
    for block_size in (1, 7, 48):
        for one, other in zip(whole, of(references, block_size), strict=True):
            np.testing.assert_array_equal(one, other)
    for start in range(0, 48, 16):  # the share of another device
        for one, other in zip(whole, of(references[start : start + 16]), strict=True):
            np.testing.assert_array_equal(one[start : start + 16], other)


@pytest.mark.parametrize(("method", "sibling_class"), PAIRS)
@pytest.mark.parametrize("exponent", [-90, 90])
def test_the_scale_of_embeddings_does_not_matter(method, sibling_class, exponent):
    embeddings, fine, coarse = a_set()
    given = fine, coarse, np.arange(60), method, sibling_class
    plain = select(embeddings, *given)
    scaled = select(np.ldexp(embeddings, exponent), *given)
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float16, pytest.param(jnp.bfloat16, marks=SLOW)])
def test_half_precision_is_searched_in_single(dtype):
    embeddings = jnp.asarray(np.random.default_rng(5).normal(size=(60, 3)), dtype)
    _, fine, coarse = a_set()
    references = np.arange(60, dtype=np.int32)
    arguments = fine, coarse, references, "nearest_to_reference", "any"
    got = select(embeddings, *arguments)
    expected = select(embeddings.astype(jnp.float32), *arguments)
    for members, wanted in zip(got, expected, strict=True):
        np.testing.assert_array_equal(members, wanted)


@pytest.mark.parametrize(("method", "sibling_class"), PAIRS)
@pytest.mark.parametrize("shift", [64.0, 2.0**20])
def test_how_far_from_the_origin_does_not_matter(method, sibling_class, shift):
    embeddings, fine, coarse = a_set()
    given = fine, coarse, np.arange(60), method, sibling_class
    near = select(embeddings / 8, *given)
    far = select(embeddings / 8 + np.float32(shift), *given)
    for one, other in zip(near, far, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("method", "sibling_class"), PAIRS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_take_no_part(method, bad, sibling_class):
    embeddings, fine, coarse = a_set()
    fine[:3], coarse[:3] = 9, 3  # removing this class does not change the other draws
    embeddings[:3, 1] = bad
    found = select(embeddings, fine, coarse, np.arange(60), method, sibling_class)
    assert not found.valid[:3].any() and found.valid[3:].all()
    rest = embeddings[3:], fine[3:], coarse[3:]
    for i in range(57):
        drawn = fine[found.sibling[i + 3]] if sibling_class == "drawn" else None
        members = tuple(int(column[i + 3]) - 3 for column in found[1:4])
        assert members == by_loops(*rest, i, method, drawn)


def test_a_reference_that_is_not_there_has_no_quadruplet():
    embeddings, fine, coarse = a_set()
    references = np.arange(60)
    references[:2] = 60, -1
    for method in METHODS:
        found = select(embeddings, fine, coarse, references, method, "any")
        assert found.valid.tolist() == 2 * [False] + 58 * [True]
        np.testing.assert_array_equal(found.reference, references)


DEVICES = """
import sys
import numpy as np, jax
from ml_collections import ConfigDict
from jaxatr.tasks.embedding.mining import select
assert jax.local_device_count() == int(sys.argv[3])
given = np.load(sys.argv[1])
found = {}
for method in ("nearest_to_negative", "nearest_to_reference", "random"):
    fields = ConfigDict({"method": method, "sibling_class": "", "block_size": 16})
    chosen = select(*(given[n] for n in ("x", "fine", "coarse")), fields, seed=1, step=5)
    found |= {f"{method}_{name}": value for name, value in chosen.items()}
np.savez(sys.argv[2], **found)
"""


@pytest.mark.slow
def test_eight_devices_select_as_one_does(tmp_path):
    x, fine, coarse = a_set(61)  # not a multiple of eight
    np.savez(tmp_path / "set.npz", x=x, fine=fine, coarse=coarse)
    found = {}
    for count in (1, 8):
        out = tmp_path / f"{count}.npz"
        flags = f"--xla_force_host_platform_device_count={count}"
        subprocess.run(
            [sys.executable, "-c", DEVICES, tmp_path / "set.npz", out, str(count)],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            check=True,
            timeout=240,
        )
        with np.load(out) as arrays:
            found[count] = dict(arrays)
    assert found[1]["random_members"].shape == (61, 4) and found[1]["random_valid"].all()
    for name, value in found[1].items():
        np.testing.assert_array_equal(found[8][name], value, err_msg=name)


def test_no_references_give_no_quadruplets():
    embeddings, fine, coarse = a_set()
    for method in METHODS:
        found = select(embeddings, fine, coarse, np.zeros(0, np.int32), method)
        assert all(column.shape == (0,) for column in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "hardest"}, "method: got 'hardest', wanted one of nearest_to_negative"),
        ({"sibling_class": "all"}, "sibling_class: got 'all', wanted 'any' or 'drawn'"),
        ({"block_size": 0}, "block_size: got 0, wanted at least 1"),
        ({"fine": np.arange(5)}, "fine: got 5 labels, wanted 60, one per embedding"),
        ({"coarse": np.arange(61)}, "coarse: got 61 labels, wanted 60, one per embedding"),
    ],
)
def test_wrong_arguments_are_named(unchecked, arguments, message):
    embeddings, fine, coarse = a_set()
    with pytest.raises(ValueError, match=message):
        labels = {"fine": fine, "coarse": coarse}
        mining.quadruplets(embeddings, references=np.arange(3), key=KEY, **(labels | arguments))
