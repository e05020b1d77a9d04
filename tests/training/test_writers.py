"""metrics.jsonl and TensorBoard events."""

import json
import math
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event

from jaxatr.training import read_metrics
from jaxatr.training.trackers import TRACKERS, trackers_of
from jaxatr.training.trackers import mlflow as tracker
from jaxatr.training.writers import MetricWriter


def record(step, **values):
    return {"step": step, "phase": "train", **values}


def events(workdir):
    """Returns the events of all files, each framed by a length and two checksums."""
    for path in sorted((workdir / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_records_are_lines_and_events(tmp_path):
    with MetricWriter(tmp_path, step=0) as writer:
        writer.write(record(1, loss=0.5))
        writer.write(record(2, loss=math.nan, accuracy=1.0))
        writer.sync()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        record(1, loss=0.5),
        record(2, loss=None, accuracy=1.0),
    ]
    values = [
        (event.step, value.tag, value.simple_value)
        for event in events(tmp_path)
        for value in event.summary.value
    ]
    assert values == [(1, "train/loss", 0.5), (2, "train/accuracy", 1.0)]


def test_records_beyond_the_restored_step_are_dropped(tmp_path):
    with MetricWriter(tmp_path, step=0) as writer:
        for step in range(1, 6):
            writer.write(record(step, loss=0.1 * step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "pha')  # killed in the middle of a line
    assert [found["step"] for found in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    with MetricWriter(tmp_path, step=3) as writer:
        writer.write(record(4, loss=0.4))
    assert read_metrics(tmp_path) == [record(step, loss=0.1 * step) for step in (1, 2, 3)] + [
        record(4, loss=0.4)
    ]
    purges = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert sorted(purges) == [1, 4]


def test_a_run_that_begins_keeps_no_record(tmp_path):
    for _ in range(2):  # killed after an evaluation before the first step
        with MetricWriter(tmp_path, step=-1) as writer:
            writer.write(record(0, loss=1.0))
    assert read_metrics(tmp_path) == [record(0, loss=1.0)]


def test_there_may_be_no_records(tmp_path):
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\0\0", r"\S"),
        (b"{}", "it has no number of a step, 'step'"),
        (b"[]", "it has no number of a step, 'step'"),
        (b'{"step": "a"}', "it has no number of a step, 'step'"),
        (b'{"step": 2}', "it has no name of a phase, 'phase'"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, message):
    first = b'{"step": 1, "phase": "fit"}\n'
    (tmp_path / "metrics.jsonl").write_bytes(first + line + b'\n{"step": 3')
    with pytest.raises(ValueError, match=f"metrics.jsonl is damaged in line 2: {message}"):
        read_metrics(tmp_path)


def test_a_full_disk_is_named(tmp_path):
    with pytest.raises(OSError, match="No space left on device .records of the run.") as caught:
        with MetricWriter(tmp_path, step=0) as writer:
            writer._file.close()
            writer._file = open("/dev/full", "w")
            writer.write(record(1, loss=0.5))
    assert caught.value.filename == str(tmp_path)


def test_events_that_do_not_fit_are_named(tmp_path, monkeypatch):
    def fail():
        raise OSError(28, "No space left on device")

    with MetricWriter(tmp_path, step=0) as writer:
        monkeypatch.setattr(writer._writers[0], "flush", fail)
        with pytest.raises(OSError, match=f"records of the run.*{tmp_path.name}"):
            writer.sync()
        monkeypatch.undo()


def test_trackers_are_chosen_by_name_and_a_missing_extra_is_named(monkeypatch):
    assert trackers_of("tensorboard") == [TRACKERS["tensorboard"]] and trackers_of("") == []
    with pytest.raises(ValueError, match="train.trackers: got 'mlfow', wanted one of mlflow, tens"):
        trackers_of("tensorboard,mlfow")
    with pytest.raises(ValueError, match="given twice"):
        trackers_of("tensorboard, tensorboard")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        ImportError, match=r"needs the package mlflow: pip install 'jaxatr.mlflow.'"
    ):
        trackers_of("tensorboard,mlflow")


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """MLflow, which keeps its runs in a folder."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    found = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return found


def test_a_run_of_mlflow_is_continued_and_has_each_number_once(mlflow, tmp_path):
    workdir = tmp_path / "mine"
    workdir.mkdir()
    (workdir / "config.json").write_text('{"seed": 3, "train": {"epochs": 2, "args": {}}}')
    chosen = trackers_of("mlflow")
    with pytest.raises(FloatingPointError):
        with MetricWriter(workdir, step=-1, trackers=chosen) as writer:
            for step in range(1, 6):
                writer.write(record(step, loss=0.1 * step, accuracy=math.nan))
            raise FloatingPointError("the loss is not finite")
    client = mlflow.MlflowClient()
    name = json.loads((workdir / tracker.FILE).read_text())["run_id"]
    run = client.get_run(name)
    assert run.info.status == "FAILED" and run.info.run_name == "mine"
    assert run.data.params == {"seed": "3", "train.epochs": "2", "train.args": "{}"}
    assert client.get_experiment(run.info.experiment_id).name == "jaxatr"
    with MetricWriter(workdir, step=3, trackers=chosen) as writer:  # it resumes from step 3
        for step in range(4, 8):
            writer.write(record(step, loss=0.1 * step))
    assert json.loads((workdir / tracker.FILE).read_text())["run_id"] == name
    found = client.get_metric_history(name, "train/loss")
    assert [(one.step, one.value) for one in found] == [(n, 0.1 * n) for n in range(1, 8)]
    assert client.get_run(name).info.status == "FINISHED"
    assert list(client.get_run(name).data.metrics) == ["train/loss"]


def test_numbers_that_the_server_does_not_take_are_sent_later(mlflow, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    with MetricWriter(tmp_path, step=-1, trackers=trackers_of("mlflow")) as writer:
        (open_run,) = writer._writers

        def refuse(*_, **__):
            raise mlflow.MlflowException("no connection")

        writer.write(record(1, loss=0.5))
        with monkeypatch.context() as broken:
            broken.setattr(open_run._client, "log_batch", refuse)
            with pytest.warns(UserWarning, match="1 numbers could not be sent and wait"):
                writer.sync()
    (sent,) = mlflow.MlflowClient().get_metric_history(open_run._id, "train/loss")
    assert (sent.step, sent.value) == (1, 0.5)


def test_a_database_without_its_packages_is_refused_before_the_training(mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://of-the-kind")
    with pytest.raises(ValueError, match="trackers=mlflow: MLflow cannot use nothing://of-the-kin"):
        trackers_of("mlflow")


def test_a_server_that_cannot_be_reached_is_named(mlflow, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(OSError, match="train.trackers=mlflow: .*127.0.0.1"):
        MetricWriter(tmp_path, step=-1, trackers=trackers_of("mlflow"))
