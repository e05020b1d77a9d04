"""HTTP connections with limits on a request's head, and on the time to read the response.

uvicorn itself waits indefinitely for a head, stores all of it that arrives, and waits indefinitely
for a client to read its response.
"""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jaxatr.serving.options import Limits

_LONGEST_HEAD = 64 << 10

_MOST_PIPELINED = 16
"""Largest number of requests of a connection that wait for the answer to an earlier one.

uvicorn accepts as many as arrive at once, thousands in a quarter of a megabyte.
"""

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def bounded(limits: Limits) -> type[HttpToolsProtocol]:
    """Makes a uvicorn protocol class that enforces limits."""
    return type("Bounded", (_Bounded,), {"limits": limits})


class _Bounded(HttpToolsProtocol):
    """An HTTP/1.1 connection with limits, which a subclass states (:func:`bounded`)."""

    limits: Limits

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._in_head, self._ended = True, False
        # Bytes of the head: those of pieces that arrived after its first one, and those of its
        # fields so far.
        self._piece = self._head = self._size = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(503)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._piece = len(data)
        super().data_received(data)
        if self._in_head and self.parser is not None:
            self._head += len(data)
            if self._head > _LONGEST_HEAD:
                self._end(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head, self._size = True, -self._piece, 0
        if self._due is None:
            self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        self._size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # ignores trailers after the body, whose number is not limited
            self._size += len(name) + len(value) + 4
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        if self._size > _LONGEST_HEAD:  # in one piece
            self._end(431)
        elif len(self.pipeline) >= _MOST_PIPELINED:
            self._end(503)
        elif not self._ended:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._ended:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._ended:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        del msg  # plain text; the response is JSON
        self._end(400)

    def _wait_for_head(self) -> None:
        self._due = self.loop.call_later(self.limits.head_seconds, self._end, 408)

    def _watch(self, before: int | None = None) -> None:
        """Ends the connection when the client has stopped to read what is sent to it.

        Args:
          before: bytes that were still to be sent when the timer was set; None to set it.
        """
        if self._unread is not None and before is None:
            return  # it is being watched
        self._unread = None
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        elif left:
            self._unread = self.loop.call_later(self.limits.write_seconds, self._watch, left)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _end(self, status: int) -> None:
        """Sends an error and closes the connection; the rest of the request is not read."""
        self._stop_waiting()
        self._ended = True
        if self.transport.is_closing():
            return
        retry = "retry-after: 1\r\n" if status == 503 else ""
        body = json.dumps({"detail": _PHRASES[status]})
        self.transport.write(
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\n{retry}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
        self._watch()
