"""Scenes: targets that a detector finds or a user draws, with the run's decisions."""

import asyncio
import base64
import io
import re
import threading
import time

import numpy as np
import pytest
import tifffile
from PIL import Image

import jaxatr
from jaxatr import bundled, runs
from jaxatr.data.images import decode_image
from jaxatr.data.sources.scenes import Framing
from jaxatr.serving.batcher import Busy
from jaxatr.serving.intake import Read
from jaxatr.serving.options import Limits
from jaxatr.serving.scenes import Scenes, TooLong, boxes_of

SIDE = 24
PLACES = [(4, 6), (38, 10), (70, 40)]
DETECT, DECIDE, VIEW = (f"/api/scenes/{name}" for name in ("detect", "decide", "view"))


@pytest.fixture(scope="session")
def drawn(chips):
    """Three chips, and the scene in which they are the only bright patches."""
    some = [np.asarray(Image.open(chips / f"test/{name}/001.png")) for name in ("disc", "cross")]
    some = [np.maximum(chip, 1) for chip in [*some, some[0][::-1]]]
    scene = np.zeros((90, 120), np.uint8)
    for chip, (x, y) in zip(some, PLACES, strict=True):
        scene[y : y + SIDE, x : x + SIDE] = chip
    return some, scene


def box_of(x, y):
    return [x, y, x + SIDE, y + SIDE]


def encoded(array):
    file = io.BytesIO()
    if array.dtype == np.uint8:
        Image.fromarray(array).save(file, "PNG")
    else:
        np.save(file, array)
    return file.getvalue()


@pytest.fixture
def console(engine, make_console, make_bright):
    return make_console(engine, detector=make_bright())


@pytest.fixture
def client(console, client_of):
    with client_of(console) as client:
        yield client


def sent(client, path, array, **parameters):
    files = [("images", ("s.png", array if isinstance(array, bytes) else encoded(array)))]
    return client.post(path, files=files, params=parameters)


def counts_of(client):
    lines = client.get("/metrics").text.splitlines()
    return {
        name: float(value) for name, value in (one.rsplit(" ", 1) for one in lines if one[0] != "#")
    }


def test_targets_are_found_and_decided_about_as_their_chips(client, drawn, trained_run, console):
    chips, scene = drawn
    answer = sent(client, DETECT, scene, files=True, every_score=True, neighbours=2, pictures=True)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["name"], found["width"], found["height"]) == ("s.png", 120, 90)
    assert found["left_out"] == 0 and len(found["targets"]) == 3
    wanted = jaxatr.load(trained_run).predict(list(chips))
    for number, (target, one) in enumerate(zip(found["targets"], wanted, strict=True)):
        assert target["box"] == box_of(*PLACES[number])
        assert target["name"] == f"s.png #{number + 1}"
        assert target["detection_score"] == pytest.approx([0.9, 0.9, 0.8][number])
        assert target["verdict"]["label"] == one.label
        assert target["verdict"]["score"] == pytest.approx(one.score, rel=1e-4)
        assert target["verdict"]["known_probability"] == pytest.approx(one.known_probability)
        assert target["by_score"].keys() == {scale.name for scale in console.engine.scales}
        assert len(target["neighbours"]) == 2 and target["picture"].startswith("data:image/png")
        # Its file is a chip for the other routes.
        content = base64.b64decode(target["file"].removeprefix("data:image/png;base64,"))
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), chips[number])
        (again,) = client.post("/api/predict", files=[("images", ("t.png", content))]).json()[
            "results"
        ]
        assert again["id"] == target["id"]
        assert again["verdict"]["score"] == pytest.approx(target["verdict"]["score"], rel=1e-4)
    counts = counts_of(client)
    assert counts['jaxatr_scenes_total{result="answered"}'] == 1
    assert counts["jaxatr_scene_targets_total"] == 3
    assert counts[f'jaxatr_requests_total{{route="{DETECT}",status="200"}}'] == 1


def test_boxes_are_decided_about_as_their_chips(client, drawn, trained_run, console):
    chips, scene = drawn
    boxes = [",".join(map(str, box_of(*place))) for place in PLACES]
    answer = sent(client, DECIDE, scene, box=boxes, score="softmax").json()
    wanted = jaxatr.load(trained_run, score="softmax").predict(list(chips))
    for target, one in zip(answer["targets"], wanted, strict=True):
        assert target["detection_score"] is None and "file" not in target
        assert target["verdict"]["decides"] == "softmax"
        assert target["verdict"]["score"] == pytest.approx(one.score, rel=1e-4)
    assert console.drift.waiting == 0  # boxes that somebody draws are no field data
    # A chip that the run cannot use has the reason, and the others their verdicts.
    mixed = sent(client, DECIDE, scene, box=["-9,-9,5,5", boxes[0]], files=True).json()["targets"]
    assert mixed[0]["box"] == [0, 0, 5, 5] and "wanted [24, 24, 1]" in mixed[0]["error"]
    assert "verdict" not in mixed[0] and mixed[0]["file"]
    assert mixed[1]["verdict"]["nearest"] == jaxatr.load(trained_run).predict(chips[0]).nearest
    every = sent(client, DECIDE, scene.astype(np.uint16), box=boxes, files=True).json()["targets"]
    assert all("got an image of uint16, wanted uint8" in one["error"] for one in every)
    content = base64.b64decode(every[0]["file"].partition(",")[2])
    assert np.load(io.BytesIO(content)).dtype == np.uint16


