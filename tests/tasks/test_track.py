"""The task of tracks: batches, loss, resuming and evaluation."""

import shutil
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image

from jaxatr import config as configuration
from jaxatr import losses, openset, parallel, reporting, runs, training
from jaxatr.data import PLAIN
from jaxatr.explain import load_target
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.tracks import TrackRecogniser
from jaxatr.reporting import score_record
from jaxatr.tasks.track.task import TrackOpenSet


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    config = configuration.of_task("jaxatr.tasks.track:TrackOpenSet")
    config.data.name, config.data.validation = "simulated_tracks", 0.25
    config.data.data_dir = str(tmp_path_factory.mktemp("prepared"))
    config.data.options = ConfigDict({"tracks": 4, "frames": (1, 3), "size": 16})
    config.model.backbone = "jaxatr_test_networks:Small"
    config.open_set.split = "random-5/3"
    config.optimizer.learning_rate, config.augment.shift = 0.1, 1
    config.augment.flip_horizontal = True
    config.track.frames, config.track.hidden = 3, 8
    config.train.batch_size, config.train.steps, config.train.evaluate_every = 8, 6, 100.0
    config.train.checkpoint_every, config.train.log_every, config.train.keep = 3, 1, 5
    return config


@pytest.fixture
def config(base):
    return base.copy_and_resolve_references()


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("tracks") / "run"
    runs.train_run(base, workdir, progress=False)
    return workdir, runs.evaluate_run(workdir), dict(np.load(workdir / "scores.npz"))


def test_tracks_are_whole_in_one_part(config):
    examples = TrackOpenSet(config).examples
    numbers = {name: set(part.column("track").tolist()) for name, part in examples.parts.items()}
    assert {name: len(found) for name, found in numbers.items()} == {
        "train": 15, "validation": 5, "test": 32
    }  # fmt: skip
    assert len(set.union(*numbers.values())) == 52
    for name, part in examples.parts.items():
        track, frame = part.column("track"), part.column("frame")
        for members, length in zip(*examples.tracks[name], strict=True):
            assert len(set(track[members].tolist())) == 1  # also what it is filled up with
            np.testing.assert_array_equal(frame[members[:length]], range(length))
            assert length == np.sum(track == track[members[0]])
        np.testing.assert_array_equal(
            examples.ends[name].labels, part.labels[examples.tracks[name].last]
        )
    assert set(examples.parts["train"].labels) == set(range(5))


def test_batches_hold_tracks(config):
    task = TrackOpenSet(config)
    batch = next(task.batches(task.phases[0]))
    assert batch["image"].shape == (8, 3, 16, 16, 1) and batch["length"].shape == (8,)
    chips = task.examples.parts["train"]
    lengths = dict(zip(*np.unique(chips.column("track"), return_counts=True), strict=True))
    number = dict(zip(chips.column("id").tolist(), chips.column("track").tolist(), strict=True))
    for ids, length in zip(batch["id"], batch["length"], strict=True):
        assert lengths[number[int(ids[0])]] == length
        np.testing.assert_array_equal(ids, np.resize(ids[:length], 3))


def shares(task, batch, devices):
    """Computes the sum of the devices' shares of the loss."""
    params, state = jax.jit(task.init)(jax.random.key(0))
    loss = partial(task.loss, params, state)
    mapped = jax.vmap(loss, (0, None, None), axis_name=parallel.AXIS)
    out = jax.jit(mapped)(parallel.shard(batch, devices), jax.random.key(1), jnp.int32(0))
    return jax.tree.map(lambda leaf: np.sum(leaf, axis=0), out)


