"""Requests for tokens, with a timeout."""

from __future__ import annotations

import ssl
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping

import anyio

from aiokafkawire.errors import InvalidOption
from aiokafkawire.oauth.arguments import (
    check_endpoint_url,
    check_extensions,
    check_timeout,
    is_loopback,
    shown_url,
)
from aiokafkawire.oauth.failure import Failure
from aiokafkawire.oauth.http_post import HttpPost, TokenForm
from aiokafkawire.oauth.token_response import parse_token_response
from aiokafkawire.runtime import DaemonThreads
from aiokafkawire.security import OAuthBearerToken

__all__ = ("TokenEndpoint",)

MAX_THREADS = 8
"""Requests at a time, including abandoned ones that wait for a name server."""


class TokenEndpoint:
    """The token endpoint of an identity provider.

    Args:
        url: Address of the endpoint.
        extensions: Extensions of its tokens.
        ssl_context: TLS settings as a whole.
        ssl_cafile: PEM file of the trusted authorities, read at each request.
        timeout_ms: Limit of one request.
        allow_http: Accept an http URL of another host.

    Raises:
        InvalidOption: An argument is not valid, or the URL is not safe.
    """

    def __init__(
        self,
        url: str,
        *,
        extensions: Mapping[str, str] | None,
        ssl_context: ssl.SSLContext | None,
        ssl_cafile: str | None,
        timeout_ms: float,
        allow_http: bool,
    ) -> None:
        self.url = check_endpoint_url(url, allow_http=allow_http)
        if ssl_context is not None and ssl_cafile is not None:
            raise InvalidOption("ssl_cafile contradicts ssl_context, which has all settings of TLS")
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            raise InvalidOption(
                f"ssl_context must be an ssl.SSLContext, not {type(ssl_context).__name__}"
            )
        self._extensions = check_extensions(extensions)
        self._ssl_context = ssl_context
        self._ssl_cafile = ssl_cafile
        self._timeout_s = check_timeout(timeout_ms)
        self._threads = DaemonThreads("aiokafkawire-token", MAX_THREADS)
        # A proxy has another loopback than this machine.
        self._uses_proxy = not is_loopback(urllib.parse.urlsplit(url).hostname or "")

    async def fetch_token(self, make_form: Callable[[], Awaitable[TokenForm]]) -> OAuthBearerToken:
        """Request a token, once: the client's cache asks again after temporary failures.

        Args:
            make_form: Makes the body of the request. Its exceptions are raised as they are.

        Raises:
            TokenUnavailable: The server cannot be reached, is overloaded, or is too slow.
            AuthenticationFailed: The server refused the request.
        """
        outcome: OAuthBearerToken | Failure = Failure(
            f"did not respond within {self._timeout_s:g} s"
        )
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout_s):
            outcome = await self._attempt(await make_form())
        if isinstance(outcome, OAuthBearerToken):
            return outcome
        raise outcome.as_error(f"the token endpoint {shown_url(self.url)}")

    async def _attempt(self, form: TokenForm) -> OAuthBearerToken | Failure:
        post = HttpPost(
            self.url,
            form,
            make_context=self._make_context,
            timeout_s=self._timeout_s,
            uses_proxy=self._uses_proxy,
        )

        def run() -> OAuthBearerToken | Failure:
            response = post.run()
            if isinstance(response, Failure):
                return response
            return parse_token_response(
                response,
                wall_ms=time.time_ns() // 1_000_000,
                extensions=self._extensions,
                redact=form.redact,
            )

        try:
            return await self._threads.run(run)
        except OSError as error:
            return Failure(f"cannot be asked: {error}")
        finally:
            # Ends the thread of a cancelled call; otherwise the connection is closed already.
            post.abort()

    def _make_context(self) -> ssl.SSLContext:
        if self._ssl_context is not None:
            return self._ssl_context
        return ssl.create_default_context(cafile=self._ssl_cafile)
