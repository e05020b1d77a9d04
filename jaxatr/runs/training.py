"""Trains runs from their configurations."""

import copy
import datetime
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
from ml_collections import ConfigDict

from jaxatr import bundled, resolve, training
from jaxatr.data import splits
from jaxatr.data.sources import arrays
from jaxatr.resolve import nearest
from jaxatr.runs import prolongation, repetition
from jaxatr.tasks.open_set.checks import parse_sources
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Task, task_class
from jaxatr.training.task import silent
from jaxatr.typing import Config

# Fields that name a file or something else, such as a data set. All of them may change on resuming.
_FILES = (
    *(("data", name) for name in ("source", "added", "corrections")),
    *(("open_set", name) for name in ("outliers", "negatives", "enrolled")),
    ("distillation", "target"),
)
_FOLDERS = (("data", "data_dir"), ("model", "weights_dir"))


Labelled = tuple[npt.ArrayLike, npt.ArrayLike]
"""Images ``[n, h, w]`` or ``[n, h, w, c]``, and the names or numbers of their classes ``[n]``."""

ARRAYS = "data.npz"
"""File of a run's folder with the arrays that it was trained on, if it was given arrays."""


def train_run(
    config: Config | str | None,
    workdir: str | os.PathLike | None = None,
    *,
    repeats: str | None = None,
    more_epochs: int | None = None,
    data: Labelled | None = None,
    test: Labelled | None = None,
    progress: bool = True,
    begun_in: Callable[[Path], None] | None = None,
    say: Callable[[str], None] = silent,
    **fields: Any,
) -> Path:
    """Trains a run from a configuration, or continues the one in ``workdir``, without evaluation.

    Args:
      config: a full configuration, or the name of a bundled one: ``"cbc:smoke"``. None to continue
        the run in ``workdir`` by its own.
      workdir: the run's folder; it is created if missing. None for ``runs/DATE-TIME``.
      repeats: ``"seeds:3"`` trains three runs that differ in their seed, ``"folds:5"`` five that
        differ in the fifth of the training examples that is held out for validation
        (``data.fold``; ``data.group_by`` names what stays in one fold), each in a folder of its
        own in ``workdir``. Those that are finished already are not trained again.
      more_epochs: further epochs of the finished run in ``workdir``, with ``config=None``. The
        learning rate follows the schedule of the whole length from where the run ended; a line
        says so, and ``record.json`` keeps it (``prolonged``). In a folder of several runs, of each.
      data: images in memory, instead of the configured data; they are kept in the run's folder.
      test: images of the test, for ``data``; None to draw ``data.options.test_fraction`` of it.
      progress: show a progress bar.
      begun_in: called with the run's folder once it is created, before the first step.
      say: called with the schedule of further epochs and, after the last step, with each step of
        the run's completion that takes time.
      **fields: fields of the configuration to change, by dotted name:
        ``**{"train.epochs": 10, "open_set.split": "known:a,b"}``.

    Returns:
      The run's folder.

    Raises:
      ValueError: the configuration is invalid or differs from that of the run in ``workdir``, or
        an input of the run (its data, the network that it explains) has changed since it began;
        or another process is training in ``workdir``; or there is no run to continue, or none that
        can have further epochs.
      training.NonFiniteLoss: the training diverged.
      training.Preempted: the process was asked to stop; a checkpoint is saved.
    """
    if config is None and workdir is None:
        raise ValueError("config: got none and no workdir, wanted the folder of a run to continue")
    if config is not None and more_epochs is not None:
        raise ValueError("more_epochs: continues a run by its own configuration: leave config out")
    several = None if workdir is None else training.read_repeats(workdir)
    wanted = repetition.wanted(workdir, several, repeats, is_new=config is not None)
    full: Config
    if config is not None:
        full = bundled.load(config) if isinstance(config, str) else config
    elif several is not None:
        full = several.config
    else:
        assert workdir is not None
        full = training.load_config(workdir)
    workdir = new_folder() if workdir is None else Path(workdir)
    with training.training_alone(workdir):  # before its arrays are written
        if data is not None:
            path = workdir.absolute() / ARRAYS
            in_use = several is not None or (workdir / "config.json").exists()
            arrays.write(path, data, test, keep=in_use)
            fields = {"data.name": "arrays", "data.source": str(path), **fields}
        elif test is not None:
            raise ValueError("test: got images without data, to which they belong")
        if fields:
            full = with_fields(full, fields)
        # The user's own, unlike those in the folder of a run.
        resolve.trust_names_in(fields if config is None else full.to_dict())
        full = lasting(full)
        train = partial(train_configured, progress=progress, say=say)
        if wanted is None:
            train(full, workdir, more_epochs=more_epochs, begun_in=begun_in)
        else:
            if more_epochs is not None and several is not None:
                for run in several.runs:  # all of them, before the first is continued
                    own = training.load_config(run)
                    prolongation.prolonged(own, make_task(own, run), run, more_epochs)
            repetition.train(
                full, workdir, wanted, train, more_epochs=more_epochs, begun_in=begun_in, say=say
            )
    return workdir


def lasting(full: Config) -> Config:
    """Returns a configuration by which a run goes on from another working directory.

    Its files have absolute paths. Of a file with the classes of the split, which may change or
    disappear, it has the content.
    """
    full = copy.deepcopy(full)
    full.open_set.split = splits.listed(full.open_set.split)
    for group, name in _FILES:
        if given := full.get(group, {}).get(name):  # of 0.2, without the tables
            full[group][name] = _absolute(given)
    if given := full.open_set.get("outside"):
        sources = parse_sources(given).items()
        full.open_set.outside = ",".join(f"{group}={_absolute(path)}" for group, path in sources)
    for group, name in _FOLDERS:
        if given := full.get(group, {}).get(name):
            full[group][name] = str(Path(given).expanduser().absolute())
    return full


