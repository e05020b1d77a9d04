"""Every variant of every configuration file is complete, and only changes fields of the base."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

from jaxatr import config as configuration
from jaxatr import data, models

ROOT = Path(__file__).parents[1]
FILES = ("cbc", "quadruplet", "distill", "track")


def load(file="cbc"):
    spec = importlib.util.spec_from_file_location(file, ROOT / "configs" / f"{file}.py")
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
    config, base = load(file).get_config(variant), configuration.base()
    assert set(config) == set(base)
    for group in base:
        if hasattr(base[group], "keys"):
            assert set(config[group]) == set(base[group]), group
    assert config.to_json()
    models.build_open_set(config.model, 6)
    models.build_track(config.model, 6, max(1, config.track.hidden))


def _fields(config, prefix=""):
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_the_documentation_has_every_field_with_its_default():
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \| .*\w.* \|$", page, re.MULTILINE)
    documented = {name: ast.literal_eval(value) for name, value in rows}
    assert documented == dict(_fields(configuration.base().to_dict()))


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


def test_the_quadruplet_papers_recipe():
    config = load("quadruplet").get_config("cars196")
    assert (config.optimizer.learning_rate, config.optimizer.momentum) == (3e-4, 0.9)
    assert config.model.backbone == "resnet101" and config.embedding.dimension == 1024
    fields = config.quadruplet
    assert fields.margins == fields.global_margins == (0.7, 0.3) and fields.reduction == "sum"
    assert config.embedding.class_weights == (0.08, 0.25)
    assert fields.global_weights == (1.0, 1.0) and fields.eta == 1.0