def test_the_loss_is_equation_4_on_tracks_and_on_chips(config):
    config.model.backbone, config.track.chip_weight = "jaxatr_test_networks:Plain", 0.3
    config.augment.shift, config.augment.flip_horizontal = 0, False
    task = TrackOpenSet(config)
    batch = next(task.batches(task.phases[0]))
    out = shares(task, batch, 1)
    params, _ = jax.jit(task.init)(jax.random.key(0))
    apply, own, chips = jax.jit(task.module.apply), [], []
    for images, length, label in zip(
        batch["image"], batch["length"], batch["label"][:, 0], strict=True
    ):
        said = apply({"params": params}, task.examples.normalize(images[None, :length]))
        own += losses.open_set(
            said.track.logits, said.track.open_logits, np.array([label])
        ).tolist()
        labels = np.full(length, label)
        chips.append(np.mean(losses.open_set(said.chips.logits, said.chips.open_logits, labels)))
    np.testing.assert_allclose(out.total, np.sum(own) + 0.3 * np.sum(chips), rtol=1e-4)
    np.testing.assert_allclose(out.sums["chip_loss"][0], np.sum(chips), rtol=1e-4)
    assert out.count == 8 and 0 <= out.sums["chip_accuracy"][0] <= 8


@pytest.mark.slow
def test_eight_devices_agree_with_one(config):
    config.model.backbone = "jaxatr_test_networks:Plain"
    task = TrackOpenSet(config)
    batch = next(task.batches(task.phases[0]))
    one, eight = shares(task, batch, 1), shares(task, batch, 8)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), eight, one)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_bits(base, run, tmp_path):
    whole, broken = run[0], tmp_path / "run"
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoints" / "6")
    assert training.load_snapshot(broken, "latest").step == 3
    runs.train_run(base, broken, progress=False)
    ours, expected = (training.load_snapshot(path, "latest") for path in (broken, whole))
    assert ours.step == expected.step == 6
    jax.tree.map(np.testing.assert_array_equal, ours.state, expected.state)


def by_track(values, lengths):
    return [piece.mean(axis=0) for piece in np.split(np.float64(values), np.cumsum(lengths)[:-1])]


@pytest.mark.slow  # to train a run of tracks
def test_the_evaluation_has_the_mean_over_chips_beside_the_tracks(run):
    workdir, result, arrays = run
    assert list(result["groups"]) == ["all", "mean over chips", "single chips"]
    lengths = arrays["test_length"]
    counts = [group["num_known"] + group["num_unknown"] for group in result["groups"].values()]
    assert counts == [32, 32, lengths.sum()] and len(lengths) == 32
    known = arrays["test_labels"] != openset.UNKNOWN
    tracks = openset.Outputs(*(arrays[f"test_{n}"] for n in ("logits", "open_logits", "labels")))
    chips = openset.Outputs(
        *(arrays[f"test_chip_{n}"] for n in ("logits", "open_logits", "labels"))
    )
    np.testing.assert_array_equal(chips.labels, np.repeat(tracks.labels, lengths))
    score = openset.cbc_score(chips.logits, chips.open_logits)
    mean = np.array(by_track(score, lengths))
    pairs = mean[known][:, None] - mean[~known]
    found = result["groups"]["mean over chips"]
    area = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert found["scores"]["cbc"]["auroc"] == pytest.approx(area, abs=1e-6)
    predicted = np.argmax(by_track(chips.logits, lengths), axis=1)
    accuracy = np.mean((predicted == tracks.labels)[known])
    assert found["closed_accuracy"] == pytest.approx(accuracy)
    for name, outputs in (("all", tracks), ("single chips", chips)):
        values = openset.fit_scores(openset.choose_scores(openset.DEFAULT)).on(outputs)
        again = openset.evaluate(outputs.labels, outputs.predicted, values)
        for kind in openset.DEFAULT:
            area = again["scores"][kind]["auroc"]
            assert result["groups"][name]["scores"][kind]["auroc"] == pytest.approx(area, abs=1e-6)
    table = reporting.open_set_table(result)
    assert "mean over chips" in table and "single chips" in table
    assert len(np.load(workdir / "thumbnails.npz")["id"]) > 0
    assert set(np.load(workdir / "thumbnails.npz")["id"]) <= set(arrays["test_id"])


