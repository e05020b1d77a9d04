"""Which pixels speak for a trained network's prediction: images in, saliency maps out."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import explainers, metrics, models, runs, training
from jaxatr.resolve import nearest
from jaxatr.tasks.distillation import surrogate_saliency
from jaxatr.tasks.target import Target
from jaxatr.typing import Float, Shaped

METHODS = (
    "surrogate",
    "grad_cam",
    "grad_cam_plus_plus",
    "rise",
    "lime",
    "occlusion",
    "integrated_gradients",
    "smoothgrad",
)
_RANDOM = ("rise", "lime", "smoothgrad")


class Explanation(NamedTuple):
    """What speaks for the prediction of one image.

    Attributes:
      label: the class that the network predicts, which is the one that is explained.
      score: its softmax probability.
      chip: ``[h, w, c]``, what the network saw.
      saliency: ``[h, w]`` in [0, 1].
      insertion: area under the insertion curve of this image; high is good.
      deletion: area under the deletion curve; low is good.
    """

    label: str
    score: float
    chip: Shaped[np.ndarray, "h w c"]
    saliency: Float[np.ndarray, "h w"]
    insertion: float
    deletion: float


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
        intake: runs.Intake,
        method: str,
        *,
        surrogate: Callable[[jax.Array], jax.Array] | None = None,
        seed: int = 0,
        **options: Any,
    ):
        """Takes the network and the method.

        Args:
          target: the network.
          intake: what its images have to be.
          method: one of :data:`METHODS`.
          surrogate: raw images to saliency maps, of the method ``"surrogate"``.
          seed: of the methods that draw.
          options: of the method, as :mod:`jaxatr.explainers` has them.

        Raises:
          ValueError: there is no such method, or no surrogate for it.
        """
        if method not in METHODS:
            raise ValueError(
                f"method: got {method!r}, wanted one of {', '.join(METHODS)}"
                f"{nearest(method, METHODS)}"
            )
        if method == "surrogate" and surrogate is None:
            raise ValueError("method: a surrogate takes the run of configs/distill.py")
        self.method, self.classes, self.chip = method, target.classes, intake
        self._target, self._surrogate = target, surrogate
        self._predict = jax.tree_util.Partial(target.logits, target.variables)
        if method in _RANDOM:
            options = {"key": jax.random.key(seed), **options}
        self._options = options
        self._cut: models.Cut | None = None

    @classmethod
    def load(
        cls, workdir: str | os.PathLike, method: str | None = None, *, seed: int = 0, **options: Any
    ) -> "Explainer":
        """Returns what explains a run's network.

        Args:
          workdir: the folder of a classifier's run, or of a surrogate's, which explains its target.
          method: by default, ``"surrogate"`` of a surrogate's run and ``"grad_cam"`` of another.
          seed: as the constructor has it.
          options: as there.

        Raises:
          ValueError: no run, no such method, or a surrogate is asked of another run.
        """
        config, record = runs.load_config(workdir), training.read_record(workdir)
        intake = runs.Intake.of_run(config, record)
        if "target" not in record:
            return cls(
                runs.load_target(workdir), intake, method or "grad_cam", seed=seed, **options
            )
        variables = runs.variables_of(training.load_snapshot(workdir, "latest"))
        target = runs.load_target(config.distillation.target)
        target = target._replace(variables=variables["params"]["target"])
        module = models.build_surrogate(config, len(target.classes))
        mean, std = (np.asarray(record["normalization"][name]) for name in ("mean", "std"))
        surrogate = jax.jit(partial(surrogate_saliency, module, mean=mean, std=std))
        return cls(
            target,
            intake,
            method or "surrogate",
            surrogate=partial(surrogate, variables),
            seed=seed,
            **options,
        )

    def saliency(self, images: Float[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b h w"]:
        """Returns the saliency maps of chips in their raw units, each in [0, 1].

        Raises:
          ValueError: the method cannot be used on such chips.
        """
        if self.method == "surrogate" and self._surrogate is not None:
            return np.asarray(self._surrogate(jnp.asarray(images)))
        method = getattr(explainers, self.method)
        if not self.method.startswith("grad_cam"):
            return np.asarray(method(self._predict, images, **self._options))
        if self._cut is None:
            self._cut = models.cut(self._predict, images)
        maps = method(self._cut.features, self._cut.head, images, **self._options)
        return np.asarray(maps)

    def __call__(
        self, images: Iterable[np.ndarray], *, batch_size: int = 16, pixels_per_step: int = 0
    ) -> Iterator[Explanation]:
        """Yields an explanation for each image ``[h, w, c]``, in order.

        Args:
          images: any number of them.
          batch_size: images at a time.
          pixels_per_step: of insertion and deletion; 0 for one row of the chip.

        Raises:
          ValueError: as :class:`jaxatr.runs.Intake` raises of an image, or as :meth:`saliency`.
        """
        step = pixels_per_step or max(self.chip.shape[:2])
        options: dict[str, Any] = {"pixels_per_step": step, "batch_size": batch_size}
        for chips, count in self.chip.batches(images, batch_size):
            raw = chips.astype(np.float32)
            maps = self.saliency(raw)
            scores = np.asarray(jax.nn.softmax(self._predict(jnp.asarray(raw))))
            inserted = metrics.insertion(self._predict, raw, maps, **options)
            deleted = metrics.deletion(self._predict, raw, maps, **options)
            for row in range(count):
                label = int(scores[row].argmax())
                yield Explanation(
                    self.classes[label],
                    float(scores[row, label]),
                    chips[row],
                    maps[row],
                    float(inserted.auc[row]),
                    float(deleted.auc[row]),
                )
