"""EfficientNet-Lite2 (Google, after Tan and Le 2019): 1280 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.mobile import OPENNESS, EfficientNetLite2

PART = Backbone(EfficientNetLite2, openness=OPENNESS)
