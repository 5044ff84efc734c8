"""GSSAPI with a scripted Kerberos; real brokers and a real KDC are in tests/brokers/security."""

from __future__ import annotations

import sys

import pytest

from aiokafkawire.errors import AuthenticationFailed, InvalidOption
from aiokafkawire.security import GssapiClient
from aiokafkawire.security.gssapi import require_gssapi

AP_REQ, AP_REP = b"ticket", b"proof"


class Kerberos:
    """Wraps a message as `<message>`."""

    def __init__(self) -> None:
        self.is_complete = False

    def step(self, token: bytes | None) -> bytes:
        if token is None:
            return AP_REQ
        if token != AP_REP:
            raise OSError("Decrypt integrity check failed")
        self.is_complete = True
        return b""

    def wrap(self, message: bytes) -> bytes:
        return b"<" + message + b">"

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] != b"<" or token[-1:] != b">":
            raise OSError("A token had an invalid signature")
        return token[1:-1]


def test_the_exchange_of_kafka() -> None:
    client = GssapiClient(Kerberos)
    assert client.first() == AP_REQ
    assert client.next(AP_REP) == b""
    assert client.is_answered
    assert client.next(b"<\x01\x00\x00\x00>") == b"<\x01\x00\x00\x00>"
    assert not client.is_answered, "without requests there is no answer"
    assert client.next(b"") is None


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ([b"forged"], "Decrypt integrity check failed"),
        ([AP_REP, b"forged"], "A token had an invalid signature"),
        ([AP_REP, b"<\x06\x00\x00\x00>"], "the broker requires a security layer"),
        ([AP_REP, b"<\x01>"], "the broker requires a security layer"),
        ([AP_REP, b"<\x01\x00\x00\x00>", b"more"], "the broker sent 4 bytes after the exchange"),
    ],
)
def test_tokens_of_a_hostile_broker_are_refused(tokens: list[bytes], reason: str) -> None:
    client = GssapiClient(Kerberos)
    client.first()
    *first, last = tokens
    for token in first:
        client.next(token)
    with pytest.raises(AuthenticationFailed, match=reason):
        client.next(last)
    with pytest.raises(AuthenticationFailed, match="after the exchange had ended"):
        client.next(b"")


def test_missing_credentials_are_named() -> None:
    def no_context() -> Kerberos:
        raise OSError("No Kerberos credentials available")

    with pytest.raises(AuthenticationFailed, match="GSSAPI: No Kerberos credentials available"):
        GssapiClient(no_context).first()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidOption, match=r"pip install 'aiokafkawire\[gssapi\]'"):
        require_gssapi()
