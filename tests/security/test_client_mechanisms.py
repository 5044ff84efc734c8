"""Passwords from a function of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from aiokafkawire.config import ClientConfig, Secret
from aiokafkawire.errors import AuthenticationFailed, ConnectionFailed
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.security.client_mechanisms import ClientMechanisms
from aiokafkawire.security.plain import PlainClient
from aiokafkawire.security.scram import ScramClient


def mechanisms(password: Any, mechanism: str = "PLAIN") -> ClientMechanisms:
    config = ClientConfig(
        bootstrap_servers="h:1",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username="user",
        sasl_password=password,
    )
    supervisor = cast("Supervisor", None)  # only token providers need it
    return ClientMechanisms(config, RealRuntime(), supervisor)


async def test_each_authentication_calls_the_function_again() -> None:
    calls: list[int] = []

    async def password() -> str | Secret:
        calls.append(1)
        return "one" if len(calls) == 1 else Secret("two")

    made = mechanisms(password)
    for _ in range(2):
        assert isinstance(await made.new("h"), PlainClient)
    assert len(calls) == 2


async def test_scram_uses_it_too() -> None:
    async def password() -> str:
        return "secret"

    assert isinstance(await mechanisms(password, "SCRAM-SHA-256").new("h"), ScramClient)


@pytest.mark.parametrize("result", [7, None, ""])
async def test_a_result_that_is_no_password(result: object) -> None:
    async def password() -> object:
        return result

    with pytest.raises(AuthenticationFailed, match="password"):
        await mechanisms(password).new("h")


async def test_a_function_that_is_not_async_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match="must be a string or an async function"):
        await mechanisms(lambda: "secret").new("h")


def wrong_password() -> Callable[[], Any]:
    async def password() -> str:
        raise ValueError("the vault said: hunter2")

    return password


async def test_an_exception_is_temporary_and_its_text_is_not_shown() -> None:
    with pytest.raises(ConnectionFailed, match="sasl_password failed: ValueError") as raised:
        await mechanisms(wrong_password()).new("h")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_cancelled_task_of_the_application_does_not_cancel_the_client() -> None:
    async def password() -> str:
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return ""

    with pytest.raises(ConnectionFailed, match="awaited a task that was cancelled"):
        await mechanisms(password).new("h")


async def test_a_hanging_function_ends_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokafkawire.security.client_mechanisms.PASSWORD_TIMEOUT_S", 0.05)
    with pytest.raises(ConnectionFailed, match="did not return within"):
        await mechanisms(anyio.sleep_forever).new("h")
