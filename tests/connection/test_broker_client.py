"""One broker: lanes, connecting, versions, and what goes wrong with a peer."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.connection import BrokerClient, ConnectionKind
from aiokafkawire.connection.negotiation import PROBES
from aiokafkawire.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    InvalidOption,
    KafkaError,
    RequestTimedOut,
    TlsError,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Address, RealRuntime, Supervisor, TaskHandle, Transport
from aiokafkawire.wire import ApiKey, Response
from aiokafkawire.wire.messages.fetch import FetchRequest, FetchResponse
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiokafkawire.wire.messages.list_groups import ListGroupsResponse
from aiokafkawire.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiokafkawire.wire.messages.produce import ProduceRequest

from .scripted import (
    Hangup,
    ScriptedBroker,
    ServerConnection,
    client_of,
    closed_address,
    gather,
    hosted,
    make_config,
    outcome_of,
    serve,
    speaks,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
FETCH = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
COMMIT = OffsetCommitRequest(group_id="g", topics=[])
JOIN = JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
)
JOINED = JoinGroupResponse(
    error_code=0, protocol_name="range", leader="m", member_id="m", members=[]
)
QUICK = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "socket_connection_setup_timeout_ms": 800,
    "socket_connection_setup_timeout_max_ms": 1_600,
}


def soon(seconds: float = 20) -> float:
    return anyio.current_time() + seconds


async def heartbeat(_: Any, __: Any) -> Response | None:
    return HeartbeatResponse(error_code=0)


async def fetch(_: Any, __: Any) -> Response | None:
    return FetchResponse(responses=[])


async def commit(_: Any, __: Any) -> Response | None:
    return OffsetCommitResponse(topics=[])


async def silence(_: Any, __: Any) -> Response | None:
    return None


def kafka() -> ScriptedBroker:
    return ScriptedBroker(
        {ApiKey.HEARTBEAT: heartbeat, ApiKey.FETCH: fetch, ApiKey.OFFSET_COMMIT: commit}
    )


def spawned_by(supervisor: Supervisor) -> list[TaskHandle]:
    """The tasks that a host starts from now on."""
    spawned: list[TaskHandle] = []
    spawn = supervisor.spawn

    def remember(*args: Any, name: str) -> TaskHandle:
        spawned.append(spawn(*args, name=name))
        return spawned[-1]

    supervisor.spawn = remember  # type: ignore[method-assign]
    return spawned


# --- probes ---------------------------------------------------------------------------------

PATIENT = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}


async def test_a_probe_uses_an_open_connection_and_keeps_a_new_one():
    broker = kafka()
    async with serve(broker) as server, client_of(server.address) as client:
        for _ in range(3):
            assert (await client.probe(HEARTBEAT, deadline=soon())).error_code == 0
            assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert server.accepted == 1
        with pytest.raises(UnsupportedVersion):
            await client.probe(HEARTBEAT, deadline=soon(), min_version=99)


async def test_a_probe_does_not_wait_for_the_backoff_and_ends_it():
    listener = await RealRuntime().listen(Address("127.0.0.1", 0))
    address = listener.address
    await listener.aclose()
    async with client_of(address, **PATIENT) as client:
        with pytest.raises(ConnectionFailed):
            await client.request(HEARTBEAT, deadline=soon())
        again_at = client.next_attempt_at
        for _ in range(3):
            with pytest.raises(ConnectionFailed, match="refused"):
                await client.probe(HEARTBEAT, deadline=soon())
        assert client.next_attempt_at == again_at
        async with serve(kafka(), address):
            assert await client.probe(HEARTBEAT, deadline=soon())
            assert client.is_connected
            assert client.outages.last_failure is None
            assert await client.request(FETCH, deadline=soon(5))


async def test_a_probe_does_not_affect_a_running_attempt():
    listener = await RealRuntime().listen(Address("127.0.0.1", 0))
    address = listener.address
    await listener.aclose()
    async with client_of(address, **PATIENT) as client, anyio.create_task_group() as group:
        with pytest.raises(ConnectionFailed):
            await client.request(HEARTBEAT, deadline=soon())
        group.start_soon(outcome_of, client.request(HEARTBEAT, deadline=soon()))
        await anyio.sleep(0.05)
        async with serve(kafka(), address) as server:
            for count in (1, 2):
                assert await client.probe(HEARTBEAT, deadline=soon())
                assert server.accepted == count
            assert not client.is_connected
        group.cancel_scope.cancel()


async def test_a_probe_reconnects_when_its_connection_breaks():
    broker = kafka()
    answers = iter([Hangup, None])

    async def hang_up_once(_: Any, __: Any) -> Response | None:
        if next(answers) is not None:
            raise Hangup
        return HeartbeatResponse(error_code=0)

    async with serve(broker) as server, client_of(server.address, **PATIENT) as client:
        assert await client.request(HEARTBEAT, deadline=soon())
        broker.answers[ApiKey.HEARTBEAT] = hang_up_once
        assert await client.probe(HEARTBEAT, deadline=soon())
        assert server.accepted == 2


async def test_a_probe_without_a_response_ends_at_its_deadline_and_closes_its_connection():
    broker = kafka()
    broker.answers[ApiKey.HEARTBEAT] = silence
    async with serve(broker) as server, client_of(server.address) as client:
        with pytest.raises(RequestTimedOut):
            await client.probe(HEARTBEAT, deadline=soon(0.2))
        assert not client.is_connected
        client.abort()
        with pytest.raises(ClientClosed):
            await client.probe(HEARTBEAT, deadline=soon())


@pytest.fixture
def a_slow_machine_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let probes share an attempt, however long the machine takes to start them."""
    monkeypatch.setattr("aiokafkawire.connection.probes.PROBE_SHARING_S", 5.0)


