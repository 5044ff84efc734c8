"""Operations on access control, credentials and quotas."""

from __future__ import annotations

from typing import Any

from aiokafkawire.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    PatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.cluster import USER
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("CASES",)

TIMES = frozenset(
    {"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "token_id", "hmac"}
)
ITERATIONS = 4_096


def acls(name: str) -> list[AclBinding]:
    return [
        AclBinding(ResourceType.TOPIC, name, f"User:{name}", AclOperation.READ),
        AclBinding(
            ResourceType.GROUP,
            name,
            f"User:{name}",
            AclOperation.ALL,
            pattern_type=PatternType.PREFIXED,
            host="10.0.0.1",
        ),
        # Kafka refuses it: the name of the cluster is another one.
        AclBinding(ResourceType.CLUSTER, name, f"User:{name}", AclOperation.ALTER),
    ]


def java_acl(java: JavaAdmin, acl: AclBinding) -> Any:
    return java.type("common.acl.AclBinding")(
        java.type("common.resource.ResourcePattern")(
            getattr(java.type("common.resource.ResourceType"), acl.resource_type.name),
            acl.name,
            getattr(java.type("common.resource.PatternType"), acl.pattern_type.name),
        ),
        java.type("common.acl.AccessControlEntry")(
            acl.principal,
            acl.host,
            getattr(java.type("common.acl.AclOperation"), acl.operation.name),
            getattr(java.type("common.acl.AclPermissionType"), acl.permission_type.name),
        ),
    )


def java_filter(java: JavaAdmin, name: str) -> Any:
    """Select the entries of a principal."""
    return java.type("common.acl.AclBindingFilter")(
        java.type("common.resource.ResourcePatternFilter").ANY,
        java.type("common.acl.AccessControlEntryFilter")(
            f"User:{name}",
            None,
            java.type("common.acl.AclOperation").ANY,
            java.type("common.acl.AclPermissionType").ANY,
        ),
    )


async def with_acls(world: World, name: str) -> None:
    await world.admin.create_acls(acls(name)[:2])
    await world.settle()


async def with_users(world: World, name: str) -> None:
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        await world.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, mechanism, "password", ITERATIONS)]
        )
    await world.settle()


def java_scram_credentials(java: JavaAdmin, name: str) -> dict[str, Any]:
    users = [name, f"{name}-missing"]
    result = java.admin.describeUserScramCredentials(users)
    return {user: result.description(user) for user in users}


def java_users(java: JavaAdmin, name: str, iterations: int = ITERATIONS) -> list[Any]:
    mechanism = java.type("ScramMechanism").SCRAM_SHA_256
    info = java.type("ScramCredentialInfo")(mechanism, iterations)
    return [
        java.type("UserScramCredentialUpsertion")(name, info, "password"),
        java.type("UserScramCredentialDeletion")(f"{name}-missing", mechanism),
        java.type("UserScramCredentialUpsertion")(
            f"{name}-weak", java.type("ScramCredentialInfo")(mechanism, 10), "password"
        ),
    ]


def our_users(name: str) -> list[UserScramCredentialUpsertion | UserScramCredentialDeletion]:
    mechanism = ScramMechanism.SCRAM_SHA_256
    return [
        UserScramCredentialUpsertion(name, mechanism, "password", ITERATIONS),
        UserScramCredentialDeletion(f"{name}-missing", mechanism),
        UserScramCredentialUpsertion(f"{name}-weak", mechanism, "password", 10),
    ]


async def with_token(world: World, name: str) -> None:
    """Create a token of `name` that the principal of both clients may renew."""
    await world.admin.create_delegation_token(
        owner=f"User:{name}", renewers=[f"User:{USER}"], max_lifetime_ms=3_600_000
    )
    await world.settle()


def java_token(java: JavaAdmin, name: str) -> Any:
    principal = java.type("common.security.auth.KafkaPrincipal")("User", name)
    options = java.type("DescribeDelegationTokenOptions")().owners([principal])
    return java.admin.describeDelegationToken(options).delegationTokens().get()[0]


async def our_token(world: World, name: str) -> Any:
    (token,) = await world.admin.describe_delegation_token([f"User:{name}"])
    return token


def java_entity(java: JavaAdmin, name: str, user_type: str = "user") -> Any:
    return java.type("common.quota.ClientQuotaEntity")({user_type: name, "client-id": None})


def java_alteration(java: JavaAdmin, entity: Any, key: str) -> Any:
    op = java.type("common.quota.ClientQuotaAlteration").Op(key, 1000.0)
    return java.type("common.quota.ClientQuotaAlteration")(entity, [op])


def our_entity(name: str, user_type: str = "user") -> ClientQuotaEntity:
    return ClientQuotaEntity({user_type: name, "client-id": None})


