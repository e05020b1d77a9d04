"""The font of texts in pictures."""

import unicodedata
from typing import Any

from PIL import ImageFont

_FURTHER = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "arial.ttf")


def lettered(text: str, size: int = 13) -> tuple[str, Any]:
    """Finds a font that can draw a text.

    Pillow's own font, which is the same on every machine, has the characters of ASCII only. For
    other texts a font of the system is used; if there is none, accents are removed and the
    characters that are left become question marks.

    Args:
      text: the text.
      size: height of the font in pixels.

    Returns:
      The text to draw, and the font.
    """
    own = ImageFont.load_default(size)
    if text.isascii():
        return text, own
    for name in _FURTHER:
        try:
            return text, ImageFont.truetype(name, size)
        except OSError:
            continue
    bare = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return "".join(c if c.isascii() else "?" for c in bare), own
