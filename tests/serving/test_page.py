"""The page in a browser that can reach only the console."""

import csv
import io
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr.reporting import scene_picture
from jaxatr.serving.console import Console
from jaxatr.serving.options import Options
from jaxatr.serving.served_run import Wanted, load_engine

# The drop zone shrinks at once: a stage that still slides is elsewhere when a drag begins.
STILL = {"reduced_motion": "reduce"}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
DESK = {"viewport": {"width": 1280, "height": 860}}


@pytest.fixture
def console(engine, tmp_path):
    return Console(engine, Options(batches=(1, 4), marks=str(tmp_path / "marks.jsonl")))


@pytest.fixture
def opened(browser, console, listening):
    """Opens the page; the test fails if it makes other requests or reports an error."""

    @contextmanager
    def open_page(console=console, path="/", refused=(), **options):
        with listening(console) as port:
            address, told = f"http://127.0.0.1:{port}", []
            context = browser.new_context(**{**STILL, **DESK, **options})

            def route(request):
                if request.request.url.startswith((address, "blob:", "data:")):
                    request.continue_()
                else:
                    told.append(request.request.url)
                    request.abort()

            context.route("**/*", route)
            page = context.new_page()
            page.on("console", lambda message: told.append(message.text))
            page.on("pageerror", lambda error: told.append(str(error)))
            page.goto(address + path)
            yield page
            context.close()
        assert not [text for text in told if not any(known in text for known in refused)]

    return open_page


@pytest.fixture(scope="module")
def folder(chips, tmp_path_factory):
    """Six chips, and a file that is not an image."""
    root = tmp_path_factory.mktemp("dropped") / "chips"
    (root / "deep").mkdir(parents=True)
    some = [
        path
        for kind in ("cross", "disc", "ring")
        for path in sorted((chips / "test" / kind).iterdir())[:2]
    ]
    for number, path in enumerate(some):
        where = root / "deep" if number % 2 else root
        (where / f"{number}.png").write_bytes(path.read_bytes())
    (root / "notes.txt").write_text("no image")
    return root


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def give(page, folder):
    """Uploads files on the page, and waits for the predictions."""
    files = files_of(folder)
    page.set_input_files("#files", files)
    page.locator(".chips img").nth(len(files) - 2).wait_for()
    page.locator("#progress").wait_for(state="hidden")
    return files


@pytest.fixture(scope="module")
def scene(chips, tmp_path_factory):
    """A file of a scene with three targets, all that is bright in it."""
    pixels = np.zeros((90, 700), np.uint8)
    for name, left in (("disc", 10), ("cross", 300), ("ring", 660)):
        chip = np.asarray(Image.open(chips / f"test/{name}/001.png"))
        pixels[30:54, left : left + 24] = np.maximum(chip, 1)
    path = tmp_path_factory.mktemp("scenes") / "s.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def finding(engine, make_bright, tmp_path):
    """A console with a detector of bright patches."""
    options = Options(batches=(1, 4), marks=str(tmp_path / "marks.jsonl"))
    return Console(engine, options, detector=make_bright())


def give_scene(page, path):
    """Uploads a scene on the page, and waits for its targets and its picture."""
    page.locator("[name=kind][value=scenes]").check()
    page.set_input_files("#files", path)
    page.locator("#scene-status", has_text="pixels").wait_for()
    page.locator("#stage[aria-busy=false]").wait_for()


def card(page, name):
    return page.locator("[role=option]", has_text=name).first


def wanted_of(run, files, **options):
    images = [path for path in files if path.suffix == ".png"]
    loaded = jaxatr.load(run, **options) if isinstance(run, Path) else run
    return dict(zip(images, loaded.predict(images), strict=True))


def table_of(page):
    with page.expect_download() as download:
        page.locator("#export").click()
    text = open(download.value.path(), encoding="utf-8", newline="").read()
    return {row["name"]: row for row in csv.DictReader(io.StringIO(text))}


def test_chips_get_the_recognisers_verdicts(opened, folder, trained_run):
    with opened() as page:
        files = give(page, folder)
        for path, one in wanted_of(trained_run, files).items():
            text = card(page, path.name).inner_text()
            assert text.startswith(one.label) and f"p {100 * one.known_probability:.1f} %" in text
        assert "not a readable image" in card(page, "notes.txt").inner_text()
        assert "6 chips" in page.locator("#summary").inner_text()
        assert "1 unreadable" in page.locator("#summary").inner_text()


