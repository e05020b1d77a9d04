"""ResNet-50 with the stride on the 3×3 convolution, as in torchvision: 2048 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.resnet import ResNet50

PART = Backbone(ResNet50, fields=("stem", "width"))
