"""Tokens of AWS MSK IAM, with a signer that has the functions of AWS's."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from aiokafkawire.errors import AuthenticationFailed, InvalidOption, TokenUnavailable
from aiokafkawire.oauth import MskIamTokenProvider, Secret
from aiokafkawire.oauth import msk as module

TOKEN = "aHR0cHM6Ly9rYWZrYS5ldS13ZXN0LTEuYW1hem9uYXdzLmNvbS8"
EXPIRES_AT_MS = 1_764_000_900_000

calls: list[tuple[Any, ...]] = []


def result(*call: Any) -> Any:
    calls.append(call)
    assert threading.current_thread().name == "aiokafkawire-msk"
    return TOKEN, EXPIRES_AT_MS


class Signer(ModuleType):
    @staticmethod
    def generate_auth_token(region: str, aws_debug_creds: bool = False) -> Any:
        return result("default", region, aws_debug_creds)

    @staticmethod
    def generate_auth_token_from_profile(region: str, aws_profile: str) -> Any:
        return result("profile", region, aws_profile)

    @staticmethod
    def generate_auth_token_from_role_arn(
        region: str, role_arn: str, sts_session_name: str = "MSKSASLDefaultSession"
    ) -> Any:
        return result("role", region, role_arn, sts_session_name)

    @staticmethod
    def generate_auth_token_from_credentials_provider(region: str, provider: Any) -> Any:
        return result("credentials", region, provider)


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    package = ModuleType(module.SIGNER)
    signer = Signer("MSKAuthTokenProvider")
    package.MSKAuthTokenProvider = signer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.SIGNER, package)
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    calls.clear()
    return signer


CREDENTIALS = object()


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, ("default", "eu-west-1", False)),
        ({"profile": "kafka"}, ("profile", "eu-west-1", "kafka")),
        ({"role_arn": "arn:r"}, ("role", "eu-west-1", "arn:r", "MSKSASLDefaultSession")),
        (
            {"role_arn": "arn:r", "role_session_name": "billing"},
            ("role", "eu-west-1", "arn:r", "billing"),
        ),
        ({"credentials_provider": CREDENTIALS}, ("credentials", "eu-west-1", CREDENTIALS)),
    ],
)
@pytest.mark.usefixtures("signer")
async def test_a_token_is_signed_in_a_thread(options: dict[str, Any], call: Any) -> None:
    provider = MskIamTokenProvider("eu-west-1", extensions={"a": "b"}, **options)
    token = await provider()
    assert token.value == Secret(TOKEN)
    assert token.expires_at_ms == EXPIRES_AT_MS
    assert token.extensions == {"a": "b"}
    assert calls == [call]
    assert repr(provider) == "MskIamTokenProvider('eu-west-1')"


def raising(error: Exception) -> Callable[..., Any]:
    def generate(*_: Any) -> Any:
        raise error

    return generate


@pytest.mark.parametrize(
    ("generate", "kind", "reason"),
    [
        # Credentials that botocore did not find are None.
        (lambda *_: None.access_key, TokenUnavailable, "found no AWS credentials"),
        (raising(ValueError("AWS Credentials can not be empty")), TokenUnavailable, "ValueError"),
        (raising(OSError("169.254.169.254\n" + "x" * 5_000)), TokenUnavailable, r"254\\nxxx"),
        (
            raising(type("ProfileNotFound", (Exception,), {})("(nope)")),
            AuthenticationFailed,
            "nope",
        ),
        (lambda *_: ("two words", 5), AuthenticationFailed, "cannot send"),
        (lambda *_: (None, 5), AuthenticationFailed, "cannot send"),
        (lambda *_: (TOKEN, "soon"), AuthenticationFailed, "cannot send"),
        (lambda *_: TOKEN, TokenUnavailable, "ValueError"),
    ],
)
async def test_signers_that_fail(
    signer: Signer, generate: Any, kind: type[Exception], reason: str
) -> None:
    signer.generate_auth_token = generate  # type: ignore[method-assign]
    with pytest.raises(kind, match=reason) as caught:
        await MskIamTokenProvider("eu-west-1")()
    assert str(caught.value).startswith("the signer of AWS MSK IAM ")
    assert len(str(caught.value)) < 500


async def test_a_lookup_that_hangs_is_given_up(signer: Signer) -> None:
    ended = threading.Event()
    signer.generate_auth_token = lambda *_: ended.wait(20)  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(TokenUnavailable, match=r"did not return within 0\.2 s"):
        await MskIamTokenProvider("eu-west-1", timeout_ms=200)()
    assert time.monotonic() - began < 2.0
    ended.set()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"region": ""}, "region must be"),
        ({"profile": "a", "role_arn": "b"}, "profile contradicts role_arn"),
        ({"role_arn": "a", "credentials_provider": 1}, "role_arn contradicts credentials_provider"),
        ({"role_session_name": "a"}, "role_session_name needs role_arn"),
        ({"timeout_ms": 0}, "timeout_ms must be"),
    ],
)
@pytest.mark.usefixtures("signer")
def test_arguments_that_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        MskIamTokenProvider(**({"region": "eu-west-1"} | options))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(InvalidOption, match="pip install aws-msk-iam-sasl-signer-python"):
        MskIamTokenProvider("eu-west-1")
