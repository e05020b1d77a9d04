"""The training loss of open-set recognition: equation 4 and the terms that recipes add."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import losses, models
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.open_set.checks import find_open_loss
from jaxatr.tasks.open_set.recipes import Recipe, Target, added_up
from jaxatr.training import LossOutput
from jaxatr.typing import Batch, Config, PyTree


class Objective:
    """Computes the loss of one device's part of a batch.

    Attributes:
      recipe: the optional terms, and the changes that they make to images and labels.
    """

    def __init__(self, config: Config, examples: Examples, module: nn.Module):
        """Creates the objective from a run's configuration, data and network."""
        self._fields, self._examples, self._module = config.loss, examples, module
        self.recipe = Recipe(config)

    def __call__(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Sums the loss over the examples of the batch."""
        images = self._examples.augment(
            key,
            self._examples.normalize(batch["image"]),
            batch["id"],
            batch["epoch"],
        )
        images, targets = self.recipe.targets(key, images, batch)
        views, turned = images, None
        if self.recipe.rotation:
            turned = self.recipe.turned(key, images, batch)
            views = jnp.concatenate([images, turned.images])
        every, model_state = apply_training(self._module, params, model_state, views, key, step)
        out = jax.tree.map(lambda rows: rows[: len(images)], every)
        sums = added_up([self._sums(params, out, target) for target in targets])
        total, count = sums.pop("loss")
        added, more = self.recipe.added(
            params,
            out,
            None if turned is None else (every.features[len(images) :], turned.turns),
            targets[0].labels,
            sums,
            count,
        )
        return LossOutput(total + added, count, sums | more, model_state)

    def _sums(
        self, params: PyTree, out: models.OpenSetOutput, target: Target
    ) -> dict[str, tuple[Any, Any]]:
        """Returns the weighted sums of each loss for some labels, and the sums of the weights."""
        known = target.labels >= 0
        labels, weights = jnp.where(known, target.labels, 0), jnp.where(known, target.weights, 0)
        values = self.example_losses(out.logits, out.open_logits, labels)
        values["closed_accuracy"] = jnp.argmax(out.logits, axis=-1) == labels
        count = jnp.sum(weights)
        sums = {name: (jnp.sum(weights * value), count) for name, value in values.items()}
        return sums | self.recipe.sums(params, out, target)

    def example_losses(self, logits, open_logits, labels) -> dict[str, jax.Array]:
        """Computes equation 4, as ``loss``, and its terms, ``[b]`` each.

        Args:
          logits: ``[b, k]``, of the closed-set classifier.
          open_logits: ``[b, k]``, of the binary classifiers.
          labels: ``[b]``, known classes.
        """
        fields = self._fields
        if fields.logit_norm:
            logits = losses.normalised_logits(logits, temperature=fields.logit_norm)
        entropy = losses.entropy(logits)
        if fields.label_smoothing:
            smoothing = fields.label_smoothing
            closed = losses.smoothed_cross_entropy(logits, labels, smoothing=smoothing)
        else:
            closed = losses.cross_entropy(logits, labels)
        total = closed + fields.entropy_weight * entropy
        values = {"cross_entropy": closed, "entropy": entropy}
        if open_loss := find_open_loss(fields.open):
            values[fields.open] = open_loss(open_logits, labels)
            total += fields.open_weight * values[fields.open]
        return {"loss": total, **values}
