"""Fault injection in a broker, and the requests that it saw."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from aiokafkawire import Producer
from aiokafkawire.broker import Answer, Broker, Close, Corrupt, Delay, Drop, SeenRequest, faults
from aiokafkawire.broker.faults import Outcome, RequestLog
from aiokafkawire.errors import CorruptRecord, MalformedMessage
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.header import decode_response, peek_correlation_id
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from aiokafkawire.wire.messages.produce import ProduceResponse

from .raw_client import (
    RawClient,
    batch,
    build_update_metadata_request,
    connected,
    only,
    produce_request,
)

VERSIONS = ApiVersionsRequest()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t")
        broker.move_leader("t", 0, 1)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker, 1) as client:
        yield client


async def produced(client: RawClient) -> ErrorCode:
    answer = only(await client.call(produce_request("t", 0, batch(b"v")), 9))
    return ErrorCode(answer.error_code)


async def test_a_rule_applies_the_given_number_of_times(broker: Broker, client: RawClient) -> None:
    fault = broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    got = [await produced(client) for _ in range(3)]
    assert got == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [ErrorCode.NONE]
    assert fault.hits == 2
    assert broker.end_offset("t", 0) == 1


async def test_a_request_may_be_carried_out_before_it_is_refused(
    broker: Broker, client: RawClient
) -> None:
    late = Answer(ErrorCode.REQUEST_TIMED_OUT, carried_out=True)
    broker.on(ApiKey.PRODUCE, late, times=1)
    got = [await produced(client) for _ in range(2)]
    assert got == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert broker.end_offset("t", 0) == 2


async def test_a_fault_ends_when_it_is_removed(broker: Broker, client: RawClient) -> None:
    fault = broker.on(ApiKey.PRODUCE, Answer(ErrorCode.KAFKA_STORAGE_ERROR))
    assert await produced(client) is ErrorCode.KAFKA_STORAGE_ERROR
    fault.remove()
    fault.remove()
    assert await produced(client) is ErrorCode.NONE
    broker.on(None, Answer(ErrorCode.KAFKA_STORAGE_ERROR))
    assert await produced(client) is ErrorCode.KAFKA_STORAGE_ERROR
    broker.clear_faults()
    assert await produced(client) is ErrorCode.NONE


async def test_a_fault_is_of_one_api_and_one_node(broker: Broker, client: RawClient) -> None:
    broker.on(ApiKey.API_VERSIONS, Answer(ErrorCode.UNKNOWN_SERVER_ERROR), node=2)
    assert await produced(client) is ErrorCode.NONE
    assert (await client.call(VERSIONS, 0)).error_code == ErrorCode.NONE
    async with connected(broker, 2) as other:
        assert (await other.call(VERSIONS, 0)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("carried_out", [False, True])
async def test_close(broker: Broker, client: RawClient, carried_out: bool) -> None:
    broker.on(ApiKey.PRODUCE, Close(carried_out), times=1)
    await client.send(produce_request("t", 0, batch(b"v")), 9)
    assert await client.closed()
    assert broker.end_offset("t", 0) == int(carried_out)


@pytest.mark.parametrize("carried_out", [False, True])
async def test_drop_sends_no_response(broker: Broker, client: RawClient, carried_out: bool) -> None:
    broker.on(ApiKey.PRODUCE, Drop(carried_out), times=1)
    await client.send(produce_request("t", 0, batch(b"v")), 9)
    await client.send(VERSIONS, 0)
    await broker.wait_for_request(ApiKey.API_VERSIONS)
    with anyio.move_on_after(0.05) as scope:
        await client.frame()
    assert scope.cancelled_caught
    assert broker.end_offset("t", 0) == int(carried_out)
    async with connected(broker, 1) as other:
        await other.call(VERSIONS, 0)


async def test_delay_holds_back_what_is_behind_it(broker: Broker, client: RawClient) -> None:
    clock = RealRuntime().clock
    fault = broker.on(ApiKey.PRODUCE, Delay(0.05), times=1)
    began = clock.now()
    first = await client.send(produce_request("t", 0, batch(b"v")), 9)
    second = await client.send(VERSIONS, 0)
    assert (await client.receive(ApiKey.PRODUCE, 9))[0] == first
    # An event loop's clock may be coarse, but not that coarse.
    assert clock.now() - began >= 0.04
    assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == second
    assert fault.hits == 1


async def test_a_delay_goes_on_to_the_next_rule(broker: Broker, client: RawClient) -> None:
    broker.on(ApiKey.PRODUCE, Delay(0))
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert await produced(client) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_corrupt_answer_can_be_matched_but_not_read(
    broker: Broker, client: RawClient
) -> None:
    broker.on(ApiKey.PRODUCE, Corrupt(), times=1)
    sent = await client.send(produce_request("t", 0, batch(b"v")), 9)
    frame = await client.frame()
    assert frame is not None
    assert peek_correlation_id(frame) == sent
    with pytest.raises(MalformedMessage):
        decode_response(ProduceResponse, 9, frame)
    # The request was handled, and the connection stays open.
    assert broker.end_offset("t", 0) == 1
    assert await produced(client) is ErrorCode.NONE


@pytest.mark.parametrize("position", [0, 1, 5, -1, -2])
async def test_one_byte_of_an_answer_can_be_changed(
    broker: Broker, client: RawClient, position: int
) -> None:
    async def metadata() -> bytes:
        await client.send(build_update_metadata_request("t"), 5)
        frame = await client.frame()
        assert frame is not None
        return bytes(frame[4:])

    whole = await metadata()
    broker.on(ApiKey.METADATA, Corrupt(position), times=1)
    changed = await metadata()
    assert len(whole) == len(changed)
    different = [i for i in range(len(whole)) if whole[i] != changed[i]]
    assert different == [position % len(whole)]
    assert changed[position] == whole[position] ^ 0xFF


def test_a_position_behind_the_end_changes_nothing() -> None:
    assert Corrupt(1_000).frame([b"\0\0\0\x08", b"\0\0\0\x07abcd"]) == [b"\0\0\0\x08\0\0\0\x07abcd"]


@pytest.mark.parametrize("magic", [0, 1, 2])
async def test_records_with_a_wrong_checksum(broker: Broker, client: RawClient, magic: int) -> None:
    records = batch(b"v", magic=magic)
    await client.call(produce_request("t", 0, records), 9 if magic == 2 else 2)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    broker.on(ApiKey.FETCH, Corrupt(records=True), times=1)
    damaged = only(await client.call(fetch, 12))
    (view,) = iter_batches(damaged.records)
    with pytest.raises(CorruptRecord):
        view.check_crc()
    (view,) = iter_batches(only(await client.call(fetch, 12)).records)
    view.check_crc()


async def test_answers_without_records_are_left_alone(broker: Broker, client: RawClient) -> None:
    broker.on(None, Corrupt(records=True))
    assert await produced(client) is ErrorCode.NONE
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
    assert (await client.call(request, 12)).responses == []


async def test_a_client_takes_no_damage_for_an_answer(broker: Broker) -> None:
    broker.on(ApiKey.PRODUCE, Corrupt(), times=1)
    async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        receipt = await producer.send_and_wait("t", value=b"v", partition=0)
    assert (receipt.offset, broker.end_offset("t", 0)) == (0, 1)


async def test_a_function_chooses_the_fault(broker: Broker, client: RawClient) -> None:
    def every_second(seen: SeenRequest) -> Outcome:
        own = broker.requests.of(ApiKey.PRODUCE)
        return None if len(own) % 2 else Answer(ErrorCode.REQUEST_TIMED_OUT)

    fault = broker.on(ApiKey.PRODUCE, every_second)
    got = [await produced(client) for _ in range(4)]
    assert got == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT] * 2
    assert fault.hits == 2


async def test_a_function_may_give_a_response_or_wait(broker: Broker, client: RawClient) -> None:
    async def answer(seen: SeenRequest) -> Outcome:
        await anyio.lowlevel.checkpoint()
        return ApiVersionsResponse(error_code=77, api_keys=[])

    broker.on(ApiKey.API_VERSIONS, answer, times=1)
    assert (await client.call(VERSIONS, 0)).error_code == 77
    assert (await client.call(VERSIONS, 0)).error_code == ErrorCode.NONE


async def test_a_function_that_kills_the_node(broker: Broker, client: RawClient) -> None:
    async def kill(seen: SeenRequest) -> Outcome:
        await broker.kill(seen.node_id)
        return None

    broker.on(ApiKey.PRODUCE, kill, times=1)
    await client.send(produce_request("t", 0, batch(b"v")), 9)
    assert await client.closed()
    assert broker.live_nodes == (2,)
    assert broker.leader("t", 0) == 2
    await broker.restart(1)
    assert broker.live_nodes == (1, 2)
    async with connected(broker, 1) as again:
        await again.call(VERSIONS, 0)


async def test_a_function_that_moves_the_leader(broker: Broker, client: RawClient) -> None:
    fault = broker.on(ApiKey.PRODUCE, lambda seen: broker.move_leader("t", 0, 2))
    assert await produced(client) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (broker.leader("t", 0), broker.end_offset("t", 0)) == (2, 0)
    assert fault.hits == 0


async def test_a_function_that_raises_costs_its_connection_alone(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(seen: SeenRequest) -> Outcome:
        raise RuntimeError("a defect in the test's function")

    broker.on(ApiKey.PRODUCE, fail)
    await client.send(produce_request("t", 0, batch(b"v")), 9)
    assert await client.closed()
    assert "a defect in the test's function" in caplog.text
    async with connected(broker, 1) as other:
        await other.call(VERSIONS, 0)


async def test_the_log_keeps_what_was_asked(broker: Broker, client: RawClient) -> None:
    await client.call(build_update_metadata_request("t"), 12)
    async with connected(broker, 2) as other:
        await other.call(VERSIONS, 0)
    first, second = broker.requests
    assert (first.api_key, first.version, first.node_id) == (ApiKey.METADATA, 12, 1)
    assert first.message == build_update_metadata_request("t")
    assert broker.requests[-1] is second
    assert broker.requests.of(ApiKey.API_VERSIONS) == [second]
    assert broker.requests.of(ApiKey.API_VERSIONS, node=1) == []
    broker.requests.clear()
    assert len(broker.requests) == 0


async def test_the_log_keeps_what_became_of_a_request(broker: Broker, client: RawClient) -> None:
    began = RealRuntime().clock.now()
    answer = await client.call(VERSIONS, 0)
    (asked,) = broker.requests
    assert isinstance(asked.response, ApiVersionsResponse)
    assert asked.response.error_code == answer.error_code
    assert asked.carried_out
    assert asked.answered_at is not None
    assert began <= asked.at <= asked.answered_at


@pytest.mark.parametrize("carried_out", [False, True])
async def test_the_log_keeps_what_was_lost(
    broker: Broker, client: RawClient, carried_out: bool
) -> None:
    broker.on(ApiKey.PRODUCE, Close(carried_out), times=1)
    await client.send(produce_request("t", 0, batch(b"v")), 9)
    assert await client.closed()
    (asked,) = broker.requests
    assert asked.carried_out is carried_out
    assert isinstance(asked.response, ProduceResponse) is carried_out
    assert asked.answered_at is None


async def test_the_log_keeps_what_a_fault_answered(broker: Broker, client: RawClient) -> None:
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS))
    await produced(client)
    (asked,) = broker.requests
    assert isinstance(asked.response, ProduceResponse)
    assert only(asked.response).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not asked.carried_out
    assert asked.answered_at is not None


async def test_watchers_run_before_the_response_is_sent(broker: Broker, client: RawClient) -> None:
    reported: list[tuple[SeenRequest, object, float | None]] = []
    end = broker.requests.watch(
        lambda asked: reported.append((asked, asked.response, asked.answered_at))
    )
    await produced(client)
    fetch = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[])
    await client.call(fetch, 4)
    end()
    end()
    await client.call(VERSIONS, 0)
    (first, response, answered_at), (second, fetched, _) = reported
    assert [asked.api_key for asked in (first, second)] == [ApiKey.PRODUCE, ApiKey.FETCH]
    assert isinstance(response, ProduceResponse)
    assert answered_at is None
    assert first.answered_at is not None
    # Kept responses of Fetch would keep records alive.
    assert isinstance(fetched, FetchResponse)
    assert second.response is None


def seen(size_bytes: int, api_key: ApiKey = ApiKey.HEARTBEAT) -> SeenRequest:
    return SeenRequest(
        api_key=api_key,
        version=0,
        node_id=1,
        client_id="c",
        correlation_id=1,
        connection=1,
        size_bytes=size_bytes,
        message=VERSIONS,
        at=0.0,
    )


def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MAX_LOGGED_REQUESTS", 3)
    monkeypatch.setattr(faults, "MAX_LOGGED_BYTES", 100)
    log = RequestLog()
    for _ in range(5):
        log.append(seen(1))
    assert len(log) == 3
    log.append(seen(1_000))
    assert len(log) == 1


def test_answers_count_as_long_as_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MAX_LOGGED_BYTES", 100)
    log = RequestLog()
    requests = [seen(1), seen(1), seen(1, ApiKey.FETCH), seen(1)]
    for each in requests:
        log.append(each)
        log.record_outcome(each, ApiVersionsResponse(error_code=0, api_keys=[]), carried_out=True)
    log.record_response_sent(requests[2], 1.0, 1_000)
    assert len(log) == 4
    log.record_response_sent(requests[3], 1.0, 98)
    assert list(log) == requests[2:]
    log.record_response_sent(requests[0], 1.0, 1_000)
    assert list(log) == requests[2:]


async def test_waiting_looks_at_each_request_once() -> None:
    log = RequestLog()
    looked: list[SeenRequest] = []
    requests = [seen(1) for _ in range(3)]
    log.append(requests[0])

    def matching(asked: SeenRequest) -> bool:
        looked.append(asked)
        return asked is not requests[1]

    async with anyio.create_task_group() as group:
        group.start_soon(come, log, requests[1:])
        found = await log.wait_for(matching, 2, RealRuntime().clock.now() + 10)
    assert found == [requests[0], requests[2]]
    assert looked == requests
    log.append(seen(1))
    assert len(looked) == 3, "nobody waits any more"


async def come(log: RequestLog, requests: list[SeenRequest]) -> None:
    for each in requests:
        await anyio.lowlevel.checkpoint()
        log.append(each)


async def test_waiting_returns_earlier_requests() -> None:
    log = RequestLog()
    log.append(seen(1))
    assert await log.wait_for(lambda asked: True, 2, RealRuntime().clock.now()) == list(log)
