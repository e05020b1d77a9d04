"""Recipes that a training of single images can add to equation 4; all are off by default."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxatr import data, losses, parallel
from jaxatr.data.augmentations import keys_of
from jaxatr.models import OpenSetOutput
from jaxatr.tasks.limits import check_limits
from jaxatr.typing import Array, Batch, Config, Float, Int, PyTree

TURNS = 4
HEAD = "rotation_head"
"""Name of the parameters that predict quarter turns, beside those of the network."""

Sums = dict[str, tuple[Any, Any]]


class Target(NamedTuple):
    """Labels of a batch, and what each counts.

    Attributes:
      labels: ``[b]``; negative ones are of outliers.
      weights: ``[b]``; 1 where an image has one label only.
    """

    labels: Int[Array, " b"]
    weights: Float[Array, " b"]


class Turned(NamedTuple):
    """Images turned by multiples of 90 degrees.

    Attributes:
      images: ``[b, h, h, c]``.
      turns: ``[b]``, 0 to 3.
    """

    images: Float[Array, "b h h c"]
    turns: Int[Array, " b"]


class Recipe:
    """The additions of one run.

    Attributes:
      rotation: whether quarter turns are predicted.
    """

    def __init__(self, config: Config):
        """Takes a run's configuration, which has the fields of recipes or has none of them."""
        self._loss, self._mix = config.loss, config.get("mix")
        on = self._mix is not None
        self._outliers = on and bool(config.open_set.outliers)
        self._reciprocal = on and config.loss.reciprocal_weight > 0
        self._contrastive = on and config.loss.contrastive_weight > 0
        self.rotation = on and config.loss.rotation_weight > 0

    def targets(
        self, key: Array, images: Float[Array, "b h w c"], batch: Batch
    ) -> tuple[Float[Array, "b h w c"], list[Target]]:
        """Returns the images, perhaps mixed, and their labels.

        A mixture has both labels, each with its share as weight: its loss is the mixture of two
        losses. With the binary classifiers this asks the image's own classifier for its share as
        a probability, and the partner's for the rest, whenever the other one is the hardest
        negative of each: their two terms are then the binary cross-entropy to these shares. A third
        classifier is only asked to say no.
        """
        labels = jnp.asarray(batch["label"])
        if not self._mix or not (self._mix.mixup or self._mix.cutmix):
            return images, [Target(labels, jnp.ones(len(labels)))]
        keys = keys_of(key, batch["id"], batch["epoch"], "mix")
        mixed, share = data.mix(
            keys,
            images,
            parallel.following(images),
            mixup_alpha=self._mix.mixup,
            cutmix_alpha=self._mix.cutmix,
            probability=self._mix.probability,
        )
        return mixed, [Target(labels, share), Target(parallel.following(labels), 1 - share)]

    def turned(self, key: Array, images: Float[Array, "b h h c"], batch: Batch) -> Turned:
        """Returns each image turned by a multiple of 90 degrees that is drawn for it."""
        keys = keys_of(key, batch["id"], batch["epoch"], "rotation")
        turns = jax.vmap(lambda key: jax.random.randint(key, (), 0, TURNS))(keys)
        return Turned(quarter_turned(images, turns), turns)

    def sums(self, params: PyTree, out: OpenSetOutput, target: Target) -> Sums:
        """Returns sums and numbers of further losses, as :class:`LossOutput` has them.

        Args:
          params: of the network.
          out: what it says of the images.
          target: their labels.
        """
        found, known = {}, target.labels >= 0
        if self._outliers:
            values = losses.outlier_exposure(out.logits)
            if self._loss.open != "none":
                values += self._loss.open_weight * losses.refused_by_all(out.open_logits)
            weights = jnp.where(known, 0, target.weights)
            found["outlier_exposure"] = (jnp.sum(weights * values), jnp.sum(weights))
        if self._reciprocal:
            head, labels = params["closed_head"], jnp.where(known, target.labels, 0)
            values = losses.open_space_risk(out.features, head["points"], labels, head["radius"])
            weights = jnp.where(known, target.weights, 0)
            found["open_space_risk"] = (jnp.sum(weights * values), jnp.sum(weights))
        return found

    def added(
        self,
        params: PyTree,
        out: OpenSetOutput,
        turned: tuple[Float[Array, "b d"], Int[Array, " b"]] | None,
        labels: Int[Array, " b"],
        sums: Mapping[str, tuple[Any, Any]],
        count: Any,
    ) -> tuple[Any, Sums]:
        """Returns a device's share of what is added to the loss, and further sums.

        Args:
          params: of the network, and of the head of quarter turns.
          out: the network's, on this device's images.
          turned: features of the turned images, and the turns.
          labels: of the images.
          sums: of the losses so far.
          count: this device's number of examples of known classes, by which, summed over the
            devices, the loop divides.
        """
        total, more = jnp.float32(0), {}
        if self._reciprocal:
            total += self._loss.reciprocal_weight * sums["open_space_risk"][0]
        if not (self._outliers or self._contrastive or turned is not None):
            return total, more
        known = parallel.psum(jnp.float32(count))
        if self._outliers:
            value, number = sums["outlier_exposure"]
            total += self._loss.outlier_weight * value * known / _at_least_1(number)
        if self._contrastive:
            value = losses.supervised_contrastive(
                _gathered(out.features),
                _gathered(labels),
                temperature=self._loss.contrastive_temperature,
            )
            more["contrastive"] = (value, jnp.float32(1))
            share = known / jax.lax.axis_size(parallel.AXIS)
            total += self._loss.contrastive_weight * share * value
        if turned is not None:
            features, turns = turned
            head = params[HEAD]
            values = losses.cross_entropy(features @ head["kernel"] + head["bias"], turns)
            number = jnp.float32(len(turns))
            more["rotation"] = (jnp.sum(values), number)
            total += self._loss.rotation_weight * jnp.sum(values) * known / _at_least_1(number)
        return total, more


