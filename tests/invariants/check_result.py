"""What is promised, and what was found."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("SHOWN", "CheckResult", "Guarantees", "Violation")

SHOWN = 5
"""Events that a violation shows; its text tells how many there are."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What was promised and not held. `events` are those that show it, the first few."""

    invariant: int
    text: str
    events: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"({self.invariant}) {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What a scenario promises of its run; what clients promise follows from their options.

    `durable`: brokers lose nothing that all replicas in sync had (min.insync.replicas 2, no unclean
    election, at most one node at a time loses what it had not written). `numbers`: brokers know
    idempotent producers (0.11 and later). `resets`: positions may be lost by retention or
    truncation. `topics_remade`: topics are deleted and made again; readers can tell by ids
    `in_fetches` (3.1 and later) at once, else by those `in_metadata` (2.8) when they look there.
    `complete_groups`: groups of which each record must have been given to some member at the end.
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
    """What was found; `not_checked` says why an invariant had nothing to look at."""

    violations: tuple[Violation, ...]
    not_checked: dict[int, str]
