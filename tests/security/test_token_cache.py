"""The token of a client: fetched once for all, refreshed in time, kept while refreshing fails."""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionFailed,
    KafkaError,
    TokenUnavailable,
)
from aiokafkawire.runtime import NEVER, RealRuntime, Runtime, Supervisor, running_on_trio
from aiokafkawire.security import OAuthBearerToken, Secret, TokenCache
from aiokafkawire.security.token_cache import BACKOFF_MAX_S, PROVIDER_TIMEOUT_S, RETRY_AFTER_MAX_S
from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend

TEXT = "tok3n-of-a-provider"

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")


class Provider:
    """Returns tokens that live `life_s`; takes `takes_s`; raises `error` if there is one."""

    def __init__(self, runtime: Runtime, life_s: float | None = 100.0) -> None:
        self.clock = runtime.clock
        self.life_s = life_s
        self.takes_s = 0.0
        self.error: BaseException | None = None
        self.calls: list[float] = []
        self.running = 0
        self.most_running = 0

    async def __call__(self) -> OAuthBearerToken:
        self.calls.append(self.clock.now())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.clock.sleep_until(self.clock.now() + self.takes_s)
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        return self.token()

    def token(self) -> OAuthBearerToken:
        expires_at_ms = None
        if self.life_s is not None:
            expires_at_ms = self.clock.wall_ms() + round(self.life_s * 1_000)
        return OAuthBearerToken(Secret(f"{TEXT}-{len(self.calls)}"), expires_at_ms)


class FileLike(Provider):
    ask_each_time = True


Body = Callable[[TokenCache, Provider], Awaitable[None]]


@asynccontextmanager
async def cached(
    runtime: Runtime, provider: Any
) -> AsyncIterator[tuple[TokenCache, list[Exception]]]:
    failures: list[Exception] = []
    supervisor = Supervisor("consumer c", lambda _, error: failures.append(error))
    await supervisor.start()
    try:
        yield TokenCache(provider, runtime, supervisor), failures
    finally:
        await supervisor.stop()


def simulate(backend: Backend, body: Body, kind: type[Provider] = Provider, seed: int = 1) -> None:
    """Run a body in virtual time; nothing may be left behind."""
    world = World(seed, backend=backend)

    async def main() -> None:
        runtime = world.runtime("10.0.1.1")
        provider = kind(runtime)
        async with cached(runtime, provider) as (cache, failures):
            await body(cache, provider)
        assert failures == []

    world.run(main, limit_s=1e9)
    assert world.left_behind() == []


# --- one fetch for all -------------------------------------------------------------------------


async def test_callers_share_one_fetch() -> None:
    runtime = RealRuntime()
    provider = Provider(runtime)
    provider.takes_s = 0.05
    tokens: list[OAuthBearerToken] = []
    async with cached(runtime, provider) as (cache, failures):
        assert cache.next_refresh_at == NEVER

        async def call() -> None:
            tokens.append(await cache.get())

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(call)
        assert await cache.get() is tokens[0]
        assert 79.0 < cache.next_refresh_at - runtime.clock.now() < 86.0
    assert failures == []
    assert len(tokens) == 50
    assert all(token is tokens[0] for token in tokens)
    assert len(provider.calls) == 1


async def test_callers_share_one_failure_and_the_next_one_waits_for_the_backoff() -> None:
    runtime = RealRuntime()
    provider = Provider(runtime)
    provider.takes_s = 0.02
    provider.error = TokenUnavailable("the identity provider is down")
    seen: list[BaseException] = []
    async with cached(runtime, provider) as (cache, failures):

        async def call() -> None:
            try:
                await cache.get()
            except TokenUnavailable as error:
                seen.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(call)
        assert len(provider.calls) == 1
        await call()
        assert len(provider.calls) == 1
        await anyio.sleep(0.15)
        provider.error = None
        assert (await cache.get()).value.reveal() == f"{TEXT}-2"
    assert failures == []
    assert [str(error) for error in seen] == ["the identity provider is down"] * 51
    assert len({id(error) for error in seen}) == 51


