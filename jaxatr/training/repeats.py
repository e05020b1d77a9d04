"""A folder of several trainings of one configuration: other seeds, or the folds of its data."""

import copy
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from jaxatr import config as configuration
from jaxatr import files, forms
from jaxatr.forms import COUNT, TEXT, Form
from jaxatr.training.record import read_record
from jaxatr.typing import Config

CONFIG = "config.json"
REPEATS = "repeats.json"
SUMMARY = "summary.json"
"""The file with the mean and the spread of the runs' figures."""

SEEDS, FOLDS = "seeds", "folds"
MOST = 100
"""Largest number of runs of a folder."""

_TEXT = re.compile(rf"({SEEDS}|{FOLDS}):(\d+)")


class Repeats(NamedTuple):
    """The difference between several trainings of one configuration, and their number.

    Attributes:
      kind: :data:`SEEDS` or :data:`FOLDS`.
      count: number of runs.
    """

    kind: str
    count: int

    @classmethod
    def parse(cls, text: str) -> "Repeats":
        """Parses ``"seeds:3"`` or ``"folds:5"``.

        Raises:
          ValueError: it is not of this form, or the number is out of range.
        """
        found = _TEXT.fullmatch(text)
        count = int(found[2]) if found else 0
        if found is None or not 2 <= count <= MOST:
            raise ValueError(
                f"repeats: got {text!r}, wanted {SEEDS}:N or {FOLDS}:N with N from 2 to {MOST}"
            )
        return cls(found[1], count)

    def __str__(self) -> str:
        """Returns the text that :meth:`parse` reads."""
        return f"{self.kind}:{self.count}"

    def configurations(self, config: Config) -> dict[str, Config]:
        """Returns the configuration of each run, by the name of its folder.

        Runs of several seeds keep the validation examples of the first one, so that they can
        decide together.

        Args:
          config: the configuration to repeat.
        """
        made = {}
        for number in range(self.count):
            one = copy.deepcopy(config)
            if self.kind == FOLDS:
                one.data.fold = f"{number + 1}/{self.count}"
                made[f"fold-{number + 1}"] = one
            else:
                one.seed = config.seed + number
                if one.data.validation_seed is None:
                    one.data.validation_seed = config.seed
                made[f"seed-{one.seed}"] = one
        return made


class RecordedRepeats(NamedTuple):
    """The content of ``repeats.json``.

    Attributes:
      folder: the folder with the runs' folders.
      repeats: what they differ in.
      config: the configuration that is repeated.
      finished: number of further epochs (``more_epochs``) of each finished run, by its name.
      further: number of further epochs that every run is to have.
    """

    folder: Path
    repeats: Repeats
    config: Config
    finished: Mapping[str, int]
    further: int = 0

    @property
    def names(self) -> list[str]:
        """The names of the runs' folders."""
        return list(self.repeats.configurations(self.config))

    @property
    def runs(self) -> list[Path]:
        """The folders of the runs.

        Raises:
          ValueError: a run is not finished.
        """
        if left := [name for name in self.names if self.finished.get(name, -1) < self.further]:
            raise ValueError(
                f"{self.folder}: {len(left)} of {self.repeats.count} runs are not finished "
                f"({', '.join(left)}): jaxatr train --workdir={self.folder} continues them"
            )
        return [self.folder / name for name in self.names]

    def write(self) -> None:
        """Writes the file, from process 0 only."""
        if jax.process_index() == 0:
            content = {
                "repeats": str(self.repeats),
                "config": json.loads(self.config.to_json()),
                "finished": dict(self.finished),
                "further": self.further,
            }
            files.write_fields(self.folder / REPEATS, content)


_FORM: Form = {"repeats": TEXT, "config": {}, "finished": {"*": COUNT}, "further": COUNT}


def read_repeats(folder: str | os.PathLike) -> RecordedRepeats | None:
    """Reads what the runs of a folder differ in; None if it is no folder of several runs.

    Raises:
      ValueError: the file is damaged or was changed.
    """
    path = Path(folder) / REPEATS
    if not path.is_file():
        return None
    content = files.read_fields(path)
    forms.check(content, _FORM, path)
    try:
        return RecordedRepeats(
            Path(folder),
            Repeats.parse(content["repeats"]),
            configuration.completed(content["config"]),
            {k: n for k, n in content["finished"].items() if Path(folder, k, CONFIG).exists()},
            content["further"],
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def run_id(*workdirs: str | os.PathLike) -> str:
    """Returns a short text that differs between runs, wherever their folders are.

    It is kept through moves, enrolments and calibrations, and changes if the training goes on.

    Args:
      *workdirs: the run's folder; several for an ensemble.
    """
    found = [(workdir, read_repeats(workdir)) for workdir in workdirs]
    members = [
        one for workdir, several in found for one in (several.runs if several else [workdir])
    ]
    records = [read_record(workdir) for workdir in members]
    names = ("fingerprint", "started", "steps")
    parts = json.dumps([[record.get(name) for name in names] for record in records])
    return hashlib.sha256(parts.encode()).hexdigest()[:12]
