"""The admin client's operations on SCRAM users and client quotas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokafkawire.errors import BrokerError, PartialFailure, UnsupportedVersion
from tests.behaviour.features import needs, without
from tests.behaviour.support import WITHIN_S

UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND = 93, 91
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512

pytestmark = pytest.mark.slow


@pytest.fixture
async def admin(bootstrap_servers: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


@pytest.fixture
def user(group_id: str) -> str:
    return group_id.replace("group", "user")


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until brokers have learned of a change."""
    with anyio.fail_after(WITHIN_S):
        while not await check():  # noqa: ASYNC110 - a broker gives no sign
            await anyio.sleep(0.05)


@needs("SCRAM users")
async def test_a_user_from_creation_to_deletion(admin: Admin, user: str):
    async def has(*expected: ScramCredentialInfo) -> bool:
        return (await admin.describe_user_scram_credentials()).get(user, []) == [*expected]

    for mechanism, iterations in ((SHA_256, 4_096), (SHA_512, 8_192)):
        created = await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, mechanism, "password", iterations)]
        )
        assert created == {user: None}
    first, second = ScramCredentialInfo(SHA_256, 4_096), ScramCredentialInfo(SHA_512, 8_192)
    await eventually(lambda: has(first, second))
    await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SHA_256)])
    await eventually(lambda: has(second))
    await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SHA_512)])
    await eventually(has)


@needs("SCRAM users")
async def test_each_user_that_failed_has_its_error(admin: Admin, user: str):
    with pytest.raises(PartialFailure) as caught:
        await admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, SHA_256, "password"),
                UserScramCredentialUpsertion(f"{user}-weak", SHA_256, "password", 1),
                UserScramCredentialDeletion(f"{user}-missing", SHA_256),
            ]
        )
    assert caught.value.succeeded == {user: None}
    codes = {name: getattr(error, "code", None) for name, error in caught.value.failed.items()}
    assert codes == {
        f"{user}-weak": UNACCEPTABLE_CREDENTIAL,
        f"{user}-missing": RESOURCE_NOT_FOUND,
    }
    found = await admin.describe_user_scram_credentials([f"{user}-missing"], return_errors=True)
    error = found[f"{user}-missing"]
    assert isinstance(error, BrokerError)
    assert error.code == RESOURCE_NOT_FOUND


@without("SCRAM users", as_of="2.6")
async def test_the_release_that_changes_users_is_named(admin: Admin, user: str):
    with pytest.raises(UnsupportedVersion, match=r"2\.7"):
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SHA_256)])


@needs("quotas")
async def test_quotas_from_creation_to_removal(admin: Admin, user: str):
    entity = ClientQuotaEntity({"user": user, "client-id": "c"})
    component = ClientQuotaFilterComponent("user", user)

    async def has(**expected: float) -> bool:
        found = await admin.describe_client_quotas([component])
        return found == ({entity: expected} if expected else {})

    quotas = {"producer_byte_rate": 1_000_000.0, "request_percentage": 90.5}
    altered = await admin.alter_client_quotas([ClientQuotaAlteration(entity, quotas)])
    assert altered == {entity: None}
    await eventually(lambda: has(**quotas))
    await admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(quotas))])
    await eventually(has)


@needs("quotas")
async def test_an_unknown_quota_is_the_error_of_its_entity(admin: Admin, user: str):
    good, bad = (ClientQuotaEntity({"user": f"{user}-{n}"}) for n in range(2))
    with pytest.raises(PartialFailure) as caught:
        await admin.alter_client_quotas(
            [
                ClientQuotaAlteration(good, {"producer_byte_rate": 1_000_000}),
                ClientQuotaAlteration(bad, {"nonsense": 1}),
            ],
            validate_only=True,
        )
    assert caught.value.succeeded == {good: None}
    assert list(caught.value.failed) == [bad]


@without("quotas", as_of="2.5")
async def test_the_release_that_changes_quotas_is_named(admin: Admin):
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        await admin.describe_client_quotas()
