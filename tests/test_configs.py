"""Every variant of every configuration file changes only declared fields."""

import importlib.util
import json
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr import data, models, openset
from jaxatr.cli import configuration as configuration_flags
from jaxatr.config import Field
from jaxatr.data import sources

ROOT = Path(__file__).parents[1]
FILES = ("cbc", "quadruplet", "distill", "track", "detect")
TASKS = (
    *("jaxatr.tasks.open_set:OpenSet", "jaxatr.tasks.track:TrackOpenSet"),
    *("jaxatr.tasks.embedding:Embedding", "jaxatr.tasks.gan:ConditionalGan"),
    *("jaxatr.tasks.distillation:Distillation", "jaxatr.tasks.detection:Detection"),
)
PAGES = [p.stem for p in (ROOT / "docs").glob("*.md") if "<!-- table:" in p.read_text("utf-8")]


def load(file="cbc", folder="configs"):
    spec = importlib.util.spec_from_file_location(file, ROOT / folder / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VARIANTS = [
    (file, line.split()[0])
    for file in FILES
    for line in load(file).__doc__.split("Variants:\n")[1].splitlines()
    if line.startswith("  ") and not line.startswith("   ")
]


@pytest.mark.parametrize(("file", "variant"), VARIANTS)
def test_variant(file, variant):
    config = load(file).get_config(variant)
    base = configuration.of_task(config.task)
    assert set(config) == set(base)
    for group in base:
        if hasattr(base[group], "keys"):
            assert set(config[group]) == set(base[group]), group
    assert config.to_json()
    models.build_open_set(config.model, 6)
    if "track" in config:
        models.build_track(config.model, 6, max(1, config.track.hidden))


def test_the_documentation_follows_the_declarations():
    made = load("make_configuration", "docs").page()
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == made
    rows = [line for line in made.splitlines() if line.startswith("| `")]
    documented = [row.split("`")[1].partition("=")[0] for row in rows]
    assert set(documented) == {name for task in TASKS for name in configuration.fields_of(task)}


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_follow_the_code(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    tables = load("make_tables", "docs")
    assert tables.filled(text) == text


def test_every_score_is_in_the_table_and_described():
    assert "scores" in PAGES
    listed = load("make_tables", "docs").scores().splitlines()[2:]
    names = [name for row in listed for name in row.split("|")[1].replace("`", "").split(",")]
    assert sorted(name.strip() for name in names) == sorted(openset.SCORES)
    assert all(len(row.split("|")[2].strip()) > 12 for row in listed)  # each is described


def test_a_table_of_a_page_is_made_between_its_marks():
    tables = load("make_tables", "docs")
    mark = "<!-- table: fields jaxatr.tasks.open_set:OpenSet loss.open_weight -->"
    made = tables.filled(f"before\n{mark}\nstale\n<!-- end of the table -->\nafter\n")
    rows = made.splitlines()
    assert rows[:2] == ["before", mark] and rows[-2:] == ["<!-- end of the table -->", "after"]
    assert "stale" not in made
    assert [row for row in rows if row.startswith("| `loss.open_weight=1.0` |")]


def test_a_task_has_the_common_fields_and_its_own():
    own = {task: set(configuration.of_task(task)) - set(configuration.common()) for task in TASKS}
    assert list(own.values()) == [
        {"loss", "gan", "mix"},
        {"loss", "track"},
        {"embedding", "quadruplet", "mining"},
        {"gan"},
        {"surrogate", "distillation", "explanation"},
        {"loss", "detection", "cfar"},
    ]
    config = configuration.of_task("jaxatr.tasks.embedding:Embedding")
    assert config.task == "jaxatr.tasks.embedding:Embedding"
    assert config.open_set.to_dict() == {
        "split": "closed",
        "split_seed": 0,
        "hold_out": 0,
        "hold_out_turn": 0,
        "tpr": 0.95,
    }
    config.data.options = ConfigDict({"x": 1})  # nothing is shared between two of them
    assert not configuration.of_task(config.task).data.options


def test_a_field_that_is_missing_is_named_with_the_nearest_right_one():
    config = configuration.of_task()
    with pytest.raises(AttributeError, match="learning_rat.*learning_rate"):
        config.optimizer.learning_rat = 0.1
    with pytest.raises(KeyError, match="embedding"):
        config["embedding"]


def test_another_task_needs_its_own_fields():
    config = configuration.of_task()
    configuration.check_complete(config)
    config.task = "jaxatr.tasks.track:TrackOpenSet"
    with pytest.raises(ValueError, match="needs track.frames, track.hidden.*of_task.*TrackOpenSet"):
        configuration.check_complete(config)


def test_a_task_elsewhere_declares_fields_and_other_defaults(tmp_path, monkeypatch):
    (tmp_path / "jaxatr_test_fields.py").write_text(
        "from jaxatr.config import Field\n"
        "class Mine:\n"
        "    @classmethod\n"
        "    def fields(cls):\n"
        "        return {'mine.depth.first': Field(3, 'x'), 'train.epochs': Field(7, 'y')}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = configuration.of_task("jaxatr_test_fields:Mine")
    assert config.mine.depth.first == 3 and config.train.epochs == 7
    assert configuration.of_task().train.epochs == 20
    with pytest.raises(ValueError, match="^task: .*no 'Min' in .*_fields; did you mean 'Mine'"):
        configuration.of_task("jaxatr_test_fields:Min")


def test_a_field_can_be_unset_and_take_any_value(tmp_path):
    config = configuration.of_task("jaxatr.tasks.embedding:Embedding")
    assert (
        config.embedding.margin is None
        and json.loads(config.to_json())["embedding"]["margin"] is None
    )
    path = tmp_path / "config.py"
    path.write_text(
        "from jaxatr import config\n"
        "def get_config():\n"
        "    return config.of_task('jaxatr.tasks.embedding:Embedding')\n"
    )
    read, _ = configuration_flags.read(str(path), ["--config.embedding.margin=0"])
    assert read.embedding.margin == 0.0


def test_another_tasks_configuration_keeps_the_common_fields():
    config = configuration.of_task()
    config.data.options = ConfigDict({"aspects": 12})
    config.optimizer.learning_rate, config.gan.steps, config.loss.open = 0.5, 7, "none"
    made = configuration.retasked(config, "jaxatr.tasks.gan:ConditionalGan")
    assert (made.task, made.gan.steps) == ("jaxatr.tasks.gan:ConditionalGan", 7)
    assert made.optimizer.learning_rate == 0.5 and made.data.options.aspects == 12
    assert "loss" not in made
    made.data.options.aspects = 1
    assert config.data.options.aspects == 12 and config.task == configuration.OPEN_SET


def test_the_page_of_data_names_every_source_and_its_options():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name in sources.names():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert rows, name
        assert all(f"`{one}=" in "".join(rows) for one in sources.find(name).options), name


def test_a_table_has_a_row_for_each_field():
    rows = configuration.table({"a.b": Field((1, 2), "words"), "c": Field(None, "more", str)})
    assert rows.splitlines()[2:] == ["| `a.b=1,2` | words |", "| `c=None` | more |"]


def test_default_is_the_variant_without_a_name():
    for file in FILES:
        module = load(file)
        assert module.get_config().to_json() == module.get_config("default").to_json()


def test_unknown_variant_is_named():
    for file in FILES:
        with pytest.raises(ValueError, match="variant: got 'pape', wanted one of default"):
            load(file).get_config("pape")


def test_papers_recipe():
    config = load().get_config("paper")
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.momentum, optimizer.weight_decay) == (
        1e-3,
        0.9,
        5e-4,
    )
    assert (config.train.epochs, config.train.batch_size) == (20, 32)
    assert (config.loss.entropy_weight, config.loss.open_weight) == (0.1, 1.0)
    assert config.open_set.gamma == 0.9 and config.model.backbone == "resnet18"
    assert load().get_config("cifar10").train.batch_size == 64


def test_splits_of_the_variants_exist():
    classes = {
        "mstar": ("2S1", "BMP2", "BRDM_2", "BTR60", "BTR70", "D7", "T62", "T72", "ZIL131")
        + ("ZSU_23_4",),
        "cifar10": tuple("0123456789"),
        "default": tuple("abcdefgh"),
    }
    for variant, names in classes.items():
        split = data.known_unknown(load().get_config(variant).open_set.split, names)
        assert len(split.known) in (5, 6) and split.unknown
    classes = {
        "mstar": (classes["mstar"], 6),
        "cifar100": (tuple(map(str, range(100))), 50),
        "cars196": (tuple(map(str, range(196))), 98),
        "cub200": (tuple(map(str, range(200))), 100),
        "aircraft": (tuple(map(str, range(100))), 50),
        "default": (tuple("abcdefgh"), 6),
    }
    for variant, (names, known) in classes.items():
        split = data.known_unknown(load("quadruplet").get_config(variant).open_set.split, names)
        assert len(split.known) == known and split.unknown


@pytest.mark.parametrize("variant", ["cub200", "cars196", "variant", "family", "manufacturer"])
def test_the_distillation_papers_recipe(variant):
    config = load("distill").get_config(variant)
    optimizer, fields, second = config.optimizer, config.distillation, config.explanation
    assert (optimizer.learning_rate, optimizer.momentum, optimizer.nesterov) == (0.1, 0.9, True)
    assert optimizer.boundaries == (100.0, 130.0, 160.0) and optimizer.factor == 0.1
    assert (second.learning_rate, second.boundaries) == (0.1, (10.0, 12.0, 14.0))
    assert (fields.alpha, fields.temperature, fields.l1_weight) == (0.5, 1.0, 1e-5)
    assert config.train.epochs == 190 and second.epochs == 16 and not fields.end_to_end
    assert (fields.objective, fields.scorer, fields.l1) == ("mask", "target", "sum")
    assert config.model.backbone == "resnet50" and config.model.width == 64
    assert (config.data.size, config.data.channels) == (224, 3)
    names = {"cub200": "caltech_birds2011", "cars196": "cars196"}
    assert config.data.name == names.get(variant, "fgvc_aircraft")
    if variant in names:
        assert not config.data.options and config.data.train_split == "train"


@pytest.mark.parametrize("level", ["", "variant", "family", "manufacturer"])
def test_the_fine_tuning_of_the_distillation_papers_targets(level):
    module = load("distill")
    target = module.get_config(f"target_{level}" if level else "target")
    assert target.task == "jaxatr.tasks.open_set:OpenSet"
    optimizer = target.optimizer
    assert (optimizer.learning_rate, optimizer.factor, optimizer.nesterov) == (1e-2, 0.5, False)
    assert (optimizer.momentum, optimizer.schedule) == (0.9, "steps")
    assert optimizer.boundaries == (20.0, 40.0, 60.0, 80.0) and target.train.epochs == 100
    if level:
        assert target.data.options.to_dict() == {"level": level}
        assert target.data.train_split == "train+validation"
        assert target.data.to_dict() == module.get_config(level).data.to_dict()  # the same images


@pytest.mark.parametrize(
    ("short", "paper"),
    [("default", "paper"), ("mstar", "paper_mstar"), ("cifar100", "paper_cifar100")],
)
def test_the_papers_losses_are_a_variant_of_each_short_recipe(short, paper):
    ours, theirs = (load("distill").get_config(variant) for variant in (short, paper))
    assert (ours.distillation.objective, ours.surrogate.deltas) == ("curves", "features")
    fields = theirs.distillation
    assert (fields.objective, fields.scorer, fields.l1_weight) == ("mask", "target", 1e-5)
    assert theirs.surrogate.deltas == "last"
    for group in ("data", "train", "model", "optimizer", "explanation", "augment"):
        assert ours[group].to_dict() == theirs[group].to_dict()


def test_the_short_surrogate_begins_as_its_target():
    for variant in ("default", "smoke"):
        config = load("distill").get_config(variant)
        assert config.model.pretrained == config.distillation.target == ""
        config.distillation.target = "runs/1"
        assert config.model.pretrained == "runs/1"
        assert json.loads(config.to_json())["model"]["pretrained"] == "runs/1"
        config.model.pretrained = ""  # a target of another kind
        assert config.distillation.target == "runs/1" and config.model.pretrained == ""
        assert config.model.width == load("cbc").get_config(variant).model.width


def test_the_surrogate_of_a_pretrained_network_sees_its_images():
    ours, target = load("distill").get_config("pretrained"), load("cbc").get_config("pretrained")
    network = target.model.pretrained
    assert ours.model.backbone == ours.data.normalize_by == network
    for field in ("size", "channels", "name", "options"):
        assert ours.data[field] == target.data[field]
    for field, value in ours.augment.items():
        assert value == target.augment[field]
    ours.distillation.target = "runs/1"
    assert ours.model.pretrained == "runs/1" and not ours.model.freeze


def test_the_quadruplet_papers_recipe():
    config = load("quadruplet").get_config("cars196")
    assert (config.optimizer.learning_rate, config.optimizer.momentum) == (3e-4, 0.9)
    assert config.model.backbone == "resnet101" and config.embedding.dimension == 1024
    fields = config.quadruplet
    assert fields.margins == fields.global_margins == (0.7, 0.3) and fields.reduction == "sum"
    assert config.embedding.class_weights == (0.08, 0.25)
    assert fields.global_weights == (1.0, 1.0) and fields.eta == 1.0