def quarter_turned(
    images: Float[Array, "b h h c"], turns: Int[Array, " b"]
) -> Float[Array, "b h h c"]:
    """Returns square images turned counter-clockwise by so many quarters."""
    forms = [jnp.rot90(images, turn, axes=(1, 2)) for turn in range(TURNS)]
    return jax.lax.select_n(
        jnp.broadcast_to(turns[:, None, None, None], images.shape).astype(jnp.int32), *forms
    )


def added_up(each: list[Sums]) -> Sums:
    """Returns the sums of several sets of labels, name by name."""
    return {
        name: (sum(one[name][0] for one in each), sum(one[name][1] for one in each))
        for name in each[0]
    }


def rotation_head(key: Array, width: int) -> PyTree:
    """Returns freshly drawn parameters of the head that predicts quarter turns."""
    kernel = jax.nn.initializers.lecun_normal()(key, (width, TURNS))
    return {HEAD: {"kernel": kernel, "bias": jnp.zeros(TURNS)}}


def check_recipe(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Refuses values that a recipe cannot have, and what does not go together.

    Args:
      config: a run's.
      image_shape: of its chips.

    Raises:
      ValueError: a value will not do; the message has its name.
    """
    fields = config.loss
    check_limits(
        config,
        loss__label_smoothing=(0 <= fields.label_smoothing < 1, "a share in [0, 1)"),
        loss__logit_norm=(fields.logit_norm >= 0, "0 (off) or more"),
    )
    if "mix" not in config:
        return
    mix = config.mix
    check_limits(
        config,
        mix__mixup=(mix.mixup >= 0, "0 (off) or more"),
        mix__cutmix=(mix.cutmix >= 0, "0 (off) or more"),
        mix__probability=(0 <= mix.probability <= 1, "a probability in [0, 1]"),
        loss__contrastive_weight=(fields.contrastive_weight >= 0, "0 (off) or more"),
        loss__contrastive_temperature=(fields.contrastive_temperature > 0, "more than 0"),
        loss__rotation_weight=(fields.rotation_weight >= 0, "0 (off) or more"),
        loss__reciprocal_weight=(fields.reciprocal_weight >= 0, "0 (off) or more"),
        loss__outlier_weight=(fields.outlier_weight >= 0, "0 or more"),
    )
    if fields.contrastive_weight and (mix.mixup or mix.cutmix):
        raise ValueError(
            f"loss.contrastive_weight: got {fields.contrastive_weight} with images of two classes "
            "(mix), wanted 0: which others are of their class?"
        )
    if fields.rotation_weight and image_shape[0] != image_shape[1]:
        raise ValueError(
            f"loss.rotation_weight: got {fields.rotation_weight} and chips of {image_shape[0]} × "
            f"{image_shape[1]} pixels, wanted square ones: set data.size or data.center_crop"
        )


def _gathered(rows: Array) -> Array:
    return jax.lax.all_gather(rows, parallel.AXIS, tiled=True)


def _at_least_1(number: Any) -> Array:
    return jnp.maximum(parallel.psum(number), 1)
