"""Tokens and assertions in files that another program renews."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.errors import TokenUnavailable
from aiokafkawire.oauth import AssertionFile, JwtBearerTokenProvider, Secret, TokenFileProvider
from aiokafkawire.oauth import files as module
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.security import TokenCache

from .identity_provider import issue, jwt, running

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links and FIFOs")


async def test_the_expiry_is_that_of_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenFileProvider(path, extensions={"logicalCluster": "lkc-1"})
    path.write_text(jwt({"exp": 1_764_000_000.5}) + "\n")
    token = await provider()
    assert token.value.reveal() == path.read_text().strip()
    assert token.expires_at_ms == 1_764_000_000_500
    assert token.extensions == {"logicalCluster": "lkc-1"}
    path.write_text("opaque")
    token = await provider()
    assert (token.value, token.expires_at_ms) == (Secret("opaque"), None)


def write(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"", "has no token: it is empty"),
        (b" \n", "has no token: it is empty"),
        (b"two words", "not a b64token"),
        (b"a\0b", "not text of ASCII"),
        ("tökén".encode(), "not text of ASCII"),
        (b"\xff\xfea", "not text of ASCII"),
        (b"a" * 600_000, "has more than 524288 bytes"),
    ],
)
async def test_what_is_no_token(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    write(path, content)
    with pytest.raises(TokenUnavailable, match=reason) as caught:
        await TokenFileProvider(path)()
    assert f"the file {path}" in str(caught.value)
    with pytest.raises(TokenUnavailable, match="cannot be read"):
        await TokenFileProvider(tmp_path)()


@posix_only
async def test_a_projected_token_is_used_as_soon_as_it_is_there(tmp_path: Path) -> None:
    # Kubernetes replaces a link to the folder of the files.
    def project(name: str, token: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(token)
        (tmp_path / "new").symlink_to(name)
        (tmp_path / "new").rename(tmp_path / "data")

    life = jwt({"exp": int(time.time()) + 3_600})
    project("first", life)
    supervisor = Supervisor("producer p")
    await supervisor.start()
    try:
        cache = TokenCache(
            TokenFileProvider(tmp_path / "data" / "token"), RealRuntime(), supervisor
        )
        first = await cache.get()
        other = jwt({"exp": int(time.time()) + 7_200})
        project("second", other)
        assert (await cache.get()).value.reveal() == other
        # The folder is gone for a moment: the token is still valid.
        (tmp_path / "data").unlink()
        assert (await cache.get()).value.reveal() == other
        assert first.value.reveal() == life
    finally:
        await supervisor.stop()


async def test_an_assertion_is_read_for_each_request(tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    with running(issue("token")) as server:
        provider = JwtBearerTokenProvider(server.url, assertion=AssertionFile(path))
        for value in ("a.b.c", "d.e.f"):
            path.write_text(f"{value}\n")
            await provider()
        path.unlink()
        with pytest.raises(TokenUnavailable, match=r"assertion cannot be read"):
            await provider()
    assert [request.form["assertion"] for request in server.requests] == ["a.b.c", "d.e.f"]
    assert repr(AssertionFile("a")) == "AssertionFile('a')"


@posix_only
async def test_a_file_that_blocks_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.2)
    path = tmp_path / "fifo"
    os.mkfifo(path)
    provider = TokenFileProvider(path)
    failures: list[str] = []

    async def call() -> None:
        with pytest.raises(TokenUnavailable) as caught:
            await provider()
        failures.append(str(caught.value))

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(call)
    with anyio.move_on_after(0.01) as scope:
        await AssertionFile(path)()
    assert scope.cancelled_caught
    assert sum("was not read within 0.2 s" in text for text in failures) == module.MAX_THREADS
    assert sum("still block" in text for text in failures) == 2
    release(path)


def release(path: Path) -> Any:
    """Let the threads go that wait for a writer."""
    deadline = time.monotonic() + 10
    while any(thread.name == "aiokafkawire-token-file" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            time.sleep(0.01)
