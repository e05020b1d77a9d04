"""Which pixels speak for a trained network's prediction: images in, saliency maps out."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import data, models, reporting, runs, training
from jaxatr.explainers.maps import finished
from jaxatr.tasks.distillation.task import surrogate_saliency
from jaxatr.tasks.explaining import RIVALS, judge, maps_of, method_name, rival
from jaxatr.tasks.target import Target
from jaxatr.typing import ArrayLike, Float, Shaped

METHODS = ("surrogate", *RIVALS)


class Explanation(NamedTuple):
    """What speaks for the prediction of one image.

    Attributes:
      label: the class that the network predicts, which is the one that is explained.
      score: its softmax probability.
      chip: ``[h, w, c]``, what the network saw.
      saliency: ``[h, w]`` in [0, 1].
      raw: ``[h, w]``, the map as the method gives it, in units and with signs of its own; of a
        surrogate the same.
      insertion: area under the insertion curve of this image; high is good.
      deletion: area under the deletion curve; low is good.
      convention: of insertion and of deletion, as JSON values.
    """

    label: str
    score: float
    chip: Shaped[np.ndarray, "h w c"]
    saliency: Float[np.ndarray, "h w"]
    raw: Float[np.ndarray, "h w"]
    insertion: float
    deletion: float
    convention: Sequence[Mapping[str, Any]]


class Explainer:
    """A trained network, and a method that explains it.

    Attributes:
      method: one of :data:`METHODS`.
      classes: names of the classes that the network knows.
      chip: from an image to the chip that the network sees.
    """

    def __init__(
        self,
        target: Target,
        intake: data.Intake,
        method: str,
        explain: Callable[[ArrayLike], ArrayLike],
    ):
        """Takes the network and the method.

        Args:
          target: the network.
          intake: what its images have to be.
          method: what ``explain`` is called.
          explain: from chips in their raw units to saliency maps as the method gives them; of a
            surrogate they are in [0, 1].
        """
        self.method, self.classes, self.chip = method, target.classes, intake
        self._predict = jax.tree_util.Partial(target.logits, target.variables)
        self._probabilities = jax.jit(lambda predict, images: jax.nn.softmax(predict(images)))
        self._explain = explain

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        method: str | None = None,
        *,
        seed: int = 0,
        progress: bool = False,
        **options: Any,
    ) -> "Explainer":
        """Returns what explains a run's network.

        Args:
          workdir: the folder of a classifier's run, or of a surrogate's, which explains its target.
          method: one of :data:`METHODS`; by default, ``"surrogate"`` of a surrogate's run and
            ``"grad_cam"`` of another.
          seed: of the methods that draw.
          progress: show a bar on standard error, at a terminal, of those that try masked copies.
          options: of the method, as :mod:`jaxatr.explainers` has them but for ``raw``; a surrogate
            has none.

        Raises:
          ValueError: no run, no such method, a surrogate is asked of another run, it is given
            options, or there is another network now where the one was that it explains.
        """
        config, record = training.load_config(workdir), training.read_record(workdir)
        is_surrogate = "target" in record
        default = "surrogate" if is_surrogate else "grad_cam"
        method = method_name(method or default, METHODS)
        if method == "surrogate" and not is_surrogate:
            raise ValueError("method: a surrogate takes the run of configs/distill.py")
        if method == "surrogate" and options:
            raise ValueError(f"options: got {', '.join(options)}; a surrogate has none")
        mean, std = (np.asarray(record["normalization"][name]) for name in ("mean", "std"))
        target = runs.load_target(config.distillation.target if is_surrogate else workdir)
        variables = None
        if is_surrogate:
            training.refuse_other_target(workdir, {"target": target.source})
            # The run keeps its target's variables.
            variables = training.variables_of(training.load_snapshot(workdir, "latest"))
            target = target._replace(variables=variables["params"]["target"])
        if method == "surrogate":
            module = models.build_surrogate(config, len(target.classes))
            run = jax.jit(partial(surrogate_saliency, module, mean=mean, std=std))
            explain = partial(run, variables)
        else:
            predict = jax.tree_util.Partial(target.logits, target.variables)
            options |= {"seed": seed, "progress": progress, "raw": True}
            explain = rival(method, predict, mean, **options)
        return cls(target, data.Intake.of_run(config, record), method, explain)

    def saliency(self, images: Float[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b h w"]:
        """Returns the saliency maps of chips in their raw units, each in [0, 1].

        Raises:
          ValueError: the method cannot be used on such chips.
        """
        return self._scaled(np.asarray(self._explain(images)))

    def _scaled(self, maps: Float[np.ndarray, "b h w"]) -> Float[np.ndarray, "b h w"]:
        return maps if self.method == "surrogate" else np.asarray(finished(maps, raw=False))

    def __call__(
        self, images: Iterable[np.ndarray], *, batch_size: int = 16, pixels_per_step: int = 0
    ) -> Iterator[Explanation]:
        """Yields an explanation for each image ``[h, w, c]``, in order.

        Args:
          images: any number of them.
          batch_size: images at a time.
          pixels_per_step: of insertion and deletion; 0 for one row of the chip.

        Raises:
          ValueError: as :class:`jaxatr.data.Intake` raises of an image, or as :meth:`saliency`.
        """
        for chips, count in self.chip.batches(images, batch_size):
            filled = chips.astype(np.float32)
            images, scores = filled[:count], np.asarray(self._probabilities(self._predict, filled))
            raw = maps_of(self.method, self._explain, images, batch_size)
            maps = self._scaled(raw)
            values, convention = judge(
                self._predict, images, maps, pixels_per_step=pixels_per_step, batch_size=batch_size
            )
            for row in range(count):
                label = int(scores[row].argmax())
                yield Explanation(
                    self.classes[label],
                    float(scores[row, label]),
                    chips[row],
                    maps[row],
                    raw[row],
                    float(values["insertion"][row]),
                    float(values["deletion"][row]),
                    convention,
                )


class Pictures:
    """Writes explanations to a folder: a picture, the raw map and the figures of each image.

    Attributes:
      folder: which is made where there is none.
    """

    def __init__(self, folder: str | os.PathLike, method: str):
        """Takes the folder and what the pictures call the method."""
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


def told(path: str, explanation: Explanation, picture: Path) -> str:
    """Returns what a command prints of an explained image."""
    return (
        f"{path}: {explanation.label} ({explanation.score:.4f}), insertion "
        f"{explanation.insertion:.4f}, deletion {explanation.deletion:.4f}, {picture}"
    )
