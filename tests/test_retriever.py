"""The retriever of a trained embedding, and predicting with it by the command."""

import functools
import json
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxatr import data, reporting, runs, training
from jaxatr.cli import predict
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.embedding.predictor import UNKNOWN, Retriever


@pytest.fixture(scope="module")
def retriever(embedding_run):
    return Retriever.load(embedding_run)


@pytest.fixture(scope="module")
def images(levels):
    paths = sorted((levels / "test").glob("*/*.png"))
    return paths, [data.read_image(path) for path in paths]


def test_neighbours_are_those_of_an_exhaustive_search(retriever, images):
    paths, arrays = images
    matches = list(retriever(arrays, neighbours=4, batch_size=7))
    embedded = np.concatenate(list(retriever.embed(arrays)))
    index = retriever.index
    distances = np.linalg.norm(
        np.float64(embedded)[:, None] - np.float64(index.embeddings), axis=-1
    )
    order = np.argsort(distances, axis=1, kind="stable")[:, :4]
    assert len(matches) == len(paths)
    for match, row, expected in zip(matches, distances, order, strict=True):
        found = [near.distance for near in match.neighbours]
        np.testing.assert_allclose(found, row[expected], atol=1e-5)
        first = match.neighbours[0]
        assert match.distance == first.distance and first.path.startswith("train/")
        assert first.path.split("/")[1] == first.label  # the file lies in its class's folder
        known = first.distance <= retriever.max_distance
        assert match.label == (first.label if known else UNKNOWN)


def test_a_pickled_retriever_finds_the_same(retriever, images):
    copied = pickle.loads(pickle.dumps(retriever))
    assert copied.predict(images[1]) == retriever.predict(images[1])
    assert copied.digest() == retriever.digest()


def test_a_training_chip_finds_itself(retriever, levels):
    wanted = str(retriever.index.paths[5])
    (match,) = retriever([data.read_image(levels / wanted)])
    assert match.neighbours[0].path == wanted and match.distance < 1e-3
    assert len(match.neighbours) == 1


def test_the_distance_decides_whether_an_image_is_unknown(embedding_run, images):
    _, arrays = images
    near = Retriever.load(embedding_run, max_distance=-1.0)
    far = Retriever.load(embedding_run, max_distance=1e9)
    assert {match.label for match in near(arrays)} == {UNKNOWN}
    assert UNKNOWN not in {match.label for match in far(arrays)}
    fitted = training.load_evaluation(embedding_run)["groups"]["all"]["scores"]["nearest"]
    assert Retriever.load(embedding_run).max_distance == -fitted["fitted_threshold"]


def test_images_that_do_not_fit_are_refused(retriever):
    with pytest.raises(ValueError, match="got an image of float32, wanted uint8"):
        list(retriever([np.zeros((24, 24, 1), np.float32)]))
    with pytest.raises(ValueError, match="k: got 1000, wanted 1 to 54"):
        list(retriever([np.zeros((24, 24, 1), np.uint8)], neighbours=1000))


def test_the_kinds_of_runs_are_told_apart(embedding_run, trained_run, tmp_path):
    with pytest.raises(ValueError, match="Recogniser loads and Retriever.* or jaxatr predict"):
        Retriever.load(trained_run)
    with pytest.raises(ValueError, match="Retriever loads and Recogn"):
        Recogniser.load(embedding_run)
    copied = tmp_path / "run"
    shutil.copytree(embedding_run, copied)
    (copied / training.EVALUATION).unlink()
    with pytest.raises(ValueError, match="is not evaluated yet"):
        Retriever.load(copied)
    (copied / training.INDEX).unlink()
    with pytest.raises(ValueError, match="has no index.npz to search"):
        Retriever.load(copied)


@pytest.fixture
def flags(flags_of):
    return functools.partial(flags_of, predict)


