"""Explanations in a folder: a picture, the raw map and the figures of each image."""

import json
import os
from pathlib import Path

import numpy as np

from jaxatr import reporting
from jaxatr.explain.explainer import Explanation


class Pictures:
    """Writes explanations to a folder.

    Attributes:
      folder: made where it does not exist.
    """

    def __init__(self, folder: str | os.PathLike, method: str):
        """Makes the folder.

        Args:
          folder: to write to.
          method: name of the method, for the pictures and the figures.
        """
        self.folder, self._method = Path(folder), method
        self._names: set[str] = set()
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, explanation: Explanation) -> Path:
        """Writes the explanation of an image as ``NAME.png``, ``NAME.npy`` and ``NAME.json``.

        Args:
          path: of the image, which lends its name; with a number where another had it already.
          explanation: of the image.

        Returns:
          The picture's path.
        """
        name = self._own_name(Path(path).stem)
        title = (
            f"{explanation.label} {explanation.score:.3f}   {self._method}   "
            f"ins {explanation.insertion:.3f}  del {explanation.deletion:.3f}"
        )
        picture = reporting.overlay(explanation.chip, explanation.saliency, title=title)
        picture.save(self.folder / f"{name}.png")
        np.save(self.folder / f"{name}.npy", explanation.raw)
        figures = {
            "image": path,
            "method": self._method,
            "class": explanation.label,
            "score": explanation.score,
            "insertion": explanation.insertion,
            "deletion": explanation.deletion,
            "convention": list(explanation.convention),
        }
        text = json.dumps(figures, indent=2) + "\n"
        (self.folder / f"{name}.json").write_text(text, encoding="utf-8")
        return self.folder / f"{name}.png"

    def _own_name(self, stem: str) -> str:
        name, number = stem, 2
        while name in self._names:
            name, number = f"{stem}-{number}", number + 1
        self._names.add(name)
        return name


def describe(path: str, explanation: Explanation, picture: Path) -> str:
    """Writes the explanation of an image as one line of text."""
    return (
        f"{path}: {explanation.label} ({explanation.score:.4f}), insertion "
        f"{explanation.insertion:.4f}, deletion {explanation.deletion:.4f}, {picture}"
    )
