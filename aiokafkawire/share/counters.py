"""Counters of a share consumer."""

from __future__ import annotations

from aiokafkawire.consumer.counters import ConsumerCounters, Numbers

from .acknowledgements import GAP, AcknowledgeType, PartitionAcknowledgements

__all__ = ("ShareCounters",)


class ShareCounters(ConsumerCounters):
    """Counters since the share consumer was started."""

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged = dict.fromkeys(AcknowledgeType, 0)
        self._failed = 0

    def count(self, acknowledgements: PartitionAcknowledgements) -> None:
        """Count acknowledgements with a result."""
        for first, last, kind in acknowledgements.types:
            if kind == GAP:
                continue
            if acknowledgements.result.error is not None:
                self._failed += last - first + 1
            else:
                self._acknowledged[AcknowledgeType(kind)] += last - first + 1
        self._failed += len(acknowledgements.expired)

    def acknowledgement_metrics(self) -> Numbers:
        """Return the metrics of acknowledgements."""
        by_type = {
            f'acknowledgements_total{{type="{kind.name.lower()}"}}': count
            for kind, count in self._acknowledged.items()
        }
        return {**by_type, "acknowledgement_failures_total": self._failed}
