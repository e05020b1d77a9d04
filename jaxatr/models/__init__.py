"""Networks as flax linen modules, and how a configuration names them."""

from jaxatr.models import pretrained
from jaxatr.models.build import BACKBONES, build_embedding, build_open_set
from jaxatr.models.embedding import EmbeddingNetwork, EmbeddingOutput
from jaxatr.models.gan import Discriminator, Generator
from jaxatr.models.gradient_norms import squared_gradient_norms
from jaxatr.models.open_set import OpenSetClassifier, OpenSetOutput
from jaxatr.models.resnet import ResNet, ResNet18, ResNet34, ResNet50, ResNet101
from jaxatr.models.split import Cut, cut

__all__ = [
    "BACKBONES",
    "Cut",
    "Discriminator",
    "EmbeddingNetwork",
    "EmbeddingOutput",
    "Generator",
    "OpenSetClassifier",
    "OpenSetOutput",
    "ResNet",
    "ResNet101",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "build_embedding",
    "build_open_set",
    "cut",
    "pretrained",
    "squared_gradient_norms",
]
