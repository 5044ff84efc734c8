"""The ids and epochs that InitProducerId hands out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_TRANSACTIONAL_IDS", "Identities")

MAX_TRANSACTIONAL_IDS = 10_000
"""Transactional ids remembered; the one not used for longest is forgotten first."""

MAX_EPOCH = 2**15 - 2
"""Kafka keeps the last epoch for itself, to fence with."""

NONE = -1


class Identities:
    """Producer ids by transactional id."""

    def __init__(self, new_producer_id: Callable[[], int]) -> None:
        self._new_producer_id = new_producer_id
        self._current: OrderedDict[str, ProducerIdAndEpoch] = OrderedDict()
        self._previous: dict[str, ProducerIdAndEpoch] = {}

    def init(
        self, transactional_id: str | None, producer_id: int = NONE, epoch: int = NONE
    ) -> ProducerIdAndEpoch:
        """The identity of a producer that begins, or that bumps its epoch (KIP-360).

        Without a transactional id it is always a new one: such a producer bumps its epoch by
        itself. Raises `Refusal`.
        """
        if (producer_id == NONE) != (epoch == NONE):
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        if not transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        current = self._current.get(transactional_id)
        if current is None:
            return self._keep(transactional_id, ProducerIdAndEpoch(self._new_producer_id(), 0))
        if producer_id != NONE:
            given = ProducerIdAndEpoch(producer_id, epoch)
            if given == self._previous.get(transactional_id):
                # The answer to the same request was lost.
                return current
            if given != current:
                raise Refusal(ErrorCode.PRODUCER_FENCED)
        self._previous[transactional_id] = current
        if current.epoch >= MAX_EPOCH:
            return self._keep(transactional_id, ProducerIdAndEpoch(self._new_producer_id(), 0))
        return self._keep(
            transactional_id, ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
        )

    def _keep(self, transactional_id: str, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        self._current[transactional_id] = identity
        self._current.move_to_end(transactional_id)
        if len(self._current) > MAX_TRANSACTIONAL_IDS:
            forgotten, _ = self._current.popitem(last=False)
            self._previous.pop(forgotten, None)
        return identity
