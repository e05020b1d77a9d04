"""The description of an explanation method: its names, its function, and how to call it."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from jaxatr.explain.measures.saliency import check_maps
from jaxatr.explain.scaling import scaled
from jaxatr.explain.two_parts import TwoParts, in_two_parts
from jaxatr.inference import filled_size
from jaxatr.resolve import nearest
from jaxatr.typing import ArrayLike, Float

Maps: TypeAlias = Callable[[ArrayLike], ArrayLike]
"""Maps images ``[b, h, w, c]`` to saliency maps ``[b, h, w]``."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A method that explains the class that a network predicts.

    Attributes:
      name: name in flags and records, and in the names of recorded arrays.
      title: name in tables.
      function: ``(predict, images, **options)``, computes maps ``[b, h, w]`` in the method's own
        unit, with its signs. ``predict`` maps float images ``[b, h, w, c]`` to logits ``[b, k]``.
        The options are keyword arguments.
      aliases: further names that users may give.
      draws: whether the function takes a random ``key``.
      two_parts: whether the function takes ``(features, head, images, **options)``: the network in
        two parts, with ``head(features(images))`` the logits.
      hides_behind_mean: whether the function takes a ``baseline``, which defaults to the mean of
        the training images.
      batching: how images are batched. ``"padded"``: batches of equal size, the last one padded, so
        that all run the same compiled program. ``"ragged"``: the last batch is smaller, because the
        many passes over padding would cost more than another compilation. ``"copies"``: one call
        with all images; the function processes them one by one, in batches of masked copies, and
        takes ``progress``.
      in_unit_interval: whether the maps are already in [0, 1]; others are scaled to it.
    """

    name: str
    title: str
    function: Callable[..., ArrayLike]
    aliases: tuple[str, ...] = ()
    draws: bool = False
    two_parts: bool = False
    hides_behind_mean: bool = False
    batching: Literal["padded", "ragged", "copies"] = "padded"
    in_unit_interval: bool = False

    def bind(
        self,
        predict: Callable[[ArrayLike], jax.Array],
        mean: Float[ArrayLike, " c"],
        *,
        seed: int = 0,
        progress: bool = False,
        **options: Any,
    ) -> Maps:
        """Binds the method to a network; returns a function from images to maps.

        Args:
          predict: maps images ``[b, h, w, c]`` in their raw units to logits; not jitted.
          mean: ``[c]``, mean of the training images.
          seed: random seed, if the method uses one.
          progress: show a progress bar at a terminal, if the method evaluates masked copies.
          options: keyword arguments of the method's function.

        Raises:
          ValueError: the method does not have an option.
        """
        self._check(options)
        if self.batching == "copies":
            options = {"progress": progress, **options}
        if self.draws:
            options = {"key": jax.random.key(seed), **options}
        if self.hides_behind_mean:
            options = {"baseline": np.asarray(mean, np.float32), **options}
        if not self.two_parts:
            return functools.partial(self.function, predict, **options)

        @functools.cache  # the same function objects each time, so that they are compiled once
        def parts(shape: tuple[int, ...]) -> TwoParts:
            return in_two_parts(predict, np.zeros((1, *shape), np.float32))

        def explain(images: ArrayLike) -> ArrayLike:
            network = parts(np.shape(images)[1:])
            return self.function(network.features, network.head, images, **options)

        return explain

    def _check(self, options: dict[str, Any]) -> None:
        parameters = inspect.signature(self.function).parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return
        own = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        own = [name for name in own if name not in ("key", "progress", "raw")]
        if unknown := [name for name in options if name not in own]:
            raise ValueError(
                f"options: got {', '.join(unknown)}; {self.name} has {', '.join(own) or 'none'}"
                f"{nearest(unknown[0], own)}"
            )

    def in_batches(
        self, explain: Maps, images: Float[np.ndarray, "n h w c"], batch_size: int
    ) -> Float[np.ndarray, "n h w"]:
        """Computes the maps of n images in batches.

        Args:
          explain: from :meth:`bind`.
          images: ``[n, h, w, c]``, n at least 1.
          batch_size: number of images per batch.
        """
        if self.batching == "copies":
            return np.asarray(explain(images))
        maps, count = [], len(images)
        batch_size = filled_size(count, batch_size)
        for start in range(0, count, batch_size):
            end = start + batch_size
            rows = np.arange(start, min(end, count) if self.batching == "ragged" else end)
            maps.append(np.asarray(explain(images[np.minimum(rows, count - 1)]))[: count - start])
        return np.concatenate(maps)

    def scaled(self, maps: Float[ArrayLike, "b h w"]) -> Float[np.ndarray, "b h w"]:
        """Scales each map to [0, 1] by its own minimum and maximum.

        Raises:
          ValueError: a map is not finite.
        """
        check_maps(self.name, maps)
        return np.asarray(maps if self.in_unit_interval else scaled(maps))
