"""Types and helpers that report findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verify.invariants.check_result import SHOWN, Violation

__all__ = ("Finding", "NotChecked", "group_findings")

Finding = tuple[str, object]
"""Text of one example of a violation, and the event that shows it."""


class NotChecked(Exception):
    """The run has nothing to check; the text gives the reason."""


def group_findings(invariant: int, kind: str, found: Sequence[Finding]) -> Iterable[Violation]:
    """Return one violation for all findings of a kind: their number, and the first few."""
    if not found:
        return
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    texts = "; ".join(text for text, _ in found[:SHOWN])
    events = tuple(event for _, event in found[:SHOWN])
    yield Violation(invariant, f"{len(found)} {kind}: {texts}{more}", events)
