import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import mining

KEY = jax.random.key(3)
METHODS = ("nearest_to_negative", "nearest_to_reference", "random")


def a_set(n=60, dimensions=3, seed=0):
    """Whole numbers, so that every distance is exact in single precision, with many ties."""
    draw = np.random.default_rng(seed)
    fine = draw.integers(0, 9, n)
    return draw.integers(-4, 5, (n, dimensions)).astype(np.float32), fine, fine // 3


def by_loops(embeddings, fine, coarse, reference, method, sibling_fine=None):
    """Section 3.3 in plain loops; returns positive, sibling, negative, None for none."""

    def distance(i, j):
        return np.sum((embeddings[i].astype(np.float64) - embeddings[j]) ** 2)

    def nearest(candidates, centre):
        best = None
        for i in candidates:
            if best is None or distance(i, centre) < distance(best, centre):
                best = i
        return best

    others = [i for i in range(len(fine)) if coarse[i] != coarse[reference]]
    negative = nearest(others, reference)
    if negative is None:
        return None, None, None

    def chosen(candidates):
        radius = distance(reference, negative)
        outside = [i for i in candidates if distance(i, reference) > radius]
        if outside:
            return nearest(outside, negative if method == "nearest_to_negative" else reference)
        farthest = None
        for i in candidates:
            if farthest is None or distance(i, reference) > distance(farthest, reference):
                farthest = i
        return farthest

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
@pytest.mark.parametrize(("n", "dimensions"), [(60, 3), (60, 2), (25, 1), (9, 4)])
def test_selections_are_those_of_plain_loops(method, n, dimensions):
    embeddings, fine, coarse = a_set(n, dimensions, seed=n + dimensions)
    references = np.arange(n)
    found = mining.quadruplets(
        embeddings, fine, coarse, references, method=method, key=KEY, sibling_class="any"
    )
    for i in references:
        expected = by_loops(embeddings, fine, coarse, i, method)
        assert bool(found.valid[i]) == (None not in expected)
        if found.valid[i]:
            got = found.positive[i], found.sibling[i], found.negative[i]
            assert tuple(map(int, got)) == expected


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("count", [1024, 2300])
def test_many_examples_are_searched_in_chunks(method, count):
    draw = np.random.default_rng(count)
    embeddings = draw.integers(-4, 5, (count, 4)).astype(np.float32)  # hundreds of ties
    fine = np.sort(draw.choice(9, count, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.03, 0.015, 0.005]))
    fine = draw.permutation(fine)
    references = draw.choice(count, 25, replace=False)
    found = mining.quadruplets(
        embeddings,
        fine,
        fine // 3,
        references,
        method=method,
        key=KEY,
        sibling_class="any",
        block_size=7,
    )
    for row, i in enumerate(references):
        expected = by_loops(embeddings, fine, fine // 3, i, method)
        got = found.positive[row], found.sibling[row], found.negative[row]
        assert bool(found.valid[row]) and tuple(map(int, got)) == expected


@pytest.mark.parametrize("method", METHODS[:2])
def test_a_drawn_sibling_class_is_searched_alone(method):
    embeddings, fine, coarse = a_set()
    references = np.arange(len(fine))
    found = mining.quadruplets(
        embeddings, fine, coarse, references, method=method, key=KEY, sibling_class="drawn"
    )
    for i in references:
        drawn = fine[found.sibling[i]]
        expected = by_loops(embeddings, fine, coarse, i, method, drawn)
        assert (int(found.positive[i]), int(found.sibling[i])) == expected[:2]


def test_hand_made_points_on_a_line():
    # Reference at 0, the negative at 2: of the positives at 1, 3 and 7, the one at 3 is beyond the
    # negative and nearest to both. Of the siblings at -1 and 1.5 none is beyond: the farther, 1.5.
    embeddings = np.array([[0.0], [1.0], [3.0], [7.0], [-1.0], [1.5], [2.0], [5.0]], np.float32)
    fine = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    coarse = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    for method in METHODS[:2]:
        found = mining.quadruplets(
            embeddings, fine, coarse, np.array([0]), method=method, key=KEY, sibling_class="any"
        )
        assert [int(index[0]) for index in found] == [0, 2, 5, 6, 1]


def test_the_methods_differ_as_their_definitions_do():
    # Reference at the origin, negative at (2, 0); both positives are beyond it. (0, 2.5) is nearer
    # to the reference, (3, 0) to the negative.
    embeddings = np.array([[0, 0], [0, 2.5], [3, 0], [9, 9], [2, 0]], np.float32)
    fine, coarse = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 0, 0, 1])
    positives = [
        int(
            mining.quadruplets(
                embeddings, fine, coarse, np.array([0]), method=method, key=KEY
            ).positive[0]
        )
        for method in METHODS[:2]
    ]
    assert positives == [2, 1]