@pytest.mark.slow  # to train a run of tracks
def test_the_report_shows_the_tracks(run, tmp_path):
    reporting.write_report([run[0]], tmp_path / "report.html")
    assert "simulated" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_scores_that_need_a_gradient_are_of_single_images(run):
    with pytest.raises(ValueError, match="scores: odin needs a gradient.*not for tracks"):
        runs.evaluate_run(run[0], scores="odin")
    result = runs.evaluate_run(run[0], scores="energy,knn", fresh=True)
    for group in result["groups"].values():
        assert set(group["scores"]) == {"energy", "knn"} and "auroc" in group["scores"]["knn"]
    result = runs.evaluate_run(run[0], scores="nndr_features", fresh=True)
    arrays = dict(np.load(run[0] / "scores.npz"))
    for name, prefix in (("all", "test_"), ("single chips", "test_chip_")):
        labels, named = arrays[f"{prefix}labels"], arrays[f"{prefix}predicted_nndr_features"]
        accuracy = np.mean((named == labels)[labels != openset.UNKNOWN])
        row = result["groups"][name]["scores"]["nndr_features"]
        assert row["closed_accuracy"] == pytest.approx(accuracy)
    with pytest.warns(UserWarning, match="odin is left out"):
        result = runs.evaluate_run(run[0], scores="all")
    assert {"softmax", "mls", "cbc", "mahalanobis"} <= set(result["groups"]["all"]["scores"])
    assert not {"odin", "conflabel"} & set(result["groups"]["all"]["scores"])
    runs.evaluate_run(run[0], fresh=True)


def test_the_images_of_a_track_may_be_read_into_one_buffer():
    buffer = np.zeros((2, 2, 1), np.uint8)

    def read():
        for number in range(3):
            buffer[...] = number
            yield buffer

    track = TrackRecogniser._item(SimpleNamespace(bands=PLAIN), read(), "input")
    assert [image.max() for image in track] == [0, 1, 2]


@pytest.mark.slow  # to train a run of tracks
def test_a_recogniser_of_tracks_has_no_neighbours(run):
    with pytest.raises(ValueError, match="neighbours: TrackRecogniser cannot search for training"):
        TrackRecogniser.load(run[0], score="cbc", neighbours=3)


@pytest.mark.slow  # to train a run of tracks
def test_the_recogniser_agrees_with_the_evaluation(base, run, tmp_path, flags_of, capsys):
    from jaxatr.cli import predict

    workdir, _, arrays = run
    task = TrackOpenSet(base)
    chips, found = task.examples.parts["test"], task.examples.tracks["test"]
    images = [
        [chips.split.image(chips.indices[place]) for place in members[:length]]
        for members, length in zip(found.members[:5], found.lengths, strict=False)
    ]
    recogniser = TrackRecogniser.load(workdir)
    predictions = list(recogniser(images, batch_size=3))
    name = recogniser.decision.score.name
    assert name == training.read_record(workdir)["decision"]["decides"]
    for decides, asked in ((name, None), ("cbc", "cbc")):
        own = TrackRecogniser.load(workdir, score=asked)(images, batch_size=3)
        found, scores = [p.score for p in own], arrays[f"test_score_{decides}"][:5]
        np.testing.assert_allclose(found, scores, rtol=1e-3, atol=1e-3)
    longer = [[*([images[0][0]] * 4), *images[1][-1:], *[images[0][0]] * 2]]
    np.testing.assert_allclose(
        next(recogniser(longer)).score, next(recogniser([longer[0][-3:]])).score, rtol=1e-5
    )
    for number, image in enumerate(images[0]):
        (tmp_path / "track").mkdir(exist_ok=True)
        Image.fromarray(image[..., 0]).save(tmp_path / "track" / f"{number}.png")
    for one in (str(tmp_path / "track"), images[0], np.stack(images[0])):
        # A score near zero is a difference of larger numbers, so it is compared absolutely.
        assert recogniser.predict(one).score == pytest.approx(
            predictions[0].score, rel=1e-4, abs=1e-6
        )
    many = [p.score for p in recogniser.predict([tmp_path / "track", *images[1:3]])]
    np.testing.assert_allclose(many, [p.score for p in predictions[:3]], rtol=1e-4, atol=1e-6)
    (tmp_path / "empty").mkdir()
    arguments = flags_of(
        predict, f"--workdir={workdir}", tmp_path / "track", tmp_path / "empty", tmp_path / "no"
    )
    assert predict.main(arguments) == 1
    printed = capsys.readouterr()
    assert f"{tmp_path}/track: {predictions[0].label} (" in printed.out
    assert "there is no image in this folder" in printed.err and "wanted a folder" in printed.err


