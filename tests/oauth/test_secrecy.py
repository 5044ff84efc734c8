"""No secret shows in a repr, a log line, an error or the variables of its traceback."""

from __future__ import annotations

import base64
import pickle
import socket
import traceback
import types
import urllib.parse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.oauth import (
    AssertionFile,
    JwtBearerTokenProvider,
    OidcTokenProvider,
    Secret,
    SignedAssertion,
    TokenFileProvider,
)
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.security import TokenCache

from .identity_provider import (
    Answer,
    IdentityProvider,
    close,
    issue,
    refuse,
    respond,
    respond_json,
    running,
    send,
)
from .test_assertion import PASSWORD, RSA, pem

SECRET = "s3cret/of+billing"
ASSERTION = "head.4ssertion.c2ln"
TOKEN = "eyJ.t0ken-of-idp.c2ln"

BASIC = base64.b64encode(f"billing:{urllib.parse.quote_plus(SECRET)}".encode()).decode()

SECRET_FIELDS = {"assertion", "client_assertion", "client_secret"}

NEVER_SHOWN = (
    SECRET,
    urllib.parse.quote_plus(SECRET),
    ASSERTION,
    TOKEN,
    BASIC,
    PASSWORD,
    pem(RSA).splitlines()[5],
)


def repeating(answer_of: Callable[[str], Answer]) -> Answer:
    """Answer with the secrets of the request, as they arrived and encoded otherwise."""

    def answer(sock: socket.socket, provider: IdentityProvider) -> None:
        request = provider.requests[-1]
        secrets = [request.basic.partition(":")[2]] if request.basic else []
        secrets += [value for name, value in request.form.items() if name in SECRET_FIELDS]
        secrets += [urllib.parse.unquote_plus(secret) for secret in secrets]
        secrets.append(request.headers.get("authorization", ""))
        answer_of("/".join(secrets))(sock, provider)

    return answer


ANSWERS: dict[str, Answer] = {
    "error": repeating(lambda secrets: refuse(401, secrets)),
    "description": repeating(lambda secrets: refuse(401, "invalid_client", secrets)),
    "redirect": repeating(lambda secrets: respond(302, Location=f"https://x.example/{secrets}")),
    "busy": repeating(lambda secrets: respond(503, f"{secrets} {TOKEN}")),
    "html": repeating(lambda secrets: respond(200, f"<html>{secrets}", Content_Type="text/html")),
    "cut token": send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + TOKEN.encode()),
    "cut chunk": send(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n" + TOKEN.encode()
    ),
    "status line": repeating(lambda secrets: send(f"HTTP/9.9 {TOKEN} {secrets}\r\n\r\n".encode())),
    "reset": close(reset=True),
    "broken json": respond(200, f'{{"access_token": "{TOKEN}"'),
    "token that cannot be sent": respond_json(200, {"access_token": f"{TOKEN} {TOKEN}"}),
    "lone surrogate": respond(200, f'{{"access_token": "{TOKEN}\\ud800"}}'),
    "other type": issue(TOKEN, token_type="mac"),
    "success": issue(TOKEN),
}