async def with_quota(world: World, name: str) -> None:
    await world.admin.alter_client_quotas(
        [ClientQuotaAlteration(our_entity(name), {"request_percentage": 5.5})]
    )
    await world.settle()


async def renewed(world: World, name: str) -> Any:
    token = await our_token(world, name)
    expiry = await world.admin.renew_delegation_token(token, renew_period_ms=60_000)
    return expiry > 0


async def expired(world: World, name: str) -> Any:
    return await world.admin.expire_delegation_token(await our_token(world, name)) > 0


CASES = (
    Case(
        "create_acls",
        lambda java, name: java.admin.createAcls(
            [java_acl(java, acl) for acl in acls(name)]
        ).values(),
        lambda world, name: world.admin.create_acls(acls(name), return_errors=True),
    ),
    Case(
        "describe_acls",
        lambda java, name: java.admin.describeAcls(java_filter(java, name)).values(),
        lambda world, name: world.admin.describe_acls(AclBindingFilter(principal=f"User:{name}")),
        with_acls,
        shared=True,
    ),
    Case(
        "delete_acls",
        lambda java, name: java.admin.deleteAcls([java_filter(java, name)]).values(),
        lambda world, name: world.admin.delete_acls([AclBindingFilter(principal=f"User:{name}")]),
        with_acls,
    ),
    Case(
        "describe_user_scram_credentials",
        java_scram_credentials,
        lambda world, name: world.admin.describe_user_scram_credentials(
            [name, f"{name}-missing"], return_errors=True
        ),
        with_users,
        shared=True,
    ),
    Case(
        "alter_user_scram_credentials",
        lambda java, name: java.admin.alterUserScramCredentials(java_users(java, name)).values(),
        lambda world, name: world.admin.alter_user_scram_credentials(
            our_users(name), return_errors=True
        ),
    ),
    Case(
        "create_delegation_token",
        lambda java, name: java.admin.createDelegationToken(
            java.type("CreateDelegationTokenOptions")()
            .renewers([java.type("common.security.auth.KafkaPrincipal")("User", name)])
            .maxLifetimeMs(3_600_000)
        ).delegationToken(),
        lambda world, name: world.admin.create_delegation_token(
            renewers=[f"User:{name}"], max_lifetime_ms=3_600_000
        ),
        ignored=TIMES,
    ),
    Case(
        "renew_delegation_token",
        lambda java, name: java.admin.renewDelegationToken(
            java_token(java, name).hmac(),
            java.type("RenewDelegationTokenOptions")().renewTimePeriodMs(60_000),
        ).expiryTimestamp(),
        renewed,
        with_token,
        adapt=lambda expiry: expiry > 0,
    ),
    Case(
        "renew_delegation_token",
        lambda java, name: java.admin.renewDelegationToken(b"none").expiryTimestamp(),
        lambda world, name: world.admin.renew_delegation_token(b"none"),
        title="unknown",
    ),
    Case(
        "expire_delegation_token",
        lambda java, name: java.admin.expireDelegationToken(
            java_token(java, name).hmac()
        ).expiryTimestamp(),
        expired,
        with_token,
        adapt=lambda expiry: expiry > 0,
    ),
    Case(
        "describe_delegation_token",
        lambda java, name: java.admin.describeDelegationToken(
            java.type("DescribeDelegationTokenOptions")().owners(
                [java.type("common.security.auth.KafkaPrincipal")("User", name)]
            )
        ).delegationTokens(),
        lambda world, name: world.admin.describe_delegation_token([f"User:{name}"]),
        with_token,
        shared=True,
    ),
    Case(
        "describe_client_quotas",
        lambda java, name: java.admin.describeClientQuotas(
            java.type("common.quota.ClientQuotaFilter").contains(
                [java.type("common.quota.ClientQuotaFilterComponent").ofEntity("user", name)]
            )
        ).entities(),
        lambda world, name: world.admin.describe_client_quotas(
            [ClientQuotaFilterComponent("user", name)]
        ),
        with_quota,
        shared=True,
    ),
    Case(
        "alter_client_quotas",
        lambda java, name: java.admin.alterClientQuotas(
            [
                java_alteration(java, java_entity(java, name), "consumer_byte_rate"),
                java_alteration(java, java_entity(java, f"{name}-2"), "unknown_rate"),
            ]
        ).values(),
        lambda world, name: world.admin.alter_client_quotas(
            [
                ClientQuotaAlteration(our_entity(name), {"consumer_byte_rate": 1000.0}),
                ClientQuotaAlteration(our_entity(f"{name}-2"), {"unknown_rate": 1000.0}),
            ],
            return_errors=True,
        ),
    ),
)
