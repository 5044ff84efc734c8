"""SCRAM users that admin clients set survive a restart."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Producer
from aiokafkawire.broker import Broker, BrokerSasl
from aiokafkawire.broker.authentication.scram_changes import ScramChanges
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security import ScramCredential, Secret
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from ..raw_client import connected

SHA_256 = 1
MECHANISM = "SCRAM-SHA-256"


async def alter(broker: Broker, **changes: Any) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=changes.get("deletions", []), upsertions=changes.get("upsertions", [])
    )
    async with connected(broker) as client:
        response = await client.call(request, 0)
    assert {each.error_code for each in response.results} == {ErrorCode.NONE}


async def log_in(broker: Broker, user: str, password: str) -> None:
    async with Producer(
        bootstrap_servers=broker.listeners["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=user,
        sasl_password=password,
    ):
        pass


async def test_users_survive_a_restart(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data_dir": tmp_path,
        "sasl": BrokerSasl(users={"alice": "alice-pw"}),
        "listeners": ["PLAINTEXT", "SASL_PLAINTEXT"],
    }
    salted = hashlib.pbkdf2_hmac("sha256", b"bob-pw", b"salt", 4_096)
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=SHA_256, iterations=4_096, salt=b"salt", salted_password=salted
    )
    async with Broker(**options) as broker:
        await alter(
            broker,
            upsertions=[upsertion],
            deletions=[ScramCredentialDeletion(name="alice", mechanism=SHA_256)],
        )
        await log_in(broker, "bob", "bob-pw")
    async with Broker(**options) as broker:
        await log_in(broker, "bob", "bob-pw")
        with pytest.raises(AuthenticationFailed):
            await log_in(broker, "alice", "alice-pw")


def test_changes_are_stored_and_loaded() -> None:
    changes, loaded = ScramChanges(), ScramChanges()
    credential = ScramCredential.from_password(MECHANISM, Secret("pw"), b"salt")
    changes.record("a", MECHANISM, credential)
    changes.record("b", MECHANISM, None)
    loaded.load(changes.to_json())
    assert list(loaded) == [("a", MECHANISM, credential), ("b", MECHANISM, None)]
