"""MobileNetV2 (Sandler et al. 2018): 2 million parameters, 1280 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.mobile import OPENNESS, MobileNetV2

PART = Backbone(MobileNetV2, openness=OPENNESS)