@pytest.mark.usefixtures("a_slow_machine_is_no_reason")
async def test_probes_at_the_same_time_share_a_connection():
    broker = kafka()
    async with serve(broker) as server, client_of(server.address) as client:
        answers = await gather(*(client.probe(HEARTBEAT, deadline=soon()) for _ in range(20)))
        assert [answer.error_code for answer in answers] == [0] * 20
        assert server.accepted == 1
        assert client.is_connected
    broker.answers[ApiKey.HEARTBEAT] = silence
    async with serve(broker) as server, client_of(server.address) as client:
        errors = await gather(*(client.probe(HEARTBEAT, deadline=soon(0.3)) for _ in range(20)))
        assert {type(error) for error in errors} == {RequestTimedOut}
        assert server.accepted == 1
        assert not client.is_connected
        while server.open:
            await anyio.lowlevel.checkpoint()


@pytest.mark.usefixtures("a_slow_machine_is_no_reason")
async def test_probes_at_the_same_time_fail_together():
    async def say_nothing(connection: ServerConnection) -> None:
        await connection.receive()
        await anyio.sleep_forever()

    accepted = []
    for count in (1, 20):
        async with serve(say_nothing) as server, client_of(server.address) as client:
            probes = (client.probe(HEARTBEAT, deadline=soon(1.5)) for _ in range(count))
            errors = await gather(*probes)
            assert {type(error) for error in errors} == {ConnectionFailed}
            assert len({str(error) for error in errors}) == 1
            accepted.append(server.accepted)
    assert accepted[0] == accepted[1]


async def test_a_probe_continues_when_the_probe_that_connects_for_it_is_cancelled():
    async with serve(kafka()) as server, client_of(server.address) as client:

        async def lead(scope: anyio.CancelScope) -> None:
            with scope:
                await client.probe(HEARTBEAT, deadline=soon())

        async def follow(results: list[Any]) -> None:
            await anyio.lowlevel.checkpoint()
            results.append(await outcome_of(client.probe(HEARTBEAT, deadline=soon())))

        for steps in range(30):
            scope, results = anyio.CancelScope(), list[Any]()
            async with anyio.create_task_group() as group:
                group.start_soon(lead, scope)
                group.start_soon(follow, results)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
            assert [type(result) for result in results] == [HeartbeatResponse]
            client.close_connection(ConnectionKind.GENERAL)
            while server.open:
                await anyio.lowlevel.checkpoint()


async def test_a_retired_client_probes_and_closes_the_connection():
    async with serve(kafka()) as server, client_of(server.address) as client:
        assert await client.request(HEARTBEAT, deadline=soon())
        client.retire("the node has moved")
        while client.is_connected:
            await anyio.lowlevel.checkpoint()
        for count in (2, 3):
            assert await client.probe(HEARTBEAT, deadline=soon())
            assert server.accepted == count
            assert not client.is_connected
        with pytest.raises(ConnectionLost, match="the node has moved"):
            await client.request(HEARTBEAT, deadline=soon())
        client.abort()
        with pytest.raises(ClientClosed):
            await client.probe(HEARTBEAT, deadline=soon())


