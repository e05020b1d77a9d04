"""HTTP connections with limits on the time and size of a request's head.

uvicorn itself waits indefinitely for a head, and stores all of it that arrives.
"""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jaxatr.serving.options import Limits

_LONGEST_HEAD = 64 << 10

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def bounded(limits: Limits) -> type[HttpToolsProtocol]:
    """Makes a uvicorn protocol class that enforces limits."""

    class Bounded(HttpToolsProtocol):
        """An HTTP/1.1 connection."""

        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            self._due: asyncio.TimerHandle | None = None
            self._in_head, self._head = True, 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._end(503)
            else:
                self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self._in_head and self.parser is not None:
                self._head += len(data)
                if self._head > _LONGEST_HEAD:
                    self._end(431)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head = True, 0
            if self._due is None:
                self._wait_for_head()

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:  # ignores trailers after the body, whose number is not limited
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_waiting()
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            del msg  # plain text; the response is JSON
            self._end(400)

        def _wait_for_head(self) -> None:
            self._due = self.loop.call_later(limits.head_seconds, self._end, 408)

        def _stop_waiting(self) -> None:
            if self._due is not None:
                self._due.cancel()
                self._due = None

        def _end(self, status: int) -> None:
            """Sends an error and closes the connection; the rest of the request is not read."""
            self._stop_waiting()
            if self.transport.is_closing():
                return
            retry = "retry-after: 1\r\n" if status == 503 else ""
            body = json.dumps({"detail": _PHRASES[status]})
            self.transport.write(
                f"HTTP/1.1 {status} {_PHRASES[status]}\r\n{retry}content-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
            )
            self.transport.close()

    return Bounded
