"""Options of the data set on the command line of ``train``, and of what finds the data again."""

import json

import pytest

from jaxatr import bundled, training
from jaxatr.cli import configuration


def parsed(name, *arguments):
    """Returns the configuration that a command line of ``train`` gives."""
    config, rest = configuration.read(name, arguments)
    assert rest == []
    return config


@pytest.mark.parametrize(
    "given",
    [
        ["--config.data.options.layout=class/split"],
        ["--config.data.options.layout", "class/split"],
        ["-config.data.options.layout=class", "--config.data.options.layout=class/split"],
    ],
)
def test_an_option_that_the_configuration_does_not_name(given):
    config = parsed("cbc:folder", *given)
    assert config.data.options.to_dict() == {"test_fraction": 0.2, "layout": "class/split"}


def test_options_have_the_types_of_their_defaults():
    given = {"ranges": "1000,2000", "every": "3", "band": "visible"}
    line = [f"--config.data.options.{name}={value}" for name, value in given.items()]
    options = parsed("cbc:dsiac", *line).data.options
    assert options.to_dict() == {"ranges": (1000, 2000), "every": 3, "band": "visible"}


@pytest.mark.parametrize("in_the_file", [False, True])
def test_options_of_a_source_of_ones_own(monkeypatch, tmp_path, in_the_file):
    name = f"jaxatr_own_source_{in_the_file}"  # a name is trusted for the rest of the process
    (tmp_path / f"{name}.py").write_text(
        "from jaxatr.data.source import Option, Source\n\n\nclass Own(Source):\n"
        "    name, version = 'own', 1\n    options = {'least': Option(None, 'unset: any')}\n\n"
        "    def scan(self, request): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config, given = "cbc:folder", [f"--config.data.name={name}:Own"]
    if in_the_file:
        config, given = str(tmp_path / "mine.py"), []
        text = (bundled.folder() / "cbc.py").read_text(encoding="utf-8")
        text += f"    config.data.name = {name + ':Own'!r}\n"  # of the last function, `pretrained`
        (tmp_path / "mine.py").write_text(text, encoding="utf-8")
        config += ":pretrained"
    made = parsed(config, "--config.data.options.least=3", *given)
    assert made.data.options.least == 3


def test_the_options_are_those_of_the_data_set_on_the_command_line():
    given = ("--config.data.name=fgvc_aircraft", "--config.data.options.level=family")
    assert parsed("quadruplet:default", *given).data.options.level == "family"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["layout=class/spilt"], "data.options.layout: got 'class/spilt', wanted one of class,"),
        (["layout=class", "table=x.csv"], "data.options.layout: not allowed together with a table"),
        (["table=x.csv"], "data.options.table: there is no file 'x.csv' in "),
        (["table=x.txt"], "data.options.table: got 'x.txt', wanted one of .csv, "),
        (["test_fraction=2"], "data.options.test_fraction: got 2.0, wanted a fraction in (0, 1)"),
        (["test_fraction=a"], "flag --config.data.options.test_fraction=a: "),
        (
            ["tabel=x.csv"],
            "--config.data.options.tabel: there is no field 'tabel'. image_folder has "
            "test_fraction, layout, table",
        ),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_field(command, chips, tmp_path, given, message):
    flat = tmp_path / "flat"
    flat.symlink_to(chips / "train")
    line = [f"--config.data.options.{one}" for one in given]
    folders = [f"--data_source={flat}", f"--workdir={tmp_path / 'run'}"]
    done = command("train", "--config=cbc:folder", *folders, *line)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


