"""All comparisons."""

from __future__ import annotations

from tests.brokers.admin_parity import (
    cluster_cases,
    group_cases,
    security_cases,
    topic_cases,
    transaction_cases,
)
from tests.brokers.admin_parity.case import Case

__all__ = ("CASES",)

CASES: tuple[Case, ...] = (
    *topic_cases.CASES,
    *cluster_cases.CASES,
    *group_cases.CASES,
    *security_cases.CASES,
    *transaction_cases.CASES,
)
