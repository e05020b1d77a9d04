"""Trains what the open-set paper compares with and what needs a training beside the run's own."""

import copy
import os
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import scipy.special
from jax.experimental import multihost_utils

from jaxatr import config as configuration
from jaxatr import data, openset, training
from jaxatr.resolve import nearest
from jaxatr.runs.evaluation import evaluate_run
from jaxatr.runs.training import make_task, train_run
from jaxatr.tasks.gan.task import ConditionalGan, mixtures
from jaxatr.tasks.open_set.compared import BASELINES, CLASSIFIER, DETECTOR, trained_scores
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training.folder import load_config, variables_of, write_file
from jaxatr.typing import Config, Float, PyTree, Shaped

_GENERATED = "generated.npz"
_MOST_DRAWN = 40  # generated images for each one that is wanted


def check_baselines(names: Collection[str]) -> tuple[str, ...]:
    """Returns the names of baselines as they are.

    Raises:
      ValueError: there is no such baseline.
    """
    for name in names:
        if name not in BASELINES:
            raise ValueError(
                f"baselines: got {name!r}, wanted some of {', '.join(BASELINES)}"
                f"{nearest(name, BASELINES)}"
            )
    return tuple(names)


def train_baseline(workdir: str | os.PathLike, name: str, *, progress: bool = True) -> None:
    """Trains a baseline in the folder ``name`` of a finished run's folder, or continues it.

    ``conflabel`` trains the run's network again, on two thirds of the known classes, and on the
    gradients of that network the detector that tells those classes from the others. ``gopenmax``
    trains a generator on the known classes, keeps those of its images that the run's own network
    finds unlike any class, and trains a classifier with these as one class more.

    Args:
      workdir: the folder of the run that is compared with.
      name: of the baseline.
      progress: show progress bars.

    Raises:
      ValueError: there is no such baseline, or the run does not allow it; it is said why.
    """
    check_baselines([name])
    config, folder = load_config(workdir), Path(workdir) / name
    kind = training.task_of(workdir)
    if kind is not OpenSet or config.open_set.hold_out or config.open_set.negatives:
        raise ValueError(
            f"{workdir}: only an open-set run that is no part of a baseline can have one"
        )
    network = cast(OpenSet, make_task(config, workdir))
    step = training.load_snapshot(workdir, "latest").step
    if step < (wanted := network.phases[0].steps):
        raise ValueError(
            f"{workdir} is at step {step} of {wanted}: a baseline is trained beside a finished run"
        )
    if BASELINES[name] in trained_scores(workdir):
        return
    train = {"conflabel": _train_conflabel, "gopenmax": _train_gopenmax}[name]
    train(network, config, Path(workdir), folder, progress)


