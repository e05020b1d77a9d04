"""The published names of the built-in backbones' weights."""

import re
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn

from jaxatr.models.mobile import MobileNet
from jaxatr.models.resnet import ResNet

Place = tuple[str, ...]
"""Path of a variable: ``("params", "stem_conv", "kernel")``."""

_LEAVES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
_BLOCK = re.compile(r"stage(\d+)_block(\d+)")
_COUNTER = r".*\.num_batches_tracked"


class Names(NamedTuple):
    """The names of a network's tensors in a file.

    Attributes:
      of: maps a variable's path to its tensor's name.
      ignored: matches the names of tensors that are not part of a feature extractor.
    """

    of: Callable[[Place], str]
    ignored: re.Pattern[str]

    @property
    def stem(self) -> str:
        """The name of the first convolution's kernel."""
        return self.of(("params", "stem_conv", "kernel"))


def names_of(model: nn.Module, title: str) -> Names:
    """Returns the published tensor names of a backbone.

    Residual networks and MobileNetV2 use torchvision's names, EfficientNet-Lite those of the
    PyTorch package ``efficientnet-lite-pytorch``.

    Raises:
      ValueError: the backbone is not built in.
    """
    if isinstance(model, ResNet):
        return RESNET
    if isinstance(model, MobileNet):
        depths = tuple(stage[1] for stage in model.stages)
        return _lite(depths) if model.padding == "same" else _mobilenet(depths)
    raise ValueError(
        f"{title}: cannot be loaded into the backbone {type(model).__name__}, wanted a "
        "jaxatr.models.ResNet or MobileNet"
    )


def _joined(modules: str, place: Place) -> str:
    return f"{modules}.{_LEAVES.get(place[-1], place[-1])}"


_RESNET_MODULES = {
    "stem_conv": "conv1",
    "stem_norm": "bn1",
    "norm1": "bn1",
    "norm2": "bn2",
    "norm3": "bn3",
    "shortcut_conv": "downsample.0",
    "shortcut_norm": "downsample.1",
}


def _resnet_name(place: Place) -> str:
    blocks = [_BLOCK.sub(lambda m: f"layer{m[1]}.{int(m[2]) - 1}", part) for part in place[1:-1]]
    return _joined(".".join(_RESNET_MODULES.get(part, part) for part in blocks), place)


RESNET = Names(_resnet_name, re.compile(rf"fc\.(weight|bias)|{_COUNTER}"))
"""torchvision's names of residual networks, also used by timm."""


def _block(depths: tuple[int, ...], part: str) -> int | None:
    """Returns a block's index among the blocks of all stages; None if the part is not a block."""
    if (found := _BLOCK.fullmatch(part)) is None:
        return None
    return sum(depths[: int(found[1]) - 1]) + int(found[2]) - 1


def _mobilenet(depths: tuple[int, ...]) -> Names:
    outer = {
        "stem_conv": "features.0.0",
        "stem_norm": "features.0.1",
        "head_conv": f"features.{sum(depths) + 1}.0",
        "head_norm": f"features.{sum(depths) + 1}.1",
    }

    def of(place: Place) -> str:
        if (number := _block(depths, place[1])) is None:
            return _joined(outer.get(place[1], place[1]), place)
        before = int(number > 0)  # the first block does not expand
        inner = {
            "expand_conv": "0.0",
            "expand_norm": "0.1",
            "depth_conv": f"{before}.0",
            "depth_norm": f"{before}.1",
            "project_conv": str(before + 1),
            "project_norm": str(before + 2),
        }
        return _joined(f"features.{number + 1}.conv.{inner.get(place[2], place[2])}", place)

    return Names(of, re.compile(rf"classifier\.1\.(weight|bias)|{_COUNTER}"))


def _lite(depths: tuple[int, ...]) -> Names:
    outer = {
        "stem_conv": "_conv_stem",
        "stem_norm": "_bn0",
        "head_conv": "_conv_head",
        "head_norm": "_bn1",
    }
    inner = {
        "expand_conv": "_expand_conv",
        "expand_norm": "_bn0",
        "depth_conv": "_depthwise_conv",
        "depth_norm": "_bn1",
        "project_conv": "_project_conv",
        "project_norm": "_bn2",
    }

    def of(place: Place) -> str:
        if (number := _block(depths, place[1])) is None:
            return _joined(outer.get(place[1], place[1]), place)
        return _joined(f"_blocks.{number}.{inner.get(place[2], place[2])}", place)

    return Names(of, re.compile(rf"_fc\.(weight|bias)|{_COUNTER}"))