@pytest.mark.slow
def test_another_set_is_searched_and_recognised(embedding_run, levels, tmp_path):
    shutil.copytree(embedding_run, tmp_path / "run")
    own = training.load_evaluation(embedding_run)
    result = runs.evaluate_run(tmp_path / "run", data=levels / "test", name="flight")
    assert result["groups"] == own["groups"]  # the images are those of its test
    assert result["retrieval"] == own["retrieval"]
    place = tmp_path / "run" / "sets" / "flight"
    assert (place / "scores.npz").is_file() and not (place / "index.npz").exists()
    header, _, first, second = reporting.sets_table(tmp_path / "run").splitlines()
    assert first.split()[2:] == second.split()[1:]
    assert "run on flight" in reporting.render_report([tmp_path / "run"])


def test_a_set_of_one_image_is_recognised(embedding_run, retriever, levels):
    name = retriever.classes[0]
    image = data.read_image(levels / "test" / name / "000.png")
    (match,) = retriever([image])
    result = runs.evaluate_run(embedding_run, data=(image[None], [name]))
    assert result["groups"]["all"]["closed_accuracy"] == (match.neighbours[0].label == name)
    assert result["retrieval"] == {} and result["set"]["images"] == 1


def test_a_set_of_new_classes_is_refused_without_the_flags_of_recognisers(
    embedding_run, levels, tmp_path
):
    shutil.copytree(levels / "test" / "disc", tmp_path / "set" / "boat")
    with pytest.raises(ValueError, match=r"none of its classes is known .* one of [a-z, ]*$"):
        runs.evaluate_run(embedding_run, data=tmp_path / "set")


def test_a_damaged_index_is_named(embedding_run, tmp_path):
    shutil.copytree(embedding_run, tmp_path / "run")
    (tmp_path / "run" / "index.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"run/index\.npz: not readable arrays"):
        Retriever.load(tmp_path / "run")


def test_an_index_without_its_checkpoint_asks_for_an_evaluation(embedding_run, tmp_path):
    shutil.copytree(embedding_run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "60").rename(checkpoints / "80")  # the run went on, and was stopped
    with pytest.raises(ValueError, match=r"index\.npz is of step 60, but .* of \[80\]: evaluate"):
        Retriever.load(tmp_path / "run")


def test_the_command_names_neighbours(embedding_run, images, flags, capsys, tmp_path):
    paths, _ = images
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    arguments = flags(f"--workdir={embedding_run}", "--neighbours=3", paths[0], broken, paths[1])
    assert predict.main(arguments) == 1
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert first.startswith(f"{paths[0]}: ") and second.startswith(f"{paths[1]}: ")
    assert "unknown beyond" in first and first.count("; ") == 2 and "train/" in first
    assert "broken.png" in printed.err


def test_the_command_prints_json(embedding_run, images, flags, capsys):
    paths, _ = images
    arguments = flags(f"--workdir={embedding_run}", "--jsonl", "--max_distance=0", paths[0])
    assert predict.main(arguments) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["label"] == UNKNOWN and line["max_distance"] == 0
    assert set(line["neighbours"][0]) == {"label", "distance", "id", "path"}


def test_flags_of_the_other_kind_are_refused(embedding_run, trained_run, flags):
    arguments = flags(f"--workdir={embedding_run}", "--gamma=0.5", "x.png")
    with pytest.raises(
        ValueError,
        match="gamma: .* takes neighbours, max_distance",
    ):
        predict.main(arguments)


def test_a_recogniser_has_no_distance(trained_run, flags):
    arguments = flags(f"--workdir={trained_run}", "--max_distance=0.5", "x.png")
    with pytest.raises(
        ValueError,
        match="max_distance: .* takes checkpoint, gamma",
    ):
        predict.main(arguments)


def test_gray_sixteen_bits_are_refused_by_name(embedding_run, flags, tmp_path, capsys):
    path = tmp_path / "wide.png"
    Image.fromarray(np.zeros((24, 24), np.uint16)).save(path)
    assert predict.main(flags(f"--workdir={embedding_run}", path)) == 1
    assert "wide.png" in capsys.readouterr().err
    assert training.read_record(embedding_run)["hierarchy"] == "image_folder"
