"""State machine of a member of a share group (KIP-932)."""

from __future__ import annotations

from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine

from .table import TRANSITIONS

__all__ = ("ShareProtocolMachine",)


class ShareProtocolMachine(ConsumerProtocolMachine):
    """The state of a member of a share group."""

    transitions = TRANSITIONS
