"""Marks of an image file that its pixels, as they are read, do not show."""

from typing import NamedTuple

from PIL import ExifTags, Image

from jaxatr.data.decoder import pillow

_READ = {"L": 1, "RGB": 3}  # samples of the modes to which images are converted


class Marks(NamedTuple):
    """Properties of an image file that are left out when it is read.

    Attributes:
      turned: whether it has an EXIF orientation, which is not applied.
      dropped: ``"alpha"`` or ``"band"`` for a further sample of each pixel, which is dropped; empty
        if there is none.
    """

    turned: bool = False
    dropped: str = ""


def marks(content: bytes) -> Marks:
    """Returns the marks of a file; none if it is not one that Pillow reads."""
    try:
        image = pillow.opened(content)
        is_tiff = image.format == "TIFF"  # in which the orientation is applied
        turned = not is_tiff and image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
        return Marks(turned, _dropped(image))
    except Exception:  # a damaged file is reported where it is read
        return Marks()


def _dropped(image: Image.Image) -> str:
    tags = getattr(image, "tag_v2", {})
    extra = tags.get(ExifTags.Base.ExtraSamples, ())
    if {"A", "a"} & {*image.getbands()} and 0 not in extra:
        return "alpha"
    samples = tags.get(ExifTags.Base.SamplesPerPixel, len(image.getbands()))
    colours = 1 if image.mode in ("P", "PA") else _READ.get(pillow.EIGHT_BIT.get(image.mode, ""), 9)
    return "band" if samples > colours and image.mode != "CMYK" else ""
