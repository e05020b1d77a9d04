"""The commands as a user types them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from jaxatr.cli import calibrate, check, convert, enrol, evaluate, inputs, predict, prepare, serve

ROOT = Path(__file__).parents[2]


def as_module(name, *arguments, **environment):
    """Runs the module of a command in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "jaxatr", name, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_train_evaluate_predict(command, chips, networks_of_the_tests, tmp_path):
    shared = {"path": [networks_of_the_tests], "JAXATR_COMPILATION_CACHE": tmp_path / "cache"}
    run = tmp_path / "run"
    done = command(
        "train",
        "--config=configs/cbc.py:folder",
        f"--data_source={chips}",
        f"--data_dir={tmp_path / 'data'}",
        "--config.open_set.split=random-3/1",
        "--config.model.backbone=jaxatr_test_networks:Small",
        "--config.train.epochs=2",
        "--config.open_set.score=cbc",
        f"--workdir={run}",
        **shared,
    )
    assert done.returncode == 0, done.stderr
    assert f"made the folder {tmp_path / 'data'} for the prepared data" in done.stdout
    assert "closed acc." in done.stdout and "cbc" in done.stdout
    assert "images/s" in done.stderr and "left" in done.stderr

    again = command("evaluate", "--trust", f"--workdir={run}", "--json", **shared)
    assert again.returncode == 0, again.stderr
    assert (
        json.loads(again.stdout)["groups"]
        == json.loads((run / "evaluation.json").read_text())["groups"]
    )

    reported = command(
        "report", "--trust", f"--workdir={run}", f"--out={tmp_path / 'report.html'}", **shared
    )
    assert reported.returncode == 0, reported.stderr
    assert "random-3/1" in (tmp_path / "report.html").read_text(encoding="utf-8")

    compared = command(
        "train", "--trust", f"--workdir={run}", "--baselines=conflabel", "--noprogress", **shared
    )
    assert compared.returncode == 0, compared.stderr
    assert (
        f"training conflabel in {run}" in compared.stdout
        and "conflabel_detector" in compared.stdout
    )

    images = sorted((chips / "test" / "disc").iterdir())[:2]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    plain = command("predict", "--trust", f"--workdir={run}", images[0], "--score=cbc", **shared)
    assert plain.returncode == 0 and plain.stdout.startswith(f"{images[0]}: ")
    assert "γ 0.9, no guarantee)" in plain.stdout

    told = command(
        "predict", "--trust", f"--workdir={run}", images[0], broken, images[1], "--jsonl", **shared
    )
    assert told.returncode == 1 and str(broken) in told.stderr
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["path"] for line in lines] == [str(image) for image in images]
    decides = json.loads((run / "evaluation.json").read_text())["decides"]
    assert all(line["decides"] == decides and len(line["probabilities"]) == 3 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--config=configs/cbc.py", "--config.model.bakbone=x"],
            "no field 'model.bakbone'; did you mean 'model.backbone'?",
        ),
        (
            ["train", "--config=configs/cbc.py", "--config.gan.step=3"],
            "--config.gan.step: there is no field 'gan.step'; did you mean 'gan.steps'?",
        ),
        (
            ["train", "--config=configs/cbc.py", "--config.embedding.margin=1"],
            "--config.embedding.margin: there is no field 'embedding.margin'",
        ),
        (["train", "--config=configs/cbc.py:defalt"], "variant: got 'defalt'"),
        (["train", "--config=configs/none.py"], "configs/none.py"),
        (["train"], "--config is missing"),
        (["train", "--workdir=nowhere"], "own; nowhere has no run to continue"),
        (["train", "--config=cbc", "--more_epochs=1"], "--more_epochs cannot be combined with --c"),
        (["evaluate", "--workdir=x", "--name=a"], "--name needs --data, the set that it names"),
        (["train", "--config.seed=3"], "--config.seed: --config=NAME is missing"),
        (["train", "--config=cbc", "--config.seed.x=3"], "no field 'seed.x'; did you mean 'seed"),
        (["train", "--config=cbc", "--config.seed=x"], "wanted a whole number, got 'x'"),
        (["train", "--config=cbc", "--config.sede=3", "--wrokdir=x"], "did you mean 'seed'?"),
        (["train", "--config=cbc", "--wrokdir=x"], "no flag --wrokdir; did you mean 'workdir'?"),
        (
            ["train", "--config=cbc", "--data_dir=a", "--config.data.data_dir=b"],
            "--data_dir and --config.data.data_dir are the same: give only one",
        ),
        (["evaluate", "--workdir=x", "--data_dir=none"], "--data_dir: there is no folder none"),
        (["serve", "--workdir=x", "--port=x"], "flag --port=x: wanted a whole number, got 'x'"),
        (["train", "--baselines=conflabel"], "--config is missing"),
        (["train", "--workdir=nowhere", "--baselines=odin"], "baselines: got 'odin'"),
        (["train", "--workdir=nowhere", "--baselines=gopenmax"], "nowhere is not a run's folder"),
        (["predict", "--workdir=nowhere", "x.png"], "nowhere is not a run's folder"),
        (["predict", "--workdir=nowhere"], "no image given"),
        (["train", "--config=configs/cbc.py", "--config.data.options.asp=1"], "no field"),
        (["report", "--workdir=nowhere"], "nowhere is not a run's folder"),
        (["report"], "--workdir is required"),
        (["evaluate"], "--workdir is required"),
        (["evaluate", "--workdir=nowhere", "stray"], "got 'stray', which is not a flag"),
    ],
)
def test_a_users_error_is_one_line(command, arguments, message):
    done = command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1


