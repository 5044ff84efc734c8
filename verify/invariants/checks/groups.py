"""Ownership of partitions in a group: invariants 7 and 8."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from aiokafkawire.types import TopicPartition
from verify.invariants.check_result import Violation
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.checks.ownership import owned_twice
from verify.invariants.events import (
    Assigned,
    CallbackEnded,
    Called,
    Closed,
    Crashed,
    Event,
    Fault,
    FaultsHealed,
    GroupsStable,
    Lost,
    Opened,
    PartitionsAssignedManually,
    Returned,
    Revoked,
    Subscribed,
    TopicCreated,
    TopicDeleted,
    Unsubscribed,
)
from verify.invariants.observed import Assignment, CommitRequest
from verify.invariants.run import Client, Run

__all__ = ("Owners", "every_partition_is_owned", "follow", "only_owners_commit")

SESSION_GRACE_S = 10.0
"""Time after a fault in which a session may still expire because of it."""

NEARLY = 0.95
"""Share of the poll interval without a poll after which a member may be taken as gone."""

Member = tuple[str, str]


def only_owners_commit(run: Run) -> Iterator[Violation]:
    """(7) A member commits only partitions that it owns in its generation, and owns only assigned
    partitions.

    A member owns the assignment of its last SyncGroup response up to that generation. A cooperative
    member also owns those of earlier responses, unless another member was given them, up to the one
    that it has applied: it revokes partitions only when the application calls. The generations of a
    member do not go back on a connection unless the group was created again, and a member does not
    commit without its member id.
    """
    if run.observed.commits is None or run.observed.assignments is None:
        raise NotChecked("requests of members were not observed")
    if not run.observed.assignments:
        raise NotChecked("there are no members")
    owning = _Owning(run)
    strange: list[Finding] = []
    outside: list[Finding] = []
    back: list[Finding] = []
    newest: dict[tuple[int, int, str], tuple[int, float]] = {}
    for request in run.observed.commits:
        client = run.by_client_id.get(request.client)
        if client is None or client.group != request.group:
            if request.producer_id < 0 or not request.member:
                continue
        elif not request.member:
            if request.producer_id < 0 and owning.is_member(client, request.at):
                outside.append((f"{client.name} of {request.group}", request))
            continue
        connection = (request.node, request.connection, request.member)
        generation, since = newest.get(connection, (-1, 0.0))
        if request.generation >= generation or owning.began_again(request, since):
            newest[connection] = (request.generation, request.at)
        else:
            text = f"{request.client} from {generation} to {request.generation}"
            back.append((text, request))
        for tp in owning.strange(request, client):
            strange.append((f"{request.client} {tp} in generation {request.generation}", request))
    yield from group_findings(
        7, "partitions were committed by members that do not own them", strange
    )
    yield from group_findings(7, "members committed without a member id", outside)
    yield from group_findings(7, "members used an earlier generation again", back)
    kept = list(_not_given(run, owning))
    yield from group_findings(7, "members do not own exactly their assigned partitions", kept)


class _Owning:
    """Partitions given to members by the coordinators' responses."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._by_member: dict[Member, list[Assignment]] = defaultdict(list)
        self.by_client: dict[str, list[Assignment]] = defaultdict(list)
        for answer in run.observed.assignments or ():
            self._by_member[answer.group, answer.member].append(answer)
            self.by_client[answer.client].append(answer)
        self._given: dict[tuple[str, int], tuple[float, dict[TopicPartition, str]]] = {}
        for generation in run.observed.generations or ():
            self._given[generation.group, generation.generation] = (
                generation.at,
                {tp: member for member, partitions in generation.members for tp in partitions},
            )
        self.queued_at: dict[str, dict[float, float]] = {
            client.name: _queued_at(run, client) for client in run.clients.values()
        }
        self._chosen: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for event in run.history:
            if type(event) in {Subscribed, PartitionsAssignedManually, Unsubscribed}:
                self._chosen[event.client].append((event.at, type(event) is Subscribed))

    def is_member(self, client: Client, at: float) -> bool:
        """Return whether a client has been subscribed long enough that it must be a member."""
        chosen = self._chosen.get(client.name, [])
        return bool(chosen) and all(subscribed for since, subscribed in chosen if since <= at)

    def began_again(self, request: CommitRequest, since: float) -> bool:
        """Return whether the coordinator gave a member this generation after a later one was used.

        A classic group that replaces an empty group of the consumer protocol begins with the first
        generation, and a member keeps its id when it joins that.
        """
        return any(
            answer.generation == request.generation and since < answer.at <= request.at
            for answer in self._by_member.get((request.group, request.member), ())
        )

    def strange(self, request: CommitRequest, client: Client | None) -> list[TopicPartition]:
        """Return the partitions of a commit that its member does not own."""
        answers = [
            answer
            for answer in self._by_member.get((request.group, request.member), ())
            if answer.generation <= request.generation and answer.at <= request.at
        ]
        if not answers:
            return [tp for tp, _ in request.offsets]
        owned = set(answers[-1].partitions)
        if _cooperative(client):
            owned |= self._kept(request, client, answers)
        return [tp for tp, _ in request.offsets if tp not in owned]

    def _kept(
        self, request: CommitRequest, client: Client | None, answers: list[Assignment]
    ) -> set[TopicPartition]:
        """Return partitions of a member by the last response that it has applied and those after
        it, unless given to another member since."""
        applied = {} if client is None else self.queued_at[client.name]
        kept: set[TopicPartition] = set()
        others: set[TopicPartition] = set()
        generation, member = answers[-1].generation, answers[-1].member
        for answer in reversed(answers[:-1]):
            while generation > answer.generation:
                at, given = self._given.get((request.group, generation), (0.0, {}))
                # A group that changes its protocol may use numbers again.
                if answer.at <= at <= request.at:
                    others |= {tp for tp, owner in given.items() if owner != member}
                generation -= 1
            kept |= set(answer.partitions) - others
            if answer.received and (
                client is None
                or any(answer.at <= since and at <= request.at for at, since in applied.items())
            ):
                break
        return kept


