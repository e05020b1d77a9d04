"""Trains G-OpenMax's generator and classifier.

The generator is trained on the known classes. Its images to which the run's network assigns no
class with high probability form an additional class, with which the classifier is trained.
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

_MOST_DRAWN = 40  # largest number of images generated per wanted image


def train(run: Beside) -> None:
    """Trains generator and classifier, and evaluates the classifier.

    Raises:
      ValueError: no generated image is unlike every known class.
    """
    config, folder = run.config, run.folder
    path = folder / "generated.npz"
    if not path.is_file():
        generator = configuration.retasked(config, "jaxatr.tasks.gan:ConditionalGan")
        # The generator's task has its own optimiser and weight averaging.
        generator.optimizer.clip_norm = generator.train.ema = 0.0
        generator.train.evaluate_every = 1e9  # there is nothing to validate
        generator.model.pretrained = ""  # there is no backbone
        train_run(generator, folder / "generator", progress=run.progress)
        gan = ConditionalGan(generator)
        state = training.load_snapshot(folder / "generator", "latest").state["model_state"]
        images, weights = _unlike_any_class(gan, state, run.task, run.variables)
        sheet = _sheet(gan, state, images)
        write_file(folder / "generated.png", lambda file: sheet.save(file, "PNG", optimize=True))
        # Written last: the file marks this part as done.
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
    """Generates images to which the network assigns no class with high probability.

    Returns:
      The images, and the class mixtures that they were generated from.

    Raises:
      ValueError: the network assigns a class with high probability to every generated image.
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
            f"gopenmax: the network assigns each of {drawn} generated images to a known class with "
            f"a probability of {fields.threshold} or more: raise gan.threshold"
        )
    if found < wanted:
        warnings.warn(
            f"gopenmax: only {found} of {drawn} generated images are usable, {wanted} were wanted",
            stacklevel=2,
        )
    return np.concatenate(kept)[:wanted], np.concatenate(weights)[:wanted]


def _sheet(gan: ConditionalGan, state: PyTree, kept: Shaped[np.ndarray, "n h w c"]) -> Any:
    """Draws real and generated images of each known class, then the images kept as unknown."""
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
