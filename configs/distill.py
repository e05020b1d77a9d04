"""Explanations by a surrogate: an attentive student and an explanation network for a trained run.

    jaxatr train --config=distill[:variant] --config.distillation.target=DIR

DIR is the folder of a classifier's run (configs/cbc.py); data and split must match that run.

Variants:
  default    for a target trained with configs/cbc.py, default variant: simulated vehicles, cropped
             to boxes. The student starts from the target's weights and trains for 3 epochs, then
             the explanation network for 6, with the losses that came closest to RISE in our
             experiments instead of the paper's. A small network, for training without an
             accelerator. For other targets, set --config.model.pretrained to weights or leave it
             empty (--config.model.pretrained=), and train for more epochs
  smoke      the same on very little data, for a target of configs/cbc.py:smoke, to check that
             everything runs
  mstar      MSTAR radar chips, for a target of configs/cbc.py:mstar; needs --data_source=…
  cifar100   the first 20 classes of CIFAR-100 in folders, for a target of configs/cbc.py:folder
             with --config.open_set.split=first-20; needs --data_source=…
  folder     any folder of class folders, for a target of configs/cbc.py:folder with the same
             --config.data fields and --config.open_set.split; needs --data_source=…
  pretrained folder for a target of configs/cbc.py:pretrained, with a student of its network,
             EfficientNet-Lite0, and its --config.data.size
  paper      default with the paper's losses: equations 4 to 9, lambda 1e-5; its other lambda is
             --config.distillation.l1_weight=1e-4
  paper_mstar  mstar with the paper's losses
  paper_cifar100  cifar100 with the paper's losses
  cub200     the paper's recipe (section 4.1) for CUB-200: ResNet-50, alpha 0.5, lambda 1e-5, 190
             epochs for the student and 16 for the explanation network
  cars196    the same for Cars-196
  variant    the same for FGVC-Aircraft by variant. Like the next two, it needs
             --data_source=FOLDER, because a data set prepared before has a fixed level
  family     the same by family
  manufacturer  the same by manufacturer
  target     fine-tunes a target for these (section 4.1): learning rate 0.01, halved every 20 of
             100 epochs; set --config.data.name and --config.model.pretrained
  target_variant  the same for FGVC-Aircraft by variant; needs --data_source=FOLDER
  target_family  the same by family
  target_manufacturer  the same by manufacturer
"""

from collections.abc import Callable
from functools import partial

from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr.config import fine_tuning
from jaxatr.typing import Config


def get_config(variant: str = "default") -> Config:
    """Returns the configuration of a variant; see the module's docstring."""
    variants = {
        "default": partial(_by_curves, _simulated, masks=4),
        "smoke": _smoke,
        "mstar": partial(_by_curves, _mstar),
        "cifar100": partial(_by_curves, _cifar100, masks=4),
        "folder": partial(_by_curves, _folder, masks=4),
        "pretrained": _pretrained,
        "paper": _simulated,
        "paper_mstar": _mstar,
        "paper_cifar100": _cifar100,
        "cub200": _cub200,
        "cars196": _cars196,
        "target": _target,
    }
    tasks = {"target": configuration.OPEN_SET}
    for level in ("variant", "family", "manufacturer"):
        variants[level] = partial(_aircraft, level=level)
        variants[f"target_{level}"] = partial(_aircraft, level=level, recipe=_target)
        tasks[f"target_{level}"] = configuration.OPEN_SET
    return configuration.of_variant(
        variants, variant, task="jaxatr.tasks.distillation:Distillation", tasks=tasks
    )


def _from_scratch(config: Config) -> None:
    """A recipe that works from random weights in minutes."""
    config.train.batch_size = 32
    config.train.epochs = 15
    config.train.evaluate_every = 5.0
    config.optimizer.learning_rate = 3e-2
    config.optimizer.nesterov = True
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_epochs = 1.0
    config.explanation.epochs = 10.0
    config.explanation.learning_rate = 3e-2
    config.explanation.schedule = "cosine"


def _simulated(config: Config) -> None:
    _from_scratch(config)
    configuration.simulated_vehicles(config, turns=2, decoys=500)  # the target's data
    # Starting from the target's weights, the student only has to learn the attention.
    config.model.pretrained = config.distillation.get_oneway_ref("target")
    config.train.epochs = 3
    config.train.evaluate_every = 3.0
    config.explanation.epochs = 6.0
    config.model.width = 32
    config.surrogate.width = 16


