"""The detectors of pytorch-ood, which the scores are compared with."""

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def pytorch_ood():
    """Its detectors by name, and ``tensor``, which makes a tensor of an array.

    The package itself imports its data sets, and they torchvision, which has no build for every
    PyTorch. The detectors need neither: an empty package in its place lets them be imported alone.
    """
    torch = pytest.importorskip("torch")
    spec = importlib.util.find_spec("pytorch_ood")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("pytorch_ood is not installed")
    package = ModuleType("pytorch_ood")
    package.__path__ = list(spec.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pytorch_ood", package)
        detector = importlib.import_module("pytorch_ood.detector")
        names = ("EnergyBased", "KNN", "Mahalanobis", "ODIN", "OpenMax", "ViM")
        detectors = {name: getattr(detector, name) for name in names}
        yield SimpleNamespace(tensor=torch.from_numpy, **detectors)
