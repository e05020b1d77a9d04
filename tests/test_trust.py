"""A run's folder runs no code but the package's, and no name in it leaves it."""

import json
import shutil
import sys

import pytest

import jaxatr
from jaxatr import config as configuration
from jaxatr import files, models, openset, resolve, training
from jaxatr.data import sources
from jaxatr.explain import find_method, load_target
from jaxatr.recognition import enrolment_file
from jaxatr.tasks.embedding.in_batch import find_in_batch
from jaxatr.tasks.open_set.checks import find_open_loss
from jaxatr.tasks.optimizer import build_optimizer

TRAP = """
import pathlib

pathlib.Path(__file__).with_name("sprung").touch()


def spring(*arguments, **named):
    raise AssertionError("called")
"""


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The path of a function whose module leaves a file when it is imported, and this file."""
    (tmp_path / "jaxatr_test_trap.py").write_text(TRAP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(resolve, "_trusted", set())
    yield "jaxatr_test_trap:spring", tmp_path / "sprung"
    sys.modules.pop("jaxatr_test_trap", None)


def optimizer(name):
    config = configuration.common().optimizer
    config.name = name
    return build_optimizer(config, 10, 5)


def backbone(name):
    config = configuration.common().model
    config.backbone = name
    return models.build_open_set(config, 3)


USES = {
    "task": training.task_class,
    "fields": configuration.fields_of,
    "model.backbone": backbone,
    "loss.open": find_open_loss,
    "embedding.loss": find_in_batch,
    "optimizer.name": optimizer,
    "open_set.score": lambda name: openset.choose_scores([name]),
    "data.name": sources.find,
    "distillation.target": load_target,
    "method": find_method,
}


@pytest.mark.parametrize("use", USES)
def test_code_outside_the_package_is_not_even_imported(trap, use):
    name, sprung = trap
    for path in (name, "subprocess:getoutput", "jaxatr.files:os.system", "jaxatr.files:os"):
        with pytest.raises(ValueError, match=f"{path!r} is not code of jaxatr.*--trust"):
            USES[use](path)
    assert not sprung.exists()


@pytest.mark.parametrize("use", ["task", "fields", "model.backbone", "open_set.score", "data.name"])
def test_what_is_trusted_is_called_only_if_it_is_of_the_right_kind(trap, use):
    name, sprung = trap
    jaxatr.trust("jaxatr_test_trap")
    with pytest.raises(ValueError, match=f"{name}.* (is not a|wanted a Score)"):
        USES[use](name)
    assert sprung.exists()


def test_names_are_found_in_what_a_user_gave(monkeypatch):
    monkeypatch.setattr(resolve, "_trusted", set())
    given = {"a": ["near=my.data:Set,x", 3, None], "b": {"c": "my.networks.Small"}, "d": "known:a"}
    resolve.trust_names_in(given)
    assert resolve.trusted() == {"my.data:Set", "my.networks.Small", "known:a"}


def changed(run, folder, name, change):
    """Copies a run, and changes one of its files as an author of the run would."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("tensorboard"))
    content = json.loads((folder / name).read_text())
    change(content)
    files.write_fields(folder / name, content)
    return folder


def test_a_runs_folder_needs_trust_to_run_code(trap, trained_run, tmp_path):
    name, sprung = trap
    evil = changed(
        trained_run, tmp_path / "run", "config.json", lambda one: one["model"].update(backbone=name)
    )
    for use in (jaxatr.load, jaxatr.evaluate, jaxatr.Explainer.load):
        with pytest.raises(ValueError, match=f"model.backbone: {name!r} is not code of jaxatr"):
            use(evil)
    assert not sprung.exists()
    with pytest.raises(ValueError, match="is not a subclass of flax.linen.Module"):
        jaxatr.load(evil, trust=True)
    with pytest.raises(ValueError, match="jaxatr_test_networks:Small' is not code of jaxatr"):
        jaxatr.load(trained_run)  # trust is not for other runs
    assert jaxatr.load(trained_run, trust=True).classes == jaxatr.load(trained_run).classes


@pytest.mark.parametrize(
    "file",
    [
        *("../../precious", "ROOT/precious", "enrolled/../../precious", "", "out/precious"),
        *(
            "record.json",
            "enrolled/../record.json",
            "enrolled/deeper/x",
            "enrolled\\x",
            "enrolled/",
        ),
    ],
)
def test_no_name_in_enrolled_json_leaves_the_folder(tmp_path, file):
    run, precious = tmp_path / "a" / "run", tmp_path / "precious"
    run.mkdir(parents=True)
    precious.write_text("")
    (run / "out").symlink_to(tmp_path)
    file = file.replace("ROOT", str(tmp_path))
    entry = enrolment_file.Entry("a", "b", "c", file, ("d",))
    files.write_fields(run / enrolment_file.FILE, {"score": "knn", "enrolments": [entry._asdict()]})
    with pytest.raises(ValueError, match=f"'.*' is not a path within {run}"):
        enrolment_file.read(run)
    with pytest.raises(ValueError, match="is not a path within"):
        enrolment_file.discard(run, [entry])
    assert precious.exists()