def test_a_folder_is_dropped(opened, folder):
    """A drop event like the browser's: entries of a folder and of a file."""
    with opened() as page:
        encoded = {
            path.relative_to(folder).as_posix(): list(path.read_bytes())
            for path in files_of(folder)
        }
        page.evaluate(DROP, encoded)
        page.locator(".chips img").nth(5).wait_for()
        names = page.locator("[role=option] .file").all_inner_texts()
        assert sorted(names) == sorted(f"chips/{name}" for name in encoded if name.endswith(".png"))


# The file system of a drop cannot be made by a script; its entries have the same few methods.
DROP = """(files) => {
  const entry = (name, content) => content === null || Array.isArray(content)
    ? {name, isFile: true, file: (done, fail) =>
        content ? done(new File([new Uint8Array(content)], name)) : fail(new Error("lost"))}
    : {name, isFile: false, createReader: () => {
        const left = Object.entries(content).map(([name, content]) => entry(name, content));
        return {readEntries: (done) => done(left.splice(0, 2))};
      }};
  const tree = {};
  for (const [path, content] of Object.entries(files)) {
    const parts = path.split("/"), last = parts.pop();
    parts.reduce((at, part) => at[part] ??= {}, tree)[last] = content;
  }
  const dropped = new Event("drop", {bubbles: true, cancelable: true});
  const item = {webkitGetAsEntry: () => entry("chips", tree), getAsFile: () => null};
  dropped.dataTransfer = {items: [item]};
  document.body.dispatchEvent(dropped);
}"""


def test_the_slider_moves_the_verdicts_and_the_table(opened, folder, trained_run):
    with opened() as page:
        files = give(page, folder)
        page.locator("#score").select_option("softmax")
        known = wanted_of(trained_run, files, score="softmax")
        slider, seen = page.locator("#slider"), set()
        slider.focus()
        for key in ("End", "Home", "PageUp", "PageUp", "PageUp", "ArrowRight"):
            page.keyboard.press(key)
            rows = table_of(page)
            for path, one in known.items():
                row = rows[path.name]
                accepted = float(row["score"]) >= float(row["threshold"])
                assert float(row["score"]) == pytest.approx(one.score, rel=1e-4)
                assert row["label"] == (one.nearest if accepted else "unknown")
                assert row["threshold_is"] == "set on the page"
                assert row["label_of_run"] == one.label
                assert card(page, path.name).inner_text().startswith(row["label"])
                seen.add(row["threshold"])
            unknown = sum(row["label"] == "unknown" for row in rows.values())
            assert (
                f"{6 - unknown} known, {unknown} unknown" in page.locator("#summary").inner_text()
            )
            slider.focus()
        assert len(seen) == 6
        page.locator("#own").click()
        rows = table_of(page)
        assert {row["threshold_is"] for name, row in rows.items() if name != "notes.txt"} == {
            "the run's"
        }
        for path, one in known.items():
            assert rows[path.name]["label"] == one.label
        assert "not a readable image" in rows["notes.txt"]["error"]


def test_a_chip_is_shown_with_its_neighbours_and_its_map(opened, folder, engine, trained_run):
    with opened() as page:
        files = give(page, folder)
        card(page, "0.png").hover()
        canvas = card(page, "0.png").locator("canvas")
        page.locator('[role=option] canvas[width="24"]').wait_for()
        assert canvas.evaluate("canvas => getComputedStyle(canvas).opacity") == "1"
        card(page, "0.png").click()
        more = page.locator("#more")
        more.locator("#near li img[src^=blob]").nth(7).wait_for()
        page.locator("#more-method", has_text="grad_cam for").wait_for()
        (image,) = jaxatr.Explainer.load(trained_run)(
            [np.asarray(Image.open(files[0]))[:, :, None]]
        )
        drawn = page.locator("#more-canvas").evaluate(
            "c => [...c.getContext('2d').getImageData(0, 0, 24, 24).data]"
        )
        bright = np.array(drawn).reshape(24, 24, 4)[..., :3].sum(axis=-1)
        assert np.corrcoef(bright.ravel(), image.saliency.ravel())[0, 1] > 0.9
        assert image.label in page.locator("#more-method").inner_text()


