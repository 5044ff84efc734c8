"""A transaction that one process filled and another ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ("PreparedTransaction",)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """An open transaction with all of its records in the logs, given away by `Producer.detach`.

    `protocol` is the level of the feature transaction.version by which it was made (0 or 2);
    `empty`: nothing was sent, so that there is nothing to end. It is ended by `end_transaction`,
    in whatever process, before its `transaction_timeout_ms` is over or a producer of the same
    `transactional_id` is started: both abort it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    protocol: int
    empty: bool = False

    def to_json(self) -> str:
        """The transaction as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> PreparedTransaction:
        """Read what `to_json` wrote. Raises `ValueError` for anything else."""
        try:
            told: Any = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a prepared transaction: {error}") from None
        kinds = {"transactional_id": str, "empty": bool}
        if not isinstance(told, dict) or set(told) != {field.name for field in fields(cls)}:
            raise ValueError(f"not a prepared transaction: {told!r:.200}")
        for name, value in told.items():
            kind = kinds.get(name, int)
            if type(value) is not kind:
                raise ValueError(f"not a prepared transaction: {name} is {value!r:.80}")
        return cls(**told)
