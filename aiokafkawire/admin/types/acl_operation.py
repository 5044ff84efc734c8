"""Operations that access control lists allow, also as the bit fields of describe responses."""

from __future__ import annotations

from enum import IntEnum

from aiokafkawire.wire.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED

__all__ = ("AclOperation", "authorized_operations")


class AclOperation(IntEnum):
    """Operation on a resource, with Kafka's number."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def authorized_operations(bits: int) -> frozenset[AclOperation] | None:
    """Decode a bit field of authorized operations (KIP-430); None if the broker omitted it."""
    if bits == AUTHORIZED_OPERATIONS_OMITTED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
