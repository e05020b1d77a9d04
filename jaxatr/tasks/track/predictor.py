"""A trained recogniser of tracks."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from jaxatr import data, models
from jaxatr.tasks.open_set.predictor import OpenSetPredictor, Prediction
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, Int, PyTree, Shaped


class TrackRecogniser(OpenSetPredictor[Sequence[np.ndarray]]):
    """A recogniser of tracks: images of one target in the order of time.

    Attributes:
      frames: of a longer track the last so many images count, as many as the longest track had
        that the network was trained on.
    """

    takes = "FOLDER"

    def __init__(self, run: TrainedRun, *, gamma: float):
        """Takes a run on tracks and its threshold."""
        super().__init__(run, gamma=gamma)
        self.frames = run.config.track.frames

    @staticmethod
    def _network(run: TrainedRun) -> Callable[..., models.OpenSetOutput]:
        module = run.module

        def infer(
            variables: PyTree, tracks: ArrayLike, lengths: Int[ArrayLike, " b"]
        ) -> models.OpenSetOutput:
            return module.apply(variables, run.normalize(tracks), lengths=lengths).track

        return infer

    def read(self, path: str) -> list[np.ndarray]:
        """Reads a folder's images in the order of their names."""
        return data.read_folder(path)

    def check(self, item: Sequence[np.ndarray]) -> Shaped[np.ndarray, "t h w c"]:
        """Makes the chips that the network sees of a track's images.

        Raises:
          ValueError: there is none, or one does not lead to a chip of the trained shape and type.
        """
        if not len(item):
            raise ValueError("got a track without an image")
        return np.stack([self.chip(image) for image in item[-self.frames :]])

    def __call__(
        self, items: Iterable[Sequence[np.ndarray]], *, batch_size: int = 8
    ) -> Iterator[Prediction]:
        """Yields a prediction for each track, in order.

        Args:
          items: each track's images ``[h, w, c]``.
          batch_size: tracks at a time.

        Raises:
          ValueError: a track cannot be used, see :meth:`check`.
        """
        tracks = map(self.check, items)
        while batch := list(itertools.islice(tracks, batch_size)):
            filled = batch + [batch[-1]] * (batch_size - len(batch))
            padded = np.stack([np.resize(one, (self.frames, *one.shape[1:])) for one in filled])
            lengths = np.array([len(one) for one in filled], np.int32)
            yield from self._predictions(self._infer(self._variables, padded, lengths), len(batch))