def frames(error: BaseException | None, seen: set[int]) -> Iterator[types.FrameType]:
    """Yield the frames of an error's traceback, and of its causes and contexts."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            yield frame
        yield from frames(error.__cause__, seen)
        error = error.__context__


def shown_by(error: BaseException) -> str:
    """Return what a log or an error reporter would show, with the variables of all frames."""
    text = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    text += repr(pickle.loads(pickle.dumps(error))) if isinstance(error, KafkaError) else ""
    for frame in frames(error, set()):
        if frame.f_code.co_filename.startswith(str(Path(__file__).parent)):
            continue  # the tests know the secrets
        for name, value in frame.f_locals.items():
            text += f"{frame.f_code.co_filename}: {name} = {value!r}\n"
            if hasattr(value, "__dict__"):
                text += f"{vars(value)!r}\n"
    return text


async def assertion() -> str:
    return ASSERTION


PROVIDERS: dict[str, Any] = {
    "basic": lambda url: OidcTokenProvider(
        url, client_id="billing", client_secret=SECRET, timeout_ms=700
    ),
    "form": lambda url: OidcTokenProvider(
        url, client_id="billing", client_secret=SECRET, client_auth="form", timeout_ms=700
    ),
    "client assertion": lambda url: OidcTokenProvider(
        url, client_assertion=assertion, timeout_ms=700
    ),
    "jwt bearer": lambda url: JwtBearerTokenProvider(url, assertion=assertion, timeout_ms=700),
}


@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize("name", ANSWERS)
async def test_token_endpoints(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    text = ""
    with caplog.at_level(1), running(ANSWERS[name]) as server:
        provider = PROVIDERS[kind](server.url)
        text += repr(provider) + repr(vars(provider))
        supervisor = Supervisor("producer p")
        await supervisor.start()
        cache = TokenCache(provider, RealRuntime(), supervisor)
        try:
            token = await cache.get()
            text += f"{token} {token!r} {vars(cache)}"
            assert name == "success"
        except KafkaError as error:
            assert name != "success"
            text += f"{error} {shown_by(error)}"
        finally:
            await supervisor.stop()
    for record in caplog.records:
        text += record.getMessage() + repr(vars(record))
    assert "consumer" in text or "producer p: OAUTHBEARER token" in text
    assert [secret for secret in NEVER_SHOWN if secret in text] == []


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.1])
async def test_cancelled_requests(delay_s: float) -> None:
    with running(send(b"HTTP/1.1 200", b" OK", every_s=5)) as server:
        provider = PROVIDERS["form"](server.url)
        with anyio.move_on_after(delay_s):
            try:
                await provider()
            except anyio.get_cancelled_exc_class() as error:
                text = shown_by(error)
                raise
    assert [secret for secret in NEVER_SHOWN if secret in text] == []


async def secret_and_more() -> Any:
    return f"{SECRET}\n"


async def test_functions_that_return_an_invalid_secret() -> None:
    for function in (secret_and_more, lambda: f"{SECRET}\udce9", SECRET.encode):
        provider = OidcTokenProvider(
            "https://idp.example/", client_id="billing", client_secret=function
        )
        with pytest.raises(KafkaError) as caught:
            await provider()
        text = shown_by(caught.value)
        assert [secret for secret in NEVER_SHOWN if secret in text] == []


@pytest.mark.parametrize("secret", [SECRET, Secret(SECRET), SECRET + "\n", SECRET + "\udce9"])
@pytest.mark.parametrize(
    "options",
    [
        {"client_id": ""},
        {"client_id": "b", "client_auth": "x"},
        {"client_id": "b", "scope": ""},
        {"client_id": "b", "timeout_ms": 0},
        {"client_id": "b", "scope": 7},
        {},
    ],
)
def test_constructors(options: dict[str, Any], secret: Any) -> None:
    for make in (OidcTokenProvider, partial(JwtBearerTokenProvider, assertion="\n")):
        with pytest.raises(KafkaError) as caught:
            make("https://idp.example/", client_secret=secret, **options)
        text = shown_by(caught.value)
        assert [secret for secret in NEVER_SHOWN if secret in text] == []
    with pytest.raises(KafkaError) as caught:
        SignedAssertion(
            issuer="", audience="a", private_key=pem(RSA), private_key_password=PASSWORD + "\n"
        )
    text = shown_by(caught.value)
    assert [secret for secret in NEVER_SHOWN if secret in text] == []


async def test_files_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "token"
    text = ""
    for content in (f"{TOKEN} {TOKEN}", f"{TOKEN}é", TOKEN * 100_000):
        path.write_text(content)
        for provider in (TokenFileProvider(path), AssertionFile(path)):
            try:
                text += repr(await provider())
            except KafkaError as error:
                text += shown_by(error)
    for options in (
        {"private_key": pem(RSA), "algorithm": "ES256"},
        {"private_key": pem(RSA), "private_key_password": PASSWORD},
        {"private_key": pem(RSA)[:-40]},
    ):
        sign = SignedAssertion(issuer="i", audience="a", **options)
        with pytest.raises(KafkaError) as caught:
            await sign()
        text += shown_by(caught.value) + repr(vars(sign))
    assert [secret for secret in NEVER_SHOWN if secret in text] == []