def _queued_at(run: Run, client: Client) -> dict[float, float]:
    """Return the times of a consumer's `Assigned` events, each with the time since which the
    listener may have been due.

    A member of the consumer protocol sends heartbeats while its listener runs, and the listener is
    called again at once for an assignment that arrives meanwhile. Later responses may take
    partitions away before this call begins. A revocation ends the sequence: a member goes on from
    the last assignment when its listener has returned.
    """
    queued: dict[float, float] = {}
    since = ended = -1.0
    for event in run.by_client.get(client.name, ()):
        if type(event) is Assigned:
            if event.at != ended or not _by_coordinator(client):
                since = event.at
            queued[event.at] = since
        elif isinstance(event, CallbackEnded) and event.name == "on_partitions_assigned":
            ended = event.at
    return queued


def _cooperative(client: Client | None) -> bool:
    """Return whether a client keeps its partitions through a rebalance. An unrecorded one may."""
    if client is None or _by_coordinator(client):
        return True
    names = client.options.get("partition_assignment_strategy") or ()
    return bool(names) and all("cooperative" in str(name).lower() for name in names)


def _by_coordinator(client: Client) -> bool:
    """Return whether a member may use the consumer protocol (KIP-848)."""
    return client.options.get("group_protocol", "classic") != "classic"


def _not_given(run: Run, owning: _Owning) -> Iterator[Finding]:
    """Check that members report the partitions of one of their last two assignments.

    Members of the consumer protocol own no others.
    """
    for client in run.clients.values():
        client_id = str(client.options.get("client_id"))
        if client.kind != "consumer" or run.by_client_id.get(client_id) is None:
            continue
        answers = owning.by_client.get(client_id, [])
        times = [answer.at for answer in answers]
        owned: set[TopicPartition] = set()
        for event in run.by_client.get(client.name, ()):
            follow(owned, event)
            if type(event) is not Assigned:
                continue
            place = bisect_right(times, event.at)
            since = bisect_right(times, owning.queued_at[client.name][event.at])
            last = answers[max(0, since - 2) : place]
            if _by_coordinator(client):
                # Topics whose names are unknown, and those no longer subscribed, are left out.
                correct = owned <= {tp for answer in last for tp in answer.partitions}
            else:
                correct = any(owned == set(answer.partitions) for answer in last)
            if not correct:
                given = _names(last[-1].partitions) if last else "nothing"
                text = f"{client.name} owns {_names(sorted(owned))}, assigned: {given}"
                yield text, event


def _names(partitions: Sequence[TopicPartition]) -> str:
    return f"[{', '.join(map(str, partitions))}]"


def follow(owned: set[TopicPartition], event: Event) -> None:
    """Update the owned partitions of a member by one event."""
    if type(event) is Assigned:
        owned.update(event.partitions)
    elif type(event) is Revoked or type(event) is Lost:
        owned.difference_update(event.partitions)
    elif type(event) in {Unsubscribed, PartitionsAssignedManually, Closed, Crashed}:
        owned.clear()


