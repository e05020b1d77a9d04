"""MLflow: a run on the tracking server, or in the folder, that its environment names."""

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

from jaxatr import files
from jaxatr.extras import extra
from jaxatr.training.metrics_file import read_metrics
from jaxatr.training.trackers.tracker import Record, Tracker, Writer, numbers

FILE = "mlflow.json"
"""File in the run's folder that names its run on the server."""

_EXPERIMENT = "jaxatr"
_METRICS, _PARAMETERS = 1000, 100  # largest numbers of a request
_LONGEST = 500  # characters of a parameter


class _Run(Writer):
    """Sends the numbers of records in batches, each once."""

    def __init__(self, workdir: Path):
        mlflow = _mlflow()
        self._entities, self._errors = mlflow.entities, (mlflow.MlflowException, OSError)
        self._client = _client(mlflow)
        self._where, self._waiting = workdir, []
        try:
            self._id = self._continued() or self._begun()
            self._sent = self._last_steps()
        except self._errors as error:
            raise OSError(f"train.trackers=mlflow: {_line(error)}") from error
        for record in read_metrics(workdir):  # what the server did not get
            self.write(record)

    def _continued(self) -> str | None:
        """Continues the run that the folder names; None if it names none."""
        path = self._where / FILE
        if not path.exists():
            return None
        run_id = files.read_fields(path)["run_id"]
        self._client.update_run(run_id, status="RUNNING")
        return run_id

    def _begun(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=self._where.resolve().name)
        run_id = run.info.run_id
        files.write_fields(self._where / FILE, {"run_id": run_id, "experiment": name})
        fields = _flattened(files.read_json(self._where / "config.json"))
        parameters = [
            self._entities.Param(name, str(value)[:_LONGEST]) for name, value in fields.items()
        ]
        for first in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(run_id, params=parameters[first : first + _PARAMETERS])
        return run_id

    def _last_steps(self) -> dict[str, int]:
        """Returns the last step that the server has, by curve."""
        names = self._client.get_run(self._id).data.metrics
        return {
            name: max(one.step for one in self._client.get_metric_history(self._id, name))
            for name in names
        }

    def write(self, record: Record) -> None:
        """Takes a record; a run that is continued repeats its steps to the bit."""
        step, now = int(record["step"] or 0), int(1000 * time.time())
        for name, value in numbers(record).items():
            if step > self._sent.get(name, -1):
                self._sent[name] = step
                self._waiting.append(self._entities.Metric(name, value, now, step))
        if len(self._waiting) >= _METRICS:
            self.flush()

    def flush(self) -> None:
        """Sends what waits; what cannot be sent waits for the next time."""
        try:
            while self._waiting:
                self._client.log_batch(self._id, metrics=self._waiting[:_METRICS])
                del self._waiting[:_METRICS]
        except self._errors as error:
            warnings.warn(
                f"train.trackers=mlflow: {len(self._waiting)} numbers could not be sent and wait "
                f"for the next checkpoint ({_line(error)})",
                stacklevel=2,
            )

    def close(self, error: BaseException | None) -> None:
        """Sends what waits, and ends the run."""
        self.flush()
        stopped = error is not None and hasattr(error, "exit_code")
        status = "FINISHED" if error is None else "KILLED" if stopped else "FAILED"
        try:
            self._client.set_terminated(self._id, status)
        except self._errors as failed:
            warnings.warn(
                f"train.trackers=mlflow: the run could not be ended ({_line(failed)}); the "
                f"numbers are in {self._where / 'metrics.jsonl'}",
                stacklevel=2,
            )


def _mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent elsewhere
    return extra("mlflow", "mlflow", "train.trackers=mlflow")


def _client(mlflow: Any) -> Any:
    try:
        return mlflow.MlflowClient()
    except mlflow.MlflowException as error:
        raise ValueError(
            f"train.trackers=mlflow: MLflow cannot use {mlflow.get_tracking_uri()}: set "
            "MLFLOW_TRACKING_URI to a server, or install all of MLflow (pip install mlflow) for "
            f"a database ({_line(error)})"
        ) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _flattened(fields: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the fields of a configuration by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            found |= _flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return found


class MLflow(Tracker):
    """A run of MLflow, by ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME``."""

    def check(self) -> object:
        """Checks that MLflow is installed, and that it can use the place that it is given.

        Raises:
          ValueError: it cannot, such as a database without the packages for it.
        """
        return _client(_mlflow())

    def open(self, workdir: Path, *, step: int) -> Writer:
        """Begins a run, or continues the one that the folder names."""
        del step  # the folder's records are those up to it
        return _Run(workdir)


PART = MLflow()
