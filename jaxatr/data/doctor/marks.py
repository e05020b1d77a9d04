"""Marks of an image file that its pixels, as they are read, do not show."""

from typing import NamedTuple

from PIL import ExifTags, Image

from jaxatr.data.decoder import pillow


class Marks(NamedTuple):
    """Properties of an image file that are left out when it is read.

    Attributes:
      turned: whether it has an EXIF orientation, which is not applied.
      alpha: whether it has an alpha plane, which is dropped.
    """

    turned: bool = False
    alpha: bool = False


def marks(content: bytes) -> Marks:
    """Returns the marks of a file; none if it is not one that Pillow reads."""
    try:
        image = pillow.opened(content)
        is_tiff = image.format == "TIFF"  # in which the orientation is applied
        turned = not is_tiff and image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
        return Marks(turned, _alpha(image))
    except Exception:  # a damaged file is reported where it is read
        return Marks()


def _alpha(image: Image.Image) -> bool:
    extra = getattr(image, "tag_v2", {}).get(ExifTags.Base.ExtraSamples, ())
    return bool({"A", "a"} & {*image.getbands()}) and 0 not in extra
