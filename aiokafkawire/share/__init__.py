"""Share consumer: reads the records of share groups, and acknowledges each of them (KIP-932)."""

from __future__ import annotations

from .acknowledgements import Acknowledgement, AcknowledgeType
from .consumer import ShareConsumer
from .record import ShareRecord
from .records import ShareRecords

__all__ = ("AcknowledgeType", "Acknowledgement", "ShareConsumer", "ShareRecord", "ShareRecords")
