"""The client's SASL mechanisms, made from its options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import anyio

from aiokafkawire.config import ClientConfig, Secret
from aiokafkawire.errors import AuthenticationFailed, ConnectionFailed
from aiokafkawire.runtime import Runtime, Supervisor, is_failure_of_callback
from aiokafkawire.security.gssapi import GssapiClient, kerberos_context, require_gssapi
from aiokafkawire.security.mechanism import ClientMechanism
from aiokafkawire.security.oauthbearer import OAuthBearerClient
from aiokafkawire.security.plain import PlainClient
from aiokafkawire.security.scram import SaltedPasswords, ScramClient
from aiokafkawire.security.token_cache import TokenCache

__all__ = ("ClientMechanisms",)

PASSWORD_TIMEOUT_S = 60.0
"""How long one call of a password function may take, as with a token provider."""


class ClientMechanisms:
    """Makes the client's side of each authentication, with the credentials of the moment.

    Args:
        config: Options with a `sasl_mechanism`.
        runtime: Clock and randomness.
        supervisor: Runs the task that fetches OAUTHBEARER tokens.
    """

    def __init__(self, config: ClientConfig, runtime: Runtime, supervisor: Supervisor) -> None:
        assert config.sasl_mechanism is not None
        self.name = config.sasl_mechanism
        self._config = config
        self._runtime = runtime
        provider = config.sasl_oauth_token_provider
        self._tokens = None if provider is None else TokenCache(provider, runtime, supervisor)
        self._salted_passwords = SaltedPasswords()
        if self.name == "GSSAPI":
            require_gssapi()

    async def new(self, host: str) -> ClientMechanism:
        """Return a mechanism for one authentication. Calls functions of the application.

        Args:
            host: Name of the broker, which its Kerberos principal has.

        Raises:
            AuthenticationFailed: There are no usable credentials.
            ConnectionFailed: A function of the application failed.
        """
        if self.name == "GSSAPI":
            service = self._config.sasl_kerberos_service_name
            domain = self._config.sasl_kerberos_domain_name or host
            return GssapiClient(lambda: kerberos_context(service, domain))
        if self._tokens is not None:
            return OAuthBearerClient(await self._tokens.get())
        username, password = self._config.sasl_username, await self._password()
        assert username is not None
        try:
            if self.name == "PLAIN":
                return PlainClient(username, password)
            return ScramClient(
                self.name,
                username,
                password,
                self._runtime.nonce(),
                self._salted_passwords,
                token_auth=self._config.sasl_token_auth,
            )
        except ValueError as error:
            raise AuthenticationFailed(str(error)) from None

    def on_refused(self, mechanism: ClientMechanism) -> None:
        """Do not use the credentials of a refused authentication again, if others can be had."""
        if self._tokens is not None and isinstance(mechanism, OAuthBearerClient):
            self._tokens.discard(mechanism.token)

    async def _password(self) -> Secret:
        password = self._config.sasl_password
        if isinstance(password, Secret):
            return password
        assert callable(password)
        result: object = None
        with anyio.CancelScope(deadline=self._runtime.clock.now() + PASSWORD_TIMEOUT_S) as scope:
            result = await self._call(password)
        if scope.cancelled_caught:
            raise ConnectionFailed(f"sasl_password did not return within {PASSWORD_TIMEOUT_S:g} s")
        if isinstance(result, Secret):
            return result
        try:
            return Secret(result)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise AuthenticationFailed(f"sasl_password returned no password: {error}") from None

    async def _call(self, password: Callable[[], Awaitable[object]]) -> object:
        """Call a function of the application. Every exception of it counts as temporary."""
        try:
            awaitable: object = password()
            if inspect.isawaitable(awaitable):
                return await awaitable
        except BaseException as error:
            if not is_failure_of_callback(error):
                raise
            reason = type(error).__name__
            if isinstance(error, anyio.get_cancelled_exc_class()):
                reason = "it awaited a task that was cancelled"
            # Not as the cause: an error of decoding, for example, has the password.
            raise ConnectionFailed(f"sasl_password failed: {reason}") from None
        raise AuthenticationFailed(
            "sasl_password must be a string or an async function; this function returned"
            f" {type(awaitable).__name__} without being awaited"
        )