async def test_a_cancelled_caller_leaves_the_fetch_to_the_others() -> None:
    runtime = RealRuntime()
    provider = Provider(runtime)
    provider.takes_s = 0.1
    got: list[OAuthBearerToken] = []
    async with cached(runtime, provider) as (cache, failures):

        async def call() -> None:
            got.append(await cache.get())

        async with anyio.create_task_group() as group:
            with anyio.move_on_after(0.03) as scope:
                await cache.get()
            assert scope.cancelled_caught
            group.start_soon(call)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await cache.get()
    assert failures == []
    assert len(got) == 1
    assert len(provider.calls) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_callers_may_be_cancelled_at_every_step(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.takes_s = 1.0
        provider.life_s = 10.0
        for step in range(60):
            with anyio.move_on_after(step / 20):
                await cache.get()
            if step % 7 == 0:
                await provider.clock.sleep_until(provider.clock.now() + 30.0)
        await cache.get()
        assert provider.most_running == 1

    simulate(backend, body)


async def test_closing_fails_the_waiting_callers() -> None:
    runtime = RealRuntime()
    provider = Provider(runtime)
    provider.takes_s = 60.0
    ended: list[str] = []
    async with anyio.create_task_group() as group:
        async with cached(runtime, provider) as (cache, failures):

            async def call() -> None:
                with pytest.raises(ClientClosed):
                    await cache.get()
                ended.append("closed")

            group.start_soon(call)
            await anyio.sleep(0.02)
        with pytest.raises(ClientClosed):
            await cache.get()
    assert ended == ["closed"]
    assert failures == []


# --- refreshing --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_are_refreshed_ahead_of_expiry(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        clock = provider.clock
        provider.takes_s = 2.0
        first = await cache.get()
        for _ in range(2_000):
            asked_at = clock.now()
            token = await cache.get()
            assert clock.now() == asked_at
            assert token.expires_at_ms is not None
            assert token.expires_at_ms > clock.wall_ms()
            await clock.sleep_until(clock.now() + 0.5)
        assert token is not first
        between = [
            later - at for at, later in zip(provider.calls, provider.calls[1:], strict=False)
        ]
        assert len(between) >= 10
        assert all(82.0 <= seconds <= 87.0 for seconds in between)
        assert len({round(seconds, 3) for seconds in between}) > len(between) / 2
        assert provider.most_running == 1

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_old_token_is_used_while_refreshing_fails(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        clock = provider.clock
        token = await cache.get()
        provider.error = ConnectionRefusedError("refused")
        await clock.sleep_until(clock.now() + 98.0)
        assert await cache.get() is token
        failed = provider.calls[1:]
        between = [later - at for at, later in itertools.pairwise(failed)]
        assert len(between) >= 5
        assert 0.08 <= between[0] <= 0.12
        assert all(seconds <= BACKOFF_MAX_S * 1.2 for seconds in between)
        assert between[3] > 3 * between[0]
        # Expired: the provider is asked for callers alone.
        await clock.sleep_until(clock.now() + 600.0)
        assert cache.next_refresh_at == NEVER
        count = len(provider.calls)
        with pytest.raises(TokenUnavailable, match="ConnectionRefusedError: refused"):
            await cache.get()
        assert len(provider.calls) == count + 1
        provider.error = None
        await clock.sleep_until(clock.now() + 20.0)
        assert await cache.get() is not token

    with caplog.at_level(logging.INFO, "aiokafkawire.security"):
        simulate(backend, body)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"]
    text = caplog.messages[0]
    assert text.startswith("consumer c: OAUTHBEARER token not fetched, next attempt in 0.1 s")
    assert "using the current token, valid for 1" in text
    assert caplog.records[0].kafka_error == "TokenUnavailable"  # type: ignore[attr-defined]
    assert "OAUTHBEARER token fetched after" in caplog.messages[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_warning_for_an_outage_without_a_token(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.error = AuthenticationFailed("invalid_client")
        for _ in range(100):
            with pytest.raises(AuthenticationFailed, match="invalid_client"):
                await cache.get()
            await provider.clock.sleep_until(provider.clock.now() + 1.0)
        assert len(provider.calls) < 25

    with caplog.at_level(logging.INFO, "aiokafkawire.security"):
        simulate(backend, body)
    assert len(caplog.messages) == 1
    assert "no valid token: connections cannot authenticate: invalid_client" in caplog.messages[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("asked_s", "waits_s"), [(7.0, 7.0), (86_400.0, RETRY_AFTER_MAX_S)])
def test_the_delay_that_the_identity_provider_asks_for_is_kept(
    backend: Backend, asked_s: float, waits_s: float
) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.error = TokenUnavailable("429", retry_after_s=asked_s)
        began = provider.clock.now()
        while len(provider.calls) < 2:
            with pytest.raises(TokenUnavailable):
                await cache.get()
            await provider.clock.sleep_until(provider.clock.now() + 0.1)
        assert waits_s <= provider.calls[1] - began <= waits_s + 0.2

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_token_that_lives_a_moment_is_fetched_on_demand(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.life_s = 0.5
        await cache.get()
        assert cache.next_refresh_at == NEVER
        await provider.clock.sleep_until(provider.clock.now() + 3_600.0)
        assert len(provider.calls) == 1
        await cache.get()
        assert len(provider.calls) == 2

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("life_s", "margin_s"), [(10.0, 0.5), (100.0, 1.0)])
def test_a_token_is_not_used_at_its_very_end(
    backend: Backend, life_s: float, margin_s: float
) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        clock = provider.clock
        provider.life_s = life_s
        began = clock.now()
        token = await cache.get()
        provider.error = TokenUnavailable("down")
        await clock.sleep_until(began + life_s - margin_s - 0.1)
        assert await cache.get() is token
        await clock.sleep_until(began + life_s - margin_s + 0.1)
        with pytest.raises(TokenUnavailable, match="down"):
            await cache.get()

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_token_without_expiry_is_kept(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.life_s = None
        token = await cache.get()
        await provider.clock.sleep_until(provider.clock.now() + 30 * 86_400.0)
        assert await cache.get() is token
        assert len(provider.calls) == 1

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_the_wall_clock_may_jump(backend: Backend, jump_s: float) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        clock: Any = provider.clock
        token = await cache.get()
        clock.jump(jump_s)
        after = await cache.get()
        assert (after is token) == (jump_s < 0)
        await clock.sleep_until(clock.now() + 1_000.0)
        assert len(provider.calls) >= 10

    simulate(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_refused_token_is_replaced_but_not_without_end(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        first = await cache.get()
        cache.discard(first)
        second = await cache.get()
        assert second is not first
        cache.discard(first)
        assert await cache.get() is second
        cache.discard(second)
        assert await cache.get() is second
        await provider.clock.sleep_until(provider.clock.now() + 11.0)
        cache.discard(second)
        assert await cache.get() is not second

    simulate(backend, body)


# --- providers that are asked each time ----------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_provider_that_wants_it_is_asked_each_time(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        clock = provider.clock
        first = await cache.get()
        second = await cache.get()
        assert second is not first
        assert cache.next_refresh_at == NEVER
        await clock.sleep_until(clock.now() + 50.0)
        assert len(provider.calls) == 2
        provider.error = FileNotFoundError("gone")
        assert await cache.get() is second
        assert await cache.get() is second
        assert len(provider.calls) == 3
        await clock.sleep_until(clock.now() + 60.0)
        with pytest.raises(TokenUnavailable, match="gone"):
            await cache.get()

    simulate(backend, body, FileLike)


# --- providers that misbehave --------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_provider_that_hangs_is_given_up(backend: Backend) -> None:
    async def body(cache: TokenCache, provider: Provider) -> None:
        provider.takes_s = 1e6
        began = provider.clock.now()
        with pytest.raises(TokenUnavailable, match="did not return within 60 s"):
            await cache.get()
        assert provider.clock.now() - began == pytest.approx(PROVIDER_TIMEOUT_S)

    simulate(backend, body)


def fixed(value: object) -> Callable[[], Awaitable[Any]]:
    async def provide() -> object:
        return value

    return provide


def not_async() -> Any:
    return OAuthBearerToken(Secret(TEXT))


def expiring(expires_at_ms: Any) -> Callable[[], Awaitable[Any]]:
    return fixed(OAuthBearerToken(Secret(TEXT), expires_at_ms))


@pytest.mark.parametrize(
    ("provider", "kind", "message"),
    [
        (fixed(TEXT), AuthenticationFailed, "returned str, not OAuthBearerToken"),
        (fixed(None), AuthenticationFailed, "returned NoneType"),
        (not_async, AuthenticationFailed, "must be an async function"),
        (expiring("soon"), AuthenticationFailed, "of type str"),
        (expiring(1_764_000_000), AuthenticationFailed, "not seconds"),
        (expiring(-(10**4_000)), AuthenticationFailed, "not seconds"),
        (expiring(float("nan")), TokenUnavailable, "check that clock"),
        (expiring(1_500_000_000_000), TokenUnavailable, "expired .* s ago"),
    ],
)
async def test_results_that_are_no_valid_token(
    provider: Any, kind: type[KafkaError], message: str
) -> None:
    async with cached(RealRuntime(), provider) as (cache, failures):
        with pytest.raises(kind, match=message) as caught:
            await cache.get()
    assert TEXT not in "".join(traceback.format_exception(caught.value))
    assert failures == []


@pytest.mark.parametrize("expires_at_ms", [10**4_000, float("inf"), 2**63 - 1])
async def test_an_expiry_in_the_distant_future_is_accepted(expires_at_ms: Any) -> None:
    runtime = RealRuntime()
    async with cached(runtime, expiring(expires_at_ms)) as (cache, failures):
        await cache.get()
        assert cache.next_refresh_at - runtime.clock.now() < 366 * 86_400
    assert failures == []


async def test_errors_of_the_provider_reach_the_callers() -> None:
    runtime = RealRuntime()

    class Panic(BaseException):
        pass

    errors = (
        RuntimeError("x" * 10_000 + "\n"),
        ExceptionGroup("g", [OSError("o")]),
        Panic("p"),
        BaseExceptionGroup("g", [Panic("p"), OSError("o")]),
    )
    for error in errors:
        provider = Provider(runtime)
        provider.error = error
        async with cached(runtime, provider) as (cache, failures):
            with pytest.raises(TokenUnavailable, match=type(error).__name__) as caught:
                await cache.get()
        assert caught.value.__cause__ is error
        assert len(str(caught.value)) < 700
        assert isinstance(caught.value, ConnectionFailed)
        assert caught.value.retriable
        assert failures == []


async def test_a_cancellation_that_the_provider_awaited_is_its_failure() -> None:
    if running_on_trio():
        # Trio has no cancellation that is not for the task itself.
        return

    async def provide() -> OAuthBearerToken:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        raise AssertionError

    async with cached(RealRuntime(), provide) as (cache, failures):
        with pytest.raises(TokenUnavailable, match="cancellation of a task"):
            await cache.get()
    assert failures == []


async def test_no_log_line_shows_the_token(caplog: pytest.LogCaptureFixture) -> None:
    runtime = RealRuntime()
    provider = Provider(runtime)
    with caplog.at_level(1):
        async with cached(runtime, provider) as (cache, _):
            await cache.get()
            await anyio.lowlevel.checkpoint()
            assert TEXT not in repr(vars(cache))
    assert any("OAUTHBEARER token fetched" in line for line in caplog.messages)
    assert TEXT not in caplog.text