def test_everything_works_by_keyboard(opened, folder, console):
    with opened() as page:
        give(page, folder)
        page.locator("#filter").select_option("all")
        page.locator("[role=option]").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        assert page.locator("[aria-selected=true]").count() == 2
        page.keyboard.press("w")
        page.locator(".tags .wrong").nth(1).wait_for()
        page.keyboard.press("g")
        page.keyboard.type("new ones")
        page.keyboard.press("Enter")
        page.locator(".tags span", has_text="new ones").nth(1).wait_for()
        kept = console.marks.all()
        assert [(mark["wrong"], mark["group"]) for mark in kept] == [(True, "new ones")] * 2
        page.locator("[role=option]").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("#more").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#more").is_visible()
        assert page.locator("[role=option]").first.evaluate("one => one === document.activeElement")
        page.keyboard.press("End")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        rows = table_of(page)
        assert [row["group"] for row in rows.values()].count("new ones") == 2
        page.reload()  # marks come back with their images
        give(page, folder)
        page.locator("#filter").select_option("marked")
        assert page.locator("[role=option]:visible").count() == 2
        page.locator("#all").click()
        page.locator("#wrong").click()
        page.locator("#group").fill("")
        page.locator("#name").click()
        page.locator("#chosen", has_text="Nothing").wait_for()
        assert console.marks.all() == []


@pytest.mark.parametrize("refusal", [None, "their folder was moved"])
def test_a_change_that_fails_ends_no_later_change(opened, folder, console, refusal):
    def fail(route):
        route.fulfill(status=503, json={"detail": refusal}) if refusal else route.abort()

    with opened(refused=("ERR_FAILED", "503")) as page:
        give(page, folder)
        page.route("**/api/marks", fail)
        card(page, "0.png").locator(".tick").click()
        page.locator("#wrong").click()
        said = f"The marks were not saved: {refusal or ''}"
        page.locator("#note", has_text=said).wait_for(timeout=10_000)
        page.unroute("**/api/marks")
        page.locator("#wrong").click()
        page.locator(".tags .wrong").wait_for()
        assert [mark["name"] for mark in console.marks.all()] == ["0.png"]


def test_a_chip_that_cannot_be_predicted_again_has_no_verdict(opened, folder):
    def run(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "enrols": ["nearest"]})

    with opened(refused=("ERR_FAILED",)) as page:
        page.route("**/api/run", run)
        page.route("**/api/enrol*", lambda route: route.fulfill(json={"state": "done"}))
        page.reload()
        give(page, folder)
        page.route("**/api/predict*", lambda route: route.abort())
        card(page, "0.png").locator(".tick").click()
        page.locator("#group").fill("halo")
        page.locator("#enrol").click()
        page.locator(".failed", has_text="0.png").wait_for()
        page.locator("#chosen", has_text="Nothing selected").wait_for()
        rows = table_of(page).values()
        assert all(row["error"] and not row["label"] and not row["score"] for row in rows)


SENT = """window.sent = []; const before = window.fetch; window.fetch = (address, options) => {
    if (options?.body instanceof FormData) sent.push([...options.body.keys()].length);
    return before(address, options);
}"""


@pytest.mark.parametrize("limit", ["images", "body"])
@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("done", "halo is enrolled: request 1, then request 2."),
        ("failed", "halo was not enrolled beyond 2 chips: request 2"),
    ],
)
def test_chips_of_several_requests_are_enrolled(opened, folder, second, said, limit):
    largest = max(path.stat().st_size for path in folder.rglob("*.png"))
    most, posts = {"images": 2} if limit == "images" else {"body": 2 * 2 * (largest + 1024)}, []

    def run(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), **most, "enrols": ["nearest"]})

    def enrol(route):
        posts.extend(["done", second][len(posts) :][:1] * (route.request.method == "POST"))
        route.fulfill(json={"state": posts[-1], "detail": f"request {len(posts)}"})

    with opened(refused=("422",)) as page:  # of a request that has notes.txt alone
        page.route("**/api/run", run)
        page.route("**/api/enrol*", enrol)
        page.add_init_script(SENT)
        page.reload()
        give(page, folder)
        for name in ("0.png", "1.png", "2.png"):
            card(page, name).locator(".tick").click()
        page.evaluate("sent.length = 0")
        page.locator("#group").fill("halo")
        page.locator("#enrol").click()
        page.locator("#note", has_text=said).wait_for(timeout=20_000)
        assert page.evaluate("sent.slice(0, 2)") == [2, 1]


