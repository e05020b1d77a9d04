"""MobileNet V2, trained on a collection of one's own."""

from jaxatr.models.published.network import PublishedNetwork, WeightFile

PART = PublishedNetwork(
    name="my_mobilenet",
    backbone="mobilenet_v2",
    command="pip install my-mobilenet-weights",
    package="my_mobilenet_weights",
    folder="weights",
    files=(
        WeightFile(
            "my_mobilenet.pth",
            "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        ),
    ),
    mean=(123.7, 116.3, 103.5),
    std=(58.4, 57.1, 57.4),
    size=96,
    licence="CC-BY-4.0",
    source="who trained it, on what",
)
