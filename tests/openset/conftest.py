"""The detectors of pytorch-ood, as references for the scores."""

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def pytorch_ood():
    """Its detectors by name; ``tensor`` and ``linear`` convert arrays to a tensor and a layer.

    The package imports its data sets, which import torchvision, which is not built for every
    PyTorch. The detectors need neither, so an empty package in its place lets them be imported
    alone.
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
        names = ("EnergyBased", "KNN", "Mahalanobis", "ODIN", "OpenMax", "ViM", *POST_HOC)
        detectors = {name: getattr(detector, name) for name in names}
        yield SimpleNamespace(tensor=torch.from_numpy, linear=linear, **detectors)


def linear(kernel, bias):
    """Creates a PyTorch linear layer from a kernel ``[d, k]`` and a bias ``[k]``."""
    import torch

    layer = torch.nn.Linear(*kernel.shape)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(kernel.T))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer


POST_HOC = (
    *("ASH", "DICE", "GEN", "GradNorm", "KLMatching", "NCI", "NNGuide", "RMD", "ReAct", "SCALE"),
    *("SHE", "TemperatureScaling", "fDBD"),
)
