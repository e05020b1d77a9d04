"""Trains G-OpenMax's generator and classifier.

The generator learns the known classes; those of its images that the run's own network finds unlike
any class are one class more in the training of the classifier.
"""

import copy
import warnings
from typing import Any

import numpy as np
import scipy.special

from jaxatr import config as configuration
from jaxatr import data, training
from jaxatr.parallel import wait_for_all
from jaxatr.runs.baselines.beside import Beside
from jaxatr.runs.evaluation import evaluate_run
from jaxatr.runs.training import train_run
from jaxatr.tasks.gan.task import ConditionalGan, mixtures
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training.folder import write_file
from jaxatr.typing import Float, PyTree, Shaped

_MOST_DRAWN = 40  # generated images for each one that is wanted


def train(run: Beside) -> None:
    """Trains generator and classifier, and evaluates the classifier.

    Raises:
      ValueError: no generated image is unlike every known class.
    """
    config, folder = run.config, run.folder
    path = folder / "generated.npz"
    if not path.is_file():
        generator = configuration.retasked(config, "jaxatr.tasks.gan:ConditionalGan")
        # It has an optimiser and an average of its own.
        generator.optimizer.clip_norm = generator.train.ema = 0.0
        generator.train.evaluate_every = 1e9  # there is nothing to validate
        generator.model.pretrained = ""  # it has no backbone
        train_run(generator, folder / "generator", progress=run.progress)
        gan = ConditionalGan(generator)
        state = training.load_snapshot(folder / "generator", "latest").state["model_state"]
        images, weights = _unlike_any_class(gan, state, run.task, run.variables)
        sheet = _sheet(gan, state, images)
        write_file(folder / "generated.png", lambda file: sheet.save(file, "PNG", optimize=True))
        # Last: it says that this part is done.
        write_file(path, lambda file: np.savez_compressed(file, images=images, mixtures=weights))
        wait_for_all("generated")
    classifier = copy.deepcopy(config)
    classifier.open_set.negatives = str(path)
    classifier.loss.open, classifier.loss.entropy_weight = "none", 0.0
    train_run(classifier, run.leaves, progress=run.progress)
    evaluate_run(run.leaves)


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
