"""ResNet-34 (He et al. 2016): 21 million parameters, 512 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.resnet import ResNet34

PART = Backbone(ResNet34, fields=("stem", "width"))