def test_a_file_that_the_browser_cannot_read_costs_itself_only(opened, folder):
    content = list((folder / "0.png").read_bytes())
    with opened() as page:
        page.evaluate(DROP, {"a.png": content, "deep/lost.png": None, "z.png": content})
        page.locator(".chips img").nth(1).wait_for()
        assert page.locator("#note").inner_text() == "The browser cannot read chips/deep/lost.png."
        names = page.locator("[role=option] .file").all_inner_texts()
        assert names == ["chips/a.png", "chips/z.png"]


def test_the_kind_of_image_can_be_chosen_once_the_run_is_known(opened, finding):
    """The text beside the choice needs the run, and a detector chooses scenes by itself."""
    held = []
    with opened(finding) as page:
        page.route("**/api/run", lambda route: held.append(route))
        page.reload(wait_until="domcontentloaded")
        chips = page.locator("[name=kind][value=chips]")
        assert chips.is_disabled() and chips.is_checked()
        for route in held:
            route.continue_()
        page.locator("body[data-ready]").wait_for()
        assert page.locator("[name=kind][value=scenes]").is_checked()
        chips.check()
        assert "pixels" not in page.locator("#limits").inner_text()


def test_a_broken_file_of_marks_is_said(opened, folder, console):
    console.marks.path.write_text("no json\n")
    with opened(refused=("422",)) as page:
        page.locator("#note", has_text="line 1 is not a mark").wait_for()
        give(page, folder)


def test_a_group_is_enrolled(opened, folder, scene, make_bright, trained_run, tmp_path):
    """A chip and a box become a class, and the page predicts all chips again."""
    shutil.copytree(trained_run, tmp_path / "run")
    wanted = Wanted(tmp_path / "run", scores=("nearest",), method="", examples=0)
    engine = load_engine(wanted)
    engine.warm((1, 4))
    made = Console(engine, Options(batches=(1, 4)), wanted, make_bright())
    with opened(made) as page:
        give_scene(page, scene)
        page.locator("[name=kind][value=chips]").check()
        give(page, folder)
        page.locator("#score").select_option("nearest")
        card(page, "4.png").locator(".tick").click()
        page.locator("#stage").focus()
        for key in "nnn ":  # the ring
            page.keyboard.press(key)
        page.locator("#group").fill("halo")
        page.locator("#enrol").click()
        page.locator(
            "#note", has_text="halo is enrolled: 2 chips added; nearest decides"
        ).wait_for()
        assert "halo" in page.locator("#about").inner_text()
        card(page, "4.png").locator(".verdict", has_text="halo").wait_for()
        page.locator("#legend", has_text="halo 1").wait_for()
        page.locator("#progress").wait_for(state="hidden")
        known = jaxatr.load(tmp_path / "run")
        for path, one in wanted_of(known, files_of(folder)).items():
            assert one.nearest in ("halo", *engine.classes)
            assert card(page, path.name).locator(".verdict > span").inner_text() == one.label


# From a copy, because the browser warns of a canvas that is read again and again.
READ = """(canvas, [left, top, width, height]) => {
  const copy = Object.assign(document.createElement("canvas"), {width, height});
  const pen = copy.getContext("2d");
  pen.drawImage(canvas, left, top, width, height, 0, 0, width, height);
  return [...pen.getImageData(0, 0, width, height).data];
}"""


class Stage:
    """Where the pixels of a scene are in a page that shows the whole of it."""

    def __init__(self, page, width, height):
        box = page.locator("#stage").bounding_box()
        self.page, self.box = page, box
        self.scale = min(box["width"] / width, box["height"] / height, 8)
        self.left = (box["width"] - width * self.scale) / 2
        self.top = (box["height"] - height * self.scale) / 2

    def within(self, x, y):
        """A point of the scene, in pixels of the canvas."""
        return round(self.left + x * self.scale), round(self.top + y * self.scale)

    def on_page(self, x, y):
        left, top = self.within(x, y)
        return self.box["x"] + left, self.box["y"] + top

    def pixels(self, left, top, width=1, height=1):
        values = self.page.locator("#stage-canvas").evaluate(
            READ, [int(left), int(top), width, height]
        )
        return np.array(values, float).reshape(height, width, 4)[..., :3]


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=3)
    page.mouse.up()


