"""Members of a share group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

__all__ = ("ShareGroupMember",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMember:
    """One member. Values never change; `dataclasses.replace` makes the next one."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[UUID, tuple[int, ...]] = field(default_factory=dict)
