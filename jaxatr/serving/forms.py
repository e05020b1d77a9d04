"""Parses the files of a form, ``multipart/form-data`` (RFC 7578).

The body is already in memory, and its size is limited. ``bytes.split`` cuts it at the boundaries,
so that no content can make parsing slow. An incomplete body is an error: no file is dropped
silently.
"""

import re
import urllib.parse

from jaxatr.serving.intake import Upload

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_FIELD = re.compile(r';\s*(filename\*?|name)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:[ \t]*form-data(.*)$", re.IGNORECASE | re.M)
_LONGEST_HEAD = 4096
_LONGEST_NAME = 255


class FormError(ValueError):
    """A form that cannot be read."""


def files_of(body: bytes, content_type: str, *, most: int) -> list[Upload]:
    """Returns the files of a form, in order; other fields are ignored.

    Args:
      body: body of the request.
      content_type: the Content-Type header, with the boundary.
      most: largest number of parts.

    Raises:
      FormError: the header has no boundary, or the form is incomplete or has too many parts.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise FormError("the form's Content-Type has no boundary")
    delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    first, *parts = (b"\r\n" + body).split(delimiter, most + 2)
    if not parts:
        raise FormError("the form has no part with its boundary")
    if len(parts) > most + 1:
        raise FormError(f"the form has more than {most} parts")
    if not parts[-1].startswith(b"--"):
        raise FormError("the form is incomplete: it does not end with its boundary")
    files = (_file(part) for part in parts[:-1])
    return [file for file in files if file is not None]


def _file(part: bytes) -> Upload | None:
    """Reads a part of a form; None for a field that is not a file."""
    start = part.find(b"\r\n")
    end = part.find(b"\r\n\r\n", 0, _LONGEST_HEAD)
    if part[:start].strip(b" \t") or start < 0 or end < 0:
        raise FormError("a part of the form has no header, or one that is too long")
    disposition = _DISPOSITION.search(part[start:end])
    if disposition is None:
        raise FormError("a part of the form has no Content-Disposition: form-data")
    fields = {
        name.lower(): quoted or plain
        for name, quoted, plain in _FIELD.findall(disposition[1].decode("utf-8", "replace"))
    }
    if "filename" in fields:
        return Upload(shown_name(fields["filename"]), part[end + 4 :])
    if "filename*" in fields:  # not allowed in forms, but some clients send it: UTF-8''a%20b
        name = urllib.parse.unquote(fields["filename*"].rpartition("'")[2])
        return Upload(shown_name(name), part[end + 4 :])
    return None


def shown_name(name: str) -> str:
    """Cleans a file name from a client for display; it is never used as a path."""
    plain = name.replace("%22", '"').replace("%0D", "").replace("%0A", "")
    printable = "".join(c for c in plain if c.isprintable())
    return printable[:_LONGEST_NAME] or "image"
