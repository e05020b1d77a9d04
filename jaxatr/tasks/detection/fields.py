"""The configuration fields of detection."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "loss.open": Field(
        "cbc",
        "loss of the binary classifiers: `cbc`, `bce`, `none` (targets without classes), or "
        "[your own](extending.md#a-loss), `my.module:function`",
    ),
    "loss.open_weight": Field(1.0, "weight of the binary classifiers' loss, equation 3"),
    "loss.box_weight": Field(5.0, "weight of the boxes' loss, 1 - GIoU; 5 in TTFNet"),
    "detection.method": Field(
        "network", "what finds the targets: `network`, or `cfar`, which needs no training"
    ),
    "detection.width": Field(64, "channels of the feature pyramid and of the heads"),
    "detection.picture": Field(
        320, "side in pixels of the pictures that training cuts from scenes, a multiple of 32"
    ),
    "detection.scales": Field(
        (0.8, 1.25), "least and greatest scale of a scene in a picture, drawn uniformly in its log"
    ),
    "detection.mosaic": Field(0.5, "probability that a picture is a mosaic of four scenes' parts"),
    "detection.aimed": Field(
        0.75, "probability that a part is cut around a target, if its scene has one"
    ),
    "detection.outliers": Field(
        (),
        "classes of targets that are found, and that every class learns to refuse",
    ),
    "detection.ignored": Field(
        ("DontCare",), "classes of boxes that are neither target nor background"
    ),
    "detection.unknown": Field(
        "ignore",
        "boxes of unknown classes in training: `ignore`, neither target nor background, or "
        "`background`",
    ),
    "detection.validation_split": Field(
        "", "the split used for validation; empty: `data.validation` of the training scenes"
    ),
    "detection.most": Field(100, "most targets found in a tile"),
    "detection.overlap": Field(
        0.5, "IoU above which the less certain of two targets is suppressed"
    ),
    "detection.tile": Field(
        1024,
        "side in pixels of the tiles into which longer scenes are cut, a multiple of 32",
    ),
    "detection.tile_overlap": Field(
        128, "pixels that neighbouring tiles share; the largest target that a tile sees whole"
    ),
    "detection.false_alarms": Field(
        0.2,
        "false alarms per validation scene for which the least score is fitted",
    ),
    "detection.ground_sample_distance": Field(
        0.0,
        "metres of ground in a pixel, for false alarms per square kilometre; 0 if unknown",
    ),
    "cfar.rate": Field(1e-6, "false alarms per pixel, with `detection.method=cfar`"),
    "cfar.level": Field(
        "mean",
        "level of the clutter around a pixel: `mean` of the intensity, or, less raised by bright "
        "pixels, `log_mean` or `order`, an order statistic",
    ),
    "cfar.guard": Field(
        12, "pixels left out on every side of a pixel; the target it belongs to should fit in"
    ),
    "cfar.train": Field(6, "width of the ring of clutter beyond, in pixels"),
    "cfar.order": Field(0.75, "which order statistic, as a share of the ring's pixels"),
    "cfar.looks": Field(1.0, "looks of the clutter's speckle"),
    "cfar.shape": Field(
        0.0, "shape of the texture of K clutter; 0 for clutter without texture, of a gamma law"
    ),
    "cfar.scene": Field("amplitude", "what pixels are: `amplitude` or `intensity`"),
    "cfar.gaps": Field(True, "whether pixels of 0 have no data, rather than being dark"),
    "cfar.gap": Field(3, "pixels without a detection that a target may have between two"),
    "cfar.pixels": Field(3, "least number of detections of a target"),
    "cfar.smallest": Field(0, "least longer side of a target's box, in pixels; 0 for any"),
    "cfar.largest": Field(0, "largest longer side of a target's box, in pixels; 0 for any"),
    "open_set.gamma": Field(
        0.5,
        "γ, the probability from which a target is of a known class, without validation scenes",
    ),
    "open_set.tpr": Field(
        0.95, "true-positive rate of known targets for which γ is fitted to the validation scenes"
    ),
}