def _smoke(config: Config) -> None:
    _by_curves(_simulated, config, masks=4)
    config.data.options.aspects = config.data.options.decoys = 12
    config.data.options.turns = 1
    config.data.options.ranges = (1000,)
    config.model.width = 16
    config.surrogate.width = 8
    config.train.epochs = 2
    config.train.evaluate_every = 1.0
    config.explanation.epochs = 2.0
    config.distillation.judged = 16


def _mstar(config: Config) -> None:
    _from_scratch(config)
    config.model.width = 32
    config.surrogate.width = 16
    config.data.name = "image_folder"
    config.data.center_crop = 64  # the image's size gives the class away: never resize it
    config.augment.shift = 4
    config.open_set.split = "mstar/reference-0"


def _cifar100(config: Config) -> None:
    _from_scratch(config)
    config.train.epochs = 8
    config.explanation.epochs = 6.0
    config.model.width = 32
    config.model.stem = "3x3"
    config.surrogate.width = 16
    config.data.name = "image_folder"
    config.augment.flip_horizontal = True
    config.augment.shift = 4
    config.open_set.split = "first-20"


def _folder(config: Config) -> None:
    _from_scratch(config)
    config.data.name = "image_folder"
    config.data.options = ConfigDict({"test_fraction": 0.2})  # as in configs/cbc.py:folder
    # The student starts from the target's weights, so it has the target's width.
    config.model.pretrained = config.distillation.get_oneway_ref("target")
    config.train.epochs = 8
    config.explanation.epochs = 6.0
    config.surrogate.width = 16
    config.augment.flip_horizontal = True
    config.augment.shift = 4


def _pretrained(config: Config) -> None:
    """The recipe that was best on validation images of CIFAR-100, at 48 pixels.

    At ten times the rate, the explanation network soon gives 1 at every pixel, where the sigmoid
    passes no gradient.
    """
    _by_curves(_folder, config, masks=6)
    config.distillation.masks_weight = 50.0
    network = fine_tuning.DEFAULT  # that of configs/cbc.py:pretrained
    config.model.backbone = config.data.normalize_by = network
    config.optimizer.backbone_factor = 0.01
    config.explanation.learning_rate = 3e-3
    config.explanation.epochs = 12.0
    config.surrogate.width = 64
    config.data.size, config.data.channels = 224, 3
    config.augment.shift = 14  # of 224 pixels


def _by_curves(recipe: Callable[[Config], None], config: Config, *, masks: int = 0) -> None:
    """Applies a recipe, but trains insertion and deletion instead of equation 8."""
    recipe(config)
    config.surrogate.deltas = "features"
    config.distillation.objective = "curves"
    config.distillation.insertion_weight = 20.0  # deletion is easier to learn
    config.distillation.masks, config.distillation.masks_weight = masks, 1.0
    config.distillation.l1_weight = 0.0


def _paper(config: Config) -> None:
    """The recipe of section 4.1, which leaves batch size, augmentation and weight decay open."""
    config.model.backbone = "resnet50"
    config.data.size = 224
    config.data.square = True
    config.data.channels = 3
    config.augment.flip_horizontal = True
    config.augment.shift = 14
    config.train.batch_size = 64
    config.train.epochs = 190  # 100, and 30 after each of three decays
    config.optimizer.learning_rate = 0.1
    config.optimizer.nesterov = True
    config.optimizer.schedule = "steps"
    config.optimizer.boundaries = (100.0, 130.0, 160.0)


def _cub200(config: Config) -> None:
    _paper(config)
    config.data.name = "caltech_birds2011"


def _cars196(config: Config) -> None:
    _paper(config)
    config.data.name = "cars196"


def _aircraft(config: Config, level: str, recipe: Callable[[Config], None] = _paper) -> None:
    recipe(config)
    config.data.name = "fgvc_aircraft"
    config.data.options = ConfigDict({"level": level})
    config.data.train_split = "train+validation"  # merged, as in the paper


def _target(config: Config) -> None:
    _paper(config)
    config.data.name = ""  # required; targets for simulated vehicles are those of configs/cbc.py
    config.loss.open, config.loss.entropy_weight = "none", 0.0
    config.train.epochs = 100
    config.optimizer.learning_rate = 1e-2
    config.optimizer.nesterov = False
    config.optimizer.boundaries = (20.0, 40.0, 60.0, 80.0)
    config.optimizer.factor = 0.5
