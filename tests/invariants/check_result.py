"""Guarantees to check, and the result of a check."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("SHOWN", "CheckResult", "Guarantees", "Violation")

SHOWN = 5
"""Number of events shown per violation; its text gives the total."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that does not hold. `events` are those that show it, the first few."""

    invariant: int
    text: str
    events: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"({self.invariant}) {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Guarantees of a scenario; those of the clients follow from their options.

    `durable`: brokers lose nothing that all replicas in sync had (min.insync.replicas 2, no unclean
    election, at most one node at a time loses what it had not written). `numbers`: brokers know
    idempotent producers (0.11 and later). `resets`: positions may be lost by retention or
    truncation. `topics_remade`: topics are deleted and recreated; readers can detect it by ids
    `in_fetches` (3.1 and later) at once, else by those `in_metadata` (2.8) when they look there.
    `complete_groups`: groups whose members must have been given every record at the end.
    `complete_readers`: consumers without a group, likewise. `consumed_within_s`: after the heal.
    `hostile`: peers send bytes that break the protocol. `slack_s`: how late a call may be.
    `sessions_hold`: a member loses its partitions only if its application does not call, or while
    something is broken. `secrets`: what must stand in no log line, no repr and no error's text.
    """

    durable: bool = True
    numbers: bool = True
    resets: bool = False
    topics_remade: bool = False
    in_metadata: bool = True
    in_fetches: bool = True
    complete_groups: tuple[str, ...] = ()
    complete_readers: tuple[str, ...] = ()
    consumed_within_s: float = 60.0
    hostile: bool = False
    slack_s: float = 0.25
    sessions_hold: bool = True
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check; `not_checked` gives the reason per invariant that could not be checked."""

    violations: tuple[Violation, ...]
    not_checked: dict[int, str]
