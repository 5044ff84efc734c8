"""Calls of a broker that cause faults, and wait for their effects."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.calls.base import BrokerBase
from aiokafkawire.broker.faults import Action, Fault, SeenRequest
from aiokafkawire.broker.node import Node
from aiokafkawire.broker.release_choice import resolve_release
from aiokafkawire.broker.request_context import BrokerState
from aiokafkawire.wire import ApiKey, error_for

__all__ = ("FaultCalls",)


class FaultCalls(BrokerBase):
    """Faults of requests, nodes and partitions."""

    def on(
        self,
        api_key: ApiKey | int | None,
        action: Action,
        *,
        node: int | None = None,
        times: int | None = None,
    ) -> Fault:
        """Add a fault that replaces the normal handling of matching requests.

        Faults are tried in the order in which they were added. The first one that is not a `Delay`
        decides.

        Args:
            api_key: API of the requests; None matches every API.
            action: A fault, or a function that gets the request and returns one.
            node: Node id of the requests. Defaults to every node.
            times: Number of requests after which the fault ends. Defaults to no limit.
        """
        return self._faults.add(None if api_key is None else ApiKey(api_key), action, node, times)

    def clear_faults(self) -> None:
        """Remove every fault added with `on`."""
        self._faults.clear()

    async def kill(self, node_id: int, *, lose_unsynced: bool = False) -> None:
        """Close the sockets of a node abruptly; other replicas take over its partitions.

        Args:
            node_id: Id of the node. A node that is down stays down.
            lose_unsynced: Also lose records that are not synced to disk, as when a machine loses
                power. Needs `replicate`.

        Raises:
            ValueError: There is no such node, or `lose_unsynced` without `replicate`.
        """
        node = self._node(node_id)
        if lose_unsynced and self._running.replication is None:
            raise ValueError(
                "lose_unsynced needs replicate=True, as otherwise all nodes share one log"
            )
        if not node.running:
            return
        node.abort_sockets()
        state = self._running
        with state.coordinator_loader.coordinator_changes():
            if state.replication is None:
                state.cluster.on_node_failure(node_id)
            else:
                state.replication.on_node_failure(node_id, lose_unsynced=lose_unsynced)
        await node.wait_stopped()

    async def shut_down(self, node_id: int) -> None:
        """Stop a node by a controlled shutdown: the controller first moves its leaders.

        Partitions that no other in-sync replica can lead are left without a leader. `restart`
        starts the node again.
        """
        node, replication = self._node(node_id), self._running.replication
        if node.running and replication is not None:
            await replication.shut_down(node)
        await self.kill(node_id)

    async def restart(self, node_id: int, *, as_of: str | None = None) -> None:
        """Start a killed node on its port; kill it first if it is up.

        Args:
            node_id: Id of the node.
            as_of: Kafka release that the node emulates from now on, for rolling upgrades. Options
                and stored data stay.

        Raises:
            InvalidOption: `as_of` is not a known release.
        """
        node = self._node(node_id)
        release = (
            None if as_of is None else resolve_release(as_of, replicate=self.options.replicate)
        )
        await self.kill(node_id)
        if release is not None:
            self._running.releases[node_id] = release
        await self._bind_node(node, node.addresses, self._running)
        with self._running.coordinator_loader.coordinator_changes():
            self._register_node(node, self._running)
            if self._running.replication is None:
                self._running.cluster.on_node_startup(node_id)
        await self._wait_for_metadata_propagation(self._running)

    def pause(self, node_id: int) -> None:
        """Make a node hang: it accepts connections and requests but does not respond.

        After `broker_session_timeout_ms`, other nodes take over what it leads and coordinates.
        """
        node = self._node(node_id)
        if node.running and not node.paused:
            node.pause()
            node.spawn(self._expire_session, "session", node, self._running)

    def resume(self, node_id: int) -> None:
        """End a `pause` and handle the requests that arrived meanwhile."""
        node, state = self._node(node_id), self._running
        node.resume()
        if node.running and node_id not in state.cluster.live:
            with state.coordinator_loader.coordinator_changes():
                if state.replication is None:
                    state.cluster.on_node_startup(node_id)
                else:
                    state.replication.on_session_restored(node_id)

    async def _expire_session(self, node: Node, state: BrokerState) -> None:
        """Declare a node dead that hangs past its session timeout, if another node runs."""
        session_s = self.options.broker_session_timeout_ms / 1000
        while await node.stays_paused_until(state.clock.now() + session_s):
            if any(each.running and not each.paused for each in self._nodes.values()):
                with state.coordinator_loader.coordinator_changes():
                    if state.replication is None:
                        state.cluster.on_node_failure(node.node_id, session_expired=True)
                    else:
                        state.replication.on_session_expired(node.node_id)
                return

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another live node the leader of a partition.

        With `replicate`, the new leader must be in sync, and all nodes learn of the change over the
        wire.

        Raises:
            ValueError: The node is down.
        """
        self._running.cluster.move_leader(self._partition(topic, partition), node_id)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Make another live node the coordinator of a group or transactional id.

        All keys of the same partition of __consumer_offsets or __transaction_state move with it.
        With `coordinator_load_ms` the new coordinator needs that time to load them.

        Raises:
            ValueError: The node is down.
        """
        state = self._running
        with state.coordinator_loader.coordinator_changes():
            state.cluster.move_coordinator(key, self._node(node_id).node_id)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate the log of a partition, as an unclean leader election does.

        The batch that holds `offset` and all later ones are removed, and the leader epoch rises.

        Raises:
            BrokerError: The log does not hold `offset`.
        """
        partition_state = self._partition(topic, partition)
        replication = self._running.replication
        try:
            if replication is None:
                self._running.cluster.truncate(partition_state, offset)
            else:
                replication.truncate(partition_state, offset)
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition, offset=offset) from error

    async def wait_for_isr(
        self, topic: str, partition: int, *nodes: int, timeout_s: float = 30.0
    ) -> None:
        """Wait until exactly these nodes are in sync.

        Raises:
            TimeoutError: The ISR is different after `timeout_s` seconds.
        """
        partition_state, state = self._partition(topic, partition), self._running
        if state.replication is not None:
            await state.replication.wait_until(
                lambda: set(partition_state.isr) == set(nodes), timeout_s
            )
        if set(partition_state.isr) != set(nodes):
            raise TimeoutError(
                f"ISR is {partition_state.isr} after {timeout_s} s, expected {nodes}"
            )

    async def wait_for_request(
        self,
        api_key: ApiKey | int,
        *,
        count: int = 1,
        node: int | None = None,
        matching: Callable[[SeenRequest], bool] = lambda seen: True,
        timeout_s: float = 30.0,
    ) -> SeenRequest:
        """Wait until the log has `count` matching requests; return the last of them.

        Args:
            api_key: API of the requests.
            count: Number of requests, those already in the log included.
            node: Node id of the requests. Defaults to every node.
            matching: Further condition.
            timeout_s: Time limit in seconds.

        Raises:
            TimeoutError: There are fewer matching requests after `timeout_s`.
        """
        assert self._runtime is not None
        key = ApiKey(api_key)

        def wanted(seen: SeenRequest) -> bool:
            return seen.api_key is key and node in {None, seen.node_id} and matching(seen)

        deadline = self._runtime.clock.now() + timeout_s
        requests = await self.requests.wait_for(wanted, count, deadline)
        if len(requests) < count:
            raise TimeoutError(
                f"{len(requests)} of {count} {key.name} requests arrived within {timeout_s} s"
            )
        return requests[count - 1]