def test_the_targets_of_a_scene_are_shown(opened, finding, scene, trained_run):
    """Boxes in the colours of the decisions; a click shows the card of the chip."""
    pixels = np.asarray(Image.open(scene))
    lefts = (10, 300, 660)
    wanted = jaxatr.load(trained_run).predict([pixels[30:54, left : left + 24] for left in lefts])
    classes = list(jaxatr.load(trained_run).classes)
    with opened(finding) as page:
        give_scene(page, scene)
        assert page.locator("#scene-status").inner_text() == "700 × 90 pixels: 3 targets"
        counted = {one.label: 0 for one in wanted}
        for one in wanted:
            counted[one.label] += 1
        shown = page.locator("#legend li").all_inner_texts()
        assert sorted(shown) == sorted(f"{name} {count}" for name, count in counted.items())
        stage = Stage(page, 700, 90)
        for left, one in zip(lefts, wanted, strict=True):
            colour = scene_picture.colour_of(one.label, classes)
            found = stage.pixels(*np.add(stage.within(left, 30), (3, 0)))[0, 0]
            assert "#{:02X}{:02X}{:02X}".format(*found.astype(int)) == colour
        page.mouse.click(*stage.on_page(312, 42))
        page.locator("#near li img[src^=blob]").first.wait_for()
        page.locator("#more-method", has_text="grad_cam for").wait_for()
        number = page.locator("#more-name").inner_text()
        assert page.locator("#more-verdict").inner_text().startswith(wanted[1].label)
        page.keyboard.press("Escape")
        assert not page.locator("#more").is_visible()
        assert page.locator("#stage").evaluate("one => one === document.activeElement")
        page.keyboard.press("Escape")  # no target any more
        seen = set()
        for _ in range(3):
            page.keyboard.press("n")
            page.locator("#scene-status", has_text=f"Target {len(seen) + 1} of 3").wait_for()
            page.keyboard.press("Enter")
            assert page.locator("#more").evaluate("one => one === document.activeElement")
            seen.add(page.locator("#more-name").inner_text())
            page.keyboard.press("Escape")
        assert number in seen and len(seen) == 3
        page.keyboard.press("p")
        page.keyboard.press(" ")
        page.locator("#scene-status", has_text="Target 2 of 3").wait_for()
        assert page.locator("[aria-selected=true]").count() == 1
        rows = table_of(page)
        assert {name: float(row["x0"]) for name, row in rows.items()} == {
            f"s.png #{number}": left for number, left in enumerate(lefts, 1)
        }


