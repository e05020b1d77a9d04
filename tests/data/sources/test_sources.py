"""Sources as plug-ins: a module in the package's folder, or a class anywhere else."""

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxatr import data
from jaxatr.data import index, sources
from jaxatr.data.source import Source

SOURCE = '''
from pathlib import Path

import numpy as np

from jaxatr.data import ImageError
from jaxatr.data.source import Contents, Feature, Flag, Option, Request, Scan, Source, all_options

WRITTEN = []


class Stripes(Source):
    """A source of images with horizontal or vertical stripes."""

    name = "stripes"
    version = 3
    options = {
        "count": Option(2, "images of each class", Flag("integer")),
        "size": Option(4, "pixels"),
    }

    def scan(self, request: Request) -> Scan:
        settings = all_options(self, request.options)
        return Scan(self, settings, settings, lambda scratch: contents(**settings))


def contents(count, size):
    stripes = np.tile(np.array([0, 255], np.uint8), (size, size // 2))[:, :, None]

    def examples(split):
        for number in range(count):
            for label, image in enumerate((stripes, stripes.transpose(1, 0, 2))):
                yield {"image": image // (1 + number), "label": label, "coarse": 0, "side": split}

    WRITTEN.append((count, size))
    return Contents(
        classes=("along", "across"),
        coarse_classes=("stripes",),
        fine_to_coarse=(0, 0),
        features={
            "image": Feature(np.uint8, (size, size, 1)),
            "label": Feature(np.int32),
            "coarse": Feature(np.int32),
            "side": Feature(str),
        },
        splits={name: lambda name=name: examples(name) for name in ("train", "test")},
        total=4 * count,
    )


class Lines(Source):
    """A source with one image per line of a text file; a line that is not a number is damaged."""

    name = "lines"
    version = "1"
    takes = "a text file"

    def scan(self, request: Request) -> Scan:
        settings = all_options(self, request.options)
        lines = request.path.read_text().split()
        return Scan(self, settings, lines, lambda _: self._contents(lines, request.skip_corrupt))

    def _contents(self, lines, skip_corrupt):
        skipped = []

        def examples():
            for number, line in enumerate(lines):
                if line.isdecimal():
                    yield {"image": np.full((2, 2, 1), int(line), np.uint8), "label": number % 2}
                elif skip_corrupt:
                    skipped.append((f"line {number}", f"{line!r} is no number"))
                else:
                    raise ImageError(f"line {number}: {line!r} is no number")

        features = {"image": Feature(np.uint8, (2, 2, 1)), "label": Feature(np.int32)}
        return Contents(("even", "odd"), features, {"train": examples}, 9, skipped=skipped)


class NoLabels(Stripes):
    name = "no_labels"

    def scan(self, request: Request) -> Scan:
        features = {"image": Feature(np.uint8, (2, 2, 1))}
        return Scan(self, {}, 0, lambda scratch: Contents(("a",), features, {}, 0))


class Odd(Source):
    """A source one of whose features or examples, or the split test, is odd."""

    name, version = "odd", 1
    options = {"of": Option("", "what is odd")}

    def scan(self, request: Request) -> Scan:
        settings = all_options(self, request.options)
        odd = settings["of"]
        image, kind = np.zeros((2, 2, 1), np.float32), {"id": np.int32}
        if odd == "axes":
            image = image[:, :, 0]
        if odd == "text":
            kind["id"] = str

        def examples(split):
            for number in range(0 if split == "test" and odd == "empty" else 2):
                own = number + 2 * (split == "test" and odd != "twice")
                label = number + (odd == "label")
                value = image + (np.nan if odd == "nan" else 0)
                one = {"image": value, "label": label, "id": own, "time": 1.7e9 + own}
                if odd in ("coarse", "classless"):
                    one["coarse"] = own % 2 if odd == "coarse" and split == "test" else 0
                if odd == "lacking" and number:
                    del one["label"]
                yield one

        features = {"image": Feature(np.float32, image.shape), "label": Feature(np.int32)}
        features |= {"id": Feature(kind["id"]), "time": Feature(np.float64)}
        more = {}
        if odd in ("coarse", "classless"):
            features["coarse"], more = Feature(np.int32), {"coarse_classes": "xy"}
        splits = {name: lambda name=name: examples(name) for name in ("train", "test")}
        classes = "abc" if odd == "classless" else "ab"
        contents = Contents(classes, features, splits, 4, **more)
        return Scan(self, settings, settings, lambda _: contents)


class Taken(Stripes):
    name = "dsiac"


class AtTfds(Stripes):
    name = "cifar10"


class Nowhere(Stripes):
    name = "../up"


class Nothing:
    name = "nothing"


PART = Stripes()
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module on the import path, outside the package."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "jaxatr_test_stripes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path / "path")
    yield __import__("jaxatr_test_stripes")
    del sys.modules["jaxatr_test_stripes"]


def test_a_source_from_outside_is_cached_and_indexed_as_the_packages_own(module, data_dir):
    name, options = "jaxatr_test_stripes:Stripes", {"count": 3}
    first = data.open_dataset(name, data_dir=data_dir, options=options)
    again = data.open_dataset(name, data_dir=data_dir, options={"count": 3, "size": 4})
    assert module.WRITTEN == [(3, 4)]
    assert again.directory == first.directory and again.fingerprint == first.fingerprint
    assert first.directory.parent == data_dir / "stripes" and first.name == "stripes"
    assert (first.classes, first.fine_to_coarse) == (("along", "across"), (0, 0))
    test = first.splits["test"]
    assert len(test) == 6 and test.columns["side"].tolist() == ["test"] * 6
    assert sorted([*test.columns["id"], *first.splits["train"].columns["id"]]) == [*range(12)]
    assert test[0]["image"][:, :, 0].tolist() == [[0, 255, 0, 255]] * 4
    other = data.open_dataset(name, data_dir=data_dir)
    assert module.WRITTEN == [(3, 4), (2, 4)] and other.fingerprint != first.fingerprint
    assert data.open_dataset("stripes", data_dir=data_dir).directory == other.directory
    assert index.description(other.directory)["settings"] == {"count": 2, "size": 4}
    with pytest.raises(ValueError, match="stripes has no option 'cout'; did you mean 'count'"):
        data.open_dataset(name, data_dir=data_dir, options={"cout": 1})
    with pytest.raises(ValueError, match="takes no source"):
        data.open_dataset(name, data_dir=data_dir, source=data_dir)


def test_its_path_is_followed_and_its_set_may_have_a_name(module, data_dir, tmp_path):
    (tmp_path / "lines.txt").write_text("3 5")
    name, place = "jaxatr_test_stripes:Lines", {"data_dir": data_dir}
    with pytest.raises(ValueError, match=r"Lines needs a source, a text file: --data_source"):
        data.open_dataset(name, **place)
    data.prepare(name, source=tmp_path / "lines.txt", as_name="mine", skip_corrupt=True, **place)
    assert data.open_dataset("mine", **place).splits["train"].columns["label"].tolist() == [0, 1]
    (tmp_path / "lines.txt").write_text("3 five 6")
    dataset = data.open_dataset("mine", **place)
    assert [int(dataset.splits["train"][i]["image"][0, 0, 0]) for i in range(2)] == [3, 6]
    assert dataset.name == "mine" and dataset.skipped == (("line 1", "'five' is no number"),)
    with pytest.raises(data.ImageError, match="line 1: 'five' is no number"):
        data.open_dataset(name, source=tmp_path / "lines.txt", **place)


@pytest.mark.parametrize(
    "path, match",
    [
        ("jaxatr_no_module:Stripes", "there is no module 'jaxatr_no_module'"),
        ("jaxatr_test_stripes:Stripe", "no 'Stripe' in .* did you mean 'Stripes'"),
        ("jaxatr_test_stripes:Nothing", "is not a data source: it has no version, scan"),
        ("jaxatr_test_stripes:Taken", "'dsiac' is already the name of another data set"),
        ("jaxatr_test_stripes:AtTfds", "'cifar10' is already the name of another data set"),
        ("jaxatr_test_stripes:Nowhere", "name: got '../up', wanted letters"),
        ("jaxatr_test_stripes:NoLabels", "its examples have the features image, without label"),
    ],
)
def test_a_path_that_is_not_a_source_is_named(module, data_dir, path, match):
    with pytest.raises(ValueError, match=match):
        data.open_dataset(path, data_dir=data_dir)


@pytest.mark.parametrize(
    "odd, match",
    [
        ("axes", r"Odd: image: got a feature of float32 and shape \(2, 2\), wanted \[h, w, c\]"),
        ("text", "Odd: id: got a feature of str and shape .*, wanted a whole number"),
        ("empty", "the source has no examples of the split 'test'"),
        ("nan", "example 0 of 'train': its image has pixels that are not finite"),
        ("label", "example 1 of 'train': label: got 2, wanted 0 to 1, or -1"),
        # With equal ids, examples of the test would be taken for those of the training.
        ("twice", "example 0 of 'test': id: got 0, which an earlier example has"),
        ("lacking", "example 1 of 'train': got image, id, time, wanted the features image, label"),
        ("coarse", "coarse: the examples of b have 2 coarse classes, wanted one"),
        ("classless", "coarse: the examples of c have 0 coarse classes, wanted one"),
    ],
)
def test_what_an_outside_source_yields_is_checked(module, data_dir, odd, match):
    name = "jaxatr_test_stripes:Odd"
    with pytest.raises(ValueError, match=match):
        data.open_dataset(name, data_dir=data_dir, options={"of": odd})
    test = data.open_dataset(name, data_dir=data_dir).splits["test"]
    assert test.columns["time"].tolist() == [1.7e9 + 2, 1.7e9 + 3]


def test_a_source_of_the_package_is_one_file(tmp_path, data_dir, monkeypatch):
    (tmp_path / "stripes.py").write_text(SOURCE)
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    assert "stripes" in sources.names()
    assert len(data.open_dataset("stripes", data_dir=data_dir).splits["train"]) == 4
    assert data.options_with_flags()["count"]["stripes"].meaning == "images of each class"
    del sys.modules["jaxatr.data.sources.stripes"]


def test_the_source_in_the_documentation_is_a_whole_one(tmp_path, data_dir, monkeypatch):
    examples = Path(__file__).parents[3] / "docs" / "examples"
    shutil.copy(examples / "shades.py", tmp_path / "jaxatr_test_shades.py")
    monkeypatch.syspath_prepend(tmp_path)
    name = "jaxatr_test_shades:Shades"
    dataset = data.prepare(name, data_dir=data_dir, options={"count": 3})
    assert [len(dataset.splits[split]) for split in ("train", "test")] == [6, 6]
    assert dataset.classes[1] == "bright" and (dataset.splits["test"][1]["image"] == 180).all()


def test_a_set_of_a_source_that_is_gone_is_named(module, data_dir, tmp_path):
    (tmp_path / "lines.txt").write_text("3 5")
    name = "jaxatr_test_stripes:Lines"
    dataset = data.prepare(name, source=tmp_path / "lines.txt", data_dir=data_dir)
    path = dataset.directory / "jaxatr.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "builder": "an_old_one"}))
    with pytest.raises(ValueError, match="the source 'an_old_one', which no longer exists"):
        data.open_dataset("lines", data_dir=data_dir)


def test_an_index_from_before_there_were_builders_is_followed(folder, data_dir):
    dataset = data.prepare("image_folder", source=folder, data_dir=data_dir, as_name="mine")
    path = dataset.directory / "jaxatr.json"
    facts = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: v for k, v in facts.items() if k not in ("builder", "skip_corrupt")})
    )
    assert data.open_dataset("mine", data_dir=data_dir).fingerprint == dataset.fingerprint
    (folder / "train/car/0.png").unlink()
    assert len(data.open_dataset("mine", data_dir=data_dir).splits["train"]) == 11


@pytest.mark.parametrize("name", sources.names())
def test_every_source_describes_its_options(name):
    source = sources.find(name)
    assert isinstance(source, Source) and source.name == name
    for option in source.options.values():
        assert option.meaning and json.dumps(option.default)
        if option.flag is not None and option.flag.kind == "enum":
            assert option.flag.convert("x") == "x" and option.default in option.flag.choices


def test_a_flag_of_several_sources_is_of_one_kind():
    for options in data.options_with_flags().values():
        assert len({option.flag[:2] for option in options.values()}) == 1
    assert {*data.options_with_flags()} == {
        *("band", "ranges", "time", "every"),
        *("bad_boxes", "box_margin", "boxes"),
    }


@pytest.mark.parametrize("name", ["simulated", "simulated_tracks"])
def test_the_renderers_arguments_are_options(name):
    source = sources.find(name)
    generate = __import__(f"jaxatr.data.sources.{name}", fromlist=["generate"]).generate
    taken = {
        name: parameter.default
        for name, parameter in inspect.signature(generate).parameters.items()
        if name not in ("split", "vehicles")  # a data set has both splits and all vehicles
    }
    assert {name: option.default for name, option in source.options.items()} == taken


LAZY = """
import sys
from jaxatr import data
from jaxatr.data import sources

def loaded(*names):
    return [name for name in names if name in sys.modules]

data.Chip(size=4), data.augment, data.Truth(), data.options_with_flags
assert not loaded("tensorflow_datasets", "tensorflow", "grain"), loaded("tensorflow_datasets")
inside = [name for name in sys.modules if name.startswith("jaxatr.data.sources.")]
assert inside == ["jaxatr.data.sources._tfds"], inside
assert len(sources.find("simulated").options) == 9
others = [name for name in sources.names() if not name.startswith("simulated")]
assert not loaded(*(f"jaxatr.data.sources.{name}" for name in others)), sys.modules
sources.with_flags()
assert not loaded("tensorflow_datasets", "tensorflow", "grain"), loaded("tensorflow_datasets")
"""


def test_the_room_imports_neither_tfds_nor_grain_nor_a_source_that_is_not_asked_for():
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
