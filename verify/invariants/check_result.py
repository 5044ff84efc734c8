"""Guarantees to check, and the result of a check."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("SHOWN", "CheckResult", "Guarantees", "Violation")

SHOWN = 5
"""Number of events shown per violation; its text gives the total."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that does not hold. `events` are the first few events that show it."""

    invariant: int
    text: str
    events: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"({self.invariant}) {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Guarantees of a scenario; those of the clients follow from their options.

    `durable`: brokers lose no record that the whole ISR had (min.insync.replicas 2, no unclean
    election, at most one node at a time loses unsynced data). `numbers`: brokers support idempotent
    producers (0.11 and later). `resets`: positions may be lost by retention or truncation.
    `topics_remade`: topics are deleted and recreated; readers detect it by the ids `in_fetches`
    (3.1 and later), else by those `in_metadata` (2.8) with the next metadata request. Without ids
    `in_commits` (4.1), offsets of the old topic may be stored for the new one until then.
    `complete_groups`: groups whose members must be given every record. `complete_readers`: the same
    for consumers without a group. `share_groups`: share groups that finish every record.
    `consumed_within_s`: limit for that after the heal. `hostile`:
    peers violate the protocol. `slack_s`: tolerance for the end of a call. `sessions_hold`: a
    member loses its partitions only if its application does not poll, or during a fault. `secrets`:
    texts that must not be in log lines, reprs and errors.
    """

    durable: bool = True
    numbers: bool = True
    resets: bool = False
    topics_remade: bool = False
    in_metadata: bool = True
    in_fetches: bool = True
    in_commits: bool = True
    complete_groups: tuple[str, ...] = ()
    complete_readers: tuple[str, ...] = ()
    share_groups: tuple[str, ...] = ()
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