# --- lanes ----------------------------------------------------------------------------------


async def test_one_connection_serves_all_requests_of_a_kind():
    broker = kafka()
    async with serve(broker) as server, client_of(server.address) as client:
        assert not client.is_connected
        assert client.api_versions is None
        for _ in range(3):
            assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert server.accepted == 1
        assert client.is_connected
        assert client.in_flight_count == 0
    assert [header.api_key for header in broker.seen] == [18, 12, 12, 12]
    assert {header.client_id for header in broker.seen} == {"aiokafkawire"}


async def test_concurrent_first_requests_share_one_connection():
    async with serve(kafka()) as server, client_of(server.address) as client:
        outcomes = await gather(*(client.request(HEARTBEAT, deadline=soon()) for _ in range(10)))
        assert all(isinstance(outcome, HeartbeatResponse) for outcome in outcomes)
        assert server.accepted == 1


async def test_a_delayed_join_response_does_not_block_other_requests():
    parked, release = anyio.Event(), anyio.Event()
    joined: list[JoinGroupResponse] = []

    async def park(_: Any, __: Any) -> Response | None:
        parked.set()
        await release.wait()
        return JOINED

    broker = kafka()
    broker.answers[ApiKey.JOIN_GROUP] = park
    async with serve(broker) as server, client_of(server.address) as client:
        async with anyio.create_task_group() as group:

            async def join() -> None:
                joined.append(await client.request(JOIN, deadline=soon(60)))

            group.start_soon(join)
            await parked.wait()
            for _ in range(3):
                assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
                assert (await client.request(COMMIT, deadline=soon())).topics == []
                assert (await client.request(FETCH, deadline=soon())).responses == []
            assert not joined
            release.set()
        assert joined[0].member_id == "m"
        # JoinGroup, fetches, and the rest: three connections.
        assert server.accepted == 3


async def test_a_request_may_choose_its_connection_kind():
    async with serve(kafka()) as server, client_of(server.address) as client:
        await client.request(HEARTBEAT, deadline=soon())
        await client.request(HEARTBEAT, deadline=soon(), connection_kind=ConnectionKind.JOIN)
        assert server.accepted == 2


# --- cancellation ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(0, 28, 2))
async def test_the_client_stays_usable_after_a_cancellation_at_any_step(steps: int):
    """From resolving to the answer; the server reads every frame, so a cut one would show."""
    async with serve(kafka()) as server, client_of(server.address) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(outcome_of, client.request(HEARTBEAT, deadline=soon()))
            group.start_soon(outcome_of, client.request(FETCH, deadline=soon()))
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert (await client.request(FETCH, deadline=soon())).responses == []
        assert server.accepted == 2


# --- what does not connect ------------------------------------------------------------------


async def test_a_refused_connection_names_broker_api_and_what_to_check():
    address = closed_address()
    async with client_of(address, **QUICK) as client:
        with pytest.raises(ConnectionFailed, match=r"refused.*check host and port") as caught:
            await client.request(HEARTBEAT, deadline=soon())
        assert caught.value.broker == str(address)
        assert caught.value.api == "Heartbeat"
        assert caught.value.retriable
        assert caught.value.attempt == 1
        again = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert again.attempt == 2
        assert client.outages.last_failure is not None


async def test_connections_that_fail_together_count_as_one_failure(monkeypatch: pytest.MonkeyPatch):
    address = closed_address()
    requests = (HEARTBEAT, FETCH, JOIN)
    began, all_began = [], anyio.Event()
    connect = RealRuntime.connect

    async def together(runtime: RealRuntime, to: Address) -> Transport:
        began.append(to)
        if len(began) == len(requests):
            all_began.set()
        await all_began.wait()
        return await connect(runtime, to)

    monkeypatch.setattr(RealRuntime, "connect", together)
    async with client_of(address, **QUICK) as client:
        first = await gather(*(outcome_of(client.request(r, deadline=soon())) for r in requests))
        assert [error.api for error in first] == ["Heartbeat", "Fetch", "JoinGroup"]
        assert {error.attempt for error in first} == {1}
        again = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert again.attempt == 2


