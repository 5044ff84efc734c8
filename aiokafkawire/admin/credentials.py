"""Operations on SCRAM credentials and delegation tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

from aiokafkawire.admin.arguments import as_list
from aiokafkawire.admin.items import ItemResult, finish_items, response_error
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import known_member
from aiokafkawire.admin.types.credentials import (
    DelegationToken,
    ScramCredentialInfo,
    ScramMechanism,
    TokenInformation,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokafkawire.config import Secret
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokafkawire.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from aiokafkawire.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from aiokafkawire.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from aiokafkawire.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from aiokafkawire.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

__all__ = ("CredentialOperations",)

BROKER_DEFAULT = -1
FIRST_WITH_OWNER = 3
"""Version of CreateDelegationToken and DescribeDelegationToken that has owner and requester."""
_HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class CredentialOperations(Operations):
    """Operations on SCRAM credentials and delegation tokens."""

    @overload
    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, list[ScramCredentialInfo]]: ...

    @overload
    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, list[ScramCredentialInfo] | KafkaError]: ...

    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, list[ScramCredentialInfo] | KafkaError]:
        """Return the SCRAM mechanisms and iterations of users (Kafka 2.7+).

        Args:
            users: Names of the users; by default all users that have credentials.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The credentials by user, in the order of mechanisms.

        Raises:
            PartialFailure: Some users have no credentials (RESOURCE_NOT_FOUND).
            UnsupportedVersion: Brokers before 2.7 have no API for it.
            KafkaError: No broker could be reached.
        """
        wanted = None if users is None else list(dict.fromkeys(as_list("users", users)))
        response = await self._requester(timeout_ms).request(
            DescribeUserScramCredentialsRequest(
                users=None if wanted is None else [UserName(name=user) for user in wanted]
            )
        )
        results = _by_user(
            map(_described, response.results), wanted, "DescribeUserScramCredentials"
        )
        return finish_items(results, "users", return_errors=return_errors)

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Create, replace and delete SCRAM credentials (Kafka 2.7+).

        ::

            await admin.alter_user_scram_credentials([
                UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_512, password),
            ])

        Args:
            alterations: The changes. Those of one user succeed or fail together.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each user.

        Raises:
            PartialFailure: Some users were not changed: the iterations are out of range
                (UNACCEPTABLE_CREDENTIAL), or there is no credential to delete
                (RESOURCE_NOT_FOUND).
            ValueError: A mechanism is UNKNOWN.
            UnsupportedVersion: Brokers before 2.7 have no API for it.
            KafkaError: The controller could not be reached.
        """
        requester = self._requester(timeout_ms)
        given = list(alterations)
        deletions = [each for each in given if isinstance(each, UserScramCredentialDeletion)]
        upsertions = [each for each in given if isinstance(each, UserScramCredentialUpsertion)]
        salted = await requester.runtime.offload(
            lambda: [_upsertion(each, requester.runtime.nonce()) for each in upsertions]
        )
        response = await requester.request(
            AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                    for each in deletions
                ],
                upsertions=salted,
            )
        )
        reported = (
            ItemResult(result.user, None, result.error_code, result.error_message)
            for result in response.results
        )
        users = list(dict.fromkeys(each.user for each in given))
        results = _by_user(reported, users, "AlterUserScramCredentials")
        return finish_items(results, "users", return_errors=return_errors)

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Create a delegation token (KIP-48), on a connection that is authenticated without one.

        Args:
            owner: Principal that authenticates with the token, as "User:alice"; by default the
                principal of this client (another one: Kafka 3.3+).
            renewers: Principals that may renew the token besides the owner.
            max_lifetime_ms: Milliseconds for which the token can be renewed; defaults to the
                brokers' `delegation.token.max.lifetime.ms`, which is the most as well.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The token with its HMAC, which is its secret.

        Raises:
            BrokerError: The brokers have no secret key (DELEGATION_TOKEN_AUTH_DISABLED), or the
                connection may not create tokens (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
            UnsupportedVersion: Brokers before 1.1 have no tokens.
            KafkaError: The controller could not be reached.
        """
        owner_type, owner_name = (None, None) if owner is None else _principal(owner)
        renewer_names = tuple(renewers)
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, renewer_names)
            ],
            max_lifetime_ms=BROKER_DEFAULT if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner_type, owner_name
        response = await self._requester(timeout_ms).request(
            request, min_version=0 if owner is None else FIRST_WITH_OWNER
        )
        return DelegationToken(
            TokenInformation(
                token_id=response.token_id,
                owner=f"{response.principal_type}:{response.principal_name}",
                token_requester=_requester_of(response),
                renewers=renewer_names,
                issue_timestamp_ms=response.issue_timestamp_ms,
                expiry_timestamp_ms=response.expiry_timestamp_ms,
                max_timestamp_ms=response.max_timestamp_ms,
            ),
            response.hmac,
        )

    async def renew_delegation_token(
        self,
        token: DelegationToken | bytes,
        *,
        renew_period_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Extend the time until a delegation token expires.

        Args:
            token: The token, or its HMAC.
            renew_period_ms: Milliseconds from now; defaults to the brokers'
                `delegation.token.expiry.time.ms`.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Time of expiry, in milliseconds since 1970.

        Raises:
            BrokerError: The token does not exist (DELEGATION_TOKEN_NOT_FOUND) or is expired, or
                the principal is neither its owner nor a renewer (DELEGATION_TOKEN_OWNER_MISMATCH).
            UnsupportedVersion: Brokers before 1.1 have no tokens.
            KafkaError: The controller could not be reached.
        """
        response = await self._requester(timeout_ms).request(
            RenewDelegationTokenRequest(
                hmac=_hmac(token),
                renew_period_ms=BROKER_DEFAULT if renew_period_ms is None else renew_period_ms,
            )
        )
        return response.expiry_timestamp_ms

    async def expire_delegation_token(
        self,
        token: DelegationToken | bytes,
        *,
        expiry_time_period_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Set the time when a delegation token expires.

        Args:
            token: The token, or its HMAC.
            expiry_time_period_ms: Milliseconds from now; by default the token expires at once.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Time of expiry, in milliseconds since 1970.

        Raises:
            BrokerError: As with `renew_delegation_token`.
            UnsupportedVersion: Brokers before 1.1 have no tokens.
            KafkaError: The controller could not be reached.
        """
        period = BROKER_DEFAULT if expiry_time_period_ms is None else expiry_time_period_ms
        response = await self._requester(timeout_ms).request(
            ExpireDelegationTokenRequest(hmac=_hmac(token), expiry_time_period_ms=period)
        )
        return response.expiry_timestamp_ms

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens that the principal may describe.

        Args:
            owners: Principals that own the tokens, as "User:alice"; by default all.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The tokens in the broker's order.

        Raises:
            BrokerError: As with `create_delegation_token`.
            UnsupportedVersion: Brokers before 1.1 have no tokens.
            KafkaError: No broker could be reached.
        """
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, owners)
            ]
        response = await self._requester(timeout_ms).request(
            DescribeDelegationTokenRequest(owners=wanted)
        )
        return [*map(_token, response.tokens)]


