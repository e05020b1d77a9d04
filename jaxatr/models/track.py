"""A recogniser of tracks: a convolutional network over the chips, an LSTM over what it says."""

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
      track: of each track, after its last chip; the features are the LSTM's state.
      chips: of each chip by itself, ``b * t`` rows, a track's one after the other; the features are
        those of the convolutional network.
    """

    track: OpenSetOutput
    chips: OpenSetOutput


class LSTM(nn.Module):
    """One layer of :func:`jaxatr.kernels.lstm`.

    Attributes:
      hidden: components of the state.
    """

    hidden: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], lengths: Int[ArrayLike, " b"] | None = None
    ) -> Float[Array, "b hidden"]:
        """Returns the state ``h`` after each sequence's last step.

        Args:
          x: the sequences.
          lengths: how many steps each has; None: all of them.
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

    A convolutional network goes over every chip, an LSTM over its features. The closed-set head and
    the category-aware binary classifiers are on the LSTM's last state; a second pair of heads is on
    the features of each chip, and is what the LSTM can be compared with.

    Attributes:
      backbone: ``[n, h, w, c]`` to ``[n, d]``.
      num_classes: k, the number of known classes.
      hidden: components of the LSTM's state.
      head_bias: whether the heads have a bias.
      still: run the backbone in test mode in training too, so that its batch statistics stay.
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
        """Computes the heads' outputs on the tracks and on their chips.

        Args:
          tracks: chips in the order of time.
          train: whether batch statistics are of the batch: of all its chips, those beyond a track's
            length among them.
          lengths: how many of its chips each track has; None: all of them. The others change
            nothing of what is said of the track.

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