@pytest.fixture
def below(chips, tmp_path):
    """A folder with splits of unusual names below the classes, and a table that names classes."""
    root, rows = tmp_path / "below", ["path,label,split"]
    for split, name in (("train", "day"), ("test", "night")):
        for folder in sorted((chips / split).iterdir()):
            (root / folder.name).mkdir(parents=True, exist_ok=True)
            (root / folder.name / name).symlink_to(folder)
            for image in sorted(folder.iterdir()):
                rows.append(f"{folder.name}/{name}/{image.name},{folder.name.upper()},{name}")
    (root / "list.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "split"),
    [("layout", "class/split", "known:cross,disc"), ("table", "list.csv", "known:CROSS,DISC")],
)
def test_a_run_finds_its_data_again(
    command, below, networks_of_the_tests, tmp_path, option, value, split
):
    shared = {"path": [networks_of_the_tests], "JAXATR_COMPILATION_CACHE": tmp_path / "cache"}
    run = tmp_path / "run"
    line = [
        "train",
        "--config=cbc:folder",
        f"--data_source={below}",
        f"--data_dir={tmp_path / 'data'}",
        "--config.data.train_split=day",
        "--config.data.test_split=night",
        f"--config.open_set.split={split}",
        "--config.open_set.score=cbc",
        "--config.model.backbone=jaxatr_test_networks:Small",
        "--config.train.steps=2",
        f"--workdir={run}",
    ]
    given = f"--config.data.options.{option}={value}"
    done = command(*line, given, **shared)
    assert done.returncode == 0, done.stderr
    assert "taken for" not in done.stderr  # nothing was assumed
    recorded = json.loads((run / training.record.CONFIG).read_text())["data"]["options"]
    assert recorded == {"test_fraction": 0.2, option: value}
    assert training.read_record(run)["examples"]["test"] == 40  # the chips of the folders night

    again = command("evaluate", "--trust", f"--workdir={run}", "--json", "--fresh", **shared)
    assert again.returncode == 0, again.stderr
    groups = json.loads((run / "evaluation.json").read_text())["groups"]
    assert json.loads(again.stdout)["groups"] == groups
    page = tmp_path / "report.html"
    assert (
        command("report", "--trust", f"--workdir={run}", f"--out={page}", **shared).returncode == 0
    )
    assert split.partition(":")[2].partition(",")[0] in page.read_text(encoding="utf-8")

    assert command(*line, given, **shared).returncode == 0  # continues
    other = command(*line, **shared)
    assert other.returncode == 2
    assert f'data.options.{option}: recorded "{value}", now nothing' in other.stderr


def test_an_assumption_is_one_line(command, below, tmp_path):
    wrapped = tmp_path / "wrapped"
    wrapped.mkdir()
    (wrapped / "data").symlink_to(below)
    options = ['--option=layout="class/split"', f"--data_dir={tmp_path / 'data'}", "--nocheck"]
    done = command("prepare", "image_folder", f"--source={wrapped}", *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "preparing image_folder",
        f"warning: {wrapped}: taken for data/<class>/<split>/*; the option layout sets another "
        "meaning",
    ]
    assert "  day: 96 images" in done.stdout and "  night: 40 images" in done.stdout


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("data.select.band", ["visible,mid-wave"], ("visible", "mid-wave")),
        ("data.select.band", ["3um, 5um"], ("3um", "5um")),
        ("data.select.band", ["'a,b'"], ("a,b",)),
        ("data.select.band", ["visible", "mwir"], ("visible", "mwir")),
        ("data.select.range_m", ["1000,2000"], (1000, 2000)),
        ("data.select.range_m", ["(1000, 2000)"], (1000, 2000)),
        ("data.select.range_m", [""], ()),
        ("optimizer.boundaries", ["1.5"], (1.5,)),
        ("optimizer.boundaries", ["None"], ()),
        ("train.end_with_best", ["None"], None),
        ("train.end_with_best", ["False", "None"], None),
        ("optimizer.decay", ["kernels", "None"], None),
        ("data.validation_seed", ["None"], None),
        ("open_set.split", ["None"], "None"),
    ],
)
def test_commas_separate_values_and_none_means_unset(name, given, expected):
    made = parsed("cbc:pretrained", *(f"--config.{name}={value}" for value in given))
    for part in name.split("."):
        made = made[part]
    assert made == expected
