"""Providers that ask a token endpoint, against a server on loopback that also misbehaves."""

from __future__ import annotations

import ssl
import threading
import time
import urllib.parse
from email.utils import formatdate
from typing import Any

import anyio
import pytest
import trustme

from aiokafkawire.errors import AuthenticationFailed, KafkaError, TokenUnavailable
from aiokafkawire.oauth import JwtBearerTokenProvider, OidcTokenProvider, Secret
from aiokafkawire.oauth.http_post import MAX_RESPONSE_BYTES
from tests.elapsed import ends_within

from .identity_provider import (
    Answer,
    IdentityProvider,
    close,
    issue,
    jwt,
    refuse,
    respond,
    respond_json,
    running,
    send,
)

SECRET = "s3cret/+ %:é"
TOKEN = "eyJ.eyJ.c2ln"
THREADS = "aiokafkawire-token"

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
OTHER_CA = trustme.CA(key_type=trustme.KeyType.ECDSA)


def server_context(*names: str, ca: trustme.CA = CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(*(names or ("localhost",))).configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


def provider_of(server: IdentityProvider | str, **options: Any) -> OidcTokenProvider:
    url = server if isinstance(server, str) else server.url
    options = {"client_id": "billing", "client_secret": SECRET, "timeout_ms": 10_000} | options
    return OidcTokenProvider(url, **options)


async def threads_end() -> None:
    """Wait until no request runs: its thread is not joined by anyone."""
    with anyio.fail_after(5):
        while any(thread.name == THREADS for thread in threading.enumerate()):  # noqa: ASYNC110
            await anyio.sleep(0.01)


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client_auth", "basic"),
    [
        ("basic", f"billing:{urllib.parse.quote_plus(SECRET)}"),
        ("basic_unencoded", f"billing:{SECRET}"),
        ("form", None),
    ],
)
async def test_client_credentials(client_auth: Any, basic: str | None) -> None:
    with running(issue(TOKEN)) as server:
        provider = provider_of(
            server,
            client_auth=client_auth,
            scope="kafka.read kafka.write",
            audience="urn:kafka",
            extra_parameters={"resource": "a&b=c"},
            extensions={"logicalCluster": "lkc-1"},
        )
        before_ms = time.time() * 1_000
        token = await provider()
    assert token.value == Secret(TOKEN)
    assert token.extensions == {"logicalCluster": "lkc-1"}
    assert token.expires_at_ms is not None
    assert 299_000 < token.expires_at_ms - before_ms < 310_000
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/token")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["accept"] == "application/json"
    assert request.headers["user-agent"].startswith("aiokafkawire/")
    assert request.basic == basic
    expected = {
        "grant_type": "client_credentials",
        "scope": "kafka.read kafka.write",
        "audience": "urn:kafka",
        "resource": "a&b=c",
    }
    if client_auth == "form":
        expected |= {"client_id": "billing", "client_secret": SECRET}
    assert request.form == expected


async def test_a_secret_function_is_called_for_each_request() -> None:
    secrets = iter(("one", Secret("two")))

    async def next_secret() -> Any:
        return next(secrets)

    with running(issue(TOKEN)) as server:
        provider = provider_of(server, client_secret=next_secret)
        await provider()
        await provider()
    assert [request.basic for request in server.requests] == ["billing:one", "billing:two"]


@pytest.mark.parametrize("value", [None, b"x", "", "line\n", "\udce9"])
async def test_what_a_secret_function_returns_is_checked(value: Any) -> None:
    async def secret() -> Any:
        return value

    with running(issue(TOKEN)) as server:
        with pytest.raises(AuthenticationFailed, match="the function client_secret returned"):
            await provider_of(server, client_secret=secret)()
        assert server.requests == []


async def test_exceptions_of_a_secret_function_are_raised_as_they_are() -> None:
    error = LookupError("no such secret in the vault")

    async def secret() -> str:
        raise error

    with running(issue(TOKEN)) as server, pytest.raises(LookupError) as caught:
        await provider_of(server, client_secret=secret)()
    assert caught.value is error


