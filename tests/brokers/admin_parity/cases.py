"""All comparisons."""

from __future__ import annotations

from tests.brokers.admin_parity import group_cases, security_cases, transaction_cases
from tests.brokers.admin_parity.case import Case

__all__ = ("CASES",)

CASES: tuple[Case, ...] = (*group_cases.CASES, *security_cases.CASES, *transaction_cases.CASES)
