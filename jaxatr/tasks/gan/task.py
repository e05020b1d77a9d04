"""The generator of G-OpenMax: a conditional adversarial network on the known classes.

Ge et al. (2017), "Generative OpenMax for Multi-Class Open Set Classification".
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxatr import data, losses, models, parallel
from jaxatr.config import Fields
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.gan.fields import FIELDS
from jaxatr.tasks.keys import example_keys
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.optimizer import clipped
from jaxatr.training import LossOutput, Phase, Task
from jaxatr.typing import Batch, Config, Float, PyTree, Shaped

_AVERAGE = 0.999  # maximum decay of the averaged generator
# The generator would imitate other augmentations, such as noise and the borders of rotated images.
_GEOMETRY = ("flip_horizontal", "flip_vertical", "shift", "box_shift", "box_scale")


class ConditionalGan(Task):
    """Trains generator and discriminator in alternating steps.

    The paper leaves details open. Here, the losses are hinge losses, and the discriminator has
    spectral normalisation and class projection. Images are generated with an average of the
    generator's parameters over the training.

    Attributes:
      examples: the data; only the known classes' training examples are used.
      range: lowest and highest pixel value of the chips; 0 and 255 for uint8.
    """

    title = "image generation"
    best = "critic"  # unused: there is no validation

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data is missing, or its chips are not squares of 16, 32, 64 … pixels.
        """
        check_limits(config, gan__steps=(config.gan.steps >= 1, "at least 1"))
        self.config, self.examples = config, Examples(config)
        height, width, channels = self.examples.image_shape
        if height != width:
            raise ValueError(
                f"G-OpenMax: got chips of {height}x{width}, wanted square ones: set data.size"
            )
        fields, known = config.gan, len(self.examples.split.known)
        self.generator = models.Generator(height, channels, fields.width)
        self.discriminator = models.Discriminator(height, known, fields.width)
        self.range = _value_range(self.examples)
        self.cycles = fields.steps
        examples = len(self.examples.parts["train"].indices)
        self.steps_per_epoch = 2 * max(1, round(examples / config.train.batch_size))
        # No first moment: past gradients are stale because the discriminator keeps changing.
        adam = optax.adam(fields.learning_rate, b1=0.0, b2=0.9)
        adam = clipped(adam, config.optimizer.clip_norm)
        self.phases = [
            Phase(name, loss, adam, 1, trainable=_of(name))
            for name, loss in (
                ("discriminator", self.discriminator_loss),
                ("generator", self.generator_loss),
            )
        ]

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields."""
        return FIELDS

    @property
    def record(self) -> dict[str, Any]:
        """The data of the run, for its record."""
        return self.examples.record

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises the parameters of both networks; the averaged generator is model state."""
        keys, known = jax.random.split(key), len(self.examples.split.known)
        noise, mixture = jnp.zeros((1, self.config.gan.noise)), jnp.full((1, known), 1 / known)
        images = jnp.zeros((1, *self.examples.image_shape))
        generator = self.generator.init(keys[0], noise, mixture)["params"]
        discriminator = self.discriminator.init(keys[1], images, mixture, train=False)
        params = {"generator": generator, "discriminator": discriminator["params"]}
        return params, {"norms": discriminator["batch_stats"], "average": generator}

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of training batches, one for each phase."""
        del phase
        return self.examples.train_batches()

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns no metrics, because there is no measure of the best generator."""
        del params, model_state
        return {}

    def discriminator_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes the hinge loss on real images and on generated ones of the same classes."""
        real = self.examples.augment(
            key,
            self.to_unit(batch["image"]),
            batch["id"],
            batch["epoch"],
            raw=True,
            only=_GEOMETRY,
        )
        mixture = self._one_hot(batch)
        fake = self._generated(params, batch, key, step)
        images = jnp.concatenate([real, jax.lax.stop_gradient(fake)])
        logits, norms = self.discriminator.apply(
            {"params": params["discriminator"], "batch_stats": model_state["norms"]},
            images,
            jnp.concatenate([mixture, mixture]),
            train=True,
            mutable=["batch_stats"],
        )
        on_real, on_fake = jnp.split(logits, 2)
        values = losses.discriminator_hinge(on_real, on_fake)
        count = jnp.float32(len(values))
        sums = {"real": (jnp.sum(on_real), count), "generated": (jnp.sum(on_fake), count)}
        state = model_state | {"norms": norms["batch_stats"]}
        return LossOutput(jnp.sum(values), count, sums, state)

    def generator_loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes the generator's hinge loss on generated images of the batch's classes."""
        logits: Any = self.discriminator.apply(
            {"params": params["discriminator"], "batch_stats": model_state["norms"]},
            self._generated(params, batch, key, step),
            self._one_hot(batch),
            train=False,
        )
        values = losses.generator_hinge(logits)
        # The decay is small at first, so that the random initial values are forgotten quickly.
        kept = jnp.minimum(_AVERAGE, (1 + step / 2) / (10 + step / 2))
        average = jax.tree.map(
            lambda old, new: kept * old + (1 - kept) * new,
            model_state["average"],
            jax.lax.stop_gradient(params["generator"]),
        )
        state = model_state | {"average": average}
        return LossOutput(jnp.sum(values), jnp.float32(len(values)), {}, state)

    def generate(
        self,
        model_state: PyTree,
        mixture: Float[np.ndarray, "n k"],
        seed: int,
    ) -> Shaped[np.ndarray, "n h w c"]:
        """Generates images in the data's raw units and dtype.

        Args:
          model_state: model state of the trained networks.
          mixture: weights of the known classes for each image.
          seed: random seed of the noise. The first images do not depend on their total number.
        """
        noise = np.random.default_rng(seed).standard_normal((len(mixture), self.config.gan.noise))
        size = 64
        batches = (
            {"noise": rows.astype(np.float32), "mixture": weights.astype(np.float32)}
            for rows, weights in zip(_chunks(noise, size), _chunks(mixture, size), strict=True)
        )
        images = parallel.map_batches(self._draw, model_state["average"], batches)
        return np.concatenate([self._to_raw(image) for _, image in images])

    def _draw(self, average: PyTree, batch: Batch) -> Any:
        return self.generator.apply({"params": average}, batch["noise"], batch["mixture"])

    def _one_hot(self, batch: Batch) -> jax.Array:
        return jax.nn.one_hot(batch["label"], len(self.examples.split.known))

    def _generated(self, params: PyTree, batch: Batch, key: jax.Array, step: jax.Array) -> Any:
        """Generates an image of each example's class, with noise that depends on id and step."""
        keys = example_keys(batch["id"], key, step)
        noise = jax.vmap(lambda k: jax.random.normal(k, (self.config.gan.noise,)))(keys)
        return self.generator.apply({"params": params["generator"]}, noise, self._one_hot(batch))

    def to_unit(self, images: Any) -> jax.Array:
        """Scales raw images from their range to [-1, 1]."""
        low, high = self.range
        return (jnp.asarray(images, jnp.float32) - low) * (2 / (high - low)) - 1

    def _to_raw(self, images: Float[np.ndarray, "n h w c"]) -> Shaped[np.ndarray, "n h w c"]:
        low, high = self.range
        raw = (np.clip(images, -1, 1).astype(np.float64) + 1) / 2 * (high - low) + low
        dtype = self.examples.parts["train"].split.dtype
        return (np.rint(raw) if np.issubdtype(dtype, np.integer) else raw).astype(dtype)


def mixtures(count: int, known: int, seed: int) -> Float[np.ndarray, "n k"]:
    """Draws weights of classes, ``[n, k]``, for images between the classes.

    They follow a flat Dirichlet distribution: all mixtures have the same density, and mixtures
    close to a single class are rare.

    Args:
      count: n.
      known: k.
      seed: random seed.
    """
    return np.random.default_rng(seed).dirichlet(np.ones(known), count)


def _of(name: str) -> Callable[[tuple[str, ...]], bool]:
    return lambda path: path[0] == name


def _chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _value_range(examples: Examples, most: int = 2000) -> tuple[float, float]:
    """Returns the range of the chips' values; for dtypes other than uint8, that of a sample."""
    train = examples.parts["train"]
    if train.split.dtype == np.uint8:
        return 0.0, 255.0
    places = np.linspace(0, len(train.indices) - 1, min(most, len(train.indices))).astype(int)
    chips = [train.chip(train.split.image(index)) for index in train.indices[places]]
    low = min(float(chip.min()) for chip in chips)
    high = max(float(chip.max()) for chip in chips)
    if high <= low:
        raise ValueError(f"G-OpenMax: all pixels of the training images are {low}")
    return low, high
