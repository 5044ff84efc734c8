"""Tokens of AWS MSK IAM, made by the signer of AWS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import anyio

from aiokafkawire.errors import InvalidOption
from aiokafkawire.oauth.arguments import check_extensions, check_text, check_timeout
from aiokafkawire.oauth.failure import Failure, shown
from aiokafkawire.runtime import DaemonThreads
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = ("MskIamTokenProvider",)

SIGNER = "aws_msk_iam_sasl_signer"
MAX_THREADS = 4

MISCONFIGURED = frozenset({"PartialCredentialsError", "ProfileNotFound", "TypeError"})
"""Exceptions of botocore and the signer that repeating the call does not change."""


class MskIamTokenProvider:
    """Token provider: IAM authentication of Amazon MSK, through OAUTHBEARER.

    Signs with the AWS credentials that botocore finds (environment, profile, container or instance
    role), or with those named here. A token is valid for 15 minutes. The credentials are looked up
    in a worker thread. Needs `pip install aws-msk-iam-sasl-signer-python`.

    Args:
        region: AWS region of the cluster.
        profile: Name of a profile in the AWS configuration.
        role_arn: ARN of a role to assume.
        role_session_name: Name of the session of that role.
        credentials_provider: A `botocore.credentials.CredentialProvider`.
        extensions: SASL extensions that are sent beside the token (KIP-342).
        timeout_ms: Limit of one call.

    Raises:
        InvalidOption: Arguments contradict each other, or the package is not installed.
    """

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        role_session_name: str | None = None,
        credentials_provider: object = None,
        extensions: Mapping[str, str] | None = None,
        timeout_ms: float = 30_000,
    ) -> None:
        self._region = check_text("region", region)
        given = [
            name
            for name, value in (
                ("profile", profile),
                ("role_arn", role_arn),
                ("credentials_provider", credentials_provider),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise InvalidOption(f"{given[0]} contradicts {given[1]}: pass one of them")
        if role_session_name is not None and role_arn is None:
            raise InvalidOption("role_session_name needs role_arn")
        if find_spec(SIGNER) is None:
            raise InvalidOption(
                "MskIamTokenProvider needs the signer of AWS:"
                " pip install aws-msk-iam-sasl-signer-python"
            )
        self._profile = profile
        self._role_arn = role_arn
        self._role_session_name = role_session_name
        self._credentials_provider = credentials_provider
        self._extensions = check_extensions(extensions)
        self._timeout_s = check_timeout(timeout_ms)
        self._threads = DaemonThreads("aiokafkawire-msk", MAX_THREADS)

    async def __call__(self) -> OAuthBearerToken:
        """Sign a token.

        Raises:
            TokenUnavailable: No AWS credentials were found, or they could not be fetched.
            AuthenticationFailed: The profile does not exist, or is not complete.
        """
        outcome: OAuthBearerToken | Failure = Failure(
            f"did not return within {self._timeout_s:g} s: check how AWS credentials are found"
        )
        with anyio.move_on_after(self._timeout_s):
            try:
                outcome = await self._threads.run(self._sign)
            except OSError as error:
                outcome = Failure(f"cannot be asked: {error}")
        if isinstance(outcome, Failure):
            raise outcome.as_error("the signer of AWS MSK IAM")
        return outcome

    def _sign(self) -> OAuthBearerToken | Failure:
        try:
            generate, arguments = self._choose()
            value, expires_at_ms = generate(*arguments)
        except AttributeError:
            # The signer reads the keys of credentials that are None.
            return Failure("found no AWS credentials: set them in the environment, or a profile")
        except Exception as error:
            name = type(error).__name__
            return Failure(f"failed: {name}: {shown(str(error))}", is_final=name in MISCONFIGURED)
        try:
            return OAuthBearerToken(Secret(value), int(expires_at_ms), self._extensions)
        except (TypeError, ValueError):
            return Failure("returned a token that OAUTHBEARER cannot send", is_final=True)

    def _choose(self) -> tuple[Callable[..., tuple[str, int]], tuple[Any, ...]]:
        # Importing botocore takes long, so it happens in the thread.
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer  # noqa: N813, PLC0415

        if self._profile is not None:
            return signer.generate_auth_token_from_profile, (self._region, self._profile)
        if self._role_arn is not None:
            name = () if self._role_session_name is None else (self._role_session_name,)
            return signer.generate_auth_token_from_role_arn, (self._region, self._role_arn, *name)
        if self._credentials_provider is not None:
            arguments = (self._region, self._credentials_provider)
            return signer.generate_auth_token_from_credentials_provider, arguments
        return signer.generate_auth_token, (self._region,)

    def __repr__(self) -> str:
        return f"MskIamTokenProvider({self._region!r})"
