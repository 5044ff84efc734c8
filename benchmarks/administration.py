"""Compare the admin client with kafka-python's and confluent-kafka's, on many topics and groups.

    python -m benchmarks.administration                  # on the embedded broker: about a minute
    python -m benchmarks.administration --topics 200 --groups 200
    python -m benchmarks.administration --rounds 5 --bootstrap localhost:9092

describe   1,000 topics of 10 partitions each
configs    the configs of 1,000 topics
lag        the lag of 1,000 groups with committed offsets for one topic each

Each round runs each client in a process of its own, in another order. Its CPU time includes its
threads, and its start is left out. All read the same cluster in the same run; its nodes are
embedded ones in another process on another core, unless `--bootstrap` names a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from aiokafkawire import Admin
from aiokafkawire.admin import ConfigResource, ConfigResourceType, NewTopic
from benchmarks.bench import cores
from benchmarks.scaling import cluster

NODES = 3
TOPICS, PARTITIONS, GROUPS = 1_000, 10, 1_000
AT_ONCE = 20
"""Groups whose offsets are committed at the same time, before the measurement."""

TIMEOUT_S = 280
ACTIONS = ("describe", "configs", "lag")

Figures = dict[str, float]
Action = Callable[[], object]


def topic_names(count: int) -> list[str]:
    return [f"empty-{number}" for number in range(count)]


def group_names(count: int) -> list[str]:
    return [f"group-{number}" for number in range(count)]


async def prepare(servers: str, topics: Sequence[str], groups: Sequence[str]) -> None:
    """Create the topics, and commit offsets of each group for all partitions of one topic."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.ensure_topics([NewTopic(name, PARTITIONS, 1) for name in topics])

        async def commit(group: str, topic: str) -> None:
            async with limit:
                await admin.alter_consumer_group_offsets(
                    group, {(topic, number): 0 for number in range(PARTITIONS)}
                )

        await asyncio.gather(
            *(commit(group, topics[number % len(topics)]) for number, group in enumerate(groups))
        )


# --- one client in a process ---


def freeze() -> None:
    """Leave what is loaded out of garbage collection, which runs as usual during the call."""
    gc.collect()
    gc.freeze()


def timed(figures: Figures, name: str, action: Action) -> None:
    freeze()
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    figures[f"{name} CPU ms"] = (time.process_time() - cpu) * 1_000
    figures[f"{name} ms"] = (time.perf_counter() - wall) * 1_000


def measure_ours(servers: str, topics: Sequence[str], groups: Sequence[str]) -> Figures:
    figures: Figures = {}

    async def action(name: str, call: Awaitable[Mapping[Any, Any]], count: int) -> None:
        freeze()
        cpu, wall = time.process_time(), time.perf_counter()
        result = await call
        figures[f"{name} CPU ms"] = (time.process_time() - cpu) * 1_000
        figures[f"{name} ms"] = (time.perf_counter() - wall) * 1_000
        assert len(result) == count, (name, len(result))

    async def main() -> None:
        async with Admin(bootstrap_servers=servers) as admin:
            resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
            await admin.describe_cluster()
            await action("describe", admin.describe_topics(topics), len(topics))
            await action("configs", admin.describe_configs(resources), len(topics))
            await action("lag", admin.lag(groups), len(groups))

    asyncio.run(main())
    return figures


def measure_kafka_python(servers: str, topics: Sequence[str], groups: Sequence[str]) -> Figures:
    from kafka.admin import ConfigResource as Resource  # noqa: PLC0415
    from kafka.admin import ConfigResourceType as Type  # noqa: PLC0415
    from kafka.admin import KafkaAdminClient, OffsetSpec  # noqa: PLC0415

    admin = KafkaAdminClient(bootstrap_servers=servers.split(","))
    figures: Figures = {}

    def lag() -> None:
        committed = admin.list_group_offsets(list(groups))
        partitions = {tp for offsets in committed.values() for tp in offsets}
        ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        lags = {
            group: {tp: ends[tp].offset - each.offset for tp, each in offsets.items()}
            for group, offsets in committed.items()
        }
        assert len(lags) == len(groups)

    try:
        admin.describe_cluster()
        timed(figures, "describe", lambda: admin.describe_topics(list(topics)))
        resources = [Resource(Type.TOPIC, name) for name in topics]
        timed(figures, "configs", lambda: admin.describe_configs(resources, config_filter="all"))
        timed(figures, "lag", lag)
    finally:
        admin.close()
    return figures