@pytest.mark.slow  # to train a run of tracks
def test_it_goes_out_as_onnx(base, run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from jaxatr.runs.export import export_run

    workdir, _, arrays = run
    model = export_run(workdir, tmp_path / "tracks.onnx", score="mls")
    assert [node.op_type for node in model.graph.node].count("LSTM") == 1
    session = onnxruntime.InferenceSession(tmp_path / "tracks.onnx")
    rows = []
    for batch in TrackOpenSet(base).examples.eval_track_batches("test"):
        given = {"images": batch["image"], "lengths": np.int32(batch["length"])}
        rows.append(session.run(["logits"], given)[0][batch["mask"]])
    np.testing.assert_allclose(np.concatenate(rows), arrays["test_logits"], atol=1e-4)
    assert (
        onnx.load(tmp_path / "tracks.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param
    )


@pytest.mark.slow  # to train a run of tracks
def test_tracks_in_folders_are_another_set_to_measure(base, run, tmp_path):
    workdir, own, _ = run
    shutil.copytree(workdir, tmp_path / "run")
    task = TrackOpenSet(base)
    chips, found = task.examples.parts["test"], task.examples.tracks["test"]
    for number, (members, length) in enumerate(zip(found.members, found.lengths, strict=True)):
        name = chips.split.classes[chips.classes[members[0]]]
        folder = tmp_path / "flight" / name / f"{number:03}"
        folder.mkdir(parents=True)
        for frame, place in enumerate(members[:length]):
            image = chips.split.image(chips.indices[place])[..., 0]
            Image.fromarray(image).save(folder / f"{frame}.png")
    (folder / "9.png").write_text("no image")
    with pytest.warns(UserWarning, match=f"skipped 1 of 32 tracks: {name}/031: "):
        result = runs.evaluate_run(tmp_path / "run", data=tmp_path / "flight")
    (folder / "9.png").unlink()
    result = runs.evaluate_run(tmp_path / "run", data=tmp_path / "flight", fresh=True)
    first, second = (one["groups"]["all"] for one in (own, result))
    assert first["num_known"] == second["num_known"] and second["num_unknown"] == 12
    for name, row in first["scores"].items():
        assert second["scores"][name]["auroc"] == pytest.approx(row["auroc"], abs=0.01)
    assert "single images only" in result["drift"]["sentence"]
    assert "own test" in reporting.sets_table(tmp_path / "run")
    with pytest.raises(ValueError, match="no folder of a class"):
        runs.evaluate_run(tmp_path / "run", data=folder)
    with pytest.raises(ValueError, match="measured on folders of tracks"):
        runs.evaluate_run(tmp_path / "run", data=(np.zeros((2, 16, 16), np.uint8), ["a", "b"]))


@pytest.mark.slow  # to train a run of tracks
def test_commands_for_single_images_refuse_a_run_of_tracks(run):
    with pytest.raises(
        ValueError,
        match="which TrackRecogniser loads",
    ):
        Recogniser.load(run[0])
    with pytest.raises(ValueError, match="single images, got one of tracks"):
        load_target(run[0])
    with pytest.raises(ValueError, match="open-set run of single images"):
        runs.train_baseline(run[0], "conflabel", progress=False)


@pytest.mark.slow
def test_without_an_lstm_single_chips_are_trained_and_averaged(config, run, tmp_path):
    config.track.hidden, config.train.steps = 0, 2
    task = runs.make_task(config, tmp_path)
    batch = next(task.batches(task.phases[0]))
    mean = np.mean(task.examples.tracks["train"].lengths)
    assert batch["image"].shape == (8 * round(mean), 16, 16, 1)
    runs.train_run(config, tmp_path, progress=False)
    result, arrays = runs.evaluate_run(tmp_path), dict(np.load(tmp_path / "scores.npz"))
    assert list(result["groups"]) == ["all", "single chips"]
    np.testing.assert_array_equal(arrays["test_id"], run[2]["test_id"])
    score = openset.cbc_score(arrays["test_chip_logits"], arrays["test_chip_open_logits"])
    expected = by_track(score, arrays["test_length"])
    np.testing.assert_allclose(arrays["test_score_cbc"], expected, rtol=1e-5, atol=1e-6)
    recorded = score_record.recorded_scores(arrays, ["cbc"])["cbc"]
    np.testing.assert_array_equal(recorded, arrays["test_score_cbc"])
    assert Recogniser.load(tmp_path).classes == tuple(result["known"])
    assert "Risk and coverage" in reporting.render_report([tmp_path])
    with pytest.raises(ValueError, match="a run of track recognition, which Recogniser loads"):
        TrackRecogniser.load(tmp_path)
    with pytest.raises(ValueError, match="wanted one .* of single images"):
        runs.enrol_run(tmp_path, tmp_path)


@pytest.mark.slow
def test_chips_that_were_not_trained_are_not_compared_with(config, tmp_path):
    config.track.chip_weight, config.train.steps, config.data.validation = 0.0, 1, 0.0
    runs.train_run(config, tmp_path, progress=False)
    assert list(runs.evaluate_run(tmp_path)["groups"]) == ["all"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("track.frames", 0, "track.frames: got 0, wanted at least 1"),
        ("track.hidden", -1, "track.hidden: got -1, wanted 0"),
        ("track.chip_weight", -0.5, "track.chip_weight: got -0.5, wanted 0"),
        ("open_set.negatives", "x.npz", "open_set.negatives: not supported for tracks"),
    ],
)
def test_a_wrong_field_is_named(config, field, value, message):
    config.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=message):
        TrackOpenSet(config)


