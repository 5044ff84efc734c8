"""Requests about client quotas."""

from __future__ import annotations

import pytest

from aiokafkawire.admin import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    QuotaMatch,
)
from aiokafkawire.errors import PartialFailure, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import alter_client_quotas as alter
from aiokafkawire.wire.messages import describe_client_quotas as describe
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster

ALICE = ClientQuotaEntity({"user": "alice", "client-id": None})


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def test_the_order_of_types_does_not_matter():
    other = ClientQuotaEntity({"client-id": None, "user": "alice"})
    assert other == ALICE
    assert hash(other) == hash(ALICE)
    assert ALICE.entries == {"user": "alice", "client-id": None}
    assert "alice" in repr(ALICE)


async def test_quotas_are_described(cluster: ScriptedCluster, admin: ScriptedAdmin):
    entry = describe.DescribeClientQuotasEntryData(
        entity=[
            describe.DescribeClientQuotasEntityData(entity_type=kind, entity_name=name)
            for kind, name in (("user", "alice"), ("client-id", None))
        ],
        values=[describe.ValueData(key="producer_byte_rate", value=1.5)],
    )
    cluster.answer(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda request: describe.DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=0, error_message=None, entries=[entry]
        ),
    )
    found = await admin.describe_client_quotas(
        [
            ClientQuotaFilterComponent("user", "alice"),
            ClientQuotaFilterComponent("client-id", QuotaMatch.DEFAULT),
            ClientQuotaFilterComponent("ip"),
        ],
        strict=True,
    )
    assert found == {ALICE: {"producer_byte_rate": 1.5}}
    request = cluster.sent[-1].message
    assert request.strict
    assert [(each.match_type, each.match) for each in request.components] == [
        (0, "alice"),
        (1, None),
        (2, None),
    ]
    cluster.versions[ApiKey.DESCRIBE_CLIENT_QUOTAS] = -1
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        await admin.describe_client_quotas()


async def test_quotas_are_set_and_removed(cluster: ScriptedCluster, admin: ScriptedAdmin):
    bob = ClientQuotaEntity({"user": "bob"})

    def answer(request: alter.AlterClientQuotasRequest) -> alter.AlterClientQuotasResponse:
        return alter.AlterClientQuotasResponse(
            throttle_time_ms=0,
            entries=[
                alter.EntryResult(
                    error_code=ErrorCode.INVALID_REQUEST if len(entry.entity) == 1 else 0,
                    error_message="unknown quota",
                    entity=entry.entity,
                )
                for entry in request.entries
            ],
        )

    cluster.answer(ApiKey.ALTER_CLIENT_QUOTAS, answer)
    with pytest.raises(PartialFailure, match="unknown quota") as caught:
        await admin.alter_client_quotas(
            [
                ClientQuotaAlteration(ALICE, {"producer_byte_rate": 5, "request_percentage": None}),
                ClientQuotaAlteration(bob, {"x": 1.0}),
            ],
            validate_only=True,
        )
    assert caught.value.succeeded == {ALICE: None}
    assert list(caught.value.failed) == [bob]
    request = cluster.sent[-1].message
    assert request.validate_only
    assert [(op.key, op.value, op.remove) for op in request.entries[0].ops] == [
        ("producer_byte_rate", 5.0, False),
        ("request_percentage", 0.0, True),
    ]


async def test_an_entity_has_one_alteration(admin: ScriptedAdmin):
    with pytest.raises(ValueError, match="two alterations"):
        await admin.alter_client_quotas([ClientQuotaAlteration(ALICE, {})] * 2)
