"""Optional training techniques for single images, added to equation 4; all off by default."""

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
"""Name of the parameters of the head that predicts quarter turns."""

Sums = dict[str, tuple[Any, Any]]


class Target(NamedTuple):
    """Labels of a batch and their weights.

    Attributes:
      labels: ``[b]``; negative for outliers.
      weights: ``[b]``; 1 for images with a single label.
    """

    labels: Int[Array, " b"]
    weights: Float[Array, " b"]


class Turned(NamedTuple):
    """Images rotated by multiples of 90 degrees.

    Attributes:
      images: ``[b, h, h, c]``.
      turns: ``[b]``, 0 to 3.
    """

    images: Float[Array, "b h h c"]
    turns: Int[Array, " b"]


class Recipe:
    """The optional techniques of one run.

    Attributes:
      rotation: whether quarter turns are predicted.
    """

    def __init__(self, config: Config):
        """Reads a run's configuration, with all or none of the fields of recipes."""
        self._loss, self._mix = config.loss, config.get("mix")
        on = self._mix is not None
        self._outliers = on and bool(config.open_set.outliers)
        self._reciprocal = on and config.loss.reciprocal_weight > 0
        self._contrastive = on and config.loss.contrastive_weight > 0
        self.rotation = on and config.loss.rotation_weight > 0

    def targets(
        self, key: Array, images: Float[Array, "b h w c"], batch: Batch
    ) -> tuple[Float[Array, "b h w c"], list[Target]]:
        """Returns the images, mixed if configured, and their labels.

        A mixed image has two labels, weighted by their fractions, so that its loss is a mixture of
        two losses. If each of the two classes is the other one's hardest negative, the terms of
        their binary classifiers are the binary cross-entropy with these fractions as targets. Any
        other classifier is trained to reject the image.

        Args:
          key: the run's key.
          images: augmented images of a batch.
          batch: the batch.
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
        """Rotates each image by a random multiple of 90 degrees."""
        keys = keys_of(key, batch["id"], batch["epoch"], "rotation")
        turns = jax.vmap(lambda key: jax.random.randint(key, (), 0, TURNS))(keys)
        return Turned(quarter_turned(images, turns), turns)

    def sums(self, params: PyTree, out: OpenSetOutput, target: Target) -> Sums:
        """Computes the sum and the count of each further loss, by name.

        Args:
          params: parameters of the network.
          out: the network's outputs for the images.
          target: labels of the images.
        """
        sums, known = {}, target.labels >= 0
        if self._outliers:
            values = losses.outlier_exposure(out.logits)
            if self._loss.open != "none":
                values += self._loss.open_weight * losses.refused_by_all(out.open_logits)
            weights = jnp.where(known, 0, target.weights)
            sums["outlier_exposure"] = (jnp.sum(weights * values), jnp.sum(weights))
        if self._reciprocal:
            head, labels = params["closed_head"], jnp.where(known, target.labels, 0)
            values = losses.open_space_risk(out.features, head["points"], labels, head["radius"])
            weights = jnp.where(known, target.weights, 0)
            sums["open_space_risk"] = (jnp.sum(weights * values), jnp.sum(weights))
        return sums

    def added(
        self,
        params: PyTree,
        out: OpenSetOutput,
        turned: tuple[Float[Array, "b d"], Int[Array, " b"]] | None,
        labels: Int[Array, " b"],
        sums: Mapping[str, tuple[Any, Any]],
        count: Any,
    ) -> tuple[Any, Sums]:
        """Returns a device's share of the additional loss terms, and further sums to record.

        Args:
          params: parameters of the network and of the head for quarter turns.
          out: the network's outputs for this device's images.
          turned: features of the rotated images, and their turns.
          labels: labels of the images.
          sums: sums of the losses so far.
          count: this device's number of examples of known classes; the loop divides the loss by its
            sum over all devices.
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
    """Rotates square images counter-clockwise by ``turns`` times 90 degrees."""
    forms = [jnp.rot90(images, turn, axes=(1, 2)) for turn in range(TURNS)]
    return jax.lax.select_n(
        jnp.broadcast_to(turns[:, None, None, None], images.shape).astype(jnp.int32), *forms
    )


def added_up(each: list[Sums]) -> Sums:
    """Adds the sums of several sets of labels, by name."""
    return {
        name: (sum(one[name][0] for one in each), sum(one[name][1] for one in each))
        for name in each[0]
    }


def rotation_head(key: Array, width: int) -> PyTree:
    """Initialises the parameters of the head that predicts quarter turns."""
    kernel = jax.nn.initializers.lecun_normal()(key, (width, TURNS))
    return {HEAD: {"kernel": kernel, "bias": jnp.zeros(TURNS)}}


def check_recipe(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Checks the values of recipes and their combination.

    Args:
      config: the run's configuration.
      image_shape: shape of the chips.

    Raises:
      ValueError: a value is invalid; the message names its field.
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
            f"loss.contrastive_weight: got {fields.contrastive_weight} together with mix, wanted "
            "0: mixed images have no single class to contrast"
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