def test_data_without_tracks_is_refused(small_config):
    config = configuration.retasked(small_config, "jaxatr.tasks.track:TrackOpenSet")
    with pytest.raises(ValueError, match="split 'train' has no column 'track'"):
        TrackOpenSet(config)


def test_tracks_in_both_splits_are_refused(config):
    config.data.test_split = "train"
    with pytest.raises(ValueError, match="data: 32 tracks have chips in both"):
        TrackOpenSet(config)


@pytest.mark.slow
def test_boxes_that_are_off_are_drawn_for_each_chip_and_tested(config, tmp_path):
    config.data.options = ConfigDict({"tracks": 4, "frames": (1, 3), "size": 16, "surround": 4})
    config.data.center_crop, config.data.box_margin, config.data.box_error = 16, 0.2, 0.1
    config.augment.shift, config.augment.box_shift, config.augment.box_scale = 0, 0.1, 0.1
    config.train.steps = 2
    workdir = tmp_path / "run"
    runs.train_run(config, workdir, progress=False)
    groups = runs.evaluate_run(workdir)["groups"]
    assert list(groups)[:2] == ["all", "boxes off by 10 %"]
    assert groups["all"]["num_known"] == groups["boxes off by 10 %"]["num_known"] == 20
    task = TrackOpenSet(config)
    batch = next(task.batches(task.phases[0]))
    assert batch["image"].shape[1:] == (3, 22, 22, 1)
    ramp = jnp.broadcast_to(jnp.arange(22.0)[:, None, None], (3, 22, 22, 1))
    zero = jnp.zeros(3, int)
    chips = task.examples.augment(jax.random.key(0), ramp, zero, zero, boxes=jnp.arange(3))
    assert np.unique(np.round(np.array(chips).mean(axis=(1, 2, 3)), 3)).size == 3
