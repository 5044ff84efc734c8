"""The task that refreshes the metadata, with misbehaving nodes."""

from __future__ import annotations

import itertools
import logging
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.cluster import metadata_updater
from aiokafkawire.cluster.bootstrap import no_broker_available
from aiokafkawire.cluster.metadata import MetadataUpdate
from aiokafkawire.cluster.metadata_updater import MetadataUpdater
from aiokafkawire.connection import SILENT_SERVER, Handshake
from aiokafkawire.errors import AuthenticationFailed, ConnectionFailed
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.metadata import MetadataResponse
from tests.connection.scripted import Hangup, ScriptedBroker, hosted, make_config, serve

from .scripted import Cluster, brokers_at, client_of, cluster_client, scripted_cluster, topic_of


def soon(seconds: float = 20) -> float:
    return anyio.current_time() + seconds


async def refreshed(cluster: Cluster) -> None:
    cluster.request_update()
    assert await cluster.wait_update(cluster.metadata.version, soon())


async def test_a_failed_node_is_not_tried_twice_in_a_row():
    asked: list[str] = []

    async def hang_up(_: Any, __: Any) -> Response | None:
        asked.append("fails")
        raise Hangup

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())

        async def answer(header: Any, request: Any) -> Response | None:
            asked.append("answers")
            return await scripted.metadata(header, request)

        scripted.nodes[1].answers[ApiKey.METADATA] = hang_up
        scripted.nodes[2].answers[ApiKey.METADATA] = answer
        for _ in range(8):
            await refreshed(cluster)
    assert asked.count("answers") >= 8
    assert ("fails", "fails") not in itertools.pairwise(asked)


async def logged(caplog: pytest.LogCaptureFixture) -> None:
    """Wait for a log line."""
    while not caplog.records:
        await anyio.lowlevel.checkpoint()


async def silent(_: Any, __: Any) -> Response | None:
    await anyio.sleep_forever()
    return None


async def test_a_silent_node_does_not_block_the_refresh(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(metadata_updater, "NEXT_NODE_AFTER_S", 0.5)
    monkeypatch.setattr("aiokafkawire.cluster.refresh_schedule.NO_BROKER_LOG_AFTER_S", 0.0)

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        scripted.nodes[1].answers[ApiKey.METADATA] = silent
        version = cluster.metadata.version
        for _ in range(4):
            await refreshed(cluster)
        assert cluster.metadata.version >= version + 4
    # One of them served all the time.
    assert not caplog.records


async def test_a_failed_node_is_tried_after_all_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(metadata_updater, "NEXT_NODE_AFTER_S", 0.5)
    asked: list[int] = []
    go_on = {number: anyio.Event() for number in (1, 2, 3)}

    async with scripted_cluster(3) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())

        def for_node(number: int) -> Any:
            async def answer(header: Any, request: Any) -> Response | None:
                asked.append(number)
                await go_on[number].wait()
                return await scripted.metadata(header, request)

            return answer

        for number, node in scripted.nodes.items():
            node.answers[ApiKey.METADATA] = for_node(number)
        go_on[2].set()
        go_on[3].set()
        for _ in range(20):
            await refreshed(cluster)
        assert asked.count(1) <= 1
        # Alone it is asked all the same.
        go_on[1].set()
        go_on[2], go_on[3] = anyio.Event(), anyio.Event()
        await refreshed(cluster)
        assert 1 in asked


# --- the start ------------------------------------------------------------------------------


async def test_a_silent_address_does_not_block_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    # Long enough for the other address to respond on a busy machine.
    monkeypatch.setattr(metadata_updater, "FIRST_CONNECT_TIMEOUT_S", 0.9)
    monkeypatch.setattr(metadata_updater, "NEXT_NODE_AFTER_S", 1.0)
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        scripted.nodes[1].answers[ApiKey.METADATA] = silent
        with anyio.fail_after(5):
            await cluster.start(soon())
    assert not caplog.records


