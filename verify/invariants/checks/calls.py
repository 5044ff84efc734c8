"""Calls, errors, and leftovers: invariants 9, 10, 12 and 13."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from math import inf

from aiokafkawire.wire import ErrorCode
from verify.invariants.check_result import Violation
from verify.invariants.checks.finding import Finding, NotChecked, group_findings
from verify.invariants.events import Acknowledged, Called, Failed, Fault, Returned
from verify.invariants.run import Client, Run

__all__ = ("calls_end_in_time", "errors_are_typed", "no_secret_is_logged", "nothing_leaks")

PROTOCOL_ERRORS = {"ProtocolError", "MalformedFrame", "MalformedMessage", "CorruptRecord"}
"""Errors that no peer causes which keeps the protocol."""

SHORTEST_PAUSE = 0.75
"""Shortest backoff as a share of `retry_backoff_ms`: the jitter is 20 %."""

ENDED_SESSIONS = {
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
}
"""Error codes of a request whose share session has ended."""

UNEXPECTED = "a response with correlation id"
"""Log text of a client that receives a response it does not wait for."""


def calls_end_in_time(run: Run) -> Iterator[Violation]:
    """(9) Every call ends by its deadline, and so does the outcome of every record that was
    awaited.

    Calls of crashed clients are ignored.
    """
    if not any(True for _ in run.of(Called)) and not run.sent:
        raise NotChecked("no call was made")
    slack = run.guarantees.slack_s
    late: list[Finding] = []
    never: list[Finding] = []
    open_: dict[tuple[str, int], Called] = {}
    for event in run.history:
        if type(event) is Called:
            open_[event.client, event.call] = event
        elif type(event) is Returned:
            called = open_.pop((event.client, event.call), None)
            if called is None or called.limit_s is None:
                continue
            took = event.at - called.at
            if took > called.limit_s + slack and not _crashed(run, event.client):
                text = f"{called.name} of {called.client} took {took:.3f} s of {called.limit_s} s"
                late.append((text, called))
    for called in open_.values():
        limit = called.limit_s
        if limit is None or _crashed(run, called.client):
            continue
        if run.ended_at > called.at + limit + slack:
            never.append((f"{called.name} of {called.client}, since {called.at:.3f} s", called))
    yield from group_findings(9, "calls ended after their deadline", late)
    yield from group_findings(9, "calls never ended", never)
    yield from group_findings(9, "outcomes of records came after their deadline", _late(run))
    hanging = [(f"{each.values[0]!r} of {each.client}", each) for each in run.outcomes_missing]
    yield from group_findings(9, "records have no outcome after their producer was closed", hanging)


def _crashed(run: Run, name: str) -> bool:
    client = run.clients.get(name)
    return client is not None and client.crashed


def _late(run: Run) -> list[Finding]:
    """Return records whose hand-over or outcome came too late."""
    slack = run.guarantees.slack_s
    late: list[Finding] = []
    for sent in run.sent.values():
        outcome: Acknowledged | Failed | None = sent.acknowledged or sent.failed
        began, limit = sent.sending.at, sent.sending.limit_s
        name = sent.value.decode("latin-1")
        handed = sent.handed_at
        if handed is None and outcome is not None:
            handed = outcome.at
        if limit is not None and not _crashed(run, sent.client):
            ended = run.ended_at if handed is None else handed
            if ended > began + limit + slack:
                late.append((f"{name} was handed over in {ended - began:.3f} s", sent.sending))
                continue
        if outcome is None or outcome.awaited_at is None:
            continue
        if sent.handed_at is None or sent.limit_s is None:
            continue
        due = max(outcome.awaited_at, sent.handed_at + sent.limit_s)
        if outcome.at > due + slack:
            late.append((f"{name} after {outcome.at - sent.handed_at:.3f} s", outcome))
    return late


def nothing_leaks(run: Run) -> Iterator[Violation]:
    """(10) After closing, no task, socket, timer or group member is left, and no client held more
    than its configured limits."""
    observed = run.observed
    if observed.left_behind is None and not observed.peaks and observed.members is None:
        raise NotChecked("leftovers were not observed")
    left: list[Finding] = [(line, line) for line in observed.left_behind or ()]
    yield from group_findings(10, "leaked tasks, sockets or timers", left)
    over: list[Finding] = [
        (f"{peak.client} held {peak.value} {peak.what}, of {peak.limit}", peak)
        for peak in observed.peaks or ()
        if peak.value > peak.limit
    ]
    yield from group_findings(10, "configured limits were exceeded", over)
    yield from group_findings(
        10, "members stay in groups that they left", list(_leftover_members(run))
    )


def _leftover_members(run: Run) -> Iterator[Finding]:
    """Return members left in a group although their client was closed without a fault.

    A member without a member id cannot leave, and a cancelled one does not wait for its id. It has
    less than a second to leave: the round trips of TLS and SASL may take longer.
    """
    begin = fault_free_since(run)
    joined = dict(run.observed.joined)
    for group, client_id in run.observed.members or ():
        client = run.by_client_id.get(client_id)
        if client is None or client.ended_at is None or client.crashed or begin is None:
            continue
        nameless = joined.get(client_id, inf) > client.ended_at - run.guarantees.slack_s
        if client.cancelled and (nameless or client.secure):
            continue
        if begin == 0.0 or client.ended_at > begin + recovery_s(client):
            yield f"{client.name} in {group}", client


def errors_are_typed(run: Run) -> Iterator[Violation]:
    """(12) Callers get errors of the documented kinds, no task fails unseen, and every request is
    readable.

    Unless peers violate the protocol, no error and no log line says so. Without faults, no broker
    rejects a request as faulty. After a retriable error a client backs off.
    """
    strange: list[Finding] = []
    protocol: list[Finding] = []
    ended: Returned | Failed
    for ended in _ends(run):
        if ended.error is None:
            continue
        text = f"{ended.error} at {ended.client}: {ended.text}"
        if not ended.typed:
            strange.append((text, ended))
        elif ended.error in PROTOCOL_ERRORS and not run.guarantees.hostile:
            protocol.append((text, ended))
    yield from group_findings(12, "errors are of no documented kind", strange)
    yield from group_findings(12, "errors report protocol violations that did not happen", protocol)
    crashes: list[Finding] = [(line, line) for line in run.observed.crashes or ()]
    yield from group_findings(12, "failures that were never reported", crashes)
    unreadable: list[Finding] = [(line, line) for line in run.observed.unreadable or ()]
    yield from group_findings(12, "requests that brokers could not read", unreadable)
    mistaken = list(_rejected_requests(run))
    yield from group_findings(12, "requests were rejected as faulty without a fault", mistaken)
    cancelled = list(_retried_without_pause(run))
    yield from group_findings(12, "commits were retried without a backoff", cancelled)
    blamed = [] if run.guarantees.hostile else list(_blamed_brokers(run))
    yield from group_findings(12, "connections were closed because of correct responses", blamed)


def _retried_without_pause(run: Run) -> Iterator[Finding]:
    """Return commits that were retried sooner than the shortest backoff.

    Requests handled at the time of the error were in flight before it: a node that resumes handles
    its whole backlog. A client that moved to another node or a newer connection does not receive
    those errors.
    """
    retriable_error: dict[str, float] = {}
    newest: dict[str, float] = {}
    for request in run.observed.commits or ():
        client = run.by_client_id.get(request.client)
        if client is None or request.producer_id >= 0:
            continue
        pause_s = client.seconds("retry_backoff_ms", 100) * SHORTEST_PAUSE
        before = retriable_error.pop(request.client, None)
        if before is not None and 0 < request.at - before < pause_s:
            yield f"{request.client} after {request.at - before:.3f} s", request
        newest[request.client] = max(newest.get(request.client, 0.0), request.connected_at)
        received = request.connected_at == newest[request.client] and not request.in_backlog
        if request.retriable_error and received:
            retriable_error[request.client] = request.at


def _blamed_brokers(run: Run) -> Iterator[Finding]:
    for line in run.observed.log_lines or ():
        if UNEXPECTED in line:
            yield line, line


def _rejected_requests(run: Run) -> Iterator[Finding]:
    begin = min((event.at for event in run.of(Fault)), default=run.ended_at)
    closing = {event.client: event.at for event in run.of(Called) if event.name == "stop"}
    for refusal in run.observed.rejected_requests or ():
        client = run.by_client_id.get(refusal.client)
        if refusal.at >= begin or client is None:
            continue
        one_at_a_time = client.options.get("max_in_flight_requests_per_connection") == 1
        if refusal.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not one_at_a_time:
            # Requests in flight behind a record that is rejected for its size are rejected too.
            continue
        if refusal.code in ENDED_SESSIONS and refusal.at >= closing.get(client.name, run.ended_at):
            continue  # A ShareFetch waited at the broker when its connection was closed.
        yield f"{refusal.api} of {refusal.client}: {ErrorCode(refusal.code).name}", refusal


def _ends(run: Run) -> Iterator[Returned | Failed]:
    yield from run.of(Returned)
    yield from run.of(Failed)


def no_secret_is_logged(run: Run) -> Iterator[Violation]:
    """(13) No secret is in a log line, a repr or an error text: neither verbatim nor encoded."""
    if not run.guarantees.secrets:
        raise NotChecked("no option is secret")
    observed = run.observed
    if observed.log_lines is None and observed.reprs is None:
        raise NotChecked("log lines and reprs were not kept")
    needles = [shape for secret in run.guarantees.secrets for shape in _shapes(secret)]
    for where, lines in (
        ("log lines", observed.log_lines or ()),
        ("reprs", observed.reprs or ()),
        ("errors", [ended.text for ended in _ends(run) if ended.text]),
    ):
        yield from group_findings(
            13, f"{where} contain a secret", list(_lines_with(lines, needles))
        )


def _shapes(secret: str) -> list[str]:
    data = secret.encode()
    return [secret, data.hex(), base64.b64encode(data).decode().rstrip("=")]


def _lines_with(lines: Iterable[str], needles: list[str]) -> Iterator[Finding]:
    for line in lines:
        if any(needle in line for needle in needles):
            yield line[:80], line


def fault_free_since(run: Run) -> float | None:
    """Return the time after which there was no fault; None if there was none, or it is unknown."""
    last = max((event.at for event in run.of(Fault)), default=None)
    if last is None:
        return 0.0
    healed = run.healed_at
    return healed if healed is not None and healed >= last else None


def recovery_s(client: Client) -> float:
    """Return how long after the heal earlier faults may still affect a client: requests in flight
    time out, and a new connection is made."""
    return client.seconds("request_timeout_ms", 30_000) + 5.0