# The configuration comes beside the task, which has forgotten the weights that it began with.
def _train_conflabel(
    network: OpenSet, config: Config, workdir: Path, folder: Path, progress: bool
) -> None:
    del workdir
    config, known = copy.deepcopy(config), len(network.split.known)
    if known < 3:
        raise ValueError(f"conflabel: got {known} known classes, wanted 3, to hold one of them out")
    if not config.data.validation:
        raise ValueError(
            "conflabel: there are no validation examples to show its detector as known: "
            "set data.validation"
        )
    config.open_set.hold_out = max(1, known // 3)
    train_run(config, folder, progress=progress)
    task, variables = cast(OpenSet, make_task(config, folder)), _final(folder)
    known_norms, unknown_norms = (
        task.outputs(variables, part, ("gradient_norms",)).more["gradient_norms"]
        for part in ("validation", "held_out")
    )
    key = jax.random.key(config.seed)
    detector = openset.conflabel_detector.fit(known_norms, unknown_norms, key=key)
    arrays: dict[str, Any] = {
        field: np.asarray(value) for field, value in detector._asdict().items()
    }
    write_file(folder / DETECTOR, lambda file: np.savez(file, **arrays))
    _wait("conflabel")


def _train_gopenmax(
    network: OpenSet, config: Config, workdir: Path, folder: Path, progress: bool
) -> None:
    path = folder / _GENERATED
    if not path.is_file():
        generator = configuration.retasked(config, "jaxatr.tasks.gan:ConditionalGan")
        # It has an optimiser and an average of its own.
        generator.optimizer.clip_norm = generator.train.ema = 0.0
        generator.train.evaluate_every = 1e9  # there is nothing to validate
        generator.model.pretrained = ""  # it has no backbone
        train_run(generator, folder / "generator", progress=progress)
        gan = ConditionalGan(generator)
        state = training.load_snapshot(folder / "generator", "latest").state["model_state"]
        images, weights = _unlike_any_class(gan, state, network, _final(workdir))
        sheet = _sheet(gan, state, images)
        write_file(folder / "generated.png", lambda file: sheet.save(file, "PNG", optimize=True))
        # Last: it says that this part is done.
        write_file(path, lambda file: np.savez_compressed(file, images=images, mixtures=weights))
        _wait("generated")
    classifier = copy.deepcopy(config)
    classifier.open_set.negatives = str(path)
    classifier.loss.open, classifier.loss.entropy_weight = "none", 0.0
    train_run(classifier, folder / CLASSIFIER, progress=progress)
    evaluate_run(folder / CLASSIFIER)
    _wait("gopenmax")


def _unlike_any_class(
    gan: ConditionalGan, state: PyTree, network: OpenSet, variables: PyTree
) -> tuple[Shaped[np.ndarray, "n h w c"], Float[np.ndarray, "n k"]]:
    """Returns generated images to which the network gives no class a high probability.

    Raises:
      ValueError: there is no such image among all that were drawn.
    """
    fields, known = gan.config.gan, len(gan.examples.split.known)
    wanted = fields.images or len(gan.examples.parts["train"].indices) // known
    kept: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    found, drawn = 0, 0
    while found < wanted and drawn < _MOST_DRAWN * wanted:
        count = max(wanted, 64)
        mixture = mixtures(count, known, gan.config.seed + drawn)
        images = gan.generate(state, mixture, gan.config.seed + drawn)
        probability = scipy.special.softmax(network.logits(variables, images), axis=-1).max(axis=-1)
        unlike = probability < fields.threshold
        kept.append(images[unlike])
        weights.append(mixture[unlike])
        found, drawn = found + int(unlike.sum()), drawn + count
    if not found:
        raise ValueError(
            f"gopenmax: the network gives a known class a probability of {fields.threshold} or "
            f"more for all of {drawn} generated images: raise gan.threshold"
        )
    if found < wanted:
        warnings.warn(
            f"gopenmax: of {drawn} generated images only {found} are kept, of {wanted} wanted",
            stacklevel=2,
        )
    return np.concatenate(kept)[:wanted], np.concatenate(weights)[:wanted]


def _sheet(gan: ConditionalGan, state: PyTree, kept: Shaped[np.ndarray, "n h w c"]) -> Any:
    """Returns a picture: of each known class real images and generated ones, then what is kept."""
    train, split = gan.examples.parts["train"], gan.examples.split
    each, rows = 8, []
    for label, name in enumerate(split.known):
        own = train.indices[train.labels == label][:each]
        rows.append((f"{name}: real", [train.chip(train.split.image(index)) for index in own]))
        mixture = np.tile(np.eye(len(split.known))[label], (each, 1))
        rows.append((f"{name}: generated", list(gan.generate(state, mixture, gan.config.seed))))
    for start in range(0, min(len(kept), 4 * each), each):
        title = "kept as unknown" if start == 0 else ""
        rows.append((title, list(kept[start : start + each])))
    return data.contact_sheet(rows)


def _final(workdir: Path) -> PyTree:
    return variables_of(training.load_snapshot(workdir, "latest"))


def _wait(name: str) -> None:
    """Waits for the process that writes."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)
