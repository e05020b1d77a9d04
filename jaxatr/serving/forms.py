"""The files in the body of a form, ``multipart/form-data`` (RFC 7578).

The body is in memory already, and its size is bounded. It is cut at the boundaries by searches of
the interpreter's own, so that its content cannot make that slow, and a body that is not whole is
refused: no file of a request is left out in silence.
"""

import re

from jaxatr.serving.intake import Upload

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_FIELD = re.compile(r';\s*(filename\*?|name)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:[ \t]*form-data(.*)$", re.IGNORECASE | re.M)
_LONGEST_HEAD = 4096
_LONGEST_NAME = 255


class FormError(ValueError):
    """A form that cannot be read."""


def files_of(body: bytes, content_type: str, *, most: int) -> list[Upload]:
    """Returns the files of a form, in order; other fields are left out.

    Args:
      body: of the request.
      content_type: the header, with the boundary.
      most: parts that are accepted.

    Raises:
      FormError: it names no boundary, is not whole, or has more parts.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise FormError("the form's Content-Type names no boundary")
    delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    first, *parts = (b"\r\n" + body).split(delimiter, most + 2)
    if not parts:
        raise FormError("the form has no part with its boundary")
    if len(parts) > most + 1:
        raise FormError(f"the form has more parts than {most}")
    if not parts[-1].startswith(b"--"):
        raise FormError("the form is not whole: it does not end with its boundary")
    files = (_file(part) for part in parts[:-1])
    return [file for file in files if file is not None]


def _file(part: bytes) -> Upload | None:
    """Reads a part; None for a field that is no file."""
    start = part.find(b"\r\n")
    end = part.find(b"\r\n\r\n", 0, _LONGEST_HEAD)
    if part[:start].strip(b" \t") or start < 0 or end < 0:
        raise FormError("a part of the form has no head, or one that is too long")
    disposition = _DISPOSITION.search(part[start:end])
    if disposition is None:
        raise FormError("a part of the form has no Content-Disposition: form-data")
    fields = {
        name.lower(): quoted or plain
        for name, quoted, plain in _FIELD.findall(disposition[1].decode("utf-8", "replace"))
    }
    if "filename" not in fields:
        return None
    return Upload(shown_name(fields["filename"]), part[end + 4 :])


def shown_name(name: str) -> str:
    """Makes a client's name of a file fit to be shown; it never becomes a path."""
    plain = name.replace("%22", '"').replace("%0D", "").replace("%0A", "")
    printable = "".join(c for c in plain if c.isprintable())
    return printable[:_LONGEST_NAME] or "image"
