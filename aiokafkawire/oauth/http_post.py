"""One POST to a token endpoint with `urllib.request`, for a worker thread."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.error import URLError

from aiokafkawire._version import __version__
from aiokafkawire.oauth.failure import Failure, shown
from aiokafkawire.oauth.token_response import HttpResponse
from aiokafkawire.security import Secret

__all__ = ("MAX_RESPONSE_BYTES", "HttpPost", "TokenForm", "basic_authorization")

MAX_RESPONSE_BYTES = 1_048_576
"""Longest response that is read; tokens have a few thousand bytes."""

HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": f"aiokafkawire/{__version__}",
}


@dataclass(frozen=True, slots=True)
class TokenForm:
    """Body of a token request, and the header that authenticates the client."""

    fields: Mapping[str, str | Secret]
    authorization: Secret | None = None
    secrets: tuple[Secret, ...] = field(default=())
    """What no error may show, beside the fields."""

    def redact(self, text: str) -> str:
        """Return a text of the server without the secrets of this request."""
        hidden = [value for value in self.fields.values() if isinstance(value, Secret)]
        hidden += self.secrets
        if self.authorization is not None:
            hidden.append(Secret(self.authorization.reveal().removeprefix("Basic ")))
        for secret in hidden:
            value = secret.reveal()
            for form in (value, urllib.parse.quote_plus(value), urllib.parse.quote(value)):
                if form:
                    text = text.replace(form, "***")
        return text


def basic_authorization(username: str, password: Secret, *, is_encoded: bool) -> Secret:
    """Return the value of an `Authorization` header.

    Args:
        username: User name.
        password: Password.
        is_encoded: Form-encode both before (RFC 6749 section 2.3.1).
    """
    name, word = username, password.reveal()
    if is_encoded:
        name, word = urllib.parse.quote_plus(name), urllib.parse.quote_plus(word)
    return Secret("Basic " + base64.b64encode(f"{name}:{word}".encode()).decode())


class HttpPost:
    """One request. `run` blocks and never raises; `abort` ends it from another thread.

    Args:
        url: An http or https URL.
        form: What to send.
        make_context: Makes the TLS settings. Called in the thread, as reading CA files takes time.
        timeout_s: Longest wait for the next bytes. The whole request may take longer: `abort` it.
        uses_proxy: Obey the proxies of the environment.
    """

    def __init__(
        self,
        url: str,
        form: TokenForm,
        *,
        make_context: Callable[[], ssl.SSLContext],
        timeout_s: float,
        uses_proxy: bool,
    ) -> None:
        self._url = url
        self._form = form
        self._make_context = make_context
        self._timeout_s = timeout_s
        self._uses_proxy = uses_proxy
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def run(self) -> HttpResponse | Failure:
        """Send the request and return the response, of any status; follow no redirect."""
        context = None
        if self._url.startswith("https:"):
            try:
                context = self._make_context()
            except OSError as error:
                return Failure(
                    f"cannot be verified, as the TLS settings cannot be loaded: {_reason(error)}",
                    is_final=isinstance(error, ssl.SSLError),
                )
        try:
            return self._post(context)
        except Exception as error:
            return self._failure_of(error)

    def abort(self) -> None:
        """Shut the connection down, so that the thread ends."""
        self._is_aborted = True
        if self._socket is not None:
            try:
                # Not the method of SSLSocket, which would drop the TLS state that the thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return

    def _post(self, context: ssl.SSLContext | None) -> HttpResponse | Failure:
        fields = {
            name: value.reveal() if isinstance(value, Secret) else value
            for name, value in self._form.fields.items()
        }
        headers = dict(HEADERS)
        if self._form.authorization is not None:
            headers["Authorization"] = self._form.authorization.reveal()
        request = urllib.request.Request(
            self._url, urllib.parse.urlencode(fields).encode(), headers, method="POST"
        )
        opener = urllib.request.OpenerDirector()
        # Without handlers of redirects and errors, each response is returned as it came.
        opener.add_handler(urllib.request.ProxyHandler(None if self._uses_proxy else {}))
        opener.add_handler(urllib.request.UnknownHandler())
        host = urllib.parse.urlsplit(self._url).hostname
        opener.add_handler(_Handler(self._watch, context, host))
        with opener.open(request, timeout=self._timeout_s) as response:
            body = response.read(MAX_RESPONSE_BYTES + 1)
            if len(body) > MAX_RESPONSE_BYTES:
                return Failure(f"responded with more than {MAX_RESPONSE_BYTES} bytes")
            if not response.headers:
                # http.client takes a cut status line for a whole response.
                return Failure("closed the connection inside of its response")
            if response.length:
                return Failure(
                    f"closed the connection {response.length} bytes before the end of its response"
                )
            return HttpResponse(
                response.status,
                body,
                response.headers.get("Content-Type", ""),
                response.headers.get("Location", ""),
                response.headers.get("Retry-After", ""),
            )

    def _watch(self, sock: socket.socket) -> None:
        """Remember the socket for `abort`; called in the thread."""
        self._socket = sock
        if self._is_aborted:
            raise ConnectionAbortedError("the request was given up")

    def _failure_of(self, error: Exception) -> Failure:
        if isinstance(error, URLError) and isinstance(error.reason, Exception):
            error = error.reason
        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(
                f"has no valid certificate: {shown(error.verify_message)}; for a private authority"
                " pass ssl_cafile or ssl_context",
                is_final=True,
            )
        if isinstance(error, TimeoutError):
            return Failure(f"sent nothing for {self._timeout_s:.1f} s")
        if isinstance(error, OSError):
            return Failure(f"cannot be reached: {_reason(error)}")
        if isinstance(error, http.client.IncompleteRead):
            return Failure("closed the connection inside of its response")
        # The text of other errors may repeat what was sent or received.
        return Failure(f"gave an invalid HTTP response ({type(error).__name__})")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {shown(error.reason or str(error))}"
    if isinstance(error, URLError):
        return shown(str(error.reason))
    reason = error.strerror or str(error) or type(error).__name__
    return shown(reason if error.filename is None else f"{reason}: {error.filename}")


class _Handler(urllib.request.AbstractHTTPHandler):
    """Opens http and https URLs through connections whose sockets are watched."""

    def __init__(
        self,
        watch: Callable[[socket.socket], None],
        context: ssl.SSLContext | None,
        tls_host: str | None,
    ) -> None:
        super().__init__()
        self._watch = watch
        self._context = context
        self._tls_host = tls_host
        self.http_request = self.https_request = self.do_request_

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, watch=self._watch), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        assert self._context is not None
        assert self._tls_host is not None
        make = partial(
            _TlsConnection, watch=self._watch, context=self._context, tls_host=self._tls_host
        )
        return self.do_open(make, request)


class _Connection(http.client.HTTPConnection):
    def __init__(
        self, host: str, *, watch: Callable[[socket.socket], None], **options: Any
    ) -> None:
        super().__init__(host, **options)
        self._watch = watch
        # Overridden as an attribute: the class sets it in its constructor.
        self._create_connection = self._connect_watched

    def _connect_watched(self, *args: Any, **options: Any) -> socket.socket:
        sock = socket.create_connection(*args, **options)
        try:
            self._watch(sock)
        except OSError:
            sock.close()
            raise
        return sock


class _TlsConnection(_Connection):
    """An HTTPSConnection whose socket is known during the handshake, too."""

    default_port = http.client.HTTPS_PORT

    def __init__(
        self, host: str, *, context: ssl.SSLContext, tls_host: str, **options: Any
    ) -> None:
        super().__init__(host, **options)
        self._context = context
        self._tls_host = tls_host

    def connect(self) -> None:
        super().connect()
        # `host` is that of the proxy, if there is one.
        sock = self._context.wrap_socket(
            self.sock, server_hostname=self._tls_host, do_handshake_on_connect=False
        )
        self.sock = sock
        self._watch(sock)
        sock.do_handshake()
