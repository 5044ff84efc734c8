"""Start real Apache Kafka on loopback: for tests, and by hand.

    with Kafka() as kafka:                      # one node of DEFAULT_VERSION
        use(kafka.bootstrap_servers)
        kafka.restart()                         # same ports, data kept

    python -m tests.brokers.kafka --nodes 3     # until Ctrl-C

Everything here is synchronous: call it from a fixture, or from a worker thread.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers import raw
from tests.brokers.process import HOST, Process, free_ports
from tests.brokers.releases import RELEASES, Mode, Release, Unavailable, fetch, java_for, tail

__all__ = ["DEFAULT_VERSION", "Kafka", "Node", "StartFailed", "Unavailable"]

DEFAULT_VERSION = "4.3.0"
READY_TIMEOUT_SECONDS = 60.0
FORMAT_TIMEOUT_SECONDS = 60.0
POLL_INTERVAL_SECONDS = 0.05
PROBE_TIMEOUT_SECONDS = 5.0
PORT_ATTEMPTS = 5
MAX_NODES = 9
CAUSE_LINES = 10

_CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
# The serial collector and the first compiler tier: a small heap and a quick start on few cores.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_PORT_TAKEN = "Address already in use"
_CAUSE = re.compile(r"\b(ERROR|FATAL)\b|Exception\b")


class StartFailed(RuntimeError):
    """A node ended, or did not become ready in time; the text has the tail of its log."""


class PortTaken(StartFailed):
    """Somebody else took one of the chosen ports before the node could."""


class Node:
    """One broker that is its own controller too, and the folder with its data and log."""

    def __init__(self, node_id: int, ports: tuple[int, int], directory: Path) -> None:
        self.node_id = node_id
        self.port, self.controller_port = ports
        self.directory = directory
        self.process: Process | None = None

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def suspend(self) -> None:
        self._owned().suspend()

    def resume(self) -> None:
        self._owned().resume()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None

    def kill(self) -> None:
        """End it without a goodbye. `Kafka.start()` brings it back with its data."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def _owned(self) -> Process:
        if self.process is None:
            raise RuntimeError(f"node {self.node_id} is not running")
        return self.process


class Kafka:
    """A cluster of `nodes` real brokers, each also a KRaft controller.

    `directory` keeps the data beyond `close()`; without it a temporary one is used.
    `properties` go over the defaults of `server_properties`. `ports` are the clients'
    ports, one a node; without them free ones are chosen, and kept over restarts.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        nodes: int = 1,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        ports: Sequence[int] | None = None,
    ) -> None:
        self.release = _release(version)
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"nodes must be 1 to {MAX_NODES}, not {nodes}")
        if ports is not None and len(ports) != nodes:
            raise ValueError(f"{len(ports)} ports given for {nodes} nodes")
        self.nodes: tuple[Node, ...] = ()
        self._count = nodes
        self._given_ports = ports
        self._properties = dict(properties or {})
        self._given_directory = directory
        self._directory: Path | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, joined by commas. Known after the first `start()`."""
        return ",".join(f"{host}:{port}" for host, port in (node.address for node in self.nodes))

    def start(self) -> None:
        """Start every node that is not running and wait until all running ones serve.

        Raises `Unavailable` if the machine lacks what it takes, `StartFailed` otherwise.
        """
        command = self._command()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            first_time = not self.nodes
            if first_time:
                self.nodes = self._lay_out()
            try:
                return self._bring_up(command)
            except PortTaken:
                if not first_time or self._given_ports is not None or attempt == PORT_ATTEMPTS:
                    raise
                self.nodes = ()

    def start_node(self, node: Node) -> None:
        """Start one node again, and do not wait until it serves."""
        settings = str(_properties_file(node))
        log = node.directory / "server.log"
        node.process = Process((*self._command(), "kafka.Kafka", settings), log)

    def stop(self) -> None:
        """End every node in order; data and ports are kept for the next `start()`."""
        for node in self.nodes:
            if node.process is not None:
                node.process.terminate()
        for node in self.nodes:
            node.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def suspend(self) -> None:
        """Freeze every node: connections stay open, nothing is answered."""
        for node in self.nodes:
            node.suspend()

    def resume(self) -> None:
        for node in self.nodes:
            node.resume()

    def close(self) -> None:
        """Stop, and remove the data unless it stands in a given `directory`."""
        try:
            self.stop()
        finally:
            if self._directory is not None and self._directory != self._given_directory:
                shutil.rmtree(self._directory)
            self._directory = None
            self.nodes = ()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every node knows a leader for each of its partitions."""
        running = [node for node in self.nodes if node.running]
        raw.create_topic(
            running[0].address,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
        )
        for node in running:
            self._wait_for(node, lambda seen: seen.led_partitions(name) == partitions)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> tuple[str, ...]:
        java, jars = java_for(self.release), fetch(self.release)
        return (str(java), *_JVM_OPTIONS, *_LOG_OPTIONS, "-cp", f"{jars}/*")

    def _lay_out(self) -> tuple[Node, ...]:
        if self._directory is None:
            prefix = f"kafka-{self.release.version}-"
            self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix=prefix))
        free = free_ports(2 * self._count)
        ports = zip(self._given_ports or free[: self._count], free[self._count :], strict=True)
        nodes = tuple(
            Node(node_id, pair, self._directory / f"node-{node_id}")
            for node_id, pair in enumerate(ports, start=1)
        )
        for node in nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            settings = server_properties(self.release, node, nodes) | self._properties
            _properties_file(node).write_text(
                "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
            )
        return nodes

    def _bring_up(self, command: tuple[str, ...]) -> None:
        started = [node for node in self.nodes if not node.running]
        try:
            _format_storage(command, started)
            for node in started:
                self.start_node(node)
            everyone = {node.node_id for node in self.nodes}
            for node in self.nodes:
                self._wait_for(node, lambda seen: everyone <= seen.nodes.keys())
        except BaseException:
            for node in started:
                node.kill()
            raise

    def _wait_for(self, node: Node, holds: Callable[[raw.Metadata], bool]) -> None:
        """Ask `node` for metadata until `holds`; fail at once when any node ends."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while True:
            for other in self.nodes:
                if other.process is not None and other.process.returncode is not None:
                    raise _failure(other.process, f"node {other.node_id} ended while starting")
            try:
                if holds(raw.metadata(node.address, PROBE_TIMEOUT_SECONDS)):
                    return
            except OSError:  # not listening yet, or it closed on us: asked again below
                pass
            process = node._owned()
            if time.monotonic() > deadline:
                raise _failure(
                    process, f"node {node.node_id} not ready in {READY_TIMEOUT_SECONDS:.0f} s"
                )
            process.wait(POLL_INTERVAL_SECONDS)


