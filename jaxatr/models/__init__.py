"""Networks as flax linen modules, and functions that build them from a configuration."""

from jaxatr.models import backbones, pretrained, published
from jaxatr.models.build import (
    backbone_name,
    build_detector,
    build_embedding,
    build_open_set,
    build_surrogate,
    build_track,
)
from jaxatr.models.cbam import CBAM
from jaxatr.models.convolution import Conv
from jaxatr.models.detector import STRIDE, DetectionNetwork, DetectionOutput
from jaxatr.models.embedding import EmbeddingNetwork, EmbeddingOutput
from jaxatr.models.freezing import check_freeze, trainable
from jaxatr.models.gan import Discriminator, Generator
from jaxatr.models.gradient_norms import squared_gradient_norms
from jaxatr.models.mobile import EfficientNetLite0, EfficientNetLite2, MobileNet, MobileNetV2
from jaxatr.models.open_set import OpenSetClassifier, OpenSetOutput
from jaxatr.models.registry import Created, create, list
from jaxatr.models.resnet import (
    AttendedFeatures,
    ResNet,
    ResNet18,
    ResNet34,
    ResNet50,
    ResNet50V1,
    ResNet101,
)
from jaxatr.models.student import Student, StudentOutput
from jaxatr.models.surrogate import ExplanationNetwork, Surrogate, SurrogateOutput
from jaxatr.models.track import TrackClassifier, TrackOutput

__all__ = [
    "AttendedFeatures",
    "CBAM",
    "Conv",
    "Created",
    "DetectionNetwork",
    "DetectionOutput",
    "Discriminator",
    "EfficientNetLite0",
    "EfficientNetLite2",
    "EmbeddingNetwork",
    "EmbeddingOutput",
    "ExplanationNetwork",
    "Generator",
    "MobileNet",
    "MobileNetV2",
    "OpenSetClassifier",
    "OpenSetOutput",
    "ResNet",
    "ResNet101",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet50V1",
    "STRIDE",
    "Student",
    "StudentOutput",
    "TrackClassifier",
    "TrackOutput",
    "Surrogate",
    "SurrogateOutput",
    "backbone_name",
    "backbones",
    "build_detector",
    "build_embedding",
    "build_open_set",
    "build_surrogate",
    "build_track",
    "check_freeze",
    "create",
    "list",
    "pretrained",
    "published",
    "squared_gradient_norms",
    "trainable",
]
