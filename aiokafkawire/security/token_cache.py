"""The OAUTHBEARER token that all connections of a client share."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio

from aiokafkawire.errors import AuthenticationFailed, ClientClosed, KafkaError, TokenUnavailable
from aiokafkawire.logs import FailureStreak, log_fields
from aiokafkawire.runtime import (
    AT_ONCE,
    NEVER,
    AutoResetEvent,
    Future,
    Runtime,
    Supervisor,
    copy_error,
    is_failure_of_callback,
)
from aiokafkawire.security.oauthbearer import OAuthBearerToken

__all__ = ("TokenCache", "TokenProvider")

logger = logging.getLogger("aiokafkawire.security")

TokenProvider = Callable[[], Awaitable[OAuthBearerToken]]
"""Fetches a token from an identity provider."""

PROVIDER_TIMEOUT_S = 60.0
"""How long one call of the provider may take."""

REFRESH_WINDOW = (0.80, 0.85)
"""Part of a token's lifetime after which it is refreshed: a random point, so that clients that
started together do not refresh together. Re-authentication (KIP-368) comes later, from 0.85 on."""

MIN_LIFETIME_S = 1.0
"""Tokens that live no longer are fetched when they are needed, not ahead of expiry."""

MAX_LIFETIME_S = 365 * 86_400.0
"""Lifetime by which tokens are refreshed that live longer, or whose expiry is not known."""

EXPIRY_MARGIN_S = 1.0
EXPIRY_MARGIN = 0.05
"""A token is not used in the last part of its lifetime: it may expire before it arrives."""

BACKOFF_S = 0.1
BACKOFF_MAX_S = 10.0
"""Delay after a failure, which doubles up to the maximum (`sasl.login.retry.backoff.ms`)."""

RETRY_AFTER_MAX_S = 60.0
"""Longest delay that an identity provider can ask for."""

DISCARD_INTERVAL_S = 10.0
"""A broker that refuses every token causes at most one fetch in this time."""

SMALLEST_PLAUSIBLE_MS = 100_000_000_000
"""The year 1973. An expiry below was given in seconds."""

MAX_SHOWN_CHARACTERS = 500
"""How much of a provider's exception stands in an error."""


class _Lease(NamedTuple):
    """A token, with times of the monotonic clock."""

    token: OAuthBearerToken
    usable_until: float
    refresh_at: float
    usable_until_ms: float
    """On the wall clock, which also counts while the machine is suspended."""


