"""Start real Apache Kafka on loopback: for tests, and by hand.

    with Kafka() as kafka:                      # one node of DEFAULT_VERSION
        use(kafka.bootstrap_servers)
        kafka.restart()                         # same ports, data kept

    with Kafka("0.9.0.1") as kafka:             # with a ZooKeeper of its own

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

from tests.brokers import raw, zookeeper
from tests.brokers.process import HOST, Process, free_ports
from tests.brokers.releases import RELEASES, Mode, Release, Unavailable, fetch, java_for, tail
from tests.brokers.settings import LOG4J, kraft_settings, needs_log4j, zookeeper_settings
from tests.brokers.zookeeper import ZooKeeper

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
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
# From here on a broker makes topics itself when it is asked.
FIRST_WITH_CREATE_TOPICS = (1, 0)
# Before, metadata named no broker before there was a topic.
FIRST_THAT_LISTS_ALL_NODES = (0, 9)

_REGISTERED = " at path /brokers/ids/"
_PORT_TAKEN = "Address already in use"
_CAUSE = re.compile(r"\b(ERROR|FATAL)\b|Exception\b")


class StartFailed(RuntimeError):
    """A node ended, or did not become ready in time; the text has the tail of its log."""


class PortTaken(StartFailed):
    """Somebody else took one of the chosen ports before the node could."""


class Node:
    """One broker and the folder with its data and log.

    With KRaft it is its own controller too; else nobody listens on `controller_port`. The other
    nodes come to `port`, as clients do, unless there is an `inter_broker_port`.
    """

    def __init__(
        self,
        node_id: int,
        ports: tuple[int, int],
        directory: Path,
        inter_broker_port: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.port, self.controller_port = ports
        self.inter_broker_port = inter_broker_port
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
        """Kill it (SIGKILL). `Kafka.start()` brings it back with its data."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def _owned(self) -> Process:
        if self.process is None:
            raise RuntimeError(f"node {self.node_id} is not running")
        return self.process