def test_a_scene_that_fails_is_named_beside_the_others(opened, finding, scene, tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_bytes(scene.read_bytes()[:99])
    with opened(finding, refused=("422",)) as page:
        give_scene(page, scene)
        page.set_input_files("#files", bad)
        page.locator("#scenes option", has_text="not searched").wait_for(state="attached")
        names = page.locator("#scenes option").all_text_contents()
        assert names == ["s.png", "bad.png: not searched"]
        page.locator("#scenes").select_option(index=1)
        page.locator("#scene-status", has_text="image file is truncated").wait_for()


def test_thresholds_and_classes_choose_the_boxes(opened, finding, scene, tmp_path):
    np.save(tmp_path / "f.npy", np.zeros((40, 50), np.float32))
    with opened(finding, refused=("422",)) as page:
        page.locator("[name=kind][value=scenes]").check()
        page.set_input_files("#files", tmp_path / "f.npy")
        reason = "f.npy: got an image of float32, wanted uint8 like the training scenes"
        page.locator("#scene-status", has_text=reason).wait_for()
        page.set_input_files("#files", scene)
        page.locator("[role=option]").nth(2).wait_for()
        page.locator("#scenes").select_option("s.png")
        status, legend = page.locator("#scene-status"), page.locator("#legend")
        assert "0.3, the detector's" in page.locator("#least-text").inner_text()
        page.locator("#least").focus()
        page.keyboard.press("End")
        status.filter(has_text="0 targets, 3 hidden").wait_for()
        assert "0 chips" in page.locator("#summary").inner_text()
        page.keyboard.press("Home")
        status.filter(has_text="3 targets").wait_for()
        page.locator("#slider").focus()
        page.keyboard.press("End")
        legend.filter(has_text="unknown 3").wait_for()
        page.keyboard.press("Home")
        page.locator("#legend li", has_not_text="unknown").first.wait_for()
        name, count = legend.locator("li").first.inner_text().rsplit(" ", 1)
        page.locator("#filter").select_option(f"class:{name}")
        status.filter(has_text=f"{count} target").wait_for()
        assert legend.locator("li").count() == 1


def test_a_box_is_drawn_and_decided_about(opened, console, scene, trained_run):
    """Without a detector, by the mouse and by keys."""
    with opened() as page:
        give_scene(page, scene)
        assert "no detector: draw a box" in page.locator("#scene-status").inner_text()
        stage = Stage(page, 700, 90)
        page.locator("#draw").click()
        drag(page, stage.on_page(300, 30), stage.on_page(324, 54))
        page.locator("#more-name", has_text="s.png #1").wait_for()
        page.locator("#stage").focus()
        page.keyboard.press("b")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("[role=option]").nth(1).wait_for()
        rows = table_of(page)
        first = [float(rows["s.png #1"][name]) for name in ("x0", "y0", "x1", "y1")]
        np.testing.assert_allclose(first, [300, 30, 324, 54], atol=1 / stage.scale)
        second = [float(rows["s.png #2"][name]) for name in ("x0", "y0", "x1", "y1")]
        middle = 350 + max(1, round(8 / Stage(page, 700, 90).scale))  # beside the card
        assert (second[0] + second[2]) / 2 == pytest.approx(middle, abs=1)
        page.keyboard.press("b")
        page.keyboard.press("Escape")
        assert page.locator("[role=option]").count() == 2


def test_a_large_scene_is_shown_by_tiles(opened, console, tmp_path):
    """No seam shows, whole or enlarged, and the point under the mouse stays."""
    ramp = np.tile(np.linspace(0, 250, 2600), (700, 1)).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "wide.png")
    with opened() as page:
        give_scene(page, tmp_path / "wide.png")
        stage = Stage(page, 2600, 700)
        left, top = stage.within(0, 350)
        width = round(2600 * stage.scale) - 2
        row = stage.pixels(left + 1, top, width)[0, :, 0]
        np.testing.assert_allclose(row, np.linspace(0, 250, width), atol=3)
        at = stage.on_page(1300, 350)
        page.mouse.move(*at)
        page.mouse.wheel(0, -700)  # exp(1.4) times
        page.wait_for_timeout(100)
        scale = stage.scale * np.exp(1.4)
        width = int(stage.box["width"])
        row = stage.pixels(0, stage.within(0, 350)[1], width)[0, :, 0]
        points = 1300 + (np.arange(width) + 0.5 - (at[0] - stage.box["x"])) / scale
        np.testing.assert_allclose(row, 250 * points / 2599, atol=3)
        drag(page, at, (at[0] + 100, at[1]))
        page.wait_for_timeout(100)
        moved = stage.pixels(0, stage.within(0, 350)[1], width)[0, :, 0]
        np.testing.assert_allclose(moved[100:], row[:-100], atol=1)


@pytest.mark.slow
def test_two_fingers_zoom(opened, console, tmp_path):
    ramp = np.tile(np.linspace(0, 250, 500), (300, 1)).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "s.png")
    with opened(**PHONE) as page:
        give_scene(page, tmp_path / "s.png")
        page.locator("#stage").scroll_into_view_if_needed()
        stage, touch = Stage(page, 500, 300), page.context.new_cdp_session(page)
        x, y = stage.on_page(250, 150)
        for kind, far in (("touchStart", 40), ("touchMove", 80), ("touchEnd", 0)):
            points = [{"x": x - far, "y": y, "id": 0}, {"x": x + far, "y": y, "id": 1}]
            sent = {"type": kind, "touchPoints": points if far else []}
            touch.send("Input.dispatchTouchEvent", sent)
        page.wait_for_timeout(100)
        width = int(stage.box["width"])
        row = stage.pixels(0, stage.within(0, 150)[1], width)[0, :, 0]
        slope = np.polyfit(np.arange(width), row, 1)[0]
        assert slope == pytest.approx(250 / 499 / stage.scale / 2, rel=0.1)


