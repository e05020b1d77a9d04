"""A classifier of tracks: a convolutional network over the chips, an LSTM over its features."""

from typing import NamedTuple

import flax.linen as nn
import jax

from jaxatr import kernels
from jaxatr.models.features import check_features
from jaxatr.models.open_set import OpenSetOutput
from jaxatr.typing import Array, ArrayLike, Float, Int, Key


class TrackOutput(NamedTuple):
    """The network's outputs on a batch of tracks.

    Attributes:
      track: outputs for each track, after its last chip; the features are the LSTM's state.
      chips: outputs for each chip separately, ``b * t`` rows grouped by track; the features are
        those of the convolutional network.
    """

    track: OpenSetOutput
    chips: OpenSetOutput


class LSTM(nn.Module):
    """One layer of :func:`jaxatr.kernels.lstm`.

    Attributes:
      hidden: size of the state.
    """

    hidden: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], lengths: Int[ArrayLike, " b"] | None = None
    ) -> Float[Array, "b hidden"]:
        """Returns the state ``h`` after each sequence's last step.

        Args:
          x: the sequences.
          lengths: number of steps of each sequence; None: all of them.
        """
        weights = kernels.recurrent.Weights(
            **{name: self.param(name, self._draw, name, x.shape[-1]) for name in ("w", "r", "b")}
        )
        _, (state, _) = kernels.lstm(((weights,),), x, lengths=lengths)
        return state[0]

    def _draw(self, key: Key, name: str, width: int) -> Array:
        return getattr(kernels.recurrent.init(key, "lstm", width, self.hidden)[0][0], name)


class TrackClassifier(nn.Module):
    """The open-set network of figure 2 (Safaei et al. 2023) on tracks.

    A convolutional network computes features of every chip, and an LSTM runs over them. The
    closed-set head and the category-aware binary classifiers take the LSTM's last state. A second
    pair of heads takes the features of each chip, for comparison with the LSTM.

    Attributes:
      backbone: maps ``[n, h, w, c]`` to ``[n, d]``.
      num_classes: k, the number of known classes.
      hidden: size of the LSTM's state.
      head_bias: whether the heads have a bias.
      still: run the backbone in test mode during training too, with fixed batch statistics.
    """

    backbone: nn.Module
    num_classes: int
    hidden: int
    head_bias: bool = True
    still: bool = False

    @nn.compact
    def __call__(
        self,
        tracks: Float[ArrayLike, "b t h w c"],
        train: bool = False,
        lengths: Int[ArrayLike, " b"] | None = None,
    ) -> TrackOutput:
        """Computes the heads' outputs for the tracks and for their chips.

        Args:
          tracks: chips in temporal order.
          train: normalise by the statistics of all chips of the batch, including padding beyond a
            track's length, and update the running ones.
          lengths: number of chips of each track; None: all of them. Chips beyond it are padding
            and do not affect the track's outputs.

        Raises:
          ValueError: the backbone returned something other than ``[n, d]`` features.
        """
        batch, steps, *shape = tracks.shape
        chips = tracks.reshape(batch * steps, *shape)
        features = self.backbone(chips, train=train and not self.still)
        features = check_features(self.backbone, features, chips)
        sequences = features.reshape(batch, steps, -1)
        state = LSTM(self.hidden, name="lstm")(sequences, lengths)
        return TrackOutput(self._heads(state, ""), self._heads(features, "chip_"))

    def _heads(self, features: Float[jax.Array, "n d"], prefix: str) -> OpenSetOutput:
        closed, binary = (
            nn.Dense(self.num_classes, use_bias=self.head_bias, name=f"{prefix}{name}_head")
            for name in ("closed", "open")
        )
        return OpenSetOutput(closed(features), binary(features), features)
