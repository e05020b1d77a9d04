"""Galleries in pieces give the same results as undivided ones."""

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.files import load_arrays
from jaxatr.openset import gallery
from jaxatr.openset.detectors import template
from jaxatr.openset.gallery import pieces, reranking
from jaxatr.openset.outputs import Outputs

CLASSES = 5


def decision(count=60, seed=0):
    """A decision by the ratio of distances between features, and outputs to decide about."""
    score = openset.SCORES["nndr_features"]
    rng = np.random.default_rng(seed)
    examples = _outputs(rng, count, np.arange(count) % CLASSES)
    model = score.fit(examples, None)
    return openset.Decision(score, {score.name: model}, True, threshold=-0.9), _outputs(
        rng, 33, np.full(33, -1)
    )


def _outputs(rng, count, labels):
    features = np.float32(rng.normal(size=(count, 24)) + 0.3 * labels[:, None])
    logits = np.zeros((count, CLASSES), np.float32)
    return Outputs(logits, logits, labels, {"features": features})


def asked(parts):
    def ask(name, queries, classes, estimated):
        return [pieces.search(part[name], queries, classes, estimated) for part in parts]

    return ask


@pytest.mark.parametrize("of", [1, 2, 7, 60])
def test_pieces_answer_as_the_whole(of):
    whole, outputs = decision()
    cut = [pieces.piece_of(whole, number, of) for number in range(of)]
    (name,) = whole.models
    assert sum(len(part[name].labels) for part in cut) == 60
    assert max(len(part[name].labels) for part in cut) <= -(-60 // of)
    found = pieces.without(whole, asked(cut))
    assert len(found.models[name].examples) == 0
    for one, other in zip(whole.ready()(outputs), found.ready()(outputs), strict=True):
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("limit", [reranking.WHOLE, 300])
def test_forms_and_two_stages_search_pieces(monkeypatch, limit):
    rng = np.random.default_rng(1)
    chips = np.uint8(rng.integers(0, 255, (80, 24, 24, 1)))
    queries = np.uint8(0.8 * chips[::7] + 0.2 * chips[7::6][: len(chips[::7])])
    model = template.fit(chips, np.arange(80) % 4, 4, shift=1)
    score = openset.SCORES["template"]
    whole = openset.Decision(score, {"template": model}, True, threshold=0.0)
    wanted = template.answer(model, queries)
    monkeypatch.setattr(reranking, "WHOLE", limit)
    cut = [pieces.piece_of(whole, number, 2) for number in range(2)]
    assert (cut[0]["template"].index is None) == (limit > 300)
    answer = template.answer(pieces.without(whole, asked(cut)).models["template"], queries)
    np.testing.assert_array_equal(answer.label, wanted.label)
    np.testing.assert_allclose(
        answer.distances.min(axis=1), wanted.distances.min(axis=1), atol=1e-6
    )
    if limit > 300:
        np.testing.assert_allclose(answer.score, wanted.score, rtol=1e-5)


def test_only_the_rows_of_a_piece_are_copied_from_a_mapped_file(tmp_path):
    whole, outputs = decision()
    np.savez(tmp_path / "fit.npz", **openset.to_arrays(whole))
    arrays = load_arrays(tmp_path / "fit.npz", mapped=1)
    read = dict(np.load(tmp_path / "fit.npz"))
    assert arrays.keys() == read.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, read[name])
        assert array.dtype == read[name].dtype
    mapped = openset.from_arrays(whole.score, arrays)
    (name,) = mapped.models
    assert isinstance(mapped.models[name].examples, np.memmap)
    piece = pieces.piece_of(mapped, 1, 3)[name]
    assert len(piece.labels) == 20 and not isinstance(piece.labels, np.memmap)
    rest = pieces.without(mapped, asked([])).models[name]
    assert not isinstance(rest.examples, np.memmap) and rest.examples.shape == (0, 24)
    np.testing.assert_array_equal(mapped(outputs).scores, whole(outputs).scores)


def test_networks_that_cannot_be_cut_are_refused():
    whole, _ = decision()
    with pytest.raises(ValueError, match="cannot split its gallery of 60 examples into 61"):
        pieces.piece_of(whole, 0, 61)
    rule = openset.gamma_rule(0.5)
    with pytest.raises(ValueError, match="cbc has no gallery to split"):
        pieces.without(rule, asked([]))
    assert not pieces.galleries_of(rule) and gallery.is_gallery(*whole.models.values())
