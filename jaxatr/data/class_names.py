"""The one form in which names of classes are compared and stored."""

import unicodedata


def class_name(text: str) -> str:
    r"""Returns a class's name in composed Unicode (NFC), without spaces around it.

    The same letters have several forms: keyboards and Linux give ``Š``, archives and file systems
    of macOS ``S`` and a combining caron. Every name that comes from outside, a folder, a table, a
    file, a flag or a request, passes through this function, or it would be another class.

    >>> class_name(" S\u030ckoda") == "\u0160koda"
    True
    """
    return unicodedata.normalize("NFC", text).strip()
