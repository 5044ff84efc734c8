"""ACLs that clients created and deleted, after a restart."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from aiokafkawire.broker import Acl, Broker, authorizer
from aiokafkawire.broker.acl_changes import AclChanges
from aiokafkawire.errors import KafkaError, PartialFailure

ME = "User:ANONYMOUS"
GIVEN = Acl("User:bob", "Read", topic="orders")
OTHER = Acl("User:bob", "Write", topic="orders")
CREATED = AclBinding(ResourceType.GROUP, "billing", "User:alice", AclOperation.READ)


def broker_in(folder: Path, *acls: Acl) -> Broker:
    return Broker(data_dir=folder, acls=acls, super_users=[ME])


async def test_acls_survive_a_restart(tmp_path: Path) -> None:
    async with broker_in(tmp_path, GIVEN, OTHER) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_acls([CREATED])
            await admin.delete_acls([AclBindingFilter(operation=AclOperation.WRITE)])
        changed = broker.acls
        assert set(changed) == {GIVEN, Acl("User:alice", "Read", group="billing")}
    for _ in range(2):
        async with broker_in(tmp_path, GIVEN, OTHER) as broker:
            assert broker.acls == changed
    async with Broker(data_dir=tmp_path) as broker:
        assert broker.bootstrap_servers
    async with broker_in(tmp_path) as broker:
        assert broker.acls == (Acl("User:alice", "Read", group="billing"),)


async def test_a_deleted_acl_of_a_client_leaves_no_change(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_acls([CREATED])
            await admin.delete_acls([AclBindingFilter()])
        assert broker._running.cluster.metadata.acls.to_json() == []


async def test_users_survive_a_restart(tmp_path: Path) -> None:
    alice = UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "secret")
    found = []
    for changes in ([alice], []):
        async with (
            Broker(data_dir=tmp_path) as broker,
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ):
            if changes:
                await admin.alter_user_scram_credentials(changes)
            found.append(await admin.describe_user_scram_credentials())
    assert list(found[0]) == ["alice"]
    assert found[0] == found[1]


async def test_what_cannot_be_stored_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with broker_in(tmp_path, GIVEN) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            monkeypatch.setattr("aiokafkawire.broker.storage.replace_file", full)
            with pytest.raises(PartialFailure, match="KAFKA_STORAGE_ERROR"):
                await admin.create_acls([CREATED], timeout_ms=1_000)
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                await admin.delete_acls([AclBindingFilter()], timeout_ms=1_000)
            monkeypatch.undo()
            assert broker.acls == (GIVEN,)
            await admin.create_acls([CREATED])
        assert len(broker.acls) == 2


def test_a_difference_that_was_given_meanwhile_is_forgotten() -> None:
    changes, acls = AclChanges(), authorizer.Authorizer()
    changes.create(acls, OTHER.binding)
    changes.apply(authorizer.Authorizer([OTHER.binding]))
    assert changes.to_json() == []
