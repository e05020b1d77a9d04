"""A trained recogniser of tracks."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxatr import models
from jaxatr.tasks.examples import normalize
from jaxatr.tasks.open_set.predictor import Prediction, Recogniser
from jaxatr.typing import Config, PyTree, Shaped


class TrackRecogniser(Recogniser):
    """The same for tracks: images of one target in the order of time.

    Attributes:
      frames: of a longer track the last so many images count, as many as the longest track had
        that the network was trained on.
    """

    of_tracks = True

    def __init__(self, module: Any, variables: PyTree, *, frames: int, **options: Any):
        """Takes what :class:`Recogniser` takes, and :attr:`frames`."""
        super().__init__(module, variables, **options)
        self.frames = frames
        mean, std = options["mean"], options["std"]

        def infer_tracks(variables: PyTree, tracks: Any, lengths: Any) -> models.OpenSetOutput:
            return module.apply(variables, normalize(tracks, mean, std), lengths=lengths).track

        self._infer = jax.jit(infer_tracks)

    @staticmethod
    def _network(config: Config, num_classes: int) -> Any:
        return models.build_track(config.model, num_classes, config.track.hidden)

    @staticmethod
    def _further(config: Config) -> dict[str, Any]:
        return {"frames": config.track.frames}

    def chips(self, track: Sequence[np.ndarray]) -> Shaped[np.ndarray, "t h w c"]:
        """Returns the chips that the network sees of a track's images.

        Raises:
          ValueError: there is none, or as :class:`jaxatr.data.Intake` raises of one.
        """
        if not len(track):
            raise ValueError("got a track without an image")
        return np.stack([self.chip(image) for image in track[-self.frames :]])

    def __call__(
        self, images: Iterable[Sequence[np.ndarray]], *, batch_size: int = 8
    ) -> Iterator[Prediction]:
        """Yields a prediction for each track, in order.

        Args:
          images: each track's images ``[h, w, c]``, as :class:`Recogniser` takes them.
          batch_size: tracks at a time.

        Raises:
          ValueError: as :meth:`chips`.
        """
        tracks = map(self.chips, images)
        while batch := list(itertools.islice(tracks, batch_size)):
            filled = batch + [batch[-1]] * (batch_size - len(batch))
            padded = np.stack([np.resize(one, (self.frames, *one.shape[1:])) for one in filled])
            lengths = np.array([len(one) for one in filled], np.int32)
            yield from self._predictions(self._infer(self._variables, padded, lengths), len(batch))
