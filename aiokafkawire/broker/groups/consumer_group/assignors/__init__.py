"""Server-side assignors of consumer groups (KIP-848), with Kafka's results."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from aiokafkawire.broker.groups.consumer_group.assignors.range import assign_range
from aiokafkawire.broker.groups.consumer_group.assignors.spec import (
    Assignment,
    AssignmentSpec,
    AssignorError,
    MemberSpec,
)
from aiokafkawire.broker.groups.consumer_group.assignors.uniform import assign_uniform

__all__ = (
    "ASSIGNORS",
    "Assignment",
    "AssignmentSpec",
    "AssignorError",
    "MemberSpec",
    "assign_range",
    "assign_uniform",
)

ASSIGNORS: Mapping[str, Callable[[AssignmentSpec], dict[str, Assignment]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""Assignors by name; the first is the default."""
