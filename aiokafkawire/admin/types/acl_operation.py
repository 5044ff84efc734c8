"""Operations that access control lists allow, also as the bit fields of describe responses."""

from __future__ import annotations

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from aiokafkawire.wire.resources import AclOperation

__all__ = ("AclOperation", "authorized_operations")


def authorized_operations(bits: int) -> frozenset[AclOperation] | None:
    """Decode a bit field of authorized operations (KIP-430); None if the broker omitted it."""
    if bits == AUTHORIZED_OPERATIONS_OMITTED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
