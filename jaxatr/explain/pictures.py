"""Writes explanations to a folder: a picture, the raw maps and the measures of each image."""

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from jaxatr import reporting
from jaxatr.data import ImagePath
from jaxatr.explain.agreement import Agreement, agreement
from jaxatr.explain.explainer import Explanation
from jaxatr.files import write_text


class Pictures:
    """Writes explanations to a folder.

    Attributes:
      folder: the folder.
    """

    def __init__(self, folder: str | os.PathLike):
        """Opens the folder, and creates it if necessary.

        Raises:
          ValueError: ``folder`` is a file.
        """
        self.folder = Path(folder)
        if self.folder.is_file():
            raise ValueError(f"{folder} is a file, wanted a folder for the pictures")
        self._taken: dict[PurePath, str] = {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(
        self, path: ImagePath, explanations: Mapping[str, Explanation], *, verdict: str = ""
    ) -> Path:
        """Writes an image's explanations as ``PATH.png``, ``PATH.npy`` and ``PATH.json``.

        The picture of a single method shows the chip and the map over it; that of several methods
        is a sheet of all maps. The maps are saved in the methods' own units; those of several
        methods go to ``PATH.npz``, by method.

        Args:
          path: path of the image. Subfolders are kept. If another image already uses the path, even
            one from an earlier call, the name of the source folder or archive is prepended; if that
            path is used too, a number is appended.
          explanations: explanations of the image, by method.
          verdict: the decision about the image, for the title; by default the class and its score.

        Returns:
          The picture's path.
        """
        name = self._own_name(path)
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        first = next(iter(explanations.values()))
        drawn = first.chip if first.picture is None else first.picture
        title = verdict or f"{first.label} {first.score:.3f}"
        if len(explanations) == 1:
            (method,) = explanations
            lines = (f"{title}   {method}   {_measures(first)}", first.note)
            picture = reporting.overlay(drawn, first.saliency, title=_lines(lines))
            np.save(_suffixed(target, ".npy"), first.raw)
        else:
            sentence = _agreement(explanations).sentence()
            shown = [
                (f"{name}\n{one.note or _measures(one)}", one.saliency)
                for name, one in explanations.items()
            ]
            picture = reporting.sheet(drawn, shown, title=_lines((title, sentence)))
            raw: dict[str, Any] = {name: one.raw for name, one in explanations.items()}
            np.savez(_suffixed(target, ".npz"), **raw)
        picture.save(_suffixed(target, ".png"))
        text = json.dumps(_figures(path.name, explanations, verdict), indent=2, ensure_ascii=False)
        write_text(_suffixed(target, ".json"), f"{text}\n")
        return _suffixed(target, ".png")

    def _own_name(self, path: ImagePath) -> PurePath:
        """Finds a path that no other image uses, in this call or an earlier one."""
        below = PurePath(path.below).with_suffix("")
        above = PurePath(path.name.removesuffix(path.below)).stem
        longer = PurePath(above, below) if above not in ("", "..") else below
        number, name = 1, below
        while self._owner(name) not in (None, path.name):
            name = longer if number == 1 else longer.with_name(f"{longer.name}-{number}")
            number += 1
        self._taken[name] = path.name
        return name

    def _owner(self, name: PurePath) -> str | None:
        """Returns the image whose explanation is stored at this path, or None."""
        if name in self._taken:
            return self._taken[name]
        try:
            text = _suffixed(self.folder / name, ".json").read_text(encoding="utf-8")
            return str(json.loads(text)["image"])
        except FileNotFoundError:
            # A picture or map without figures is not an explanation, but perhaps the image itself.
            there = (_suffixed(self.folder / name, suffix).exists() for suffix in _SUFFIXES)
            return "" if any(there) else None
        except (ValueError, KeyError, TypeError):
            return ""  # another kind of file


_SUFFIXES = ".png", ".npy", ".npz"


def _suffixed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _lines(lines: "tuple[str, ...]") -> str:
    return "\n".join(line for line in lines if line)


def _agreement(explanations: Mapping[str, Explanation]) -> Agreement:
    return agreement({name: one.raw for name, one in explanations.items()})


def _measures(explanation: Explanation) -> str:
    return f"ins {explanation.insertion:.3f}  del {explanation.deletion:.3f}"


def _figures(image: str, explanations: Mapping[str, Explanation], verdict: str) -> dict[str, Any]:
    first = next(iter(explanations.values()))
    figures: dict[str, Any] = {"image": image, "verdict": verdict or None}
    figures |= {"class": first.label, "score": first.score, "convention": list(first.convention)}
    methods = {
        name: {
            "method": name,
            "insertion": one.insertion,
            "deletion": one.deletion,
            "marked": one.marked,
            "note": one.note or None,
        }
        for name, one in explanations.items()
    }
    if len(methods) == 1:
        (own,) = methods.values()
        return figures | own
    compared = _agreement(explanations)
    return figures | {
        "methods": list(methods.values()),
        "agreement": compared.sentence(),
        "rank_correlations": np.round(compared.correlations, 4).tolist(),
    }


def with_evidence(verdict: str, named: str, explanations: Mapping[str, Explanation]) -> str:
    """Adds the explained class to a verdict that names another one.

    The maps explain the network's first choice; a score with a gallery may name another class.
    """
    explained = next(iter(explanations.values())).label
    return verdict if explained == named else f"{verdict}; evidence for {explained}"


def describe(
    path: str, explanations: Mapping[str, Explanation], picture: Path, *, verdict: str = ""
) -> str:
    """Formats the explanations of an image as one line of text."""
    first = next(iter(explanations.values()))
    line = f"{path}: {verdict or f'{first.label} ({first.score:.4f})'}"
    if len(explanations) > 1:
        line += f", {_agreement(explanations).sentence().rstrip('.')}"
    else:
        line += f", insertion {first.insertion:.4f}, deletion {first.deletion:.4f}"
        line += f", {first.note}" if first.note else ""
    return f"{line}, {picture}"