def test_a_scene_without_targets_and_one_smaller_than_a_tile(client, console):
    for shape in ((9, 9), (1, 1), (200, 150)):
        answer = sent(client, DETECT, np.zeros(shape, np.uint8))
        assert answer.status_code == 200 and answer.json()["targets"] == []
    # The tiles of detect: the network's norms see all of one, so that scores depend on its size.
    assert set(console.scenes.detector.shapes) == {(32, 32), (64, 64)}


def test_a_detector_without_training(engine, make_console, client_of, tmp_path):
    config = bundled.load("detect:cfar")
    config.data.data_dir = str(tmp_path)
    config.data.options = {"size": 64, "train": 1, "test": 1}
    fields = {"cfar.guard": 8, "cfar.train": 3, "detection.tile": 96, "detection.tile_overlap": 16}
    runs.train_run(runs.training.with_fields(config, fields), tmp_path / "cfar", progress=False)
    console = make_console(engine, detector=jaxatr.load(tmp_path / "cfar"))
    console.scenes.warm()
    scene = np.sqrt(np.random.default_rng(0).exponential(size=(90, 120))).astype(np.float32)
    scene[40:46, 50:58] = 30
    with client_of(console) as client:
        (target,) = sent(client, DETECT, scene).json()["targets"]
        assert target["box"] == [50, 40, 58, 46]
        described = client.get("/api/run").json()["detector"]
        assert (described["dtype"], described["channels"]) == ("float32", 1)


def test_the_least_score_and_the_most_targets(engine, make_console, make_bright, client_of, drawn):
    detector = make_bright()
    detector.threshold = 0.85
    made = make_console(engine, limits=Limits(targets=2), detector=detector)
    with client_of(made) as client:
        for parameters, shown, left_out in (
            ({}, 2, 0),
            ({"least": 0.3}, 2, 1),
            ({"least": 1}, 0, 0),
        ):
            found = sent(client, DETECT, drawn[1], **parameters).json()
            assert (len(found["targets"]), found["left_out"]) == (shown, left_out)
        assert client.get("/api/run").json()["detector"] == {
            "run": "bright",
            "threshold": 0.85,
            "dtype": "uint8",
            "channels": 1,
        }
    made = make_console(engine, detector=detector)
    with client_of(made) as client:
        assert len(sent(client, DETECT, drawn[1], least=0.3).json()["targets"]) == 3
        assert made.drift.waiting == 2  # without the one below the detector's own score


@pytest.mark.parametrize(
    ("path", "scene", "parameters", "status", "reason"),
    [
        (DECIDE, np.zeros((9, 9), np.uint8), {}, 422, "box: Field required"),
        (DECIDE, None, {"box": "nan,1,2,3"}, 422, "box 1: the box nan, 1, 2, 3 is not of finite"),
        (DECIDE, None, {"box": ["1,1,2,2", "9,1,2,3"]}, 422, "box 2: the box 9, 1, 2, 3 ends befo"),
        (DECIDE, None, {"box": "5,5,5,9"}, 422, "box 1: the box 5, 5, 5, 9 has no size"),
        (DECIDE, None, {"box": "1,2,3"}, 422, "box 1: got '1,2,3', wanted x0,y0,x1,y1"),
        (DECIDE, None, {"box": "120,0,130,9"}, 422, "is outside of its image of 120x90 pixels"),
        (DECIDE, None, {"box": ["1,1,2,2"] * 65}, 422, "box: got 65, wanted at most 64"),
        (DECIDE, None, {"box": "1,1,2,2", "score": "none"}, 422, "score: got 'none', wanted one"),
        (DETECT, None, {"least": "nan"}, 422, "least: "),
        (DETECT, None, {"leats": "1"}, 422, "there is no parameter 'leats'; did you mean 'least'?"),
        (DETECT, np.zeros((9, 9), np.float32), {}, 422, "got an image of float32, wanted uint8"),
        (DETECT, b"\x89PNG", {}, 422, "s.png cannot be used: not a readable image"),
        (DETECT, b"", {}, 422, "s.png cannot be used"),
        (VIEW, np.zeros((4097, 4097), np.uint8), {}, 422, "4097"),
    ],
)
def test_what_cannot_be_used_is_one_line(client, drawn, path, scene, parameters, status, reason):
    answer = sent(client, path, drawn[1] if scene is None else scene, **parameters)
    assert answer.status_code == status
    detail = answer.json()["detail"]
    assert re.search(re.escape(reason), detail) and "\n" not in detail


