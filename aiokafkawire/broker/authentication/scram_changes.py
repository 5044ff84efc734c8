"""SCRAM credentials that admin clients changed, which survive a restart (KIP-554)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiokafkawire.security import SCRAM_HASHES, ScramCredential

__all__ = ("ScramChanges",)


class ScramChanges:
    """Credential by user and mechanism; None is a deleted one."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], ScramCredential | None] = {}

    def __iter__(self) -> Iterator[tuple[str, str, ScramCredential | None]]:
        return iter([(user, name, each) for (user, name), each in self._changes.items()])

    def record(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        """Record the last change of a user's credential."""
        self._changes[user, mechanism] = credential

    def to_json(self) -> list[dict[str, Any]]:
        """Return the changes to store: no passwords, but what a broker checks proofs with."""
        return [
            {"user": user, "mechanism": mechanism, "credential": _credential_to_json(credential)}
            for user, mechanism, credential in self
        ]

    def load(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Replace all changes by stored ones."""
        self._changes.clear()
        for each in stored:
            user, mechanism = str(each["user"]), str(each["mechanism"])
            if mechanism in SCRAM_HASHES:
                self._changes[user, mechanism] = _credential_from_json(each["credential"])


def _credential_to_json(credential: ScramCredential | None) -> dict[str, Any] | None:
    if credential is None:
        return None
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "stored_key": base64.b64encode(credential.stored_key).decode(),
        "server_key": base64.b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }


def _credential_from_json(stored: Mapping[str, Any] | None) -> ScramCredential | None:
    if stored is None:
        return None
    salt, stored_key, server_key = (
        base64.b64decode(stored[name]) for name in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(salt, stored_key, server_key, int(stored["iterations"]))
