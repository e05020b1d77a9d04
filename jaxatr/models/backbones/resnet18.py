"""ResNet-18 (He et al. 2016): 11 million parameters, 512 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.resnet import ResNet18

PART = Backbone(ResNet18, fields=("stem", "width"))