class Owners:
    """Owners of partitions and wanted topics per group; fed with every event."""

    def __init__(self) -> None:
        self._group: dict[str, str] = {}
        self._owned: dict[str, set[TopicPartition]] = defaultdict(set)
        self._wanted: dict[str, Subscribed] = {}
        self._partitions: dict[str, int] = {}

    def happened(self, event: Event) -> None:
        kind = type(event)
        if kind is TopicCreated:
            assert isinstance(event, TopicCreated)
            self._partitions[event.topic] = event.partitions
        elif kind is TopicDeleted:
            assert isinstance(event, TopicDeleted)
            self._partitions.pop(event.topic, None)
        elif kind is Opened:
            assert isinstance(event, Opened)
            group = event.options.get("group_id")
            if group is not None:
                self._group[event.client] = group
        elif event.client in self._group:
            follow(self._owned[event.client], event)
            if isinstance(event, Subscribed):
                self._wanted[event.client] = event
            elif kind in {Unsubscribed, PartitionsAssignedManually, Closed, Crashed}:
                self._wanted.pop(event.client, None)

    @property
    def groups(self) -> list[str]:
        """Return the groups that have members."""
        return sorted({self._group[name] for name in self._wanted})

    def unsettled(self, group: str) -> list[str]:
        """Describe in words which partitions of a stable group lack exactly one owner."""
        members = [name for name, of in self._group.items() if of == group and name in self._wanted]
        owners = Counter(tp for name in members for tp in self._owned[name])
        wanted: dict[TopicPartition, None] = {}
        for name in members:
            for topic in self._topics(self._wanted[name]):
                for number in range(self._partitions[topic]):
                    wanted[TopicPartition(topic, number)] = None
        return [
            *(f"{tp} has no owner" for tp in wanted if tp not in owners),
            *(f"{tp} has {n} owners" for tp, n in sorted(owners.items()) if n > 1),
            *(
                f"{name} owns {tp}, to which it has not subscribed"
                for name in members
                for tp in sorted(self._owned[name])
                if tp.topic in self._partitions and tp.topic not in self._topics(self._wanted[name])
            ),
        ]

    def _topics(self, wanted: Subscribed) -> list[str]:
        if wanted.pattern is None:
            return [topic for topic in wanted.topics if topic in self._partitions]
        pattern = re.compile(wanted.pattern)
        return [topic for topic in self._partitions if pattern.fullmatch(topic)]


def every_partition_is_owned(run: Run) -> Iterator[Violation]:
    """(8) Each partition of a stable group has one owner, no leader assigns a partition twice, and
    a member loses partitions only if its application does not poll in time, or during a fault.

    No member gets a partition before its earlier owner has revoked it, or was removed.
    """
    settled = any(True for _ in run.of(GroupsStable))
    observed = run.observed.generations or run.observed.removed is not None
    if not settled and not observed and not any(True for _ in run.of(Lost)):
        raise NotChecked("no group became stable")
    owners = Owners()
    found: list[Finding] = []
    if settled:
        for event in run.history:
            owners.happened(event)
            if type(event) is GroupsStable:
                for group in event.groups:
                    found += [(f"{group}: {text}", event) for text in owners.unsettled(group)]
    yield from group_findings(8, "partitions do not have exactly one owner", found)
    twice: list[Finding] = []
    for generation in run.observed.generations or ():
        given = Counter(tp for _, partitions in generation.members for tp in partitions)
        twice += [
            (f"{tp} in generation {generation.generation} of {generation.group}", generation)
            for tp, count in given.items()
            if count > 1
        ]
    twice += [
        (f"partition {each.partition} of {each.group} to {' and '.join(each.clients)}", each)
        for each in run.observed.shared or ()
    ]
    yield from group_findings(8, "partitions were assigned to several members", twice)
    if run.observed.removed is not None:
        yield from group_findings(
            8, "partitions were owned by several members", list(owned_twice(run))
        )
    yield from group_findings(8, "partitions were lost without a reason", list(_lost(run)))


def _lost(run: Run) -> Iterator[Finding]:
    if not run.guarantees.sessions_hold:
        return
    broken = sorted(event.at for event in run.of(Fault))
    healed = sorted(event.at for event in run.of(FaultsHealed))
    deleted = {event.topic for event in run.of(TopicDeleted)}
    for event in run.of(Lost):
        client = run.clients.get(event.client)
        kept = [tp for tp in event.partitions if tp.topic not in deleted]
        if client is None or not kept:
            continue
        if _fault_may_expire_session(client, event.at, broken, healed) or _fenced(
            run, client, event.at
        ):
            continue
        if _exceeded_poll_interval(run, client, event):
            continue
        yield f"{event.client} {_names(kept)} at {event.at:.3f} s", event


def _fault_may_expire_session(
    client: Client, at: float, broken: list[float], healed: list[float]
) -> bool:
    """Return whether a fault is active, or ended so recently that the session could still
    expire."""
    place = bisect_right(broken, at)
    if not place:
        return False
    after = bisect_right(healed, broken[place - 1])
    if after == len(healed):
        return True
    session_s = client.seconds("effective_session_timeout_ms", 45_000)
    return at <= healed[after] + session_s + SESSION_GRACE_S


def _fenced(run: Run, client: Client, at: float) -> bool:
    """Return whether another client took over the static member's id."""
    name = client.options.get("group_instance_id")
    return name is not None and any(
        other.options.get("group_instance_id") == name
        for other in run.clients.values()
        if other.name != client.name and client.opened.at <= other.opened.at <= at
    )


def _exceeded_poll_interval(run: Run, client: Client, lost: Lost) -> bool:
    """Return whether the application exceeded its poll interval since it got the partitions."""
    interval_s = client.seconds("max_poll_interval_ms", 300_000) * NEARLY
    open_: set[int] = set()
    last = client.opened.at
    away = False
    for event in run.by_client.get(client.name, ()):
        if event is lost:
            break
        if type(event) is Assigned:
            away = False
        elif type(event) is Called:
            away = away or (not open_ and event.at - last >= interval_s)
            open_.add(event.call)
            last = event.at
        elif type(event) is Returned:
            open_.discard(event.call)
            last = event.at
    return away or (not open_ and lost.at - last >= interval_s)
