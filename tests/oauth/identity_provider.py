"""An identity provider on loopback, in threads, that also misbehaves."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = (
    "IdentityProvider",
    "TokenRequest",
    "close",
    "issue",
    "jwt",
    "refuse",
    "respond",
    "running",
    "send",
)

REASONS = {200: "OK", 302: "Found", 401: "Unauthorized", 429: "Too Many Requests", 503: "Busy"}


@dataclass
class TokenRequest:
    """One request, as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        return dict(urllib.parse.parse_qsl(self.body, keep_blank_values=True))

    @property
    def basic(self) -> str | None:
        """Decoded user name and password of the Authorization header."""
        value = self.headers.get("authorization", "")
        return base64.b64decode(value[6:]).decode() if value.startswith("Basic ") else None


Answer = Callable[[socket.socket, "IdentityProvider"], None]
"""Writes to a connection, which is closed afterwards."""


def send(*pieces: bytes, every_s: float = 0.0) -> Answer:
    """Send bytes as they are, with pauses that end when the provider stops."""

    def answer(sock: socket.socket, provider: IdentityProvider) -> None:
        for piece in pieces:
            if every_s and provider.stopping.wait(every_s):
                return
            sock.sendall(piece)

    return answer


def respond(status: int, body: bytes | str = b"", **headers: str) -> Answer:
    """Send one response."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return send("\r\n".join([*lines, "", ""]).encode() + data)


def respond_json(status: int, fields: object, **headers: str) -> Answer:
    return respond(status, json.dumps(fields), Content_Type="application/json", **headers)


def issue(token: str, **fields: object) -> Answer:
    """Issue a token that lives 300 s, unless the fields say otherwise."""
    fields = {"token_type": "Bearer", "expires_in": 300} | fields
    present = {name: value for name, value in fields.items() if value is not None}
    return respond_json(200, {"access_token": token, **present})


def refuse(status: int, error: str, description: str | None = None, **headers: str) -> Answer:
    """Refuse as RFC 6749 says."""
    fields = {"error": error}
    if description is not None:
        fields["error_description"] = description
    return respond_json(status, fields, **headers)


def close(*, reset: bool = False) -> Answer:
    """Close the connection without a response."""

    def answer(sock: socket.socket, _: IdentityProvider) -> None:
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return answer


def jwt(claims: Mapping[str, object]) -> str:
    """Return an unsigned token."""

    def encode(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{encode({'alg': 'none'})}.{encode(claims)}."


@dataclass
class IdentityProvider:
    """Answers requests in order from `answers`; the last answer is repeated."""

    answers: list[Answer]
    context: ssl.SSLContext | None = None
    requests: list[TokenRequest] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._spawn(self._accept)

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://localhost:{self.port}/token"

    def _spawn(self, function: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(sock)
                self.connections += 1
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.context is not None:
                sock.settimeout(20)
                sock = self.context.wrap_socket(sock, server_side=True)
            request = self.read(sock)
            if request is not None:
                with self._lock:
                    answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
                    self.requests.append(request)
                answer(sock, self)
        with contextlib.suppress(OSError):
            sock.close()

    def read(self, sock: socket.socket) -> TokenRequest | None:
        """Read one request as a whole: closing before would reset the connection."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65_536)
            if not piece:
                return None
            data += piece
            if data.startswith(b"\x16\x03"):
                # TLS: servers of plaintext answer so.
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                return None
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        while len(body) < int(headers.get("content-length", "0")):
            piece = sock.recv(65_536)
            if not piece:
                return None
            body += piece
        method, path, _ = first.split(" ", 2)
        return TokenRequest(method, path, headers, body.decode())

    def stop(self) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@contextmanager
def running(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[IdentityProvider]:
    """Run an identity provider."""
    provider = IdentityProvider(list(answers), context)
    try:
        yield provider
    finally:
        provider.stop()
