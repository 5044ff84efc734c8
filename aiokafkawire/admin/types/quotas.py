"""Arguments and results of the operations on client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ("ClientQuotaAlteration", "ClientQuotaEntity", "ClientQuotaFilterComponent", "QuotaMatch")


@dataclass(frozen=True, slots=True, init=False)
class ClientQuotaEntity:
    """Entity of a quota: names by entity type ("user", "client-id" or "ip").

    The name None is the default entity of the type.

        ClientQuotaEntity({"user": "alice", "client-id": None})
    """

    _entries: tuple[tuple[str, str | None], ...]

    def __init__(self, entries: Mapping[str, str | None]) -> None:
        object.__setattr__(self, "_entries", tuple(sorted(entries.items())))

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by entity type."""
        return dict(self._entries)

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({self.entries!r})"


class QuotaMatch(Enum):
    """Entities of a type that a filter selects."""

    DEFAULT = 1
    """The default entity."""
    SPECIFIED = 2
    """Every entity that has the type, the default one included."""


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """Selects quotas whose entity has a type, and there a name.

    Attributes:
        entity_type: "user", "client-id" or "ip".
        match: Name of the entity, or a `QuotaMatch`.
    """

    entity_type: str
    match: str | QuotaMatch = QuotaMatch.SPECIFIED


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """Changes quotas of an entity.

    Attributes:
        entity: Entity that the quotas apply to.
        ops: New value by quota, such as `{"producer_byte_rate": 1_048_576.0}` in bytes per second;
            None removes the quota.
    """

    entity: ClientQuotaEntity
    ops: Mapping[str, float | None]