async def test_after_a_failure_one_attempt_serves_all_connection_kinds(
    monkeypatch: pytest.MonkeyPatch,
):
    address = closed_address()
    connects: list[Address] = []
    connect = RealRuntime.connect

    async def counted(runtime: RealRuntime, to: Address) -> Transport:
        connects.append(to)
        return await connect(runtime, to)

    monkeypatch.setattr(RealRuntime, "connect", counted)

    async def on_all_lanes(client: BrokerClient) -> list[Any]:
        lanes = (ConnectionKind.GENERAL, ConnectionKind.FETCH, ConnectionKind.JOIN)
        requests = (
            client.request(HEARTBEAT, deadline=soon(), connection_kind=connection_kind)
            for connection_kind in lanes
        )
        return await gather(*(outcome_of(request) for request in requests))

    slow = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 50}
    async with client_of(address, **QUICK | slow) as client:
        await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        for attempt in (2, 3):
            del connects[:]
            outcomes = await on_all_lanes(client)
            assert [error.attempt for error in outcomes] == [attempt] * 3
            assert {type(error) for error in outcomes} == {ConnectionFailed}
            assert len(connects) == 1
        async with serve(kafka(), address) as server:
            outcomes = await on_all_lanes(client)
            assert [outcome.error_code for outcome in outcomes] == [0] * 3
            assert server.accepted == 3


async def test_a_cancelled_shared_attempt_fails_all_connection_kinds():
    connecting = anyio.Event()

    class Refusing(RealRuntime):
        hangs = False

        async def connect(self, address: Address) -> Transport:
            if self.hangs:
                connecting.set()
                await anyio.sleep_forever()
            raise ConnectionRefusedError

    async with hosted() as (_, supervisor):
        runtime = Refusing()
        client = BrokerClient(Address("127.0.0.1", 1), make_config(**QUICK), runtime, supervisor)
        await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        runtime.hangs = True
        spawned = spawned_by(supervisor)
        outcomes: list[Any] = []

        async def ask(connection_kind: ConnectionKind) -> None:
            outcomes.append(
                await outcome_of(
                    client.request(HEARTBEAT, deadline=soon(), connection_kind=connection_kind)
                )
            )

        async with anyio.create_task_group() as group:
            group.start_soon(ask, ConnectionKind.GENERAL)
            await connecting.wait()
            group.start_soon(ask, ConnectionKind.FETCH)
            await anyio.wait_all_tasks_blocked()
            spawned[0].cancel()
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 2


async def test_a_connection_closed_immediately_counts_for_the_backoff():
    async def closes(connection: ServerConnection) -> None:
        header, _ = await connection.next_request()
        await connection.respond(header, speaks())

    slow = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}
    async with serve(closes) as server, client_of(server.address, **slow) as client:
        outcome = await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert isinstance(outcome, ConnectionLost)
        assert client.next_attempt_at > soon(40)
        assert server.accepted == 1


async def test_the_next_attempt_waits_for_the_backoff():
    address = closed_address()
    async with client_of(
        address, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000
    ) as client:
        await outcome_of(client.request(HEARTBEAT, deadline=soon()))
        assert client.next_attempt_at > soon(40)
        with pytest.raises(
            RequestTimedOut, match=r"no connection.*last attempt.*refused"
        ) as caught:
            await client.request(HEARTBEAT, deadline=soon(0.05))
        assert not caught.value.sent


@pytest.mark.slow
async def test_an_unresponsive_server_is_reported_before_the_setup_timeout():
    async def silent(connection: ServerConnection) -> None:
        while await connection.receive() is not None:
            pass

    async with serve(silent) as server, client_of(server.address, **QUICK) as client:
        with pytest.raises(ConnectionFailed, match=r"does not respond.*not a Kafka broker"):
            await client.request(HEARTBEAT, deadline=soon())


async def test_a_stopped_peer_ends_every_call_by_its_deadline():
    listener = await RealRuntime().listen(Address("127.0.0.1", 0))
    try:
        # The system accepts for it, nobody reads.
        async with client_of(listener.address) as client:
            with pytest.raises(RequestTimedOut, match="no connection before the deadline"):
                await client.request(HEARTBEAT, deadline=soon(0.1))
            with pytest.raises(RequestTimedOut):
                await client.get_api_versions(soon(0.1))
    finally:
        await listener.aclose()