@pytest.mark.slow
def test_the_page_asks_for_a_token(opened, engine, folder, tmp_path):
    token = "a-token-of-the-tests"
    made = Console(engine, Options(batches=(1, 4), marks=str(tmp_path / "m.jsonl"), token=token))
    with opened(made, refused=("401",)) as page:
        page.locator("#login").wait_for()
        page.locator("#token").fill("wrong")
        page.keyboard.press("Enter")
        page.locator("#login").wait_for()
        page.locator("#token").fill(token)
        page.keyboard.press("Enter")
        page.locator("body[data-ready]").wait_for()
        give(page, folder)
    made = Console(engine, Options(batches=(1, 4), marks=str(tmp_path / "m.jsonl"), token=token))
    with opened(made, path=f"/#token={token}") as page:
        page.locator("body[data-ready]").wait_for()
        assert "token" not in page.url  # nor in the history


def test_a_name_is_not_run_as_a_script(opened, chips, tmp_path):
    name = "<img src=x onerror=document.title='caught'>.png"
    content = next((chips / "test" / "disc").iterdir()).read_bytes()
    with opened() as page:
        page.locator("body[data-ready]").wait_for()
        page.set_input_files("#files", {"name": name, "mimeType": "image/png", "buffer": content})
        page.locator(".chips img").wait_for()
        card(page, "onerror").click()
        assert name in page.locator("#more-name").inner_text()
        assert "caught" not in page.title()


@pytest.mark.parametrize(
    ("theme", "device"),
    [
        pytest.param("light", DESK, id="desk-light"),
        pytest.param("dark", PHONE, id="phone-dark"),
        pytest.param("dark", DESK, id="desk-dark", marks=pytest.mark.slow),
        pytest.param("light", PHONE, id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_it_fits_and_can_be_read(opened, contrast, folder, scene, theme, device):
    with opened(color_scheme=theme, **device) as page:
        page.locator("body[data-ready]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= device["viewport"]["width"]
        assert min(contrast(page).values()) >= 4.5
        for stage in ("scene", "filled", "detail"):
            if stage == "scene":
                give_scene(page, scene)
                page.locator("#stage").focus()
                page.keyboard.press("b")
                page.keyboard.press("Enter")
                page.locator("#legend li").wait_for()
                page.locator("[name=kind][value=chips]").check()
            elif stage == "filled":
                give(page, folder)
                page.locator(".tick").first.click()
                page.locator("#wrong").click()
                page.locator(".tags .wrong").wait_for()
            elif stage == "detail":
                card(page, "4.png").locator(".view").click()
                page.locator("#near li img[src^=blob]").first.wait_for()
            width = device["viewport"]["width"]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, stage
            least = contrast(page)
            low = {kind: value for kind, value in least.items() if value < 4.5}
            assert not low, (stage, low)
        if device is PHONE:
            box = page.locator("#more").bounding_box()
            assert box["width"] == width and box["y"] + box["height"] <= 741
            page.locator("#close").click()
            sizes = page.locator("button:visible").evaluate_all(
                "all => all.map((one) => one.getBoundingClientRect().height)"
            )
            assert min(sizes) >= 36


@pytest.mark.slow
def test_a_search_shows_distances(opened, retriever_engine, folder, embedding_run, tmp_path):
    made = Console(retriever_engine, Options(batches=(1, 4), marks=str(tmp_path / "m.jsonl")))
    with opened(made) as page:
        files = give(page, folder)
        for path, one in wanted_of(embedding_run, files).items():
            assert card(page, path.name).inner_text().startswith(one.label)
        card(page, "0.png").click()
        page.locator("#near li img[src^=blob]").first.wait_for()
        assert not page.locator("#more-map").is_visible()
        slider = page.locator("#slider")
        slider.focus()
        page.keyboard.press("Home")  # no distance is as small
        assert "0 known, 6 unknown" in page.locator("#summary").inner_text()
        page.keyboard.press("End")
        assert "6 known, 0 unknown" in page.locator("#summary").inner_text()
