"""The package's backbones, a file each, found by their place (:mod:`jaxatr.parts`)."""

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.parts import Parts

__all__ = ["BACKBONES", "Backbone"]

#: The package's backbones by name.
BACKBONES = Parts(__name__, Backbone, field="model.backbone")