def _absolute(given: str) -> str:
    """Returns the absolute path of a file that exists, and any other name unchanged."""
    path = Path(given).expanduser()
    return str(path.absolute()) if given and path.exists() else given


def train_configured(
    full: Config,
    workdir: Path,
    *,
    more_epochs: int | None = None,
    progress: bool = True,
    begun_in: Callable[[Path], None] | None = None,
    say: Callable[[str], None] = silent,
    evaluated: Callable[[int, float, Mapping[str, float]], None] | None = None,
    like: Path | None = None,
) -> None:
    """Trains or continues a run of a complete configuration, which may name only trusted code.

    Args:
      full: the configuration.
      workdir: the run's folder.
      more_epochs: see :func:`train_run`.
      progress: show a progress bar.
      begun_in: called with the run's folder once it is created, before the first step.
      say: called with each step that takes time.
      evaluated: see :func:`jaxatr.training.train`.
      like: folder of a run that has to be of the same data; None for none.

    Raises:
      ValueError: as :func:`train_run`.
    """
    free = task_class(full.task).free_fields
    training.check_config(workdir, full, free=free)  # before any data is prepared
    with training.training_alone(workdir):
        _train(full, workdir, free, progress, more_epochs, begun_in, say, evaluated, like)


def _train(
    full: Config,
    workdir: Path,
    free: Collection[str],
    progress: bool,
    more_epochs: int | None,
    begun_in: Callable[[Path], None] | None,
    say: Callable[[str], None],
    evaluated: Callable[[int, float, Mapping[str, float]], None] | None,
    like: Path | None,
) -> None:
    trackers = training.trackers_of(full.train.trackers)  # before the data is read
    task = make_task(full, workdir)
    _warn_of_one_size(full, task.record)
    record = training.read_record(workdir)
    task.check_continues(workdir, record)
    if like is not None:
        task.check_continues(like, training.read_record(like))
    earlier = record.get("prolonged", [])
    if earlier and earlier[-1]["from_step"] == task.phases[0].steps:
        *earlier, cut_off = earlier  # before the configuration was made longer
        more_epochs = cut_off["epochs"] if more_epochs is None else more_epochs
    if more_epochs is not None:
        full = prolongation.prolonged(full, task, workdir, more_epochs)
        before = task.phases[0].steps
        task, free = make_task(full, workdir), (*free, *prolongation.LENGTH)
        steps = task.phases[0].steps
        further = prolongation.described(full, steps, task.steps_per_epoch, before=before)
        further["epochs"] = more_epochs
        training.update_record(workdir, prolonged=[*earlier, further])
        say(further["schedule"])
    training.record_config(workdir, full, free=free)
    training.update_record(workdir, task=full.task, **task.record)
    if begun_in is not None:
        begun_in(workdir)
    result = training.train(
        task,
        workdir=workdir,
        config=full,
        evaluate_every=max(1, round(full.train.evaluate_every * task.steps_per_epoch)),
        checkpoint_every=full.train.checkpoint_every,
        log_every=full.train.log_every,
        keep=full.train.keep,
        seed=full.seed,
        progress=progress,
        free_fields=free,
        find_kernels=full.kernels.find,
        ema=full.train.ema,
        remat=full.train.remat,
        end_with_best=_ends_with_best(full),
        evaluated=evaluated,
        trackers=trackers,
    )
    for folder, other in task.beside(full).items():
        train_run(other, workdir / folder, progress=progress)
    say("completing the run")
    decided = task.finished(result.variables, workdir, result.step, say)
    training.update_record(workdir, **decided)


def new_folder() -> Path:
    """Returns the folder of a new run, ``runs/DATE-TIME``."""
    return Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")


def with_fields(config: Config, fields: Mapping[str, Any]) -> Config:
    """Returns a copy of a configuration with some fields changed.

    Raises:
      ValueError: there is no such field, or its type is another.
    """
    config = copy.deepcopy(config)
    names = _names(config)
    for name, value in fields.items():
        try:
            config.update_from_flattened_dict({name: value})
        except (AttributeError, KeyError) as error:
            raise ValueError(f"{name}: there is no such field{nearest(name, names)}") from error
        except TypeError as error:
            raise ValueError(f"{name}: got {value!r}: {error}") from error
    return config


def _names(config: Config, prefix: str = "") -> list[str]:
    names = []
    for name, value in config.items():
        own = f"{prefix}{name}"
        names += _names(value, f"{own}.") if isinstance(value, ConfigDict) else [own]
    return names


def _warn_of_one_size(config: Config, record: Mapping[str, Any]) -> None:
    """Warns if a run on images of the user's own will accept images of one size only."""
    fields, shape = config.data, record.get("image_shape")
    if shape and fields.source and not (fields.size or fields.center_crop):
        warnings.warn(
            f"data.size: not set, nor data.center_crop, so the run will accept images of "
            f"{shape[0]}x{shape[1]} pixels only; --config.data.size={shape[0]} resizes all others",
            stacklevel=3,
        )


def _ends_with_best(config: Config) -> bool:
    chosen = config.train.end_with_best
    return bool(config.model.pretrained) if chosen is None else chosen


def make_task(config: Config, workdir: str | os.PathLike) -> Task:
    """Makes the task of a run.

    Args:
      config: a full configuration.
      workdir: the run's folder. If it has a checkpoint, pretrained weights are not read again,
        because their file may no longer exist.

    Raises:
      ValueError: the configuration is invalid, or its data is missing.
    """
    if training.saved_steps(workdir):
        config = begun(config)
    return task_class(config.task).of_config(config)(config)