async def test_jwt_bearer_grant() -> None:
    async def assertion() -> str:
        return "a.b.c"

    with running(issue(TOKEN)) as server:
        await JwtBearerTokenProvider(server.url, assertion=assertion, scope="kafka")()
        await JwtBearerTokenProvider(
            server.url, assertion=assertion, client_id="billing", client_secret="word"
        )()
        await JwtBearerTokenProvider(server.url, assertion=assertion, client_id="billing")()
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "a.b.c"}
    first, second, third = server.requests
    assert (first.form, first.basic) == (grant | {"scope": "kafka"}, None)
    assert (second.form, second.basic) == (grant, "billing:word")
    assert (third.form, third.basic) == (grant | {"client_id": "billing"}, None)


async def test_client_assertion() -> None:
    count = 0

    async def assertion() -> str:
        nonlocal count
        count += 1
        return f"a.b.{count}"

    with running(issue(TOKEN)) as server:
        by_assertion = provider_of(server, client_secret=None, client_assertion=assertion)
        await by_assertion()
        await by_assertion()
        await provider_of(
            server, client_id=None, client_secret=None, client_assertion=assertion, scope="s"
        )()
    common = {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    }
    # Servers may refuse an assertion that they have seen: each request has its own.
    assert [request.form for request in server.requests] == [
        common | {"client_id": "billing", "client_assertion": "a.b.1"},
        common | {"client_id": "billing", "client_assertion": "a.b.2"},
        common | {"client_assertion": "a.b.3", "scope": "s"},
    ]
    assert all(request.basic is None for request in server.requests)


# --- TLS and proxies -----------------------------------------------------------------------------


async def test_tls_with_a_context_or_a_file(tmp_path: Any) -> None:
    ca_file = tmp_path / "ca.pem"
    CA.cert_pem.write_to_path(ca_file)
    with running(issue(TOKEN), context=server_context()) as server:
        await provider_of(server, ssl_context=client_context())()
        await provider_of(server, ssl_cafile=ca_file)()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("names", "ca", "reason"),
    [
        (("localhost",), OTHER_CA, "unable to get local issuer certificate"),
        (("idp.example",), CA, "Hostname mismatch"),
    ],
)
async def test_an_invalid_certificate_is_final(
    names: tuple[str, ...], ca: trustme.CA, reason: str
) -> None:
    with running(issue(TOKEN), context=server_context(*names, ca=ca)) as server:
        with pytest.raises(AuthenticationFailed, match=reason) as caught:
            await provider_of(server, ssl_context=client_context())()
        assert "pass ssl_cafile or ssl_context" in str(caught.value)
        assert server.requests == []
        assert server.connections == 1


async def test_ca_files_that_cannot_be_loaded(tmp_path: Any) -> None:
    provider = provider_of("https://localhost:1/", ssl_cafile=tmp_path / "none.pem")
    with pytest.raises(TokenUnavailable, match="No such file"):
        await provider()
    (tmp_path / "none.pem").write_text("no PEM")
    with pytest.raises(AuthenticationFailed, match="TLS settings cannot be loaded"):
        await provider()


async def test_tls_to_a_plaintext_port_and_the_reverse() -> None:
    with running(issue(TOKEN)) as server:
        url = server.url.replace("http:", "https:")
        with pytest.raises(TokenUnavailable, match="cannot be reached: TLS failed: "):
            await provider_of(url, timeout_ms=500)()
    with running(issue(TOKEN), context=server_context()) as server:
        url = server.url.replace("https:", "http:")
        with pytest.raises(TokenUnavailable, match="the token endpoint http://localhost"):
            await provider_of(url, timeout_ms=500)()