def server_properties(release: Release, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    """What a node of a test cluster runs with: topics on demand, no waiting, small internals."""
    listener = f"PLAINTEXT://{HOST}:{node.port}"
    replicas = str(min(3, len(nodes)))
    in_sync = "2" if len(nodes) >= 3 else "1"
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{HOST}:{each.controller_port}" for each in nodes
        ),
        "listeners": f"{listener},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": listener,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.directory / "data"),
        "num.partitions": "2",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "auto.create.topics.enable": "true",
        # Tests of rebalances and dead members would otherwise wait 3 and 6 seconds each.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": in_sync,
        # Its buffer alone is larger than the heap.
        "log.cleaner.enable": "false",
    }
    if release.version.startswith("4."):
        settings["share.coordinator.state.topic.replication.factor"] = replicas
        settings["share.coordinator.state.topic.min.isr"] = in_sync
    return settings


def _release(version: str) -> Release:
    release = RELEASES.get(version)
    if release is None:
        raise ValueError(f"unknown Kafka version {version!r}; known: {', '.join(RELEASES)}")
    if release.mode is not Mode.KRAFT:
        raise ValueError(f"Kafka {version} needs ZooKeeper, which is not started here")
    return release


def _properties_file(node: Node) -> Path:
    return node.directory / "server.properties"


def _format_storage(command: tuple[str, ...], nodes: Sequence[Node]) -> None:
    """Give each node without data an empty log, all at the same time."""
    tools = []
    try:
        for node in nodes:
            if not (node.directory / "data" / "meta.properties").exists():
                arguments = ("format", "-t", _CLUSTER_ID, "-c", str(_properties_file(node)))
                tool = (*command, "kafka.tools.StorageTool", *arguments)
                tools.append(Process(tool, node.directory / "format.log"))
        for process in tools:
            if not process.wait(FORMAT_TIMEOUT_SECONDS) or process.returncode != 0:
                raise _failure(process, "the storage could not be formatted")
    finally:
        for process in tools:
            process.kill()


def _failure(process: Process, what: str) -> StartFailed:
    output = process.output()
    # The cause is followed by a long account of the shutdown: it would not be in the tail.
    causes = [line for line in output.splitlines() if _CAUSE.search(line)][:CAUSE_LINES]
    text = "\n".join((*causes, "...", tail(output)))
    kind = PortTaken if _PORT_TAKEN in output else StartFailed
    return kind(f"{what} (exit code {process.returncode}); from {process.log}:\n{text}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.brokers.kafka", description="Run real Apache Kafka until Ctrl-C."
    )
    startable = [name for name, row in RELEASES.items() if row.mode is Mode.KRAFT]
    parser.add_argument("--version", choices=startable, default=DEFAULT_VERSION)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--port", type=int, nargs="+", help="one a node; default: free ones")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the data in DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--fetch", action="store_true", help="only fill the cache of jars")
    options = parser.parse_args(arguments)
    properties = dict(setting.split("=", 1) for setting in options.set if "=" in setting)
    if len(properties) != len(options.set):
        parser.error("--set wants KEY=VALUE, each KEY once")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.fetch:
            print(fetch(RELEASES[options.version]))
            return 0
        data = options.data.resolve() if options.data else None
        return _serve(
            Kafka(
                options.version,
                nodes=options.nodes,
                directory=data,
                properties=properties,
                ports=options.port,
            )
        )
    except (Unavailable, StartFailed, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _serve(kafka: Kafka) -> int:
    began = time.monotonic()
    with kafka:
        resident = [node.process.resident_mib() for node in kafka.nodes if node.process]
        sizes = ", ".join(f"{size:.0f} MiB" for size in resident if size is not None)
        print(f"ready after {time.monotonic() - began:.1f} s ({sizes})", file=sys.stderr)
        print(kafka.bootstrap_servers, flush=True)
        while all(node.running for node in kafka.nodes):
            kafka.nodes[0]._owned().wait(1.0)
        ended = next(node for node in kafka.nodes if not node.running)
        raise _failure(ended._owned(), f"node {ended.node_id} ended")


if __name__ == "__main__":
    sys.exit(main())