async def http(connection: ServerConnection) -> None:
    await connection.receive()
    await connection.transport.send([b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"])


async def tls(connection: ServerConnection) -> None:
    await connection.receive()
    await connection.transport.send([bytes.fromhex("15030300020228")])


@pytest.mark.parametrize(
    ("handler", "kind", "words"), [(http, ConnectionFailed, "HTTP"), (tls, TlsError, "TLS")]
)
async def test_a_server_with_another_protocol_is_reported(
    handler: Any, kind: type[KafkaError], words: str
):
    async with serve(handler) as server, client_of(server.address, **QUICK) as client:
        with pytest.raises(kind, match=words) as caught:
            await client.request(HEARTBEAT, deadline=soon())
        assert not caught.value.retriable
        assert caught.value.broker == str(server.address)


async def test_a_server_that_closes_every_connection_is_reported_as_no_broker():
    async def hangs_up(connection: ServerConnection) -> None:
        await connection.receive()

    async with serve(hangs_up) as server, client_of(server.address, **QUICK) as client:
        with pytest.raises(ConnectionFailed, match="closes them without a response"):
            await client.request(HEARTBEAT, deadline=soon())
        assert server.accepted == 1 + len(PROBES)


async def test_the_callers_deadline_does_not_end_the_attempt_of_others():
    asked, answer = anyio.Event(), anyio.Event()

    async def slow_versions(_: Any, __: Any) -> Response | None:
        asked.set()
        await answer.wait()
        return speaks()

    broker = kafka()
    broker.answers[ApiKey.API_VERSIONS] = slow_versions
    async with serve(broker) as server, client_of(server.address) as client:
        with pytest.raises(RequestTimedOut):
            await client.request(HEARTBEAT, deadline=soon(0.05))
        await asked.wait()
        answer.set()
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0
        assert server.accepted == 1


# --- versions -------------------------------------------------------------------------------


async def test_a_0_10_broker_gets_api_versions_again_in_version_0():
    async def only_version_0(header: Any, _: Any) -> Response | None:
        response = speaks({ApiKey.HEARTBEAT: (0, 1)})
        if header.api_version > 0:
            response = speaks({})
            response.error_code = 35
        return response

    broker = kafka()
    broker.answers[ApiKey.API_VERSIONS] = only_version_0
    async with serve(broker) as server, client_of(server.address) as client:
        await client.request(HEARTBEAT, deadline=soon())
        assert server.accepted == 1
        versions = await client.get_api_versions(soon())
        assert versions.ranges[ApiKey.HEARTBEAT] == (0, 1)
        with pytest.raises(UnsupportedVersion, match="does not support OffsetCommit") as caught:
            await client.request(COMMIT, deadline=soon())
        assert caught.value.broker == str(server.address)
    assert [(header.api_key, header.api_version) for header in broker.seen] == [
        (18, 5),
        (18, 0),
        (12, 1),
    ]


@pytest.mark.slow
async def test_a_0_9_broker_is_detected_and_remembered_while_connected():
    broker = kafka()
    broker.answers[ApiKey.API_VERSIONS] = silence

    async def list_groups(_: Any, __: Any) -> Response | None:
        return ListGroupsResponse(error_code=0, groups=[])

    broker.answers[ApiKey.LIST_GROUPS] = list_groups
    async with serve(broker) as server, client_of(server.address, **QUICK) as client:
        await client.request(HEARTBEAT, deadline=soon())
        versions = await client.get_api_versions(soon())
        assert versions.release == "0.9"
        asked = len(broker.seen)
        await client.request(FETCH, deadline=soon())
        # The second lane does not go through it all again.
        assert [header.api_key for header in broker.seen[asked:]] == [ApiKey.FETCH]
        assert server.accepted == 4


async def test_an_api_version_below_0_10_replaces_negotiation():
    broker = kafka()
    async with serve(broker) as server, client_of(server.address, api_version="0.9") as client:
        await client.request(COMMIT, deadline=soon())
        assert (await client.get_api_versions(soon())).release == "0.9"
    assert [(header.api_key, header.api_version) for header in broker.seen] == [(8, 2)]


def test_an_unknown_api_version_is_rejected_when_the_client_is_created():
    config = make_config(api_version="seven")
    with pytest.raises(InvalidOption, match="api_version"):
        BrokerClient(Address("h", 1), config, None, None)  # type: ignore[arg-type]


# --- after a connection is lost -------------------------------------------------------------


async def hang_up(_: Any, __: Any) -> Response | None:
    raise Hangup


async def test_a_disconnect_and_the_reconnect_are_logged_once_with_the_client(
    caplog: pytest.LogCaptureFixture,
):
    broker = kafka()
    broker.answers[ApiKey.OFFSET_COMMIT] = hang_up
    with caplog.at_level("INFO", "aiokafkawire.connection"):
        async with (
            serve(broker) as server,
            client_of(server.address, client_id="billing", **QUICK) as client,
        ):
            for _ in range(3):
                await client.request(HEARTBEAT, deadline=soon())
                await outcome_of(client.request(COMMIT, deadline=soon()))
            await client.request(HEARTBEAT, deadline=soon())
    lost, back = caplog.records
    assert lost.getMessage() == (
        f"test: disconnected from broker {server.address}: the broker closed the connection;"
        " the next request reconnects"
    )
    assert back.getMessage().startswith(f"test: reconnected to broker {server.address} after ")
    assert lost.kafka_error == "ConnectionLost"
    assert back.kafka_outage_ms >= 0


async def test_the_end_of_the_client_is_no_disconnect(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "aiokafkawire.connection")
    async with serve(kafka()) as server, hosted() as (runtime, supervisor):
        client = BrokerClient(server.address, make_config(**QUICK), runtime, supervisor)
        await client.request(HEARTBEAT, deadline=soon())
        # As after Ctrl-C: the tasks end before the client closes its connections.
        supervisor.abort()
        with anyio.fail_after(20):
            while client.is_connected:
                await anyio.lowlevel.checkpoint()
    assert caplog.messages == []


async def test_a_disconnect_after_a_request_without_a_response_is_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    produce = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])

    async def hang_up_later(_: Any, __: Any) -> Response | None:
        raise Hangup

    broker = kafka()
    broker.answers[ApiKey.PRODUCE] = hang_up_later
    with caplog.at_level("WARNING", "aiokafkawire.connection"):
        async with serve(broker) as server, client_of(server.address, **QUICK) as client:
            await client.ready(ApiKey.PRODUCE, soon())
            channel = client.ready_channel(ConnectionKind.PRODUCE)
            assert channel is not None
            version = channel.api_versions.latest_usable_version(ApiKey.PRODUCE)
            channel.submit(produce, version, deadline=soon(), expect_response=False)
            with anyio.fail_after(20):
                while client.is_connected:
                    await anyio.lowlevel.checkpoint()
    (record,) = caplog.records
    assert "the last request, Produce of" in record.getMessage()
    assert "expected no response" in record.getMessage()


