"""The training, validation and test tracks of a run."""

from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.parts import Part
from jaxatr.typing import Config, Int


class TrackExamples(Examples):
    """The data set of a configuration, divided into parts and grouped into tracks.

    Whole tracks are held out for validation.

    Attributes:
      tracks: the tracks of each part, by its name.
      ends: the last chips of the tracks of each part, by its name. They represent the tracks and
        have their labels, ids and pictures.
    """

    def __init__(self, config: Config):
        """Opens the data.

        Raises:
          ValueError: the data is missing, does not match the configuration, has no track numbers,
            or has chips of the same track in the training and the test split.
        """
        super().__init__(config, tracks=True)
        self._most = config.track.frames
        self.tracks = {
            name: data.tracks_of(part.split, part.indices, longest=self._most)
            for name, part in self.parts.items()
        }
        self.ends = {name: self._ends(name) for name in self.parts}

    def replace_test(self, part: Part) -> None:
        """Puts other tracks in the place of the test; only training and validation remain."""
        super().replace_test(part)
        for kept in (self.tracks, self.ends):
            for name in kept.keys() - self.parts.keys():
                del kept[name]
        self.tracks["test"] = data.tracks_of(part.split, part.indices, longest=self._most)
        self.ends["test"] = self._ends("test")

    def _ends(self, name: str) -> Part:
        part, last = self.parts[name], self.tracks[name].last
        return Part(part.split, part.indices[last], part.labels[last], part.chip)

    @property
    def record(self) -> dict[str, Any]:
        """The record of :class:`~jaxatr.tasks.examples.Examples`, with track counts and lengths."""
        counts = {name: len(tracks.lengths) for name, tracks in self.tracks.items()}
        return {**super().record, "tracks": {**counts, "frames": self._most}}

    @property
    def streamed_labels(self) -> Int[np.ndarray, " n"]:
        """The labels of the tracks, which a pass goes through, also if its batches have chips."""
        return self.ends["train"].labels

    def track_batches(self) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of training tracks.

        The batches are those of :func:`jaxatr.data.tuple_batches`, with ``length`` int32 ``[b]``,
        the number of chips of each track; further chips are padding.
        """
        tracks = self.tracks["train"]
        rows, _ = data.balanced_pass(self.streamed_labels, self.balance)
        columns = {"length": tracks.lengths[rows]}
        return self.tuple_batches(
            tracks.members[rows], columns=columns, batch_size=self._batch_size
        )

    def chip_batches(self) -> data.BatchIterator:
        """Returns an endless iterator of batches with as many chips as track batches on average."""
        mean = float(np.mean(self.tracks["train"].lengths))
        return self.train_batches(self._batch_size * max(1, round(mean)))

    def eval_track_batches(self, part: str) -> data.EvalBatches:
        """Returns batches of a part's tracks in order; each iteration is one pass."""
        chosen, tracks = self.parts[part], self.tracks[part]
        return data.eval_tuple_batches(
            chosen.split,
            chosen.indices,
            chosen.labels,
            tracks.members,
            chip=chosen.chip,
            batch_size=self._batch_size,
            columns={"length": tracks.lengths},
        )

    def thumbnails(self, part: str, rows: Int[np.ndarray, " m"]) -> dict[str, np.ndarray]:
        """Returns small pictures of the last chips of some tracks.

        Args:
          part: name of the part.
          rows: ``[m]``, positions of tracks in the part.

        Returns:
          ``id`` int32 ``[m]``; ``class`` ``[m]``, names of the true classes; ``image`` uint8
          ``[m, h, w, c]``.
        """
        return super().thumbnails(part, self.tracks[part].last[rows])
