"""Open-set recognisers, which predict a known class or "unknown" for images."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxatr import openset
from jaxatr.inference import stacked_batches
from jaxatr.recognition.neighbours import build_examples
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.recognition.session import FEATURES, of_single_images
from jaxatr.resolve import imported
from jaxatr.tasks.display import HeatMap
from jaxatr.training import TrainedRun
from jaxatr.typing import Float, Shaped

if TYPE_CHECKING:
    from jaxatr.recognition.suggestions import Suggested


class Recogniser(OpenSetPredictor[np.ndarray]):
    """A recogniser of single images."""

    ensemble = "jaxatr.recognition.ensemble:load"
    _network = staticmethod(of_single_images)

    def read(self, path: str) -> np.ndarray:
        """Reads an image ``[h, w, c]``."""
        return self.bands.read(path)

    def prepare(self, item: np.ndarray) -> np.ndarray:
        """Converts an image to a chip, which has the shape and dtype of training."""
        return self.chip(item)

    def outputs(
        self, chips: Iterable[np.ndarray], *, batch_size: int | None = None
    ) -> Iterator[openset.Outputs]:
        """Yields the network's outputs for batches of chips, 32 by default."""
        for stacked, count in stacked_batches(chips, batch_size or 32):
            yield self.session.batch(stacked, count=count)

    def suggest(
        self, pool: str | os.PathLike | Sequence[str | os.PathLike], count: int = 50, **options: Any
    ) -> "Suggested":
        """Suggests which chips of a pool to label next.

        Args:
          pool: folders, archives, tables of paths, or files of images.
          count: number of chips to suggest.
          **options: of :func:`jaxatr.recognition.suggestions.suggest`.

        Raises:
          ValueError: see there.
        """
        return imported("jaxatr.recognition.suggestions:suggest")(self, pool, count, **options)

    def _search(self, run: TrainedRun, where: Mapping[str, str], count: int) -> None:
        """Prepares the search for the training chips that are nearest to an image."""
        about = {"runtime": self.runtime, "needs": self.session.needs}
        examples, missing = build_examples(run, where, self.features, **about)
        if examples is None:
            raise ValueError(f"neighbours: {missing}")
        if count > examples.count:
            raise ValueError(
                f"neighbours: got {count}, but there are {examples.count} training chips"
            )
        self.examples, self.neighbours = examples, count

    def _heat_maps(self, chips: Sequence[np.ndarray], method: str) -> list[HeatMap]:
        """Explains the predicted class of each chip."""
        from jaxatr import explain  # slow to import

        if method not in self._explainers:
            if method == "all":
                raise ValueError("heat_map: got 'all', wanted one method")
            self._explainers[method] = explain.Explainer.of_run(self.session.run, method)
        explainer = self._explainers[method]
        title, found = explain.method_title(explainer.method), []
        for stacked, count in stacked_batches(chips, 16):
            images = stacked.astype(np.float32)
            names, maps = explainer.explained(images), explainer.saliency(images)
            words = [f"{title}: evidence for {name}" for name in names]
            found += map(HeatMap, words[:count], maps[:count])
        return found

    def features(self, chips: Shaped[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b d"]:
        """Computes the features by which the nearest training chips of a batch are found."""
        return self.session.batch(chips, count=len(chips)).more[FEATURES]
