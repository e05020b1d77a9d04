"""The outermost layer: access control, limits, and headers for every response.

A page of another site must not be able to use a console on the user's machine. The guard therefore
refuses requests with an unknown name in the Host header (DNS rebinding), and cross-site requests
that change something. It never sends CORS headers.
"""

import asyncio
import ipaddress
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from jaxatr.serving.metrics import Metrics
from jaxatr.serving.options import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = ("/", "/label", "/api/health", "/openapi.json")
"""Paths that need no token: they reveal nothing about the run."""

PROMPT = ("/api/health", "/metrics")
"""Paths that are exempt from the limit on concurrent requests."""

_SAFE = ("GET", "HEAD", "OPTIONS")
_ONCE = (b"host", b"authorization", b"origin", b"sec-fetch-site", b"content-type")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(:[0-9]*)?", re.IGNORECASE)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class Guard:
    """ASGI middleware that enforces access control and limits.

    Attributes:
      dropped: number of requests that the server cancelled, because it stops.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        token: str,
        hosts: Collection[str],
        routes: Collection[str],
        metrics: Metrics,
    ):
        """Wraps an application.

        Args:
          app: the application to guard.
          limits: limits on size and time.
          token: the token that requests need; empty for none.
          hosts: valid names in the Host header, in lower case.
          routes: paths that are counted by name; others count as ``other``.
          metrics: the counters.
        """
        self._app, self._limits, self._token = app, limits, token.encode()
        self._hosts, self._routes, self._metrics = hosts, routes, metrics
        self._requests = self._held = self.dropped = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Refuses a request or passes it to the application, and counts it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self, scope, receive, send, self._limits)
        refused = self._refusal(scope)
        if scope["method"] == "HEAD":  # the answer to GET, without its body
            scope = {**scope, "method": "GET"}
        self._requests += 1
        try:
            if refused is not None:
                await request.refuse(*refused)
                return
            async with asyncio.timeout(self._limits.body_seconds + self._limits.answer_seconds):
                await self._app(scope, request.receive, request.send)
        except TimeoutError:
            if not request.status:
                await request.refuse(503, "the request took too long", {"retry-after": "5"})
        except asyncio.CancelledError:
            self.dropped += 1
            if request.status:
                raise
            await request.refuse(503, "the server is stopping", {"retry-after": "5"})
        finally:
            self._requests -= 1
            self._held -= request.held
            path = getattr(scope.get("route"), "path", scope["path"])  # with placeholders
            route = path if path in self._routes else "other"
            self._metrics.request(route, request.status or 499, request.seconds)

    def hold(self, size: int) -> bool:
        """Reserves bytes of the memory limit for all requests; False if they exceed it."""
        if self._held + size > self._limits.held:
            return False
        self._held += size
        return True

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str, dict[str, str]] | None:
        """Returns status, message and headers of the error if a request is refused."""
        names = [name for name, _ in scope["headers"]]
        if twice := next((name for name in _ONCE if names.count(name) > 1), None):
            return 400, f"there are several headers {twice.decode()}", {}
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not _is_known(host, self._hosts):
            message = "unknown host name in the request: start the server with --allow_host=NAME"
            return 421, message, {}
        if scope["method"] not in _SAFE and _is_foreign(host, headers):
            return 403, "refused: the request comes from a page of another site", {}
        path = scope["path"]
        if self._token and path not in OPEN and not self._has_token(headers):
            message = "a token is required: Authorization: Bearer TOKEN"
            return 401, message, {"www-authenticate": "Bearer"}
        if path not in PROMPT and self._requests >= self._limits.requests:
            return 503, "too many requests at once", {"retry-after": "1"}
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limits.body:
            return 413, too_large(self._limits), {}
        return None

    def _has_token(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), self._token)


class _Request:
    """One request: enforces its limits on size and time, and adds headers to the response."""

    def __init__(
        self,
        guard: Guard,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
        limits: Limits,
    ):
        self._guard, self._receive, self._send, self._limits = guard, receive, send, limits
        self._start = time.perf_counter()
        self._due = asyncio.get_running_loop().time() + limits.body_seconds
        self._complete = False  # whether the whole body has arrived
        self._page, self._bodiless = scope["path"] == "/", scope["method"] == "HEAD"
        self.held = self.status = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    async def receive(self) -> Message:
        if self._complete:  # the next message is the disconnection
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._due):
                message = await self._receive()
        except TimeoutError:
            seconds = self._limits.body_seconds
            raise _closing(408, f"the body did not arrive within {seconds:g} s") from None
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            if self.held + size > self._limits.body:
                raise _closing(413, too_large(self._limits))
            if not self._guard.hold(size):
                raise _closing(503, "too many uploads at once", {"retry-after": "2"})
            self.held += size
            self._complete = not message.get("more_body", False)
        elif message["type"] == "http.disconnect":  # else an internal error with a traceback
            raise _closing(499, "the client has disconnected")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            present = {name for name, _ in headers}
            further = _HEADERS if self._page else (*_HEADERS, _POLICY)
            headers += [pair for pair in further if pair[0] not in present]
            # Without closing, the server would have to read the rest of the refused body.
            if not self._complete and self.status >= 400 and b"connection" not in present:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif self._bodiless:
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        body = json.dumps({"detail": message}).encode()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})


def too_large(limits: Limits) -> str:
    """Returns the message about a request body that is too large."""
    return f"the body is larger than {limits.body} bytes"


def _closing(status: int, message: str, headers: dict[str, str] | None = None) -> HTTPException:
    return HTTPException(status, message, {"connection": "close", **(headers or {})})


def _is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an IP address, which DNS cannot rebind, or a known name."""
    if not (matched := _HOST.fullmatch(host)):
        return False
    name = matched[1].strip("[]")
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_foreign(host: str, headers: dict[bytes, bytes]) -> bool:
    """Whether a browser sends the request on behalf of a page of another site."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    if origin is None:
        return False
    return origin.decode("latin-1").lower().partition("://")[2] != host