@pytest.mark.parametrize(
    ("module", "former", "flag", "value"),
    [
        (calibrate, "--source=a", "chips", "a"),
        (check, "--page=a", "out", "a"),
        (check, "--source=a", "data_source", "a"),
        (convert, "--source=a", "data_source", "a"),
        (enrol, "--source=a", "chips", "a"),
        (evaluate, "--source=a", "data_source", "a"),
        (predict, "--jsonl", "json", True),
        (predict, "--source=a", "data_source", "a"),
        (prepare, "--source=a", "data_source", "a"),
        (serve, "--source=a", "data_source", "a"),
    ],
)
def test_the_flags_of_version_0_2_have_their_meaning(flags_of, module, former, flag, value):
    required = () if module in (check, prepare) else ("--workdir=x",)
    assert flags_of(module, *required, former) == []
    found = flags.FLAGS[flag]
    assert found.value == value and found.present
    assert former.split("=")[0].removeprefix("--") in inputs.FORMER


def test_a_run_folder_is_announced_when_it_is_made(command, chips, tmp_path):
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "train").symlink_to(chips / "train")
    source = f"--config.data.source={tmp_path / 'chips'}"
    folder = tmp_path / "run"
    arguments = ["--config=cbc:folder", source, "--config.data.train_split=nothing"]
    done = command("train", *arguments, f"--workdir={folder}")
    assert done.returncode == 2 and "data.train_split" in done.stderr
    assert not folder.exists() and "run folder" not in done.stdout


def test_a_misspelt_field_of_a_configuration_file_is_named(command, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from jaxatr import config\n\n\ndef get_config():\n    made = config.of_task()\n"
        "    made.optimizer.learning_rat = 1.0\n    return made\n"
    )
    done = command("train", f"--config={path}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 2
    wanted = f'error: --config: {path}, line 6: Key "learning_rat" does not exist'
    assert done.stderr.startswith(wanted) and len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith('Did you mean "learning_rate" instead of "learning_rat"?\n')


def test_a_folder_that_is_not_there_cannot_be_prepared(command, tmp_path):
    place = f"--source={tmp_path / 'gone'}", f"--data_dir={tmp_path}"
    done = command("prepare", "image_folder", *place)
    assert done.returncode == 2
    step, error = done.stderr.splitlines()
    assert step == "preparing image_folder" and error.startswith("error: there is no folder")
    assert done.stdout == ""


@pytest.mark.slow
def test_several_processes_need_the_run_folder():
    done = as_module("train", "--config=configs/cbc.py", JAX_NUM_PROCESSES="2")
    assert done.returncode == 2 and "--workdir is missing" in done.stderr
