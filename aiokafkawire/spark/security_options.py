"""Options of TLS and SASL, which have the names of Spark's Kafka connector."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from aiokafkawire.config import ClientConfig, Secret
from aiokafkawire.config.java_properties import (
    OAuthSettings,
    convert_security_properties,
    is_security_property,
)
from aiokafkawire.errors import InvalidOption

from .option_names import KAFKA_PREFIX

__all__ = ("TaskSecret", "seal_secrets", "security_options")

SECRET_OPTIONS = frozenset(
    field.name for field in dataclasses.fields(ClientConfig) if "secret" in field.metadata
)

# Not a path such as /etc/ssl.d, nor a name that has the prefix.
_PROPERTY = re.compile(r"(?<![\w./-])(?:enable\.ssl|sasl|security|ssl)\.[a-z][a-z.]*[a-z]")


class TaskSecret(Secret):
    """A secret that Spark takes to the tasks in the pickle of a reader or writer.

    It is shown no more than any `Secret`. The pickle has the text: Spark keeps it in memory and
    sends it to the executors (`spark.network.crypto.enabled` encrypts that).
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return TaskSecret, (self.reveal(),)


class TaskTokenProvider:
    """A token provider for OAUTHBEARER that each process makes when it first needs a token."""

    def __init__(self, settings: OAuthSettings) -> None:
        secret = settings.client_secret
        if secret is not None:
            settings = dataclasses.replace(settings, client_secret=TaskSecret(secret.reveal()))
        self._settings = settings
        self._provider: Any = None

    @property
    def ask_each_time(self) -> bool:
        """True for a file, which another program renews."""
        return self._settings.url.startswith("file:")

    async def __call__(self) -> Any:
        if self._provider is None:
            # It takes long to import.
            from aiokafkawire.oauth.properties import make_token_provider  # noqa: PLC0415

            self._provider = make_token_provider(self._settings)
        return await self._provider()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskTokenProvider) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)

    def __repr__(self) -> str:
        return f"TaskTokenProvider({self._settings.url!r})"

    def __reduce__(self) -> Any:
        return TaskTokenProvider, (self._settings,)


def security_options(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Convert the properties of TLS and SASL to options of the client.

    Args:
        kafka: All options that begin with `kafka.`, without it, in lower case.

    Raises:
        InvalidOption: A property cannot be converted. The text has no secret.
    """
    given = {name: value for name, value in kafka.items() if is_security_property(name)}
    try:
        return convert_security_properties(given, TaskTokenProvider)
    except InvalidOption as error:
        text = _PROPERTY.sub(rf"{KAFKA_PREFIX}\g<0>", str(error))
        raise InvalidOption(text, option=error.option) from None


def seal_secrets(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with their secrets hidden from `repr`."""
    return {
        name: TaskSecret(value) if name in SECRET_OPTIONS and isinstance(value, str) else value
        for name, value in options.items()
    }
