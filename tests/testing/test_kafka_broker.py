"""The broker in a thread of its own, called from outside of any event loop and from within."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest

import aiokafkawire.testing
from aiokafkawire import Broker, Consumer, Producer
from aiokafkawire.errors import BrokerError, ClientClosed, InvalidOption, KafkaError
from aiokafkawire.runtime import Address
from aiokafkawire.testing import (
    Acl,
    Answer,
    ApiKey,
    Close,
    Delay,
    ErrorCode,
    KafkaBroker,
    SeenRequest,
    broker_thread,
)
from aiokafkawire.wire.header import encode_request
from aiokafkawire.wire.messages.metadata import MetadataRequest


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(nodes=3) as broker:
        yield broker


def ask(address: Address, timeout_s: float = 5.0) -> bytes:
    """The first bytes of an answer to a Metadata request, b"" if the connection is closed."""
    with socket.create_connection(tuple(address), timeout=timeout_s) as connection:
        request = MetadataRequest(topics=None)
        connection.sendall(b"".join(encode_request(request, 1, 7, "a test")))
        try:
            return connection.recv(8)
        except ConnectionResetError:
            return b""


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def test_it_runs_in_a_thread_that_ends_with_it() -> None:
    before = threads()
    with KafkaBroker() as broker:
        assert "kafka_broker" in {thread.name for thread in threads() - before}
        assert broker.running
        assert broker.bootstrap_servers in repr(broker)
        assert ask(broker.nodes[1])
    assert threads() == before
    assert not broker.running
    assert "not running" in repr(broker)
    broker.close()
    with pytest.raises(ClientClosed, match="not running"):
        _ = broker.topics


def test_before_its_start_it_is_not_running() -> None:
    with pytest.raises(ClientClosed, match="not running"):
        KafkaBroker().create_topic("orders")


def test_startup_errors_are_raised_unchanged() -> None:
    before = threads()
    with pytest.raises(InvalidOption, match="nodse"):
        KafkaBroker(nodse=3).start()
    assert threads() == before


def test_a_start_that_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_thread, "START_TIMEOUT_S", 0.0)
    broker = KafkaBroker()
    monkeypatch.setattr(broker._ready, "wait", lambda timeout_s: False)
    with pytest.raises(TimeoutError, match="did not start"):
        broker.start()
    threading.Event.wait(broker._ready)
    broker.close()


def test_its_repr_and_properties(broker: KafkaBroker) -> None:
    assert len(broker.bootstrap_servers.split(",")) == 3
    assert list(broker.nodes) == [1, 2, 3]
    assert broker.controller_id == 1
    assert broker.live_nodes == (1, 2, 3)
    assert broker.coordinator("billing") in {1, 2, 3}
    assert broker.cluster_id


def test_topics(broker: KafkaBroker) -> None:
    assert broker.create_topic("orders", 3, 2, configs={"max.message.bytes": "1000"}) == "orders"
    one, two = broker.create_topic(), broker.create_topic(partitions=2)
    assert broker.topics == {"orders": 3, one: 1, two: 2}
    broker.add_partitions(one, 4)
    broker.delete_topic(two)
    assert broker.topics == {"orders": 3, one: 4}
    assert broker.end_offset("orders", 0) == 0
    with pytest.raises(BrokerError, match="orders"):
        broker.create_topic("orders")


def test_leaders_and_logs(broker: KafkaBroker) -> None:
    broker.create_topic("orders", 1, 3)
    to = broker.leader("orders", 0) % 3 + 1
    broker.move_leader("orders", 0, to)
    assert broker.leader("orders", 0) == to
    assert broker.leader_epoch("orders", 0) == 1
    broker.truncate("orders", 0, 0)
    assert broker.leader_epoch("orders", 0) == 2
    broker.delete_records("orders", 0, 0)


def test_nodes_with_logs_of_their_own() -> None:
    with KafkaBroker(2, as_of="2.8", replicate=True) as broker:
        broker.create_topic("orders", 1, 2)
        broker.wait_for_isr("orders", 0, 1, 2)
        leader = broker.leader("orders", 0)
        other = 3 - leader
        assert broker.end_offset("orders", 0, node=other) == 0
        broker.shut_down(leader)
        broker.wait_for_isr("orders", 0, other)
        assert broker.leader("orders", 0) == other
        assert broker.isr("orders", 0) == (other,)
        with pytest.raises(TimeoutError, match="ISR is"):
            broker.wait_for_isr("orders", 0, leader, timeout_s=0.01)
        broker.restart(leader)
        broker.wait_for_isr("orders", 0, 1, 2)


def test_nodes_die_hang_and_come_back(broker: KafkaBroker) -> None:
    broker.kill(1)
    assert broker.live_nodes == (2, 3)
    with pytest.raises(OSError):
        ask(broker.nodes[1])
    broker.restart(1)
    assert ask(broker.nodes[1])
    broker.pause(2)
    with pytest.raises(TimeoutError):
        ask(broker.nodes[2], 0.05)
    broker.resume(2)
    assert ask(broker.nodes[2])


def test_a_rule_ends_with_its_block_or_when_removed(broker: KafkaBroker) -> None:
    with broker.on(ApiKey.METADATA, Close()) as fault:
        assert ask(broker.nodes[1]) == b""
        assert fault.hits == 1
        assert "METADATA" in repr(fault)
    assert ask(broker.nodes[1])
    fault = broker.on(None, Close(), node=1, times=5)
    fault.remove()
    fault.remove()
    broker.on(ApiKey.METADATA, Close())
    broker.clear_faults()
    assert ask(broker.nodes[1])


def test_requests_are_seen(broker: KafkaBroker) -> None:
    ask(broker.nodes[1])
    ask(broker.nodes[2])
    assert len(broker.requests) == 2
    assert [seen.node_id for seen in broker.requests] == [1, 2]
    assert broker.requests[-1].client_id == "a test"
    assert len(broker.requests.of(ApiKey.METADATA, node=2)) == 1
    assert broker.requests.of(ApiKey.FETCH) == []
    assert "METADATA" in repr(broker.requests)
    broker.requests.clear()
    assert not len(broker.requests)


def test_requests_are_waited_for(broker: KafkaBroker) -> None:
    address = broker.nodes[1]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.wait_for_request, ApiKey.METADATA, count=2)
        ask(address)
        ask(address)
        assert waiting.result(10).correlation_id == 7
    with pytest.raises(TimeoutError, match="0 of 1 FETCH"):
        broker.wait_for_request(ApiKey.FETCH, node=1, timeout_s=0.01)
    with pytest.raises(TimeoutError):
        broker.wait_for_request(ApiKey.METADATA, matching=lambda seen: False, timeout_s=0.01)


def test_callers_that_wait_when_it_closes_get_an_error() -> None:
    with ThreadPoolExecutor(1) as pool:
        with KafkaBroker() as broker:
            called = threading.Event()

            def matching(seen: SeenRequest) -> bool:
                called.set()
                return False

            ask(broker.nodes[1])
            waiting = pool.submit(broker.wait_for_request, ApiKey.METADATA, matching=matching)
            assert called.wait(10)
        with pytest.raises(ClientClosed, match="closed during the call"):
            waiting.result(10)


def test_a_function_decides_and_may_ask_the_broker(broker: KafkaBroker) -> None:
    seen_topics: list[Any] = []

    def decide(seen: SeenRequest) -> Any:
        seen_topics.append(broker.topics)
        broker.delete_records("orders", 0, 0)
        return Answer(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def decide_later(seen: SeenRequest) -> Any:
        await anyio.lowlevel.checkpoint()
        return Delay(0)

    broker.create_topic("orders")
    broker.on(ApiKey.METADATA, decide_later)
    fault = broker.on(ApiKey.METADATA, decide)
    assert ask(broker.nodes[1])
    assert seen_topics == [{"orders": 1}]
    assert fault.hits == 1


class Failed(BaseException):
    """Such as pytest.fail raises."""


@pytest.mark.parametrize("error", [ZeroDivisionError(), Failed()])
def test_what_a_function_raises_comes_out_at_the_end(error: BaseException) -> None:
    def decide(seen: SeenRequest) -> None:
        raise error

    broker = KafkaBroker()
    broker.start()
    broker.on(ApiKey.METADATA, decide)
    assert ask(broker.nodes[1]) == b""
    assert ask(broker.nodes[1]) == b""
    with pytest.raises(type(error)):
        broker.close()
    broker.close()


def test_a_function_must_not_wait_for_the_broker_that_calls_it() -> None:
    def decide(seen: SeenRequest) -> None:
        broker.kill(1)

    broker = KafkaBroker()
    broker.start()
    broker.on(ApiKey.METADATA, decide)
    assert ask(broker.nodes[1]) == b""
    with pytest.raises(RuntimeError, match="cannot wait"):
        broker.close()


def test_a_function_that_never_returns_does_not_hold_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_thread, "CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(broker_thread, "CALL_TIMEOUT_S", 0.05)
    called, go_on = threading.Event(), threading.Event()

    def decide(seen: SeenRequest) -> None:
        called.set()
        go_on.wait(30)

    broker = KafkaBroker()
    broker.start()
    broker.on(ApiKey.METADATA, decide)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, broker.nodes[1])
        assert called.wait(10)
        with pytest.raises(TimeoutError):
            _ = broker.topics
        with pytest.raises(TimeoutError, match="passed to on"):
            broker.close()
        go_on.set()
    broker._thread.join(10)
    assert not broker._thread.is_alive()


def test_reset_removes_all_faults(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    fault = broker.on(None, Close())
    broker.kill(1)
    broker.pause(2)
    ask(broker.nodes[3])
    broker.reset()
    assert broker.live_nodes == (1, 2, 3)
    assert not len(broker.requests)
    assert all(ask(address) for address in broker.nodes.values())
    assert fault.hits == 1
    assert broker.topics == {"orders": 1}

    def decide(seen: SeenRequest) -> None:
        raise ZeroDivisionError

    broker.on(None, decide)
    ask(broker.nodes[3])
    with pytest.raises(ZeroDivisionError):
        broker.reset()
    broker.reset()


def test_calls_may_come_from_many_threads(broker: KafkaBroker) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: broker.create_topic(), range(64)))
    assert len(set(names)) == 64
    assert set(broker.topics) == set(names)


def test_it_has_all_that_a_broker_has() -> None:
    public = {name for name in dir(Broker) if not name.startswith("_")}
    assert public - set(dir(KafkaBroker)) == {"aclose", "stop"}
    with KafkaBroker(2, racks=["a", "b"], default_partitions=4) as broker:
        assert broker.create_topic("orders") == "orders"
        assert broker.topics == {"orders": 4}


# --- from an event loop ---


async def test_clients_of_any_event_loop_use_it(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", value=b"book")
    async with Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as it:
        with anyio.fail_after(20):
            assert (await it.getone()).value == b"book"
    assert broker.end_offset("orders", 0) == 1
    seen = await anyio.to_thread.run_sync(broker.wait_for_request, ApiKey.PRODUCE)
    assert seen.api_key is ApiKey.PRODUCE


async def test_waiting_in_an_event_loop_is_refused(broker: KafkaBroker) -> None:
    with pytest.raises(RuntimeError, match=r"wait_for_request .*to_thread"):
        broker.wait_for_request(ApiKey.PRODUCE)
    with pytest.raises(RuntimeError, match=r"wait_for_isr .*to_thread"):
        broker.wait_for_isr("orders", 0, 1)


async def test_it_may_be_made_in_an_event_loop() -> None:
    with KafkaBroker() as broker:
        assert broker.create_topic() == "topic-1"


def test_a_port_for_clients_of_0_7() -> None:
    with KafkaBroker(kafka07_port=0) as broker:
        assert broker.kafka07_server not in broker.bootstrap_servers
    with KafkaBroker() as broker, pytest.raises(KafkaError, match="kafka07_port"):
        _ = broker.kafka07_server


def test_acls() -> None:
    acls = [Acl("User:alice", "Read", topic="t"), Acl("User:bob", "Read", topic="t")]
    with KafkaBroker(acls=acls[:1], super_users=["User:root"]) as broker:
        assert broker.acls == (acls[0],)
        broker.add_acls(acls[1])
        assert broker.acls == tuple(acls)
        broker.remove_acls(*acls)
        assert broker.acls == ()
    with KafkaBroker() as broker, pytest.raises(KafkaError, match="authorizer"):
        broker.add_acls(*acls)


# --- what is exported ---


@pytest.mark.parametrize("name", aiokafkawire.testing.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(aiokafkawire.testing, name).__doc__
    assert name in dir(aiokafkawire.testing)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkaBrokr'"):
        _ = aiokafkawire.testing.KafkaBrokr


@pytest.mark.slow
def test_importing_the_plugin_loads_no_subpackage() -> None:
    code = (
        "import sys, aiokafkawire.testing.plugin\n"
        "print(sorted(m for m in sys.modules if m.startswith(('aiokafkawire.', 'anyio'))))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    modules = ["_about", "_version", "testing", "testing.plugin"]
    assert finished.stdout.strip() == str([f"aiokafkawire.{name}" for name in modules])