async def test_connections_that_break_together_are_reported_once(
    caplog: pytest.LogCaptureFixture,
):
    disconnected = anyio.Event()
    with caplog.at_level("INFO", "aiokafkawire.connection"):
        async with hosted() as (runtime, supervisor):
            async with serve(kafka()) as server:
                client = BrokerClient(
                    server.address,
                    make_config(**QUICK),
                    runtime,
                    supervisor,
                    on_disconnect=disconnected.set,
                )
                for connection_kind in (
                    ConnectionKind.GENERAL,
                    ConnectionKind.FETCH,
                    ConnectionKind.JOIN,
                ):
                    await client.request(
                        HEARTBEAT, deadline=soon(), connection_kind=connection_kind
                    )
            # Nothing is under way: the readers notice.
            with anyio.fail_after(20):
                await disconnected.wait()
                while client.is_connected:
                    await anyio.lowlevel.checkpoint()
            await client.aclose()
    assert len(caplog.records) == 1


async def test_ready_waits_until_throttling_ends():
    silences = [30, 55_000]

    async def throttle(_: Any, __: Any) -> Response | None:
        return HeartbeatResponse(error_code=0, throttle_time_ms=silences.pop(0))

    broker = kafka()
    broker.answers[ApiKey.HEARTBEAT] = throttle
    async with serve(broker) as server, client_of(server.address) as client:
        began = anyio.current_time()
        for _ in range(2):
            await client.ready(ApiKey.HEARTBEAT, soon())
            channel = client.ready_channel(ConnectionKind.GENERAL)
            assert channel is not None
            await client.submit(channel, HEARTBEAT, soon()).wait()
        # uvloop's clock counts milliseconds.
        assert anyio.current_time() - began > 0.03 - 0.001
        assert client.ready_channel(ConnectionKind.GENERAL) is None
        with pytest.raises(
            RequestTimedOut, match=r"throttled by the broker for 5.* s more"
        ) as caught:
            await client.ready(ApiKey.HEARTBEAT, soon(0.01))
        assert not caught.value.sent


