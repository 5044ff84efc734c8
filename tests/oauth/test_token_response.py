"""Responses of a token endpoint, hostile ones included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiokafkawire.errors import AuthenticationFailed, TokenUnavailable
from aiokafkawire.oauth.failure import Failure
from aiokafkawire.oauth.jwt import NO_TIMES, JwtTimes, parse_json_object, read_jwt_times
from aiokafkawire.oauth.token_response import (
    ASSUMED_LIFETIME_S,
    MAX_LIFETIME_S,
    HttpResponse,
    parse_retry_after,
    parse_token_response,
)
from aiokafkawire.security import OAuthBearerToken

from .identity_provider import jwt

NOW_MS = 1_764_000_000_000
NOW_S = NOW_MS // 1_000
TOKEN = "eyJ.eyJ.c2ln"


def parse(response: HttpResponse) -> OAuthBearerToken | Failure:
    return parse_token_response(response, wall_ms=NOW_MS, extensions={}, redact=lambda text: text)


def issued(token: str = TOKEN, **fields: object) -> HttpResponse:
    return HttpResponse(200, json.dumps({"access_token": token, **fields}).encode())


@pytest.mark.parametrize(
    ("response", "life_s"),
    [
        (issued(expires_in=60), 60),
        (issued(expires_in=59.5), 59.5),
        (issued(expires_in="60"), 60),
        (issued(), ASSUMED_LIFETIME_S),
        (issued(expires_in=None), ASSUMED_LIFETIME_S),
        (issued(expires_in=0), ASSUMED_LIFETIME_S),
        (issued(expires_in=-5), ASSUMED_LIFETIME_S),
        (issued(expires_in=True), ASSUMED_LIFETIME_S),
        (issued(expires_in="soon"), ASSUMED_LIFETIME_S),
        (issued(expires_in="9" * 16), ASSUMED_LIFETIME_S),
        (issued(expires_in=[60]), ASSUMED_LIFETIME_S),
        (issued(expires_in=float("nan")), ASSUMED_LIFETIME_S),
        (issued(expires_in=float("inf")), ASSUMED_LIFETIME_S),
        (issued(expires_in=10**400), ASSUMED_LIFETIME_S),
        (issued(expires_in=10**300), MAX_LIFETIME_S),
        (issued(jwt({"exp": NOW_S + 90})), 90),
        (issued(jwt({"exp": NOW_S + 90}), expires_in=0), 90),
        (issued(jwt({"exp": NOW_S + 90}), expires_in=60), 60),
        (issued(jwt({"exp": NOW_S + 90, "iat": NOW_S - 10})), 90),
        # Other clocks than this machine's: only durations count, where both are named.
        (issued(jwt({"exp": 1_500_000_090, "iat": 1_500_000_000}), expires_in=60), 60),
        (issued(jwt({"exp": 1_500_000_030, "iat": 1_500_000_000}), expires_in=60), 30),
        (issued(jwt({"exp": 9_000_000_030, "iat": 9_000_000_000})), 30),
        (issued(jwt({"exp": "tomorrow", "iat": None}), expires_in=60), 60),
        (issued(jwt({"exp": NOW_S + 90, "iat": NOW_S + 100})), 90),
        (issued(jwt({"exp": 1e300})), ASSUMED_LIFETIME_S),
        (issued(jwt({"exp": True})), ASSUMED_LIFETIME_S),
    ],
)
def test_lifetimes(response: HttpResponse, life_s: float) -> None:
    token = parse(response)
    assert isinstance(token, OAuthBearerToken)
    assert token.expires_at_ms == NOW_MS + int(life_s * 1_000)


def test_a_token_that_has_expired_by_this_clock() -> None:
    failure = parse(issued(jwt({"exp": NOW_S - 60})))
    assert isinstance(failure, Failure)
    error = failure.as_error("the server")
    assert isinstance(error, TokenUnavailable)
    assert "expired 60 s ago by the clock of this machine" in str(error)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("999999999", 86_400),
        ("Mon, 24 Nov 2025 16:01:40 GMT", 100),
        ("Mon, 24 Nov 2025 15:00:00 GMT", 0),
        ("Mon, 24 Nov 2025 16:01:40 -0000", 100),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5_000, None),
        ("Mon, 99 Nov 2025 99:99:99 GMT", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW_MS) == seconds


@given(st.text())
def test_any_retry_after_is_bounded(value: str) -> None:
    seconds = parse_retry_after(value, NOW_MS)
    assert seconds is None or 0 <= seconds <= 86_400


# --- any response --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "access_token": JSON | st.from_regex(r"[A-Za-z0-9]{1,9}(\.[A-Za-z0-9_-]{0,40}){2}"),
        "token_type": JSON | st.just("Bearer"),
        "expires_in": JSON,
        "error": JSON | st.sampled_from(["invalid_client", "slow_down"]),
        "error_description": JSON,
    },
)


@given(
    status=st.integers(100, 999),
    body=st.binary(max_size=200) | FIELDS.map(lambda fields: json.dumps(fields).encode()),
    content_type=st.text(max_size=300),
    location=st.text(max_size=900),
    retry_after=st.text(max_size=30),
)
@example(status=200, body=b"\xef\xbb\xbf{}", content_type="", location="", retry_after="")
@example(status=200, body=b"[" * 200_000, content_type="", location="", retry_after="")
@example(status=200, body=b"9" * 5_000, content_type="", location="", retry_after="")
@example(
    status=200,
    body=b'{"access_token":"\\ud800","expires_in":1}',
    content_type="",
    location="",
    retry_after="",
)
def test_any_response_is_a_token_or_a_reason(
    status: int, body: bytes, content_type: str, location: str, retry_after: str
) -> None:
    outcome = parse(HttpResponse(status, body, content_type, location, retry_after))
    if isinstance(outcome, OAuthBearerToken):
        assert 200 <= status < 300
        assert outcome.expires_at_ms is not None
        assert NOW_MS <= outcome.expires_at_ms <= NOW_MS + MAX_LIFETIME_S * 1_000
        return
    error = outcome.as_error("the token endpoint")
    assert isinstance(error, AuthenticationFailed if outcome.is_final else TokenUnavailable)
    assert len(str(error)) < 1_500
    assert str(error).isprintable()


# --- JSON Web Tokens -----------------------------------------------------------------------------


@given(st.floats(1, 253_402_300_799), st.none() | st.integers(1, 253_402_300_799))
def test_times_are_read(expires_at_s: float, issued_at_s: int | None) -> None:
    claims: dict[str, Any] = {"exp": expires_at_s, "sub": "billing", "aud": ["a", "b"]}
    if issued_at_s is not None:
        claims["iat"] = issued_at_s
    assert read_jwt_times(jwt(claims)) == JwtTimes(expires_at_s, issued_at_s)


@given(
    st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_=-]*\.[A-Za-z0-9_-]*") | JSON.map(jwt)
)
@example("a.b.c")
@example("..")
@example("a.W1tbW1tb.c")
def test_any_text_has_times_or_none(token: str) -> None:
    times = read_jwt_times(token)
    assert all(value is None or 0 < value <= 253_402_300_799 for value in times)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c.d",
        "a.b c.d",
        "a.é.c",
        f"a.{'W' * 100_000}.c",
        jwt([1]),  # type: ignore[arg-type]
        jwt({}),
        jwt({"exp": "1764000000"}),
        jwt({"exp": -1, "iat": 10**400}),
    ],
)
def test_tokens_without_times(token: str) -> None:
    assert read_jwt_times(token) == NO_TIMES


def test_padding_is_accepted() -> None:
    header, payload, _ = jwt({"exp": 5}).split(".")
    assert read_jwt_times(f"{header}.{payload}{'=' * (-len(payload) % 4)}.x").expires_at_s == 5


@given(st.binary())
def test_any_bytes_are_an_object_or_none(data: bytes) -> None:
    value = parse_json_object(data)
    assert value is None or isinstance(value, dict)
