"""ResNet-50 as He et al. (2016) published it, with the stride on the 1×1 convolution."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.resnet import ResNet50V1

PART = Backbone(ResNet50V1, fields=("stem", "width"))
