"""All cases."""

from __future__ import annotations

from .copying import COPIES
from .reading import OFFSETS, PREDICATES, RECORDS, TASKS, TOPICS, WRONG
from .streaming import STREAMS
from .times import TIMES
from .writing import WRITES

__all__ = ("CASES",)

CASES = (
    *TOPICS,
    *OFFSETS,
    *TIMES,
    *TASKS,
    *RECORDS,
    *PREDICATES,
    *WRONG,
    *STREAMS,
    *WRITES,
    *COPIES,
)
