"""The client's SASL mechanisms, made from its options."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.config import ClientConfig, Secret
from aiokafkawire.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from aiokafkawire.security.mechanism import ClientMechanism
from aiokafkawire.security.oauthbearer import OAuthBearerClient, OAuthBearerToken
from aiokafkawire.security.plain import PlainClient
from aiokafkawire.security.scram import SaltedPasswords, ScramClient

__all__ = ("ClientMechanisms",)


class ClientMechanisms:
    """Makes the client's side of each authentication, with the credentials of the moment.

    Args:
        config: Options with a `sasl_mechanism`.
        nonce: Returns an unpredictable text.
    """

    def __init__(self, config: ClientConfig, nonce: Callable[[], str]) -> None:
        assert config.sasl_mechanism is not None
        self.name = config.sasl_mechanism
        self._config = config
        self._nonce = nonce
        self._salted_passwords = SaltedPasswords()

    async def new(self) -> ClientMechanism:
        """Return a mechanism for one authentication. Calls functions of the application.

        Raises:
            AuthenticationFailed: There are no usable credentials.
            ConnectionFailed: A function of the application failed.
        """
        if self.name == "OAUTHBEARER":
            return OAuthBearerClient(await self._token())
        username, password = self._config.sasl_username, await self._password()
        assert username is not None
        try:
            if self.name == "PLAIN":
                return PlainClient(username, password)
            return ScramClient(
                self.name,
                username,
                password,
                self._nonce(),
                self._salted_passwords,
                token_auth=self._config.sasl_token_auth,
            )
        except ValueError as error:
            raise AuthenticationFailed(str(error)) from None

    async def _token(self) -> OAuthBearerToken:
        provider = self._config.sasl_oauth_token_provider
        assert provider is not None
        try:
            token = await provider()
        except KafkaError:
            raise
        except Exception as error:
            raise ConnectionFailed(f"sasl_oauth_token_provider failed: {_named(error)}") from error
        if not isinstance(token, OAuthBearerToken):
            raise AuthenticationFailed(
                "sasl_oauth_token_provider must return an OAuthBearerToken, not"
                f" {type(token).__name__}"
            )
        return token

    async def _password(self) -> Secret:
        password = self._config.sasl_password
        if isinstance(password, Secret):
            return password
        assert callable(password)
        try:
            return Secret(await password())
        except (TypeError, ValueError) as error:
            raise AuthenticationFailed(f"sasl_password returned no password: {error}") from error
        except Exception as error:
            raise ConnectionFailed(f"sasl_password failed: {_named(error)}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
