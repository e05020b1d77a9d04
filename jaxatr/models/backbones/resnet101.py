"""ResNet-101 (He et al. 2016): 43 million parameters, 2048 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.resnet import ResNet101

PART = Backbone(ResNet101, fields=("stem", "width"))
