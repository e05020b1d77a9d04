"""Saving and loading fitted decisions in a run's folder, ``fitted/STEP/NAME.npz``.

Each file belongs to the checkpoint of its step. ``choice.json`` records the score that ``auto``
chose, and why; ``default.json``, what the default rule stands for. ``NAME.field.npz`` is a
calibration to field chips, which takes precedence over that of the run. Fits to averaged outputs
have names of their own (:func:`jaxatr.tasks.open_set.views.kept_as`). A fit of a score from outside
the package belongs to its code.
"""

import inspect
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import files, forms, openset
from jaxatr.files import load_arrays
from jaxatr.tasks.runtime import FOLDER
from jaxatr.training import digest
from jaxatr.training.folder import write_file
from jaxatr.training.record import DECISION

CHOICE = "choice"
DEFAULT = "default"
FIELD = ".field"
_CODE, _DIGEST = "code", "digest"


def path_of(workdir: str | os.PathLike, step: int, name: str) -> Path:
    """Returns the path of a score's fit at a checkpoint."""
    return Path(workdir) / FOLDER / str(step) / f"{name}.npz"


def has_field(workdir: str | os.PathLike, step: int, kept: str) -> bool:
    """Whether a score is calibrated to field chips at a checkpoint; ``kept`` names its fit."""
    return path_of(workdir, step, kept + FIELD).is_file()


def save(
    workdir: str | os.PathLike,
    step: int,
    name: str,
    decision: openset.Decision,
    provenance: dict[str, Any] | None = None,
) -> Path:
    """Writes a decision atomically, and returns its path.

    Args:
      workdir: the run's folder.
      step: step of the checkpoint.
      name: name of the score, possibly with the suffix :data:`FIELD`.
      decision: the decision by that score.
      provenance: JSON values that describe the origin of the decision.
    """
    path = path_of(workdir, step, name)
    arrays: dict[str, Any] = {"step": np.array(step), **openset.to_arrays(decision)}
    arrays[_CODE] = np.array(_code_of(decision.score))
    if provenance:
        arrays["provenance"] = np.array(json.dumps(provenance, ensure_ascii=False))
    arrays[_DIGEST] = np.array(_digest(arrays))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: np.savez(file, **arrays))
    return path


def _digest(arrays: dict[str, Any]) -> str:
    """Returns the digest of names and arrays, except those large enough to be memory-mapped."""
    read = {name: value for name, value in arrays.items() if value.nbytes < files.MAPPED}
    return digest([*sorted(read), read])


def _code_of(score: openset.Score) -> str:
    """Returns a digest of the files that define a score, and of its members; "" in the package."""
    if score.name in openset.SCORES:
        return ""
    functions = [getattr(score, field) for field in ("score", "fit", "calibrate", "weigh")]
    modules = {inspect.getmodule(getattr(one, "function", one)) for one in functions if one}
    outside = [one for one in modules if one and one.__name__.partition(".")[0] != "jaxatr"]
    paths = sorted(path for one in outside if (path := getattr(one, "__file__", None)))
    members = [(member.name, _code_of(member)) for member in score.members]
    return digest([[np.fromfile(path, np.uint8) for path in paths], members])


def load(
    workdir: str | os.PathLike, step: int, name: str, score: openset.Score
) -> openset.Decision | None:
    """Reads a decision; None if there is none for this checkpoint, and this code of the score.

    Raises:
      ValueError: the file cannot be read or has unexpected contents; the message names it.
    """
    path = path_of(workdir, step, name)
    if not path.is_file():
        return None
    try:
        arrays = load_arrays(path)
        if int(arrays.get("step", -1)) != step:
            raise ValueError(f"it does not belong to step {step}")
        written = arrays.pop(_DIGEST, None)  # absent from files of 0.2.0
        if written is not None and str(written) != _digest(arrays):
            raise ValueError("it was changed since it was written")
        del arrays["step"]
        code = _code_of(score)
        if str(arrays.pop(_CODE, code)) != code:  # absent from files of 0.3.0
            return None
        return openset.from_arrays(score, arrays)
    except (ValueError, TypeError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: not a readable fit ({error}): remove it to fit it again"
        ) from error


def provenance_of(workdir: str | os.PathLike, step: int, name: str) -> dict[str, Any]:
    """Reads the provenance of an existing decision."""
    with np.load(path_of(workdir, step, name), allow_pickle=False) as file:
        return json.loads(str(file["provenance"])) if "provenance" in file else {}


def save_choice(
    workdir: str | os.PathLike, step: int, choice: dict[str, Any], name: str = CHOICE
) -> None:
    """Writes the choice of a score for a checkpoint."""
    path = path_of(workdir, step, name).with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if jax.process_index() == 0:
        files.write_fields(path, choice)


def load_choice(workdir: str | os.PathLike, step: int, name: str = CHOICE) -> dict[str, Any] | None:
    """Reads the choice of a score for a checkpoint; None if there is none.

    Raises:
      ValueError: the file is damaged or was changed.
    """
    path = path_of(workdir, step, name).with_suffix(".json")
    if not path.is_file():
        return None
    choice = files.read_fields(path)
    forms.check(choice, DECISION, path)
    return choice
