"""A secret shows itself nowhere."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokafkawire.security import OAuthBearerToken, ScramCredential, Secret

TEXT = "hunter2"


def test_a_secret_is_not_shown() -> None:
    secret = Secret(TEXT)
    token = OAuthBearerToken(secret)
    credential = ScramCredential.from_password("SCRAM-SHA-256", secret, b"salt")
    shown = f"{secret} {secret!r} {secret!s:>10} {[secret]} {token} {credential}"
    assert TEXT not in shown
    assert repr(credential.stored_key) not in shown
    assert secret.reveal() == TEXT


def test_secrets_compare_by_value() -> None:
    assert Secret(TEXT) == Secret(TEXT)
    assert hash(Secret(TEXT)) == hash(Secret(TEXT))
    assert Secret(TEXT) != Secret("other")
    assert Secret(TEXT) != TEXT
    assert not Secret("")


def test_a_text_that_cannot_be_encoded_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="lone surrogate") as refused:
        Secret(f"{TEXT}\udce9")
    assert TEXT not in str(refused.value)
    assert refused.value.__context__ is None
    for other in (b"token", Secret(TEXT), None):
        with pytest.raises(TypeError, match="must be str"):
            Secret(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a Secret"):
        OAuthBearerToken(TEXT)  # type: ignore[arg-type]


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied(copied: object) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        copied(Secret(TEXT))  # type: ignore[operator]