class Kafka:
    """A cluster of `nodes` real brokers: each also a KRaft controller, or all with one ZooKeeper.

    `directory` keeps the data beyond `close()`; without it a temporary one is used.
    `properties` go over the defaults of the `settings` module. `ports` are the clients'
    ports, one a node; without them free ones are chosen, and kept over restarts. `classes` is a
    folder of compiled classes beside Kafka's own. `apart`: the
    nodes talk to each other on ports of their own (KRaft alone), and clients can be cut off alone.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        nodes: int = 1,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        ports: Sequence[int] | None = None,
        apart: bool = False,
        java_options: Sequence[str] = JAVA_OPTIONS,
        classes: Path | None = None,
    ) -> None:
        self.release = _release(version)
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"nodes must be 1 to {MAX_NODES}, not {nodes}")
        if ports is not None and len(ports) != nodes:
            raise ValueError(f"{len(ports)} ports given for {nodes} nodes")
        self.nodes: tuple[Node, ...] = ()
        self._count = nodes
        self._given_ports = ports
        self._apart = apart
        self._properties = dict(properties or {})
        self._java_options = tuple(java_options)
        self._classes = classes
        self._given_directory = directory
        self._directory: Path | None = None
        self._zookeeper: ZooKeeper | None = None
        self._made: dict[str, int] = {}
        """Topics made here, and how many partitions each has."""

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

    def upgrade(self, node: Node, version: str) -> None:
        """Stop one node in order and start it as another release, while the others run.

        The settings stay; what it speaks to the others has to be among the `properties`.
        Returns once every replica is in sync: if the next node stopped before, a partition would
        have no leader, or, with unclean elections (the default before 0.11), lose records.
        """
        node.stop()
        self.release = _release(version)
        self.start_node(node)
        self._wait_for(node, self._is_in_sync)

    def stop(self) -> None:
        """End every node in order; data and ports are kept for the next `start()`."""
        try:
            for node in self.nodes:
                if node.process is not None:
                    node.process.terminate()
            for node in self.nodes:
                node.stop()
        finally:
            # After the brokers, which close their sessions with it.
            if self._zookeeper is not None:
                self._zookeeper.stop()

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
            self._zookeeper = None
            self._made.clear()
            self.nodes = ()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        replicas: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every node knows a leader for each of its partitions.

        `replicas`, instead of the two counts: the nodes of each partition, the one to lead first.
        """
        running = [node for node in self.nodes if node.running]
        # Where there is ZooKeeper one node alone is the controller, who makes topics.
        asked = self.release.number >= FIRST_WITH_CREATE_TOPICS and len(running) == 1
        if self._zookeeper is None or asked:
            raw.create_topic(
                running[0].address,
                name,
                partitions=-1 if replicas else partitions,
                replication_factor=-1 if replicas else replication_factor,
                replicas=replicas,
                configs=configs or {},
            )
        else:
            ids = [node.node_id for node in running]
            spread = replicas or [
                [ids[(partition + n) % len(ids)] for n in range(replication_factor)]
                for partition in range(partitions)
            ]
            placed = {partition: list(nodes) for partition, nodes in enumerate(spread)}
            zookeeper.create_topic(self._zookeeper.port, name, placed, configs or {})
        count = len(replicas) or partitions
        self._made[name] = count
        for node in running:
            self._wait_for(node, lambda seen: seen.led_partitions(name) == count)

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
        # A relative name: each process runs in its own folder.
        options = ("-Dlog4j.configuration=file:log4j.properties",)
        log_options = options if needs_log4j(self.release) else _LOG_OPTIONS
        classpath = f"{jars}/*" if self._classes is None else f"{jars}/*:{self._classes}"
        return (str(java), *self._java_options, *log_options, "-cp", classpath)

    def _lay_out(self) -> tuple[Node, ...]:
        if self._directory is None:
            prefix = f"kafka-{self.release.version}-"
            self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix=prefix))
        free = free_ports(3 * self._count)
        clients, controllers, brokers = (free[n::3] for n in range(3))
        nodes = tuple(
            Node(
                node_id,
                (port, controllers[node_id - 1]),
                self._directory / f"node-{node_id}",
                brokers[node_id - 1] if self._apart else None,
            )
            for node_id, port in enumerate(self._given_ports or clients, start=1)
        )
        if self.release.mode is Mode.ZOOKEEPER:
            self._zookeeper = ZooKeeper(nodes[0].controller_port, self._directory / "zookeeper")
        for node in nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            settings = self._settings(node, nodes) | self._properties
            _properties_file(node).write_text(
                "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
            )
        if needs_log4j(self.release):
            for folder in self._directory.iterdir():
                (folder / "log4j.properties").write_text(LOG4J, encoding="utf-8")
        return nodes

    def _settings(self, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
        place = {"log.dirs": str(node.directory / "data")}
        if self._zookeeper is not None:
            return place | zookeeper_settings(
                self.release, node.node_id, node.port, self._zookeeper.port, len(nodes)
            )
        controllers = {each.node_id: each.controller_port for each in nodes}
        return place | kraft_settings(
            self.release, node.node_id, node.port, controllers, node.inter_broker_port
        )

    def _bring_up(self, command: tuple[str, ...]) -> None:
        started = [node for node in self.nodes if not node.running]
        try:
            if self._zookeeper is None:
                _format_storage(command, started)
            else:
                self._zookeeper.start(command)
            for node in started:
                self.start_node(node)
            for node in self.nodes:
                self._wait_for(node, self._is_whole)
            if self.release.number < FIRST_THAT_LISTS_ALL_NODES:
                for node in started:
                    # It answers before it is registered, and could not make a topic then.
                    process = node._owned()
                    self._wait_for(node, lambda _, p=process: _REGISTERED in p.output())
        except BaseException:
            for node in started:
                node.kill()
            if self._zookeeper is not None and not any(node.running for node in self.nodes):
                self._zookeeper.stop()
            raise

    def _is_whole(self, seen: raw.Metadata) -> bool:
        """Return whether a new node knows the others, or the topics if that is the sign."""
        if self.release.number < FIRST_THAT_LISTS_ALL_NODES:
            return all(seen.led_partitions(name) == count for name, count in self._made.items())
        return {node.node_id for node in self.nodes} <= seen.nodes.keys()

    def _is_in_sync(self, seen: raw.Metadata) -> bool:
        """Return whether a new node lists all topics, and each replica of theirs in its ISR."""
        return (
            self._is_whole(seen)
            and self._made.keys() <= seen.replicas.keys()
            and seen.all_in_sync()
        )

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


def _release(version: str) -> Release:
    release = RELEASES.get(version)
    if release is None:
        raise ValueError(f"unknown Kafka version {version!r}; known: {', '.join(RELEASES)}")
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
    parser.add_argument("--version", choices=RELEASES, default=DEFAULT_VERSION)
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