def test_one_scene_a_request_and_a_detector(client, drawn, engine, make_console, client_of):
    files = [("images", ("s.png", encoded(drawn[1])))] * 2
    answer = client.post(DETECT, files=files)
    assert (answer.status_code, answer.json()["detail"]) == (422, "images: got 2, wanted one scene")
    assert client.post(DETECT, data={"a": "b"}).status_code == 415
    with client_of(make_console(engine)) as alone:
        assert "without a detector: --detector" in sent(alone, DETECT, drawn[1]).json()["detail"]
        assert sent(alone, DECIDE, drawn[1], box="4,6,28,30").status_code == 200
        assert alone.get("/api/run").json()["detector"] is None


def test_missing_values_of_a_geotiff_are_zero_as_for_detect(client, drawn, tmp_path):
    scene = np.where(drawn[1] == 0, 255, np.minimum(drawn[1], 254)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "s.tif", scene, extratags=[(42113, "s", 0, "255")], metadata=None)
    found = sent(client, DETECT, (tmp_path / "s.tif").read_bytes()).json()["targets"]
    assert [target["box"] for target in found] == [box_of(*place) for place in PLACES]


@pytest.mark.parametrize("bands", [1, 2, 3, 4, 6])
def test_the_file_of_a_chip_has_every_band(bands):
    scene = np.random.default_rng(0).integers(0, 256, (40, 50, bands)).astype(np.uint8)
    (cut,) = scenes_of().cut(Read("s.tif", "", scene), np.array([[10.0, 5, 20, 15]]))
    np.testing.assert_array_equal(decode_image(cut.file, "chip"), cut.read.chip)


def test_a_scene_is_shown_in_8_bits(client, drawn):
    scene = drawn[1]
    answer = sent(client, VIEW, scene)
    assert answer.headers["content-type"] == "image/png"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), scene)
    wide = sent(client, VIEW, scene.astype(np.float32) * 1000)
    shown = np.asarray(Image.open(io.BytesIO(wide.content)))
    assert shown.shape == scene.shape and (shown.min(), shown.max()) == (0, 255)


class Endless:
    """A detector that reads tiles until it must not."""

    threshold, tile = 0.5, 64

    def __init__(self):
        self.begun = threading.Event()

    def detect_in(self, scene, **options):
        del options
        while True:
            scene.pixels(slice(0, 1), slice(0, 1))
            self.begun.set()
            time.sleep(0.001)


def scenes_of(detector=None, prepare=lambda part: part, **limits):
    return Scenes(prepare, Framing(), Limits(**limits), detector)


BLANK = Read("s.png", "", np.ones((40, 50, 1), np.uint8))


def test_a_search_that_takes_too_long_is_given_up(unchecked):
    scenes = scenes_of(Endless(), answer_seconds=0.02)
    with pytest.raises(TooLong, match=r"s.png of 50x40 pixels was not searched within 0.02 s"):
        asyncio.run(scenes.search(BLANK))
    assert scenes.close(1)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_search_ends_with_its_client_and_with_the_console(unchecked, how):
    scenes = scenes_of(detector := Endless())

    async def search():
        task = asyncio.create_task(scenes.search(BLANK))
        await asyncio.to_thread(detector.begun.wait, 10)
        if how == "closed":
            assert await asyncio.to_thread(scenes.close, 10)
        else:
            task.cancel()
        with pytest.raises((TooLong, asyncio.CancelledError)):
            await task

    asyncio.run(search())
    assert scenes.close(10)


def test_the_places_for_scenes_are_few():
    scenes = scenes_of(scenes=1)
    with scenes.place():
        with pytest.raises(Busy, match="1 scenes are being read"), scenes.place():
            raise AssertionError
    with scenes.place():
        pass


def test_the_chips_of_a_scene_take_bounded_memory():
    """A line of pixels would become a square of gigabytes."""
    scenes = scenes_of(body=1000)
    boxes = np.array([[0, 0, 20, 20], [5, 5, 35, 35], [0, 0, 20, 20]], float)
    first, second, third = scenes.cut(BLANK, boxes)
    assert first.read.chip.shape == third.read.chip.shape == (20, 20, 1)
    assert "its chip of 30x30 pixels, with those before it, has more than 1000" in second.read.error
    line = Read("l.png", "", np.ones((1, 1 << 20, 1), np.uint8))
    (cut,) = scenes_of().cut(line, boxes_of(["0,0,1e300,9"], (1, 1 << 20)))
    assert cut.read.chip is None and "1048576x1048576 pixels" in cut.read.error
