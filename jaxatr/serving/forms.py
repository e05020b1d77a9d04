"""Parses the files of a form, ``multipart/form-data`` (RFC 7578).

The body is already in memory, and its size is limited. An incomplete body is an error: no file is
dropped silently.
"""

from email.message import Message
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from jaxatr.serving.intake import Upload

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks  # not there at run time

_LONGEST_NAME = 255


class FormError(ValueError):
    """A form that cannot be read."""


def files_of(body: bytes, content_type: str, *, most: int) -> list[Upload]:
    """Returns the files of a form, in order.

    Raises:
      FormError: the header has no boundary, or the form is incomplete, has too many parts, or a
        field that is no file, such as a parameter, which would have no effect.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise FormError("the form's Content-Type has no boundary")
    start = (b"\r\n" + body).find(b"\r\n--" + boundary)  # after a preamble
    if start < 0:
        raise FormError("the form has no part with its boundary")
    parts = _Parts(most)
    try:
        MultipartParser(boundary, parts.callbacks).write(body[start:])
    except FormParserError as error:
        raise FormError(
            f"a part of the form has no header, or one that is malformed or too long: {error}"
        ) from None
    if not parts.complete:
        raise FormError("the form is incomplete: it does not end with its boundary")
    return parts.files


class _Parts:
    """Collects the parts of a form from the parser's calls."""

    def __init__(self, most: int):
        self.files: list[Upload] = []
        self.complete = False
        self._most, self._count = most, 0
        self._name = self._value = self._disposition = b""
        self._content: list[bytes] = []
        self.callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._add_name,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_part_data": self._add_content,
            "on_part_end": self._end,
            "on_end": self._complete,
        }

    def _begin(self) -> None:
        self._count += 1
        if self._count > self._most:
            raise FormError(f"the form has more than {self._most} parts")
        self._disposition, self._content = b"", []

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        self._content.append(data[start:end])

    def _end(self) -> None:
        head = Message()  # which also reads filename*=, unlike python-multipart
        head["Content-Disposition"] = self._disposition.decode("utf-8", "replace")
        if head.get_content_disposition() != "form-data":
            raise FormError("a part of the form has no Content-Disposition: form-data")
        if (name := head.get_filename()) is None:
            field = shown_name(str(head.get_param("name", header="Content-Disposition")))
            raise FormError(
                f"the form's field {field!r} is no file; parameters belong to the address"
            )
        self.files.append(Upload(shown_name(name), b"".join(self._content)))

    def _complete(self) -> None:
        self.complete = True


def shown_name(name: str) -> str:
    """Cleans a file name from a client for display; it is never used as a path."""
    plain = name.replace("%22", '"').replace("%0D", "").replace("%0A", "")
    printable = "".join(c for c in plain if c.isprintable())
    return printable[:_LONGEST_NAME] or "image"