async def test_a_silent_address_is_logged_soon(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(metadata_updater, "FIRST_CONNECT_TIMEOUT_S", 0.04)
    monkeypatch.setattr(metadata_updater, "NEXT_NODE_AFTER_S", 0.05)
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:

        async def late(header: Any, request: Any) -> Response | None:
            await logged(caplog)
            return await scripted.metadata(header, request)

        scripted.nodes[1].answers[ApiKey.METADATA] = late
        with anyio.fail_after(20):
            await cluster.start(soon())
    (line,) = caplog.records
    assert f"{scripted.bootstrap}: no response yet; retrying" in line.getMessage()


async def test_a_silent_server_has_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    refresh = MetadataUpdater._refresh_from_bootstrap
    reasons = [metadata_updater.NO_RESPONSE_YET, SILENT_SERVER]

    async def fail_twice(self: MetadataUpdater, *arguments: Any) -> None:
        if reasons:
            raise no_broker_available([ConnectionFailed(reasons.pop(0), broker="h:1")])
        await refresh(self, *arguments)

    monkeypatch.setattr(MetadataUpdater, "_refresh_from_bootstrap", fail_twice)
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
    (line,) = caplog.messages
    assert "h:1: no response yet; retrying" in line


async def test_each_reason_of_a_failed_start_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(metadata_updater, "FIRST_CONNECT_TIMEOUT_S", 0.04)
    monkeypatch.setattr(metadata_updater, "NEXT_NODE_AFTER_S", 0.05)
    asked = 0
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:

        async def answer(header: Any, request: Any) -> Response | None:
            nonlocal asked
            asked += 1
            if asked < 6:
                await logged(caplog)
                raise Hangup
            return await scripted.metadata(header, request)

        scripted.nodes[1].answers[ApiKey.METADATA] = answer
        with anyio.fail_after(20):
            await cluster.start(soon())
    first, *others = [text for text in caplog.messages if "bootstrap_servers" in text]
    assert "no response yet" in first
    assert len(others) == 1
    assert "the broker closed the connection" in others[0]


async def test_a_broker_can_require_a_rebootstrap():
    asked: list[int] = []
    async with scripted_cluster(1) as scripted:
        respond = scripted.metadata

        async def metadata(header: Any, request: Any) -> Response | None:
            asked.append(1)
            response = await respond(header, request)
            assert isinstance(response, MetadataResponse)
            if len(asked) == 2:
                response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
            return response

        scripted.nodes[1].answers[ApiKey.METADATA] = metadata
        async with client_of(scripted) as cluster:
            await cluster.start(soon())
            await refreshed(cluster)
            assert len(asked) == 3


async def test_the_bootstrap_addresses_are_tried_at_once_if_all_nodes_are_unreachable():
    async with scripted_cluster(1) as scripted:
        stays = scripted.servers[1]
        async with AsyncExitStack() as stack:
            # The snapshot is of a time when only a node was up that is down now.
            async with serve(ScriptedBroker()) as gone:
                scripted.servers[1] = gone
                cluster = await stack.enter_async_context(
                    cluster_client(bootstrap_servers=str(stays.address))
                )
                await cluster.start(soon())
                assert cluster.metadata.nodes[1].address == gone.address
            scripted.servers[1] = stays
            await refreshed(cluster)
            assert cluster.metadata.nodes[1].address == stays.address


async def test_a_partition_without_a_leader_is_refreshed_again():
    async with scripted_cluster(1) as scripted:
        scripted.topics["t"] = topic_of("t", -1)
        async with client_of(scripted) as cluster:
            await cluster.start(soon())
            cluster.add_topics(["t"])
            with anyio.fail_after(20):
                while scripted.asked.count(["t"]) < 3:
                    assert await cluster.wait_update(cluster.metadata.version, soon())
            scripted.topics["t"] = topic_of("t", 1)
            with anyio.fail_after(20):
                while cluster.metadata.topics["t"].partitions[0].leader_id != 1:
                    assert await cluster.wait_update(cluster.metadata.version, soon())


async def test_a_repeated_warning_is_logged_once(caplog: pytest.LogCaptureFixture):
    async with scripted_cluster(1) as scripted:
        respond = scripted.metadata

        async def with_a_bad_node(header: Any, request: Any) -> Response | None:
            response = await respond(header, request)
            assert isinstance(response, MetadataResponse)
            response.brokers += brokers_at(*[Address("h", 0)] * 7)[6:]
            return response

        scripted.nodes[1].answers[ApiKey.METADATA] = with_a_bad_node
        with caplog.at_level(logging.WARNING):
            async with client_of(scripted) as cluster:
                await cluster.start(soon())
                for _ in range(3):
                    await refreshed(cluster)
                assert list(cluster.metadata.nodes) == [1]
    assert sum("ignored broker 7" in record.message for record in caplog.records) == 1


async def test_listeners_are_called_for_leader_updates():
    updates: list[MetadataUpdate] = []
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        cluster.add_metadata_listener(updates.append)
        cluster._metadata_updater.apply(cluster.metadata.with_node(5, "five", 9092))
        assert [sorted(update.snapshot.nodes) for update in updates] == [[1, 5]]
        # A leader that is not newer is not reported.
        cluster._metadata_updater.apply(cluster.metadata.with_node(5, "five", 9092))
        assert len(updates) == 1


async def test_rejected_credentials_end_the_start_at_once():
    class Refused(Handshake):
        async def new_mechanism(self, _: Address) -> None:
            raise AuthenticationFailed("wrong password")

    async with scripted_cluster(1) as scripted, hosted() as (runtime, supervisor):
        config = make_config(bootstrap_servers=scripted.bootstrap)
        cluster = Cluster(config, runtime, supervisor, handshake=Refused())
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await cluster.start(soon(60))
        await cluster.aclose()


async def test_an_outage_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("aiokafkawire.cluster.refresh_schedule.NO_BROKER_LOG_AFTER_S", 0.0)
    caplog.set_level("INFO", "aiokafkawire.cluster")
    failed: list[int] = []

    async def hang_up(_: Any, __: Any) -> Response | None:
        failed.append(1)
        raise Hangup

    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        answers = scripted.nodes[1].answers
        usual, answers[ApiKey.METADATA] = answers[ApiKey.METADATA], hang_up
        cluster.request_update()
        with anyio.fail_after(20):
            while len(failed) < 4:
                assert not await cluster.wait_update(cluster.metadata.version, soon(0.01))
        assert "can be reached again" not in caplog.text
        answers[ApiKey.METADATA] = usual
        cluster.request_update()
        with anyio.fail_after(20):
            while "can be reached again" not in caplog.text:
                await cluster.wait_update(cluster.metadata.version, soon(0.01))
    logged = [record for record in caplog.records if "no broker can be reached" in record.message]
    assert len(logged) == 1
    (back,) = [record for record in caplog.records if "reached again" in record.message]
    assert back.kafka_outage_ms > 0
    assert f"after {back.kafka_outage_ms / 1_000:.3f} s" in back.message


@pytest.mark.parametrize(
    ("release", "kept"), [("0.8.0", {1, 2}), ("0.8.1", {1, 2}), ("0.8.2", {2})]
)
async def test_an_old_broker_may_omit_nodes(release: str, kept: set[int]):
    """0.8 does so before a topic exists, 0.8.0 and 0.8.1 always."""
    answers: list[MetadataResponse] = []

    async def old(_: Any, __: Any) -> Response:
        return answers.pop(0)

    async with scripted_cluster(2) as scripted:
        for node in scripted.nodes.values():
            node.answers[ApiKey.METADATA] = old
        answers.append(MetadataResponse(brokers=[], topics=[]))
        async with cluster_client(
            bootstrap_servers=scripted.bootstrap, api_version=release
        ) as cluster:
            await cluster.start(soon())
            [nameless] = cluster.metadata.nodes
            assert nameless < -1
            everyone = brokers_at(*(server.address for server in scripted.servers.values()))
            answers.append(MetadataResponse(brokers=everyone[:1], topics=[]))
            await refreshed(cluster)
            assert cluster.metadata.nodes.keys() == {1}
            answers.append(MetadataResponse(brokers=everyone[1:], topics=[]))
            await refreshed(cluster)
            assert cluster.metadata.nodes.keys() == kept
            answers.append(MetadataResponse(brokers=[], topics=[]))
            await refreshed(cluster)
            assert cluster.metadata.nodes.keys() == kept