async def test_a_lost_connection_is_reopened():
    broker = kafka()
    broker.answers[ApiKey.OFFSET_COMMIT] = hang_up
    async with serve(broker) as server, client_of(server.address, **QUICK) as client:
        for expected in (1, 2, 3):
            with pytest.raises(ConnectionLost) as caught:
                await client.request(COMMIT, deadline=soon())
            assert caught.value.sent
            assert caught.value.api == "OffsetCommit"
            assert server.accepted == expected
        assert (await client.request(HEARTBEAT, deadline=soon())).error_code == 0


async def test_an_idle_connection_is_closed_and_opened_again_without_backoff():
    async with (
        serve(kafka()) as server,
        client_of(
            server.address,
            connections_max_idle_ms=30,
            reconnect_backoff_ms=60_000,
            reconnect_backoff_max_ms=60_000,
        ) as client,
    ):
        await client.request(HEARTBEAT, deadline=soon())
        with anyio.fail_after(20):
            while client.is_connected:
                await anyio.lowlevel.checkpoint()
        await client.request(HEARTBEAT, deadline=soon())
        assert server.accepted == 2


async def test_aclose_fails_pending_and_later_requests():
    asked = anyio.Event()

    async def never(_: Any, __: Any) -> Response | None:
        asked.set()
        return None

    broker = kafka()
    broker.answers[ApiKey.HEARTBEAT] = never
    async with serve(broker) as server, client_of(server.address) as client:
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.append(await outcome_of(client.request(HEARTBEAT, deadline=soon())))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await asked.wait()
            await client.aclose()
        assert isinstance(outcomes[0], ClientClosed)
        with pytest.raises(ClientClosed):
            await client.request(HEARTBEAT, deadline=soon())
        with anyio.fail_after(20):
            while server.open:
                await anyio.lowlevel.checkpoint()


async def test_abort_while_connecting_fails_the_request():
    listener = await RealRuntime().listen(Address("127.0.0.1", 0))
    try:
        async with client_of(listener.address) as client:
            outcomes: list[Any] = []

            async def ask() -> None:
                outcomes.append(await outcome_of(client.request(HEARTBEAT, deadline=soon())))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                client.abort()
            assert isinstance(outcomes[0], ClientClosed)
    finally:
        await listener.aclose()


async def test_an_interrupted_attempt_may_be_retried():
    connecting = anyio.Event()

    class Hanging(RealRuntime):
        async def connect(self, address: Address) -> Transport:
            connecting.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with hosted() as (_, supervisor):
        spawned = spawned_by(supervisor)
        client = BrokerClient(Address("127.0.0.1", 1), make_config(), Hanging(), supervisor)
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.append(await outcome_of(client.request(HEARTBEAT, deadline=soon())))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await connecting.wait()
            spawned[0].cancel()
        assert isinstance(outcomes[0], ConnectionFailed)
        assert outcomes[0].retriable


async def test_a_retired_client_finishes_its_requests_and_accepts_no_others():
    async with serve(kafka()) as server, client_of(server.address) as client:
        await client.request(HEARTBEAT, deadline=soon())
        client.retire("the node has moved")
        with anyio.fail_after(20):
            while client.is_connected:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(ConnectionLost, match="the node has moved") as caught:
            await client.request(HEARTBEAT, deadline=soon())
        assert not caught.value.sent


async def test_retired_while_connecting_nothing_was_sent():
    asked, answer = anyio.Event(), anyio.Event()

    async def slow_versions(_: Any, __: Any) -> Response | None:
        asked.set()
        await answer.wait()
        return speaks()

    broker = kafka()
    broker.answers[ApiKey.API_VERSIONS] = slow_versions
    async with serve(broker) as server, client_of(server.address) as client:
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.append(await outcome_of(client.request(HEARTBEAT, deadline=soon())))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await asked.wait()
            client.retire("the node has moved")
            answer.set()
        assert isinstance(outcomes[0], ConnectionLost)
        assert not outcomes[0].sent


async def test_the_end_of_the_supervisor_closes_all_connections():
    async with serve(kafka()) as server, hosted() as (runtime, supervisor):
        client = BrokerClient(server.address, make_config(), runtime, supervisor)
        await client.request(HEARTBEAT, deadline=soon())
        await supervisor.stop()
        assert not client.is_connected
        with pytest.raises(ClientClosed):
            await client.request(HEARTBEAT, deadline=soon())
