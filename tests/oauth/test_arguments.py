"""Arguments that contradict or lack each other, and URLs to which no secret may be sent."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import InvalidOption
from aiokafkawire.oauth import JwtBearerTokenProvider, OidcTokenProvider, Secret, TokenFileProvider
from aiokafkawire.oauth.arguments import check_endpoint_url

SECRET = "s3cret-of-billing"
URL = "https://idp.example/token"


async def assertion() -> str:
    return SECRET


@pytest.mark.parametrize(
    "url",
    [
        "https://idp.example",
        "https://idp.example:8443/realms/kafka/protocol/openid-connect/token?tenant=1",
        "HTTPS://IDP.example/token",
        "https://[2001:db8::1]/token",
        "http://localhost:8080/token",
        "http://LOCALHOST/token",
        "http://keycloak.localhost/token",
        "http://127.0.0.1/token",
        "http://127.8.9.10/token",
        "http://[::1]:8080/token",
    ],
)
def test_urls_that_are_safe(url: str) -> None:
    assert check_endpoint_url(url, allow_http=False) == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://idp.example/token", "would send the credentials unencrypted"),
        ("http://localhost.example/token", "unencrypted"),
        ("http://0.0.0.0/token", "unencrypted"),
        ("http://128.0.0.1/token", "unencrypted"),
        ("http://[2001:db8::1]/token", "unencrypted"),
        ("idp.example/token", "must be like https://host/path"),
        ("//idp.example/token", "must be like"),
        ("ftp://idp.example/token", "must be like"),
        ("file:///etc/passwd", "must be like"),
        ("https:///token", "must be like"),
        ("https://idp.example:0/", "must be like"),
        ("https://idp.example:99999/", "must be like"),
        ("https://idp.example:port/", "must be like"),
        ("https://[::1/", "must be like"),
        (f"https://billing:{SECRET}@idp.example/token", "neither user name nor fragment"),
        (f"https://{SECRET}@idp.example/token", "neither user name nor fragment"),
        ("https://idp.example/token#a", "fragment"),
        ("https://idp.example/to ken", "ASCII"),
        ("https://idp.example/to\nken", "ASCII"),
        ("https://idp.example/tökén", "ASCII"),
        ("", "ASCII|must be like"),
        (None, "ASCII"),
        (b"https://idp.example", "ASCII"),
    ],
)
def test_urls_that_are_refused(url: Any, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason) as caught:
        check_endpoint_url(url, allow_http=False)
    assert SECRET not in str(caught.value)
    if "unencrypted" in reason:
        assert check_endpoint_url(url, allow_http=True) == url
        assert "allow_http=True" in str(caught.value)


@given(st.text())
def test_any_url_is_checked(url: str) -> None:
    try:
        checked = check_endpoint_url(url, allow_http=True)
    except InvalidOption:
        return
    assert checked.lower().startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs client_secret or client_assertion"),
        ({"client_secret": SECRET}, "client_secret needs client_id"),
        ({"client_id": "", "client_secret": SECRET}, "client_id must be a text"),
        ({"client_id": 7, "client_secret": SECRET}, "client_id must be a text"),
        ({"client_id": "b"}, "needs client_secret or client_assertion"),
        ({"client_id": "b", "client_secret": ""}, "client_secret is empty"),
        ({"client_id": "b", "client_secret": SECRET + "\n"}, "ends with a line break"),
        ({"client_id": "b", "client_secret": Secret(SECRET + "\r\n")}, "ends with a line break"),
        ({"client_id": "b", "client_secret": SECRET + "\udce9"}, "lone surrogate"),
        ({"client_id": "b", "client_secret": SECRET.encode()}, "a Secret or .*, not bytes"),
        (
            {"client_id": "b", "client_secret": SECRET, "client_assertion": assertion},
            "client_secret contradicts client_assertion",
        ),
        ({"client_auth": "digest"}, "client_auth must be one of 'basic', 'basic_unencoded'"),
        ({"scope": ""}, "scope must be a text"),
        ({"audience": ["kafka"]}, "audience must be a text"),
        ({"extra_parameters": {"scope": "a"}}, "must not have 'scope'"),
        ({"extra_parameters": {"a": 1}}, "must map texts to texts"),
        ({"extensions": {"auth": "x"}}, "extensions: .*'auth'"),
        ({"extensions": {"a b": "x"}}, "extensions: .*'a b'"),
        ({"extensions": {"a": 1}}, "extensions"),
        ({"extensions": "ab"}, "extensions"),
        ({"timeout_ms": 0}, "timeout_ms must be a number from 1"),
        ({"timeout_ms": float("nan")}, "timeout_ms must be a number from 1"),
        ({"timeout_ms": "5"}, "timeout_ms must be a number from 1"),
        ({"ssl_context": object()}, "ssl_context must be an ssl.SSLContext"),
        ({"ssl_context": object(), "ssl_cafile": "ca.pem"}, "ssl_cafile contradicts ssl_context"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], reason: str) -> None:
    if not {"client_id", "client_secret"} & options.keys() and options:
        options = {"client_id": "b", "client_secret": SECRET} | options
    with pytest.raises(InvalidOption, match=reason) as caught:
        OidcTokenProvider(URL, **options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_arguments_of_the_jwt_bearer_grant() -> None:
    with pytest.raises(InvalidOption, match="client_secret needs client_id"):
        JwtBearerTokenProvider(URL, assertion=assertion, client_secret=SECRET)
    with pytest.raises(InvalidOption, match="assertion must be"):
        JwtBearerTokenProvider(URL, assertion=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="must not have 'assertion'"):
        JwtBearerTokenProvider(URL, assertion=assertion, extra_parameters={"assertion": "a"})


def test_arguments_of_the_token_file() -> None:
    with pytest.raises(InvalidOption, match="path must be a text"):
        TokenFileProvider("")
    with pytest.raises(InvalidOption, match="extensions"):
        TokenFileProvider("token", extensions={"auth": "x"})
    assert repr(TokenFileProvider("token")) == "TokenFileProvider('token')"
