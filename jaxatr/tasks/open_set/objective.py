"""The training loss of open-set recognition: equation 4, and the terms that are added to it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, losses, parallel
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.open_set import terms
from jaxatr.tasks.open_set.checks import find_open_loss
from jaxatr.tasks.open_set.mixing import mixed
from jaxatr.tasks.open_set.terms import Seen, Share
from jaxatr.training import LossOutput
from jaxatr.typing import Batch, Config, PyTree


class Objective:
    """Computes the loss of one device's part of a batch.

    Attributes:
      terms: the terms that the run adds to equation 4.
    """

    def __init__(self, config: Config, examples: Examples, module: nn.Module):
        self._config, self._examples, self._module = config, examples, module
        self.terms = terms.of(config)
        balance = config.loss.get("class_weights", data.UNBALANCED)
        labels = examples.streamed_labels
        weights = data.class_weights(labels, 1 + int(labels.max(initial=0)), balance)
        self._weights = None if balance == data.UNBALANCED else weights.astype(np.float32)

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
        images, targets = mixed(self._config, key, images, batch)
        copies = {t.metric: t.copies(key, images, batch) for t in self.terms if t.copies}
        views = jnp.concatenate([images, *(one.images for one in copies.values())])
        every, model_state = apply_training(self._module, params, model_state, views, key, step)
        out = jax.tree.map(lambda rows: rows[: len(images)], every)
        seen, start = Seen(self._config.loss, params, out, targets), len(images)

        sums = self._equation_4(seen)
        total, count = sums.pop("loss")
        known = parallel.psum(jnp.float32(count))  # the loop divides the loss by it
        devices = jax.lax.axis_size(parallel.AXIS)
        count = jnp.where(known > 0, count, 1 / devices)  # of outliers only: they count as one
        known = jnp.where(known > 0, known, 1)
        for term in self.terms:
            own = seen
            if term.metric in copies:
                _, of_copies = copies[term.metric]
                features = every.features[start : start + len(of_copies)]
                own, start = seen._replace(copies=(features, of_copies)), start + len(of_copies)
            value, number = sums[term.metric] = term.value(own)
            every_number = parallel.psum(number)  # of mixed images, it may be below 1
            mean_of = known / jnp.where(every_number > 0, every_number, 1)
            total += term.weight(self._config) * value * mean_of
        return LossOutput(total, count, sums, model_state)

    def _equation_4(self, seen: Seen) -> dict[str, Share]:
        """Adds up equation 4, its terms and the accuracy over the examples of known classes."""
        out, sums = seen.out, {}
        for labels, weights in seen.targets:
            own = jnp.where(labels >= 0, weights, 0)
            labels = jnp.where(labels >= 0, labels, 0)
            values = self.example_losses(out.logits, out.open_logits, labels)
            weighed = own * self.weights(labels)
            right = {"closed_accuracy": jnp.argmax(out.logits, axis=-1) == labels}
            for name, value in (values | right).items():
                total, count = sums.get(name, (0, 0))
                share = own if name in right else weighed
                sums[name] = total + jnp.sum(share * value), count + jnp.sum(share)
        return sums

    def weights(self, labels: jax.Array) -> jax.Array:
        """Returns the weights of examples with these labels (``loss.class_weights``)."""
        if self._weights is None:
            return jnp.ones(labels.shape)
        return jnp.asarray(self._weights)[labels]

    def example_losses(self, logits, open_logits, labels) -> dict[str, jax.Array]:
        """Computes equation 4, as ``loss``, and its terms, ``[b]`` each.

        Args:
          logits: ``[b, k]``, of the closed-set classifier.
          open_logits: ``[b, k]``, of the binary classifiers.
          labels: ``[b]``, known classes.
        """
        fields = self._config.loss
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
