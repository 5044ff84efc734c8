"""Users of the broker: passwords for PLAIN, salted ones for SCRAM."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafkawire.security import SCRAM_HASHES, ScramCredential, Secret
from aiokafkawire.security.scram import MIN_ITERATIONS

if TYPE_CHECKING:
    from aiokafkawire.broker.authentication.delegation_tokens import (
        DelegationTokens,
        StoredToken,
    )

__all__ = ("CredentialStore", "random_text")

SALT_CHARACTERS = 26
"""Length of the salts of real brokers."""

_CHARACTERS = string.ascii_lowercase + string.digits


def random_text(rng: random.Random, length: int = SALT_CHARACTERS) -> str:
    """Return random letters and digits."""
    return "".join(rng.choices(_CHARACTERS, k=length))


class CredentialStore:
    """Passwords by user, and SCRAM credentials by user and mechanism.

    Args:
        users: Password of each user, for PLAIN and for both SCRAM mechanisms.
        rng: Source of the salts.
        iterations: Iterations of SCRAM.
    """

    def __init__(
        self,
        users: Mapping[str, Secret] | None,
        rng: random.Random,
        iterations: int = MIN_ITERATIONS,
    ) -> None:
        self.passwords: dict[str, Secret] = {}
        self.tokens: DelegationTokens | None = None
        self._scram: dict[tuple[str, str], ScramCredential] = {}
        self._rng = rng
        self._iterations = iterations
        for user, password in (users or {}).items():
            self.set_password(user, password)

    def token(
        self, token_id: str, mechanism: str, now_ms: int
    ) -> tuple[StoredToken, ScramCredential] | None:
        """Return a valid delegation token with its SCRAM credential, None without one."""
        if self.tokens is None:
            return None
        return self.tokens.credential(token_id, mechanism, now_ms, self._rng)

    def set_password(self, user: str, password: Secret) -> None:
        """Set the password of a user for all mechanisms."""
        self.passwords[user] = password
        for mechanism in SCRAM_HASHES:
            salt = random_text(self._rng).encode()
            credential = ScramCredential.from_password(mechanism, password, salt, self._iterations)
            self.set_scram(user, mechanism, credential)

    def delete_user(self, user: str) -> None:
        """Remove a user from all mechanisms, if it is there."""
        self.passwords.pop(user, None)
        for mechanism in SCRAM_HASHES:
            self.delete_scram(user, mechanism)

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the SCRAM credential of a user, None without one."""
        return self._scram.get((user, mechanism))

    def set_scram(self, user: str, mechanism: str, credential: ScramCredential) -> None:
        """Add or replace the SCRAM credential of a user."""
        self._scram[user, mechanism] = credential

    def change_scram(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        """Set the SCRAM credential of a user; None removes it."""
        if credential is None:
            self.delete_scram(user, mechanism)
        else:
            self.set_scram(user, mechanism, credential)

    def delete_scram(self, user: str, mechanism: str) -> None:
        """Remove the SCRAM credential of a user, if there is one."""
        self._scram.pop((user, mechanism), None)

    def scram_users(self) -> dict[str, dict[str, ScramCredential]]:
        """Return all SCRAM credentials by user and mechanism."""
        users: dict[str, dict[str, ScramCredential]] = {}
        for (user, mechanism), credential in self._scram.items():
            users.setdefault(user, {})[mechanism] = credential
        return users