@pytest.mark.parametrize("method", METHODS)
def test_members_have_the_labels_they_should(method):
    embeddings, fine, coarse = a_set(200, 8)
    found = mining.quadruplets(embeddings, fine, coarse, np.arange(200), method=method, key=KEY)
    assert found.valid.all()
    r, p, s, n = (np.asarray(column) for column in found[:4])
    assert (p != r).all() and (fine[p] == fine[r]).all()
    assert (fine[s] != fine[r]).all() and (coarse[s] == coarse[r]).all()
    assert (coarse[n] != coarse[r]).all()
    assert all(column.dtype == jnp.int32 for column in found[:4])


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
    [([0, 1, 1, 2], [0, 0, 0, 1]), ([0, 0, 1, 1], [0, 0, 1, 1]), ([0, 0, 1, 1], [0, 0, 0, 0])],
    ids=["a fine class of one image", "a coarse class of one fine class", "one coarse class"],
)
def test_where_there_is_no_quadruplet_it_is_not_valid(method, fine, coarse):
    found = mining.quadruplets(
        np.eye(4, dtype=np.float32),
        np.array(fine),
        np.array(coarse),
        np.array([0]),
        method=method,
        key=KEY,
    )
    assert not found.valid[0]
    assert [int(column[0]) for column in found[:4]] == [0, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_blocks_and_shares_do_not_change_the_answer(method):
    embeddings, fine, coarse = a_set(64, 3)
    references = np.random.default_rng(1).permutation(64)[:48]

    def select(references, block_size=512):
        return mining.quadruplets(
            embeddings, fine, coarse, references, method=method, key=KEY, block_size=block_size
        )

    whole = select(references)
    for block_size in (1, 7, 48):
        for one, other in zip(whole, select(references, block_size), strict=True):
            np.testing.assert_array_equal(one, other)
    for start in range(0, 48, 16):  # what another device would be given
        for one, other in zip(whole, select(references[start : start + 16]), strict=True):
            np.testing.assert_array_equal(one[start : start + 16], other)


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("shift", [64.0, 2.0**20])
def test_how_far_from_the_origin_does_not_matter(method, shift):
    embeddings, fine, coarse = a_set()
    given = fine, coarse, np.arange(60)
    near = mining.quadruplets(embeddings / 8, *given, method=method, key=KEY)
    far = mining.quadruplets(embeddings / 8 + np.float32(shift), *given, method=method, key=KEY)
    for one, other in zip(near, far, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("sibling_class", ["any", "drawn"])
def test_what_is_not_finite_takes_no_part(method, bad, sibling_class):
    embeddings, fine, coarse = a_set()
    fine[:3], coarse[:3] = 9, 3  # a class whose going leaves the other draws as they are
    options = {"method": method, "key": KEY, "sibling_class": sibling_class}
    spoilt = embeddings.copy()
    spoilt[:3, 1] = bad
    found = mining.quadruplets(spoilt, fine, coarse, np.arange(60), **options)
    rest = mining.quadruplets(embeddings[3:], fine[3:], coarse[3:], np.arange(57), **options)
    assert not found.valid[:3].any()
    if sibling_class == "any":  # draws go by the index
        for one, other in zip(found[:4], rest[:4], strict=True):
            valid = np.asarray(rest.valid)
            np.testing.assert_array_equal(one[3:][valid], other[valid] + 3)
    members = np.stack(found[1:4])[:, found.valid]
    assert members.min() >= 3 and found.valid.sum() == rest.valid.sum()


def test_a_reference_that_is_not_there_has_no_quadruplet():
    embeddings, fine, coarse = a_set()
    for method in METHODS:
        found = mining.quadruplets(
            embeddings, fine, coarse, np.array([60, -1, 5]), method=method, key=KEY
        )
        assert found.valid.tolist() == [False, False, True]
        np.testing.assert_array_equal(found.reference, [60, -1, 5])


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
    x, fine, coarse = a_set(61)  # no multiple of eight
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


@pytest.mark.parametrize("method", METHODS[:2])
def test_no_array_is_as_large_as_all_pairs(method):
    n = 3000
    shapes = jax.eval_shape(lambda x: x, jnp.zeros((n, 4)))
    labels = jnp.arange(n) % 30

    def select(embeddings):
        return mining.quadruplets(
            embeddings,
            labels,
            labels // 3,
            jnp.arange(n),
            method=method,
            key=KEY,
            block_size=64,
        )

    memory = jax.jit(select).lower(shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 20 * 64 * n * 4 < n * n * 4


def test_no_references_give_no_quadruplets():
    embeddings, fine, coarse = a_set()
    for method in METHODS:
        found = mining.quadruplets(
            embeddings, fine, coarse, np.zeros(0, np.int32), method=method, key=KEY
        )
        assert all(column.shape == (0,) for column in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "hardest"}, "method: got 'hardest', wanted one of nearest_to_negative"),
        ({"sibling_class": "all"}, "sibling_class: got 'all', wanted 'any' or 'drawn'"),
        ({"block_size": 0}, "block_size: got 0, wanted at least 1"),
        ({"fine": np.arange(5)}, "fine: got 5, wanted 60, the embeddings"),
        ({"coarse": np.arange(61)}, "coarse: got 61, wanted 60, the embeddings"),
    ],
)
def test_wrong_arguments_are_named(unchecked, arguments, message):
    embeddings, fine, coarse = a_set()
    with pytest.raises(ValueError, match=message):
        labels = {"fine": fine, "coarse": coarse}
        mining.quadruplets(embeddings, references=np.arange(3), key=KEY, **(labels | arguments))
