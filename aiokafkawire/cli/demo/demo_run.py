"""Run the demo: a cluster, a producer, three workers, failures half way, and the comparison."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from aiokafkawire.cli.demo.children import Child, Children
from aiokafkawire.cli.demo.comparison import Comparison, compare
from aiokafkawire.cli.demo.inputs import Truth, count_without_kafka, lines
from aiokafkawire.cli.demo.results import Results, create_store
from aiokafkawire.cli.demo.stage import DemoEvent, Stage, WorkerProcess
from aiokafkawire.cli.demo.topic import DemoTopic
from aiokafkawire.cli.demo.view import View
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.errors import DeliveriesFailed
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import checkpoint

__all__ = ("GROUP", "NODES", "PARTITIONS", "WORKERS", "DemoRun", "DemoSettings")

PARTITIONS = 12
WORKERS = 3
NODES = 3
GROUP = "aiokafkawire-demo"
RESULTS = "results.sqlite"

NO_PROGRESS_TIMEOUT_S = 60.0
"""Timeout without progress, after which the demo fails. A dead worker's session ends after 6 s."""

NODE_DOWN_S = 2.0
SHOW_EVERY_S = 0.25
LINGER_MS = 20
BATCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Options of the demo; without `bootstrap` it starts its own cluster."""

    files: list[Path]
    bootstrap: str | None
    backend: str
    folder: Path


class DemoRun:
    """One run of the demo."""

    def __init__(self, settings: DemoSettings, children: Children, view: View) -> None:
        self.stage = Stage(partitions=PARTITIONS)
        self.truth = Truth()
        self._settings = settings
        self._children = children
        self._view = view
        self._began = anyio.current_time()
        self._topic: DemoTopic | None = None
        self._processes: dict[str, Child] = {}
        self._half_way = anyio.Event()
        self._progress = anyio.Event()

    async def run(self) -> Comparison:
        """Run the demo. Raises `CommandFailed` or a `KafkaError`, also inside an ExceptionGroup."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._show)
            servers = self._settings.bootstrap or await self._start_cluster(group)
            self._add_event(f"the cluster is at {servers}")
            await self._read_input()
            name = f"{GROUP}-{os.getpid()}-{os.urandom(3).hex()}"
            self._topic = DemoTopic(servers, name, PARTITIONS)
            async with self._topic:
                await self._play(group, servers, name)
                await self._end()
            self._view.show(self.stage, self._now())
            group.cancel_scope.cancel()
        return self._compare()

    @property
    def left_behind(self) -> str | None:
        """Return what may outlive the demo: the topic, unless the demo started the cluster."""
        if self._settings.bootstrap is None or self._topic is None or not self._topic.may_exist:
            return None
        return f"topic {self._topic.name}"

    def _now(self) -> float:
        return anyio.current_time() - self._began

    def _add_event(self, text: str) -> None:
        event = DemoEvent(self._now(), text)
        self.stage.events.append(event)
        self._view.event(event)

    async def _show(self) -> None:
        while True:
            self._view.show(self.stage, self._now())
            await anyio.sleep(SHOW_EVERY_S)

    # --- start ---

    async def _read_input(self) -> None:
        count = len(self._settings.files)
        files = f"{count:,} file{'s' if count > 1 else ''}"
        self._add_event(f"reading {files} and counting their words without Kafka")
        for truth in count_without_kafka(self._settings.files):
            self.truth = truth
            await checkpoint()
        self.stage.total = self.truth.lines
        self._add_event(f"{self.truth.lines:,} lines, {self.truth.words.total():,} words")

    async def _start_cluster(self, group: anyio.abc.TaskGroup) -> str:
        module = "aiokafkawire.cli.demo.cluster"
        child = self._children.start("cluster", module, NODES, self._settings.backend)
        servers: list[str] = []

        def on_event(report: dict[str, Any]) -> None:
            if report["event"] == "ready":
                servers.append(report["servers"])
                self.stage.nodes.update(dict.fromkeys(report["nodes"], True))
            else:
                self.stage.nodes[report["node"]] = report["event"] == "start"

        self._processes["cluster"] = child
        group.start_soon(self._listen, child, on_event)
        await self._until(lambda: bool(servers), "the cluster to start")
        self._add_event(f"a cluster of {NODES} nodes is up")
        return servers[0]

    def _start_worker(self, group: anyio.abc.TaskGroup, servers: str, topic: str) -> str:
        name = f"worker {len(self.stage.workers) + 1}"
        child = self._children.start(
            name,
            "aiokafkawire.cli.demo.worker",
            servers,
            topic,
            self._settings.folder / RESULTS,
            self._settings.backend,
        )

        def on_event(report: dict[str, Any]) -> None:
            if text := self.stage.apply(name, report):
                self._add_event(text)

        self._processes[name] = child
        self.stage.workers[name] = WorkerProcess(name, child.pid)
        group.start_soon(self._listen, child, on_event)
        return name

    async def _listen(self, child: Child, on_event: Callable[[dict[str, Any]], None]) -> None:
        def take_in(report: dict[str, Any]) -> None:
            on_event(report)
            self._notify()

        await child.listen(take_in)
        if not child.expected_to_end:
            raise CommandFailed(
                f"the process of {child.name} ended by itself: {child.last_stderr_line()}"
            )

    # --- workers, producer and failures ---

    async def _play(self, group: anyio.abc.TaskGroup, servers: str, topic: str) -> None:
        create_store(self._settings.folder / RESULTS)
        names = [self._start_worker(group, servers, topic) for _ in range(WORKERS)]
        await self._until(lambda: self._owned_by(names), "the workers to share the partitions")
        async with anyio.create_task_group() as acts:
            acts.start_soon(self._feed, servers, topic)
            acts.start_soon(self._disturb, group, servers, topic)
        await self._until(
            lambda: self.stage.processed >= self.stage.sent, "all records to be counted"
        )
        self._add_event("all lines are counted")

    async def _feed(self, servers: str, topic: str) -> None:
        half = self.truth.lines // 2
        failed: DeliveriesFailed | None = None
        try:
            async with Producer(
                bootstrap_servers=servers,
                client_id="aiokafkawire-demo",
                linger_ms=LINGER_MS,
                batch_size_bytes=BATCH_BYTES,
            ) as producer:
                for number, line in enumerate(lines(self._settings.files)):
                    if number == half:
                        self._half_way.set()
                    await producer.send(topic, value=line, key=b"%d" % number)
                    self.stage.sent = number + 1
        except DeliveriesFailed as error:
            failed = error
        self._half_way.set()
        if failed is not None:
            self.stage.sent -= failed.count
            self._add_event(str(failed))
        self._notify()
        self._add_event(f"all {self.stage.sent:,} lines are sent")

    async def _disturb(self, group: anyio.abc.TaskGroup, servers: str, topic: str) -> None:
        await self._half_way.wait()
        victim = min(self.stage.workers)
        self._processes[victim].kill()
        worker = self.stage.workers[victim]
        worker.state, worker.partitions = "killed", ()
        self._add_event(
            f"half way: killed {victim} (process {worker.pid}); it cannot leave the group"
        )
        self._add_event("the others get its partitions after its session timeout of 6 s")
        name = self._start_worker(group, servers, topic)
        self._add_event(f"started {name}")
        if "cluster" in self._processes:
            await self._restart_node(max(self.stage.nodes))
        alive = [name for name, worker in self.stage.workers.items() if worker.state != "killed"]
        await self._until(lambda: self._owned_by(alive), f"{name} to get partitions")

    async def _restart_node(self, node: int) -> None:
        cluster = self._processes["cluster"]
        cluster.send("kill", node)
        await self._until(lambda: not self.stage.nodes[node], f"node {node} to stop")
        self._add_event(f"stopped node {node}")
        await anyio.sleep(NODE_DOWN_S)
        cluster.send("start", node)
        await self._until(lambda: self.stage.nodes[node], f"node {node} to restart")
        self._add_event(f"node {node} is up again")

    # --- end ---

    async def _end(self) -> None:
        async def stop(name: str) -> None:
            if not await self._processes[name].stop():
                self._add_event(f"{name} did not stop in time and was killed")

        async with anyio.create_task_group() as stopping:
            for worker in self.stage.workers.values():
                if worker.state != "killed":
                    worker.state = "done"
                    stopping.start_soon(stop, worker.name)

    def _compare(self) -> Comparison:
        results = Results(self._settings.folder / RESULTS)
        try:
            return compare(self.truth, self.stage.sent, results.line_numbers(), results.words())
        finally:
            results.close()

    # --- waiting ---

    def _owned_by(self, names: list[str]) -> bool:
        """Return True if exactly these workers own all partitions, each at least one."""
        owners = self.stage.owners
        return len(owners) == PARTITIONS and set(owners.values()) == set(names)

    def _notify(self) -> None:
        self._progress.set()
        self._progress = anyio.Event()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition of the stage. Raises `CommandFailed` without progress."""
        while not condition():
            before = self.stage.sent
            with anyio.move_on_after(NO_PROGRESS_TIMEOUT_S):
                await self._progress.wait()
                continue
            if self.stage.sent == before:
                raise CommandFailed(
                    f"no progress for {NO_PROGRESS_TIMEOUT_S:.0f} s while waiting for {what};"
                    " check the load of the machine and of the brokers"
                )
