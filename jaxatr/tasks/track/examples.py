"""The data of a task whose examples are tracks."""

from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.parts import Part
from jaxatr.typing import Config, Int


class TrackExamples(Examples):
    """The chips of the data that a configuration names, and the tracks that they make up.

    Of the training chips whole tracks are held out for validation.

    Attributes:
      tracks: name of a part to the tracks of its chips.
      ends: name of a part to the last chip of each of its tracks, which stands for the track: its
        label, its id and its picture.
    """

    def __init__(self, config: Config):
        """Opens the data.

        Raises:
          ValueError: as :class:`~jaxatr.tasks.examples.Examples`; or the data does not say which
            track a chip is of, or has chips of a track in the training and the test split.
        """
        super().__init__(config, tracks=True)
        self.tracks = {
            name: data.tracks_of(part.split, part.indices, longest=config.track.frames)
            for name, part in self.parts.items()
        }
        self.ends = {name: self._ends(name) for name in self.parts}
        self._most = config.track.frames

    def _ends(self, name: str) -> Part:
        part, last = self.parts[name], self.tracks[name].last
        return Part(part.split, part.indices[last], part.labels[last], part.chip)

    @property
    def record(self) -> dict[str, Any]:
        """As of other examples, with how many tracks there are, and their longest."""
        counts = {name: len(found.lengths) for name, found in self.tracks.items()}
        return {**super().record, "tracks": {**counts, "frames": self._most}}

    def track_batches(self) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of training tracks.

        Their ``length`` int32 ``[b]`` says how many of the chips are the track; the rest is as
        :func:`jaxatr.data.tuple_batches` has it.
        """
        found = self.tracks["train"]
        columns = {"length": found.lengths}
        return self.tuple_batches(found.members, columns=columns, batch_size=self._batch_size)

    def chip_batches(self) -> data.BatchIterator:
        """Returns one of single chips, as many in a batch as a batch of tracks has on average."""
        mean = float(np.mean(self.tracks["train"].lengths))
        return self.train_batches(self._batch_size * max(1, round(mean)))

    def eval_track_batches(self, part: str) -> data.EvalBatches:
        """Returns the tracks of a part once, in their order, as often as it is looped over."""
        chosen, found = self.parts[part], self.tracks[part]
        return data.eval_tuple_batches(
            chosen.split,
            chosen.indices,
            chosen.labels,
            found.members,
            chip=chosen.chip,
            batch_size=self._batch_size,
            columns={"length": found.lengths},
        )

    def thumbnails(self, part: str, rows: Int[np.ndarray, " m"]) -> dict[str, np.ndarray]:
        """Returns small pictures of the last chips of some tracks, as for other examples.

        Args:
          part: its name.
          rows: ``[m]``, which of its tracks.
        """
        return super().thumbnails(part, self.tracks[part].last[rows])