def _described(result: DescribeUserScramCredentialsResult) -> ItemResult:
    infos = [
        ScramCredentialInfo(
            known_member(ScramMechanism, info.mechanism, ScramMechanism.UNKNOWN), info.iterations
        )
        for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
    ]
    return ItemResult(result.user, infos, result.error_code, result.error_message)


def _by_user(
    reported: Iterable[ItemResult], wanted: Sequence[str] | None, api: str
) -> dict[str, Any]:
    """Return the result of each user; an error for users that the response lacks."""
    results: dict[str, Any] = {}
    for each in reported:
        error = response_error(each.code, each.message, api=api)
        results[each.key] = each.value if error is None else error
    if wanted is None:
        return results
    for user in wanted:
        if user not in results:
            results[user] = ProtocolError(
                f"the {api} response lacks a result for user {user!r}", api=api
            )
    return {user: results[user] for user in wanted}


def _upsertion(given: UserScramCredentialUpsertion, nonce: str) -> ScramCredentialUpsertion:
    """Return the credential to store. The salt is `nonce` unless one is given."""
    algorithm = _HASHES.get(given.mechanism)
    if algorithm is None:
        raise ValueError(f"user {given.user!r}: the mechanism must be SCRAM_SHA_256 or _512")
    password = given.password.reveal() if isinstance(given.password, Secret) else given.password
    salt = nonce.encode() if given.salt is None else given.salt
    raw = password.encode() if isinstance(password, str) else password
    # The broker refuses iterations out of its range; 0 cannot be hashed here.
    salted = hashlib.pbkdf2_hmac(algorithm, raw, salt, max(given.iterations, 1))
    return ScramCredentialUpsertion(
        name=given.user,
        mechanism=given.mechanism,
        iterations=given.iterations,
        salt=salt,
        salted_password=salted,
    )


def _principal(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, separator, name = principal.partition(":")
    if not separator or not kind or not name:
        raise ValueError(f"a principal must be as 'User:alice', not {principal!r}")
    return kind, name


def _hmac(token: DelegationToken | bytes) -> bytes:
    return token.hmac if isinstance(token, DelegationToken) else token


def _requester_of(response: Any) -> str | None:
    if not response.token_requester_principal_type:
        return None
    return f"{response.token_requester_principal_type}:{response.token_requester_principal_name}"


def _token(token: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        TokenInformation(
            token_id=token.token_id,
            owner=f"{token.principal_type}:{token.principal_name}",
            token_requester=_requester_of(token),
            renewers=tuple(
                f"{each.principal_type}:{each.principal_name}" for each in token.renewers
            ),
            issue_timestamp_ms=token.issue_timestamp,
            expiry_timestamp_ms=token.expiry_timestamp,
            max_timestamp_ms=token.max_timestamp,
        ),
        token.hmac,
    )
