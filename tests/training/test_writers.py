"""metrics.jsonl and TensorBoard events."""

import json
import math

import pytest
from tensorboardX.proto.event_pb2 import Event

from jaxatr.training import read_metrics
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
        monkeypatch.setattr(writer._events, "flush", fail)
        with pytest.raises(OSError, match=f"records of the run.*{tmp_path.name}"):
            writer.sync()
        monkeypatch.undo()