async def test_http_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(issue(TOKEN)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://localhost:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        await provider_of("http://idp.test/token?tenant=1", allow_http=True)()
        assert proxy.requests[0].path == "http://idp.test/token?tenant=1"
        # A proxy cannot reach the loopback of this machine, and must not see its secrets.
        with running(issue(TOKEN)) as server:
            await provider_of(server)()
            assert len(server.requests) == 1
        assert len(proxy.requests) == 1


async def test_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    context = server_context("idp.test")
    seen: list[Any] = []

    def tunnel(sock: Any, idp: IdentityProvider) -> None:
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(sock, server_side=True) as encrypted:
            seen.append(idp.read(encrypted))
            issue(TOKEN)(encrypted, idp)

    with running(tunnel, respond(407)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:word@localhost:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        provider = provider_of("https://idp.test/token", ssl_context=client_context())
        await provider()
        assert proxy.requests[0].method == "CONNECT"
        assert proxy.requests[0].path == "idp.test:443"
        assert "authorization" not in proxy.requests[0].headers
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
        assert (seen[0].method, seen[0].path) == ("POST", "/token")
        provider = provider_of(
            "https://idp.test/token", ssl_context=client_context(), timeout_ms=400
        )
        with pytest.raises(TokenUnavailable, match="Tunnel connection failed: 407"):
            await provider()


async def test_a_proxy_of_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://localhost:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(TokenUnavailable, match="unknown url type"):
        await provider_of("http://idp.test/", allow_http=True, timeout_ms=300)()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            refuse(401, "invalid_client", "Invalid client or Invalid client credentials"),
            r"/token refused: invalid_client: Invalid client or Invalid client credentials"
            r" \(status 401\)",
        ),
        (refuse(400, "unauthorized_client"), r"refused: unauthorized_client \(status 400\)"),
        (refuse(400, "invalid_grant", "assertion expired"), "invalid_grant: assertion expired"),
        (refuse(200, "invalid_scope"), r"refused: invalid_scope \(status 200\)"),
        (respond(401, "<html>", Content_Type="text/html"), "status 401 and text/html of 6 bytes"),
        (respond_json(403, {"message": "no"}), "status 403 and JSON without an error code"),
        (issue(TOKEN, token_type="DPoP"), "token of type DPoP"),
        (issue(TOKEN, token_type=7), "token of type 7"),
        (issue("two words"), "not a b64token"),
        (issue("tök"), "not a b64token"),
    ],
)
async def test_refusals_are_final_and_not_repeated(answer: Answer, reason: str) -> None:
    with running(answer) as server:
        with pytest.raises(AuthenticationFailed, match=reason):
            await provider_of(server)()
        assert len(server.requests) == 1


async def test_a_foreign_reason_is_bounded_and_escaped() -> None:
    answer = refuse(400, "e" * 5_000 + "\x1b[31m", "\x1b[2J\n\u202e" + "d" * 5_000)
    with running(answer) as server, pytest.raises(AuthenticationFailed) as caught:
        await provider_of(server)()
    text = str(caught.value)
    assert len(text) < 800
    assert text.isprintable()
    assert r"\x1b[2J\n\u202e" in text


@pytest.mark.parametrize(
    "answer",
    [
        respond(200, "<!DOCTYPE html><title>Sign in</title>", Content_Type="text/html; charset=x"),
        respond(200, "", Content_Type="application/json"),
        respond(204),
        respond_json(200, ["access_token"]),
        respond_json(200, {"id_token": TOKEN}),
        respond_json(200, {"access_token": None}),
        respond_json(200, {"access_token": {"a": 1}}),
        respond_json(200, {"access_token": ""}),
        respond(200, '{"access_token": "a", "expires_in": ' + "9" * 5_000 + "}"),
        respond(200, "[" * 100_000),
        respond(200, b"\xff\xfe{}"),
        respond(404, "<html>default backend - 404", Content_Type="text/html"),
        respond(301, Location="https://elsewhere.example/token?secret=1"),
        respond(302, Location="/login"),
        respond(307, Location="https://elsewhere.example/token"),
        respond(200, b"x" * (MAX_RESPONSE_BYTES + 10)),
        issue(jwt({"exp": 1_500_000_000}), expires_in=None),
    ],
)
async def test_what_is_no_token_response_is_temporary(answer: Answer) -> None:
    with running(answer) as server:
        with pytest.raises(TokenUnavailable, match="the token endpoint http://localhost") as caught:
            await provider_of(server)()
        assert len(server.requests) == 1
    text = str(caught.value)
    assert caught.value.retriable
    assert len(text) < 300
    assert "secret=1" not in text


async def test_redirects_are_not_followed() -> None:
    with running(issue(TOKEN)) as other:
        for status in (301, 302, 303, 307, 308):
            reason = rf"redirects to {other.url} \(status {status}\)"
            with (
                running(respond(status, Location=other.url)) as server,
                pytest.raises(TokenUnavailable, match=reason),
            ):
                await provider_of(server)()
        assert other.connections == 0