class TokenCache:
    """Fetches the token of one client, shares it among connections, and refreshes it in time.

    The first `get` fetches a token. A task of the supervisor then refreshes it after 80 to 85 % of
    its lifetime; the old token is used until the new one is there, and for as long as refreshing
    fails. At most one call of the provider runs at a time.

    A provider whose attribute `ask_each_time` is True is asked by each `get` and never ahead. That
    suits tokens which another program renews, such as files.

    Args:
        provider: Returns a token. Its `KafkaError`s reach the callers of `get`; other exceptions
            count as temporary and become `TokenUnavailable`.
        runtime: Clock and randomness.
        supervisor: Runs the task that calls the provider.
    """

    def __init__(
        self, provider: Callable[[], Awaitable[Any]], runtime: Runtime, supervisor: Supervisor
    ) -> None:
        self._provider = provider
        self._ask_each_time = bool(getattr(provider, "ask_each_time", False))
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._supervisor = supervisor
        self._is_started = False
        self._wanted = AutoResetEvent()
        self._pending: Future[OAuthBearerToken] | None = None
        self._lease: _Lease | None = None
        self._failure: KafkaError | None = None
        self._failure_count = 0
        self._retry_at = AT_ONCE
        self._discarded_at = AT_ONCE
        self._outage = FailureStreak()

    @property
    def next_refresh_at(self) -> float:
        """Time of `Clock.now` at which the next token is fetched; `NEVER` without a valid token."""
        lease = self._usable_lease()
        if lease is None or self._ask_each_time:
            return NEVER
        at = max(lease.refresh_at, self._retry_at)
        return at if at < lease.usable_until else NEVER

    async def get(self) -> OAuthBearerToken:
        """Return a valid token; wait for one only if there is none.

        May be cancelled; other callers keep waiting for the same token.

        Raises:
            TokenUnavailable: No token could be fetched. Retriable; the identity provider is asked
                again after a backoff, and until then each call raises this error.
            AuthenticationFailed: The identity provider refused. As long as the backoff lasts, each
                call raises this error.
            ClientClosed: The client is closing.
        """
        now = self._clock.now()
        lease = self._usable_lease()
        if lease is not None and (not self._ask_each_time or now < self._retry_at):
            return lease.token
        if self._pending is None:
            if self._failure is not None and now < self._retry_at:
                raise copy_error(self._failure)
            self._request_fetch()
        assert self._pending is not None
        return await self._pending.wait()

    def discard(self, token: OAuthBearerToken) -> None:
        """Forget a token that a broker refused, so that the next `get` fetches another one.

        Ignored if the token was replaced meanwhile, and if another one was discarded within
        `DISCARD_INTERVAL_S`.
        """
        now = self._clock.now()
        if (
            self._lease is None
            or self._lease.token is not token
            or now < self._discarded_at + DISCARD_INTERVAL_S
        ):
            return
        self._discarded_at = now
        self._lease = None

    def _usable_lease(self) -> _Lease | None:
        lease = self._lease
        if (
            lease is None
            or self._clock.now() >= lease.usable_until
            or self._clock.wall_ms() >= lease.usable_until_ms
        ):
            return None
        return lease

    def _request_fetch(self) -> None:
        if not self._supervisor.is_running:
            raise self._closed_error()
        self._pending = Future()
        if self._is_started:
            self._wanted.set()
        else:
            self._is_started = True
            self._supervisor.spawn(self._fetch_tokens, name="fetch OAUTHBEARER tokens")

    async def _fetch_tokens(self) -> None:
        try:
            while True:
                await self._fetch_once()
                await self._wanted.wait(self.next_refresh_at)
        finally:
            if self._pending is not None:
                self._pending.set_exception(self._closed_error())

    async def _fetch_once(self) -> None:
        """Call the provider and pass its token, or its error, to the waiting callers."""
        if self._pending is None:
            self._pending = Future()
        try:
            lease = self._make_lease(await self._call_provider())
        except KafkaError as error:
            self._on_failed(error)
            return
        self._lease = lease
        self._on_succeeded(lease)
        future, self._pending = self._pending, None
        future.set_result(lease.token)

    async def _call_provider(self) -> object:
        try:
            with anyio.CancelScope(deadline=self._clock.now() + PROVIDER_TIMEOUT_S) as scope:
                result: object = self._provider()
                if inspect.isawaitable(result):
                    return await result
        except KafkaError:
            raise
        except BaseException as error:
            if not is_failure_of_callback(error):
                raise
            if isinstance(error, anyio.get_cancelled_exc_class()):
                raise TokenUnavailable(
                    "the token provider raised a cancellation of a task that it awaited"
                ) from error
            text = f"{type(error).__name__}: {error}"[:MAX_SHOWN_CHARACTERS]
            raise TokenUnavailable(f"the token provider failed: {text!a}") from error
        if scope.cancelled_caught:
            raise TokenUnavailable(
                f"the token provider did not return within {PROVIDER_TIMEOUT_S:g} s"
            )
        raise AuthenticationFailed(
            "sasl_oauth_token_provider must be an async function; this one returned"
            f" {type(result).__name__} without being awaited"
        )

    def _make_lease(self, token: object) -> _Lease:
        if not isinstance(token, OAuthBearerToken):
            raise AuthenticationFailed(
                f"the token provider returned {type(token).__name__}, not OAuthBearerToken"
            )
        now = self._clock.now()
        if (expires_at_ms := token.expires_at_ms) is None:
            return _Lease(token, NEVER, now + self._part_of(MAX_LIFETIME_S), NEVER)
        if not isinstance(expires_at_ms, int | float):
            raise AuthenticationFailed(
                "the token provider returned an expires_at_ms of type"
                f" {type(expires_at_ms).__name__}, not int"
            )
        if expires_at_ms < SMALLEST_PLAUSIBLE_MS:
            raise AuthenticationFailed(
                "the token provider returned an expires_at_ms before 1973: it must be milliseconds"
                " since 1970, not seconds"
            )
        life_s = min(expires_at_ms - self._clock.wall_ms(), MAX_LIFETIME_S * 1_000) / 1_000
        if not life_s > 0:
            raise TokenUnavailable(
                f"the token provider returned a token that expired {-life_s:.0f} s ago by the"
                " clock of this machine: check that clock"
            )
        usable_s = life_s - min(EXPIRY_MARGIN_S, life_s * EXPIRY_MARGIN)
        return _Lease(
            token,
            now + usable_s,
            now + self._part_of(life_s) if life_s > MIN_LIFETIME_S else NEVER,
            self._clock.wall_ms() + usable_s * 1_000,
        )

    def _part_of(self, life_s: float) -> float:
        return life_s * self._rng.uniform(*REFRESH_WINDOW)

    def _on_succeeded(self, lease: _Lease) -> None:
        self._failure = None
        self._failure_count = 0
        self._retry_at = AT_ONCE
        now = self._clock.now()
        outage_s = self._outage.ended(now)
        if outage_s is not None:
            logger.info(
                "%s: OAUTHBEARER token fetched after %.3f s of failures",
                self._supervisor.name,
                outage_s,
                extra=log_fields(self._supervisor.fields, outage_ms=outage_s * 1_000),
            )
        logger.debug(
            "%s: OAUTHBEARER token fetched; valid for %.0f s",
            self._supervisor.name,
            lease.usable_until - now,
            extra=dict(self._supervisor.fields),
        )

    def _on_failed(self, error: KafkaError) -> None:
        """Keep the current token if it is valid; else fail the waiting callers."""
        now = self._clock.now()
        backoff_s = min(BACKOFF_S * 2**self._failure_count, BACKOFF_MAX_S)
        backoff_s *= self._rng.uniform(0.8, 1.2)
        if isinstance(error, TokenUnavailable) and error.retry_after_s is not None:
            backoff_s = max(backoff_s, min(error.retry_after_s, RETRY_AFTER_MAX_S))
        self._failure = error
        # Bounded, as the power of an unbounded count would be a huge integer.
        self._failure_count = min(self._failure_count + 1, 20)
        self._retry_at = now + backoff_s
        lease = self._usable_lease()
        if lease is None:
            state = "no valid token: connections cannot authenticate"
        elif lease.usable_until == NEVER:
            state = "using the current token, which does not expire"
        else:
            state = f"using the current token, valid for {lease.usable_until - now:.0f} s more"
        logger.log(
            self._outage.failed(logging.WARNING, now),
            "%s: OAUTHBEARER token not fetched, next attempt in %.1f s at the earliest; %s: %s",
            self._supervisor.name,
            backoff_s,
            state,
            error,
            extra=log_fields(self._supervisor.fields, error=error),
        )
        future, self._pending = self._pending, None
        assert future is not None
        if lease is not None:
            future.set_result(lease.token)
        else:
            future.set_exception(error)

    def _closed_error(self) -> ClientClosed:
        return ClientClosed("the client is closed: no OAUTHBEARER token is fetched")
