"""A transaction that one process writes and another one ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ("DetachedTransaction",)


@dataclass(frozen=True, slots=True)
class DetachedTransaction:
    """An open transaction whose records are all acknowledged, left open by `detach_transaction`.

    `end_detached_transaction` commits or aborts it, from any process. The coordinator aborts it
    after the producer's `transaction_timeout_ms`, and when a producer with the same
    `transactional_id` starts. (Unlike a prepared transaction of KIP-939, which outlives both.)

    Attributes:
        transactional_id: The `transactional_id` of the producer.
        producer_id: The producer id that wrote the records.
        producer_epoch: The epoch that wrote the records.
        transaction_version: Level of the cluster feature `transaction.version` that the
            transaction uses: 0 or 2 (KIP-890).
        empty: Nothing was sent, so there is nothing to end.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    empty: bool = False

    def to_json(self) -> str:
        """Return the transaction as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> DetachedTransaction:
        """Parse the text of `to_json`.

        Raises:
            ValueError: The text is not a detached transaction.
        """
        try:
            parsed: Any = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a detached transaction: {error}") from None
        kinds = {"transactional_id": str, "empty": bool}
        if not isinstance(parsed, dict) or set(parsed) != {field.name for field in fields(cls)}:
            raise ValueError(f"not a detached transaction: {parsed!r:.200}")
        for name, value in parsed.items():
            kind = kinds.get(name, int)
            if type(value) is not kind:
                raise ValueError(f"not a detached transaction: {name} is {value!r:.80}")
        return cls(**parsed)
