"""Worker processes of a group, and everything that they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from verify.soak.checker import PartitionOffset, Span
from verify.soak.reporters import ReportingProcess, WaitFailed, until


class Member(ReportingProcess):
    """One worker process."""

    @property
    def owned(self) -> list[int]:
        """Return the owned partitions; empty if it is dead."""
        if not self.alive:
            return []
        return next((e["partitions"] for e in reversed(self.events) if e["what"] == "owns"), [])


class Members:
    """All members ever started."""

    def __init__(self, servers: str, topic: str, group: str, strategy: str, session_ms: int):
        self._arguments = (servers, topic, group, strategy, session_ms)
        self.all: list[Member] = []

    def add(self) -> Member:
        member = Member(f"member {len(self.all) + 1}", "verify.soak.group_worker", self._arguments)
        self.all.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.all if member.alive]

    def until(self, what: str, holds: Callable[[], bool], timeout_seconds: float) -> float:
        try:
            return until(what, holds, timeout_seconds, *self.alive)
        except WaitFailed as error:
            error.add_note(f"owned: { {member.name: member.owned for member in self.alive} }")
            raise

    def share(self, partitions: int, *among: Member) -> Callable[[], bool]:
        """Return a condition: these members own all partitions, each some and none twice."""

        def holds() -> bool:
            owned = [member.owned for member in among]
            together = sorted(number for some in owned for number in some)
            return all(owned) and together == list(range(partitions))

        return holds

    def spans(self, *, since: float = 0.0) -> list[Span]:
        return [
            Span(*span)
            for member in self.all
            for event in list(member.events)
            if event["what"] == "read" and event["at"] >= since
            for span in event["spans"]
        ]

    def first_read_since(self, at: float) -> float | None:
        """Return when the first records after a time were processed."""
        return min(
            (
                event["at"]
                for member in self.all
                for event in list(member.events)
                if event["what"] == "read" and event["at"] > at
            ),
            default=None,
        )

    def in_doubt(self) -> set[PartitionOffset]:
        """Return commits that were sent and whose outcome the sender never learned."""
        doubtful: set[PartitionOffset] = set()
        for member in self.all:
            open_places: list[PartitionOffset] = []
            for event in list(member.events):
                if event["what"] == "committing":
                    open_places = [PartitionOffset(*place) for place in event["places"]]
                elif event["what"] in {"committed", "refused"}:
                    open_places = []
                elif event["what"] == "in doubt":
                    doubtful.update(open_places)
                    open_places = []
            doubtful.update(open_places)
        return doubtful

    def reads_of(self, partition: int) -> list[float]:
        """Return the times at which any member processed records of a partition."""
        return [
            event["at"]
            for member in self.all
            for event in list(member.events)
            if event["what"] == "read" and any(span[0] == partition for span in event["spans"])
        ]


@contextmanager
def members(
    servers: str, topic: str, group: str, strategy: str, session_ms: int
) -> Iterator[Members]:
    found = Members(servers, topic, group, strategy, session_ms)
    try:
        yield found
    finally:
        for member in found.all:
            member.kill()
