"""HTTP server of `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio

from aiokafkawire.runtime import Address, Listener, Runtime, Supervisor, Transport

__all__ = ("HealthServer", "Page", "format_metrics")

logger = logging.getLogger("aiokafkawire.worker")

MAX_HEAD_BYTES = 8_192
"""Limit of a request line with its headers."""

MAX_CONNECTIONS = 32
"""Connections that are served at the same time; others wait."""

REQUEST_TIMEOUT_S = 1.0
"""Limit of one connection; that of Kubernetes for a probe."""

ACCEPT_BACKOFF_S = 0.1
"""Delay after a failure to accept a connection, as without free file descriptors."""

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(NamedTuple):
    """A response."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class HealthServer:
    """Answers GET and HEAD requests, one per connection.

    Args:
        pages: Functions that return the response, by path.
    """

    def __init__(
        self, runtime: Runtime, supervisor: Supervisor, pages: Mapping[str, Callable[[], Page]]
    ) -> None:
        self._runtime = runtime
        self._supervisor = supervisor
        self._pages = pages
        self._slots = anyio.Semaphore(MAX_CONNECTIONS)
        self._listener: Listener | None = None
        self._is_closed = False

    async def start(self, host: str, port: int) -> Address:
        """Listen, and return the address with the port that was assigned.

        Raises:
            OSError: The address cannot be bound.
        """
        address = Address(host, port)
        try:
            self._listener = await self._runtime.listen(address)
        except OSError as error:
            advice = "; choose another health_port" if error.errno == errno.EADDRINUSE else ""
            text = f"health server at {address}: {error.strerror}{advice}"
            raise OSError(error.errno, text) from error
        self._supervisor.spawn(self._accept, self._listener, name="health server")
        logger.info(
            "Health server: listening at http://%s with %s",
            self._listener.address,
            ", ".join(self._pages),
            extra=dict(self._supervisor.fields),
        )
        return self._listener.address

    async def aclose(self) -> None:
        """Stop listening."""
        self._is_closed = True
        if self._listener is not None:
            await self._listener.aclose()

    async def _accept(self, listener: Listener) -> None:
        try:
            await self._serve_connections(listener)
        finally:
            with anyio.CancelScope(shield=True):
                await listener.aclose()

    async def _serve_connections(self, listener: Listener) -> None:
        while True:
            await self._slots.acquire()
            try:
                transport = await listener.accept()
            except OSError as error:
                self._slots.release()
                if self._is_closed:
                    return
                logger.warning("Health server: accepting a connection failed: %s", error)
                clock = self._runtime.clock
                await clock.sleep_until(clock.now() + ACCEPT_BACKOFF_S)
                continue
            self._supervisor.spawn(self._serve, transport, name="health request")

    async def _serve(self, transport: Transport) -> None:
        try:
            deadline = self._runtime.clock.now() + REQUEST_TIMEOUT_S
            with anyio.CancelScope(deadline=deadline):
                head = await _receive_head(transport)
                page, has_body = self._respond(head)
                await transport.send([_response(page, has_body=has_body)])
        except OSError as error:
            logger.debug("Health request of %s failed: %s", transport.peer, error)
        finally:
            self._slots.release()
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    def _respond(self, head: bytes) -> tuple[Page, bool]:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return Page(400, "not an HTTP request\n"), True
        method, target, _ = parts
        if method not in {"GET", "HEAD"}:
            return Page(405, "use GET\n"), True
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return Page(404, f"paths: {', '.join(self._pages)}\n"), method == "GET"
        try:
            return page(), method == "GET"
        except Exception as error:
            logger.exception("Health server: %s failed", target)
            return Page(500, f"{type(error).__name__}\n"), method == "GET"


async def _receive_head(transport: Transport) -> bytes:
    buffer = bytearray(MAX_HEAD_BYTES)
    length = 0
    while length < MAX_HEAD_BYTES and b"\r\n\r\n" not in buffer[:length]:
        count = await transport.receive_into(memoryview(buffer)[length:])
        if not count:
            break
        length += count
    return bytes(buffer[:length])


def _response(page: Page, *, has_body: bool) -> bytes:
    body = page.text.encode()
    head = (
        f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")


def format_metrics(metrics: Mapping[str, Mapping[str, int | float]]) -> Page:
    """Return a page in the text format of Prometheus.

    Args:
        metrics: Numbers by name, by prefix. A name may have labels: `lag{topic="t"}`.
    """
    lines = []
    for prefix, numbers in metrics.items():
        described: set[str] = set()
        for name, number in numbers.items():
            family = prefix + name.partition("{")[0]
            if family not in described:
                described.add(family)
                kind = "counter" if family.endswith("_total") else "gauge"
                lines.append(f"# TYPE {family} {kind}")
            lines.append(f"{prefix}{name} {number}")
    return Page(200, "\n".join(lines) + "\n", "text/plain; version=0.0.4; charset=utf-8")
