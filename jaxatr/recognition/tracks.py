"""A trained recogniser of tracks."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence

import jax
import numpy as np
from PIL import Image

from jaxatr import data, openset
from jaxatr.inference import filled_batches
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.tasks.runtime import Infer
from jaxatr.training import TrainedRun
from jaxatr.typing import ArrayLike, Int, PyTree, Shaped


class TrackRecogniser(OpenSetPredictor[Sequence[np.ndarray]]):
    """A recogniser of tracks, which are images of one target in temporal order.

    Attributes:
      frames: maximum length of a track, as in training; only the last images of longer tracks are
        used.
    """

    takes = "FOLDER"

    def __init__(
        self,
        run: TrainedRun,
        decision: openset.Decision,
        *,
        gamma: float | None = None,
        further: tuple[str, ...] = (),
        needs: Collection[str] = (),
        runtime: str = "jax",
    ):
        """Creates a recogniser from a run on tracks and its decision; :meth:`load` reads both.

        Raises:
          ValueError: ``runtime`` is OpenVINO, whose LSTM ignores the lengths of tracks.
        """
        if runtime == "openvino":
            raise ValueError(
                f"{run.workdir}: OpenVINO's LSTM ignores the lengths of tracks, so its answers "
                "would be wrong: use runtime=onnxruntime or jax"
            )
        options = {"gamma": gamma, "further": further, "needs": needs, "runtime": runtime}
        super().__init__(run, decision, **options)
        self.frames = run.config.track.frames

    @staticmethod
    def _network(run: TrainedRun, needs: Collection[str]) -> Infer:
        del needs  # a network of tracks has no further outputs
        module = run.module

        def infer(
            variables: PyTree, tracks: ArrayLike, lengths: Int[ArrayLike, " b"]
        ) -> dict[str, jax.Array]:
            return module.apply(variables, run.normalize(tracks), lengths=lengths).track._asdict()

        return infer

    @staticmethod
    def _examples(run: TrainedRun) -> list[np.ndarray]:
        """Returns example inputs of the network, a batch of one."""
        shape = (1, run.config.track.frames, *run.intake.shape)
        return [np.zeros(shape, run.intake.dtype), np.ones(1, np.int32)]

    def read(self, path: str) -> list[np.ndarray]:
        """Reads a folder's images, in the natural order of their names."""
        return data.read_folder(path, self.bands)

    def _is_one(self, value: object) -> bool:
        """Returns whether a value is a folder's path or the images of one track."""
        if isinstance(value, str | os.PathLike) or getattr(value, "ndim", 0) == 4:
            return True
        first = value[0] if isinstance(value, list | tuple) and value else None
        return isinstance(first, Image.Image) or data.is_array_image(first)

    def _item(self, value: object, name: str) -> Sequence[np.ndarray]:
        """Converts a folder's path or a sequence of images to a track."""
        if isinstance(value, str | os.PathLike):
            return self.read(os.fspath(value))
        if not isinstance(value, Iterable) or data.is_array_image(value):
            raise ValueError(f"{name}: got no track, wanted a folder's path or several images")
        phase = self.bands.phase
        return [  # copies, since all may be read into one buffer
            np.array(data.as_image(image, f"{name}[{place}]", phase=phase))
            for place, image in enumerate(value)
        ]

    def prepare(self, item: Sequence[np.ndarray]) -> Shaped[np.ndarray, "t h w c"]:
        """Converts a track's images to the network's chips.

        Raises:
          ValueError: the track is empty, or a chip has another shape or dtype than in training.
        """
        if not len(item):
            raise ValueError("got a track without an image")
        return np.stack([self.chip(image) for image in item[-self.frames :]])

    def outputs(
        self, chips: Iterable[np.ndarray], *, batch_size: int | None = None
    ) -> Iterator[openset.Outputs]:
        """Yields the network's outputs for batches of tracks, 8 by default."""
        for tracks, count in filled_batches(chips, batch_size or 8):
            padded = np.stack([np.resize(one, (self.frames, *one.shape[1:])) for one in tracks])
            lengths = np.array([len(one) for one in tracks], np.int32)
            yield self.session.batch(padded, lengths, count=count)
