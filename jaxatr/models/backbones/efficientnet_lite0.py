"""EfficientNet-Lite0 (Google, after Tan and Le 2019): 1280 features."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.models.mobile import OPENNESS, EfficientNetLite0

PART = Backbone(EfficientNetLite0, openness=OPENNESS)
