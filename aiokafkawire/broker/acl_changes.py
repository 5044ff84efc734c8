"""ACLs that clients created and deleted, which survive a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafkawire.broker.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.broker.authorizer import Authorizer

__all__ = ("AclChanges",)


class AclChanges:
    """Differences to the ACLs that the broker was created with: True is added, False is removed."""

    def __init__(self) -> None:
        self._changes: dict[AclBinding, bool] = {}

    def create(self, authorizer: Authorizer, binding: AclBinding) -> None:
        """Add an ACL."""
        if binding in authorizer:
            return
        authorizer.add(binding)
        if self._changes.pop(binding, None) is None:
            self._changes[binding] = True

    def delete(self, authorizer: Authorizer, binding: AclBinding) -> None:
        """Remove an ACL, if it exists."""
        if binding not in authorizer:
            return
        authorizer.remove(binding)
        if self._changes.pop(binding, None) is None:
            self._changes[binding] = False

    def apply(self, authorizer: Authorizer) -> None:
        """Repeat the changes of earlier runs."""
        for binding, is_added in list(self._changes.items()):
            if is_added == (binding in authorizer):
                # The broker was created with this difference already.
                del self._changes[binding]
            elif is_added:
                authorizer.add(binding)
            else:
                authorizer.remove(binding)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the changes to store."""
        return [
            {**binding._asdict(), "is_added": is_added}
            for binding, is_added in self._changes.items()
        ]

    def load(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Replace all changes by stored ones."""
        self._changes = {
            AclBinding(
                ResourceType(each["resource_type"]),
                str(each["name"]),
                PatternType(each["pattern_type"]),
                str(each["principal"]),
                str(each["host"]),
                AclOperation(each["operation"]),
                AclPermissionType(each["permission_type"]),
            ): bool(each["is_added"])
            for each in stored
        }