async def test_a_response_that_is_not_json_is_described() -> None:
    page = "<html>Sign in, please</html>"
    answer = respond(200, page, Content_Type="text/html; charset=utf-8")
    with running(answer) as server, pytest.raises(TokenUnavailable) as caught:
        await provider_of(server)()
    assert str(caught.value) == (
        f"the token endpoint {server.url} responded with status 200 and text/html of {len(page)}"
        " bytes, not JSON: check token_endpoint_url, and what answers at that address"
    )


# --- temporary failures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        respond(500, "oops"),
        respond(501),
        respond(505),
        respond(502, "<html>"),
        refuse(503, "temporarily_unavailable"),
        refuse(400, "temporarily_unavailable"),
        refuse(400, "slow_down"),
        respond(408),
        respond(425),
        respond(429),
        close(),
        close(reset=True),
        send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"),
        send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{"),
        send(b"HTTP/1.1 200"),
        send(b"\0" * 100_000),
        send(b"SSH-2.0-OpenSSH_9.2\r\n"),
        send(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"),
        send(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n"),
    ],
)
async def test_a_temporary_failure_is_left_to_the_cache(answer: Answer) -> None:
    with running(answer) as server:
        with pytest.raises(TokenUnavailable, match="the token endpoint http://localhost"):
            await provider_of(server)()
        assert len(server.requests) == 1


@pytest.mark.parametrize("is_date", [False, True])
async def test_the_delay_that_a_server_asks_for_is_passed_on(is_date: bool) -> None:
    value = formatdate(time.time() + 3_600, usegmt=True) if is_date else "3600"
    with (
        running(respond(503, Retry_After=value)) as server,
        pytest.raises(TokenUnavailable, match="status 503") as caught,
    ):
        await provider_of(server)()
    assert caught.value.retry_after_s == pytest.approx(3_600, abs=120)


async def test_nobody_listens() -> None:
    with running(issue(TOKEN)) as server:
        url = server.url
    with pytest.raises(TokenUnavailable, match="cannot be reached: Connection refused"):
        await provider_of(url, timeout_ms=300)()


async def test_an_unknown_host() -> None:
    provider = provider_of("https://idp.invalid/token", timeout_ms=1_000)
    with pytest.raises(TokenUnavailable, match=r"endpoint https://idp\.invalid/token"):
        await provider()


# --- deadlines and cancellation -------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n"

SLOW: dict[str, Answer] = {
    "silent": send(b"x", every_s=60),
    "dripping headers": send(HEAD, *[b"A: b\r\n"] * 1_000, every_s=0.1),
    "dripping body": send(HEAD + b"\r\n", *[b"x"] * 1_000, every_s=0.1),
    "endless continue": send(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 1_000, every_s=0.1),
}


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("name", SLOW)
async def test_a_slow_server_ends_with_the_timeout(name: str, encrypted: bool) -> None:
    context = server_context() if encrypted else None
    with running(SLOW[name], context=context) as server:
        provider = provider_of(server, ssl_context=client_context(), timeout_ms=1_000)
        reason = r"did not respond within|sent nothing for 0\.5"
        with ends_within(2.0), pytest.raises(TokenUnavailable, match=reason):
            await provider()
        await threads_end()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_cancellation_at_every_step_ends_the_thread(scheme: str) -> None:
    for name, answer in SLOW.items():
        with running(answer) as server:
            provider = provider_of(server.url.replace("http", scheme), timeout_ms=60_000)
            for delay_s in (0.0, 0.001, 0.01, 0.2):
                refused = False
                with ends_within(delay_s + 1.0), anyio.move_on_after(delay_s) as scope:
                    try:
                        await provider()
                    except TokenUnavailable:
                        # These bytes are no TLS handshake.
                        refused = scheme == "https"
                assert scope.cancelled_caught or refused, name
            await threads_end()


async def test_requests_that_block_are_bounded() -> None:
    failures: list[KafkaError] = []
    with running(SLOW["silent"]) as server:
        provider = provider_of(server, timeout_ms=2_000)

        async def call() -> None:
            try:
                await provider()
            except TokenUnavailable as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(call)
        assert server.connections <= 16
        await threads_end()
    assert len(failures) == 20
    assert sum("still block" in str(error) for error in failures) >= 10
