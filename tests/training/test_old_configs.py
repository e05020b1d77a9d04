"""Reading of old configurations, recorded when every run had the fields of all tasks."""

import json
import tarfile
from pathlib import Path

import pytest

from jaxatr import config as configuration
from jaxatr import training

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "runs.tar.xz"
KINDS = {
    "open_set": "jaxatr.tasks.open_set:OpenSet",
    "open_set/conflabel": "jaxatr.tasks.open_set:OpenSet",
    "open_set/gopenmax/generator": "jaxatr.tasks.gan:ConditionalGan",
    "track": "jaxatr.tasks.track:TrackOpenSet",
    "embedding": "jaxatr.tasks.embedding:Embedding",
    "distillation": "jaxatr.tasks.distillation:Distillation",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The recorded files of one old run of each task."""
    root = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        names = {f"{kind}/{file}" for kind in KINDS for file in ("config.json", "record.json")}
        archive.extractall(root, [archive.getmember(name) for name in names], filter="data")
    return root


def names_of(config):
    return {name for name in configuration.COMMON if "." not in name} | {
        f"{group}.{name}"
        for group, fields in config.items()
        if hasattr(fields, "keys")
        for name in fields
    }


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_todays_fields_of_its_task_and_is_continued(folders, kind):
    recorded = json.loads((folders / kind / "config.json").read_text())
    assert {"gan", "embedding", "distillation"} <= set(recorded)
    config = training.load_config(folders / kind)
    today = configuration.of_task(KINDS[kind])
    assert config.task == KINDS[kind] and names_of(config) == names_of(today)
    assert config.data.source == recorded["data"]["source"]
    assert config.train.steps == recorded["train"]["steps"]
    assert (config.optimizer.name, config.train.ema, config.optimizer.decay) == ("sgd", 0.0, None)
    fingerprint = json.loads((folders / kind / "record.json").read_text())["fingerprint"]
    assert training.check_config(folders / kind, config) == fingerprint
    free = training.task_class(KINDS[kind]).free_fields  # the score that decides among them
    assert training.check_config(folders / kind, _set(today, recorded), free=free) == fingerprint


def _set(config, recorded):
    """Returns a present configuration with the values of a recorded run."""
    for group, fields in recorded.items():
        for name, value in fields.items() if isinstance(fields, dict) else ():
            if name in config.get(group, {}) and (group, name) != ("embedding", "margin"):
                with config.unlocked(), config.ignore_type():
                    config[group][name] = value
    if config.data.name == "simulated_tracks":  # whose default is another today
        with config.unlocked():
            config.data.options.crop = "window"
    return config


def test_a_difference_is_still_one(folders):
    config = training.load_config(folders / "embedding")
    config.embedding.margin, config.train.ema = 0.0, 0.9
    with pytest.raises(training.ConfigMismatch) as caught:
        training.check_config(folders / "embedding", config)
    assert str(caught.value).splitlines()[1:] == [
        "  embedding.margin: recorded null, now 0.0",
        "  train.ema: recorded 0.0, now 0.9",
    ]


def test_a_margin_of_nothing_was_the_losss_own(folders, tmp_path):
    recorded = json.loads((folders / "embedding" / "config.json").read_text())
    assert recorded["embedding"]["margin"] == 0.0
    assert configuration.completed(recorded).embedding.margin is None
    recorded["embedding"]["margin"] = 0.5
    assert configuration.completed(recorded).embedding.margin == 0.5
    config = configuration.of_task("jaxatr.tasks.embedding:Embedding")
    config.embedding.margin = 0.0  # today it means what it says
    training.record_config(tmp_path, config)
    assert training.load_config(tmp_path).embedding.margin == 0.0


def test_fields_of_ones_own_stay(folders):
    recorded = json.loads((folders / "track" / "config.json").read_text())
    recorded["mine"] = {"depth": 3}
    recorded["data"]["options"]["tracks"] = 5
    config = configuration.completed(recorded)
    assert config.mine.depth == 3 and config.data.options.tracks == 5


def test_a_task_that_is_gone_is_named(folders, tmp_path):
    recorded = json.loads((folders / "track" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(recorded | {"task": "nowhere:Task"}))
    with pytest.raises(ValueError, match="no module 'nowhere'"):
        training.load_config(tmp_path)


def test_simulated_chips_were_windows_until_a_configuration_could_say_so(folders, tmp_path):
    recorded = json.loads((folders / "track" / "config.json").read_text())
    assert recorded["data"]["name"] == "simulated_tracks"
    assert "crop" not in recorded["data"]["options"]
    assert configuration.completed(recorded).data.options.crop == "window"
    assert "crop" not in training.load_config(folders / "open_set").data.options
    config = configuration.of_task()  # of today: the data set's own default
    config.data.options.aspects = 3
    training.record_config(tmp_path, config)
    assert "crop" not in training.load_config(tmp_path).data.options
