"""AlterUserScramCredentials: set and delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.describe_user_scram_credentials import SCRAM_MECHANISMS
from aiokafkawire.broker.authentication import CredentialStore
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.security import ScramCredential
from aiokafkawire.security.scram import MIN_ITERATIONS
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

__all__ = ("error_response", "handle")

MAX_ITERATIONS = 16_384
"""Limit of real brokers."""

MAX_USERS = 10_000
"""Limit of users that clients can create."""

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes = _changes(request)
    if not context.is_authorized(AclOperation.ALTER, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    store = context.state.credentials
    errors: dict[str, ApiError | None] = {}
    for change in changes:
        if errors.get(change.name) is None:
            errors[change.name] = _find_error(store, change, is_repeated=change.name in errors)
    for change in changes:
        if errors[change.name] is None:
            _apply(context, change)
    context.cluster.save_if_possible()
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for name, error in errors.items()
        ],
    )


def error_response(
    request: AlterUserScramCredentialsRequest, version: int, code: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(change.name for change in _changes(request))
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=None)
            for name in names
        ],
    )


def _changes(request: AlterUserScramCredentialsRequest) -> list[Change]:
    return [*request.deletions, *request.upsertions]


def _find_error(store: CredentialStore, change: Change, *, is_repeated: bool) -> ApiError | None:
    """Return the error of a change that is not possible."""
    try:
        if is_repeated:
            # A user, whichever the mechanisms.
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        _check(store, change)
    except ApiError as error:
        return error
    return None


def _check(store: CredentialStore, change: Change) -> None:
    """Raise `ApiError` if a change is not possible."""
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if store.scram(change.name, mechanism) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    users = store.scram_users()
    if change.name not in users and len(users) >= MAX_USERS:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"the broker keeps at most {MAX_USERS} users")


def _apply(context: RequestContext, change: Change) -> None:
    mechanism = SCRAM_MECHANISMS[change.mechanism]
    credential = (
        None
        if isinstance(change, ScramCredentialDeletion)
        else ScramCredential.from_salted_password(
            mechanism, change.salted_password, change.salt, change.iterations
        )
    )
    context.state.credentials.change_scram(change.name, mechanism, credential)
    context.cluster.metadata.scram.record(change.name, mechanism, credential)
