"""A method of explanation as one declaration: its names, its function, and how that is called."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from jaxatr.explain.scaling import finished
from jaxatr.explain.two_parts import TwoParts, in_two_parts
from jaxatr.inference import filled_size
from jaxatr.resolve import nearest
from jaxatr.typing import ArrayLike, Float

Maps: TypeAlias = Callable[[ArrayLike], ArrayLike]
"""From images ``[b, h, w, c]`` to their maps ``[b, h, w]``."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to explain the class that a network predicts.

    Attributes:
      name: in flags, records and the names of recorded arrays.
      title: in tables.
      function: ``(predict, images, **options)`` gives maps ``[b, h, w]`` in the method's own unit,
        with its signs. ``predict`` maps float images ``[b, h, w, c]`` to logits ``[b, k]``. The
        options are keyword arguments.
      aliases: further names that a user may give.
      draws: the function takes a random ``key``.
      two_parts: the function takes ``(features, head, images, **options)``: the network in two
        parts, ``head(features(images))`` being the logits.
      hides_behind_mean: the function takes a ``baseline``, by default the training images' mean.
      batching: which images a call gets. ``"padded"``: batches of one size, the last one filled up,
        so that all run one compiled program. ``"ragged"``: the last batch is smaller, because the
        many passes of the filling would cost more than a compilation. ``"copies"``: all images; the
        function goes through them one by one, in batches of masked copies, and takes ``progress``.
      in_unit_interval: the maps are in [0, 1] by themselves and keep their values; others are
        scaled to it.
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
        """Joins the method and a network to a function from images to maps.

        Args:
          predict: images ``[b, h, w, c]`` in their raw units to logits; not jitted.
          mean: ``[c]``, of the training images.
          seed: of a method that draws.
          progress: show a bar at a terminal, of a method that tries masked copies.
          options: of the method's function.

        Raises:
          ValueError: the method has no such option.
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

        @functools.cache  # functions of their own, which are compiled once
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
        """Makes the maps of n images, with no more of them on the device than may be.

        Args:
          explain: from :meth:`bind`.
          images: ``[n, h, w, c]``, n at least 1.
          batch_size: images at a time.
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
        """Brings each map to [0, 1], by its own least and greatest value."""
        return np.asarray(maps if self.in_unit_interval else finished(maps, raw=False))
