"""The export of a detector to ONNX, with decoding, suppression and decision."""

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import bundled
from jaxatr.kernels.compiled import Compiled
from jaxatr.tasks.detection import Detection, tile_network
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.training import TrainedRun


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small network with random weights."""
    config = bundled.load("detect:smoke")
    config.model.width = config.detection.width = 8
    config.model.args = {"stage_sizes": (1, 1, 1, 1)}
    config.detection.most, config.detection.tile, config.detection.tile_overlap = 10, 64, 16
    record = {"split": {"known": ["a", "b"]}, "channels": 1, "image_dtype": "uint8"}
    record |= {"normalization": {"mean": [100.2], "std": [50.0]}}
    record |= {"detection": {"threshold": 0.0101, "gamma": 0.0101}}
    module, rng = Detection.network(config, record), np.random.default_rng(0)
    variables = jax.jit(module.init)(jax.random.key(0), jnp.zeros((1, 64, 64, 1)))
    variables = jax.tree.map(lambda a: a + np.float32(0.05 * rng.normal(size=a.shape)), variables)
    workdir = tmp_path_factory.mktemp("untrained")
    return TrainedRun(workdir, Detection, config, record, 1, variables)


@pytest.mark.slow
def test_detect_finds_the_same_in_another_engine(run, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run = run._replace(workdir=tmp_path)
    limits = {"threshold": 0.0101, "gamma": 0.0101}
    plain, other = Detector(run, **limits), Detector(run, **limits, runtime="onnxruntime")
    assert other.note.startswith("the network runs in onnxruntime") and not plain.note
    assert other.digest() != plain.digest()
    draw = np.random.default_rng(2).integers
    for shape in ((50, 60), (32, 64), (150, 130)):  # the last one is many tiles
        scene = draw(0, 255, (*shape, 1)).astype(np.uint8)
        ours, theirs = plain.detect(scene), other.detect(scene)
        assert len(ours.scores) > 3 and theirs.labels == ours.labels
        np.testing.assert_allclose(theirs.boxes, ours.boxes, atol=1e-2)
        np.testing.assert_allclose(theirs.scores, ours.scores, rtol=1e-4)
        np.testing.assert_allclose(theirs.probabilities, ours.probabilities, rtol=1e-3)
    files = [*tmp_path.glob("fitted/1/network.*.onnx")]
    assert len(files) == 2  # whole tiles, which two of the scenes have, and 32 by 64 pixels
    written = {file: file.stat().st_mtime_ns for file in files}
    Detector(run, **limits, runtime="onnxruntime").detect(np.zeros((32, 64, 1), np.uint8))
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("fitted/1/*")} == written


def test_programs_of_the_sizes_that_were_used_last_are_kept(run, monkeypatch):
    made = []

    def ready(run, network, variables, examples, **_):
        made.append(examples[0].shape[1:3])
        shapes = {"boxes": (1, 1, 4), "scores": (1, 1), "open_logits": (1, 1, 2)}
        nothing = {name: jnp.zeros(shape) for name, shape in shapes.items()}
        return Compiled(lambda given, tiles: nothing | {"valid": nothing["scores"] > 0}, ())

    monkeypatch.setattr(tile_network, "ready_network", ready)
    monkeypatch.setattr(tile_network, "_MOST", 2)
    network = tile_network.TileNetwork(run, "jax")
    for side in (32, 64, 96, 64, 32, 64):
        network(np.zeros((1, side, 64, 1), np.uint8))
    assert made == [(64, 64), (32, 64), (96, 64), (32, 64)]


@pytest.mark.slow
def test_onnx_finds_the_targets_that_detect_finds(run, tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from jaxatr.runs import export

    monkeypatch.setattr(export.training, "load_run", lambda *_: run)
    export.export_run("run", tmp_path / "model.onnx", size=(50, 60))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == ["a", "b"]
    assert json.loads(about["image_shape"]) == [50, 60, 1]
    images = np.random.default_rng(1).integers(0, 255, (2, 50, 60, 1)).astype(np.uint8)
    from jaxatr.runs.container.server import Model  # it imports onnxruntime

    file = io.BytesIO()
    np.save(file, images[0])
    served = Model(str(tmp_path / "model.onnx"))(file.getvalue())["outputs"]
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"images": images}), strict=True))
    detector = Detector(run, threshold=0.0101, gamma=0.0101)
    for number, image in enumerate(images):
        found, valid = detector.detect(image), outputs["valid"][number]
        assert valid.sum() == len(found.scores) > 3
        np.testing.assert_allclose(outputs["boxes"][number][valid], found.boxes, atol=1e-2)
        np.testing.assert_allclose(outputs["scores"][number][valid], found.scores, rtol=1e-4)
        probabilities = outputs["probabilities"][number][valid]
        np.testing.assert_allclose(probabilities, found.probabilities, rtol=1e-3)
        names = np.array(["a", "b", "unknown"])[outputs["decision"][number][valid]]
        assert tuple(names.tolist()) == found.labels
    for name, values in served.items():
        np.testing.assert_allclose(values, outputs[name][0], rtol=1e-5)


def test_scenes_longer_than_a_tile_are_refused(run, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    from jaxatr.runs import export

    monkeypatch.setattr(export.training, "load_run", lambda *_: run)
    with pytest.raises(ValueError, match=r"size: got scenes of \(50, 65\).*at most 64 pixels"):
        export.export_run("run", tmp_path / "model.onnx", size=(50, 65))
    assert not [*tmp_path.iterdir()]