def measure_confluent(servers: str, topics: Sequence[str], groups: Sequence[str]) -> Figures:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient, OffsetSpec  # noqa: PLC0415
    from confluent_kafka.admin import ConfigResource as Resource  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": servers})
    figures: Figures = {}

    def results(futures: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: future.result(TIMEOUT_S) for key, future in futures.items()}

    def lag() -> None:
        # It takes one group per call; the calls run in parallel.
        pending = [
            admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            for group in groups
        ]
        committed = [each for futures in pending for each in results(futures).values()]
        wanted = {tp: OffsetSpec.latest() for each in committed for tp in each.topic_partitions}
        ends = {
            (tp.topic, tp.partition): found.offset
            for tp, found in results(admin.list_offsets(wanted)).items()
        }
        lags = {
            each.group_id: [
                ends[tp.topic, tp.partition] - tp.offset for tp in each.topic_partitions
            ]
            for each in committed
        }
        assert len(lags) == len(groups)

    admin.describe_cluster().result(TIMEOUT_S)
    timed(
        figures, "describe", lambda: results(admin.describe_topics(TopicCollection(list(topics))))
    )
    resources = [Resource(Resource.Type.TOPIC, name) for name in topics]
    timed(figures, "configs", lambda: results(admin.describe_configs(resources)))
    timed(figures, "lag", lag)
    return figures


CLIENTS: Mapping[str, Callable[[str, Sequence[str], Sequence[str]], Figures]] = {
    "aiokafkawire": measure_ours,
    "kafka-python": measure_kafka_python,
    "confluent-kafka": measure_confluent,
}


# --- all rounds ---


def run(client: str, servers: str, topics: int, groups: int) -> Figures:
    """Measure a client in a process on the clients' core."""
    command = [sys.executable, "-m", "benchmarks.administration", "--bootstrap", servers]
    command += ["--topics", str(topics), "--groups", str(groups), "--client", client]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S)
    figures: Figures = json.loads(done.stdout)
    return figures


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the medians as a table, with the CPU time in relation to this client's."""
    lines = [
        "| | " + " | ".join(found) + " |",
        "|---|" + "---:|" * len(found),
    ]
    for action in ACTIONS:
        for unit in ("CPU ms", "ms"):
            name = f"{action} {unit}"
            medians = {
                client: statistics.median(each[name] for each in rounds)
                for client, rounds in found.items()
            }
            first = next(iter(medians.values()))
            cells = [f"{value:,.0f} ({value / first:.1f} ×)" for value in medians.values()]
            lines.append(f"| {action}, {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    topics, groups = topic_names(arguments.topics), group_names(arguments.groups)
    if arguments.client is not None:
        _, core = cores()
        if core is not None:
            os.sched_setaffinity(0, {core})
        print(json.dumps(CLIENTS[arguments.client](arguments.bootstrap, topics, groups)))
        return
    with ExitStack() as stack:
        servers = arguments.bootstrap
        if servers is None:
            servers = stack.enter_context(cluster.running(NODES, {})).bootstrap_servers
        asyncio.run(prepare(servers, topics, groups))
        found: dict[str, list[Figures]] = {client: [] for client in CLIENTS}
        for number in range(arguments.rounds):
            order = [*CLIENTS][number % len(CLIENTS) :] + [*CLIENTS][: number % len(CLIENTS)]
            for client in order:
                found[client].append(run(client, servers, arguments.topics, arguments.groups))
                print(client, found[client][-1], file=sys.stderr, flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
