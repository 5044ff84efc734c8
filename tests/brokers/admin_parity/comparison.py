"""Run cases, compare their results, and print the table of operations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio import to_thread
from py4j.protocol import Py4JJavaError

from aiokafkawire import Admin
from aiokafkawire.errors import KafkaError
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.cluster import ParityKafka, client_options, java_options
from tests.brokers.admin_parity.comparable import Failure, comparable, differences, renamed
from tests.brokers.admin_parity.java_admin import JavaAdmin
from tests.brokers.kafka import DEFAULT_VERSION
from tests.brokers.releases import RELEASES, fetch, java_for

__all__ = ("OPERATIONS", "Outcome", "compare", "run", "run_on_kafka", "table")

CASE_WITHIN_S = 180.0

OPERATIONS = (
    "create_topics",
    "delete_topics",
    "list_topics",
    "describe_topics",
    "create_partitions",
    "delete_records",
    "elect_leaders",
    "describe_configs",
    "incremental_alter_configs",
    "list_config_resources",
    "list_client_metrics_resources",
    "describe_cluster",
    "describe_features",
    "update_features",
    "describe_metadata_quorum",
    "add_raft_voter",
    "remove_raft_voter",
    "unregister_broker",
    "unregister_controller",
    "describe_log_dirs",
    "describe_replica_log_dirs",
    "alter_replica_log_dirs",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "list_offsets",
    "list_groups",
    "list_consumer_groups",
    "describe_consumer_groups",
    "describe_classic_groups",
    "delete_consumer_groups",
    "remove_members_from_consumer_group",
    "list_consumer_group_offsets",
    "alter_consumer_group_offsets",
    "delete_consumer_group_offsets",
    "describe_share_groups",
    "delete_share_groups",
    "list_share_group_offsets",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
    "describe_streams_groups",
    "delete_streams_groups",
    "list_streams_group_offsets",
    "alter_streams_group_offsets",
    "delete_streams_group_offsets",
    "create_acls",
    "describe_acls",
    "delete_acls",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "abort_transaction",
    "force_terminate_transaction",
    "fence_producers",
)
"""The operations of Java's Admin interface, in Kafka 4.4."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: no differences, or what the cluster lacks for it."""

    case: Case
    differences: tuple[str, ...] = ()
    java: Any = None


async def compare(case: Case, java: JavaAdmin, world: World) -> Outcome:
    """Run both calls of a case and compare the results."""
    if case.java is None:
        return Outcome(case)
    name = f"case{uuid.uuid4().hex[:10]}"
    names = (name, name) if case.shared else (f"{name}j", f"{name}o")
    async with AsyncExitStack() as stack:
        with anyio.fail_after(CASE_WITHIN_S):
            world = replace(world, stack=stack)
            for each in dict.fromkeys(names):
                await case.prepare(world, each)
            of_java = renamed(await _java_result(case, java, names[0]), {names[0]: "case"})
            ours = renamed(await _our_result(case, world, names[1]), {names[1]: "case"})
    found = differences(of_java, ours, case.ignored)
    return Outcome(case, tuple(found), of_java)


async def run(
    cases: Iterable[Case],
    java_properties: Mapping[str, str],
    options: dict[str, Any],
) -> list[Outcome]:
    """Run cases on the cluster to which both clients connect by these options."""
    release = RELEASES[DEFAULT_VERSION]
    outcomes = []
    async with Admin(**options) as admin, AsyncExitStack() as stack:
        world = World(admin, options, stack)
        java = JavaAdmin(java_for(release), fetch(release), java_properties)
        # In a thread: the embedded broker serves it in this one.
        await to_thread.run_sync(java.start)
        try:
            for case in cases:
                outcomes.append(await compare(case, java, world))
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(java.close)
    return outcomes


async def run_on_kafka(kafka: ParityKafka, cases: Iterable[Case]) -> list[Outcome]:
    """Run cases on real Kafka."""
    servers = kafka.secure_servers
    return await run(cases, java_options(servers), client_options(servers))


async def _java_result(case: Case, java: JavaAdmin, name: str) -> Any:
    def call() -> Any:
        assert case.java is not None
        try:
            result = java.call(case.java(java, name))
        except Py4JJavaError as error:
            return java.failure(error)
        return result if isinstance(result, Failure) else case.adapt(result)

    return await to_thread.run_sync(call)


async def _our_result(case: Case, world: World, name: str) -> Any:
    try:
        return comparable(case.adapt_ours(await case.ours(world, name)))
    except KafkaError as error:
        return comparable(error)


def table(outcomes: Iterable[Outcome], operations: Sequence[str] = OPERATIONS) -> str:
    """Return a line per operation: equal, what it needs, or the differences."""
    by_operation: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_operation.setdefault(outcome.case.operation, []).append(outcome)
    lines = [f"{'operation':<36} {'cases':>5}  result"]
    for operation in operations:
        found = by_operation.get(operation, [])
        lines.append(f"{operation:<36} {len(found):>5}  {_result(found)}")
    return "\n".join(lines)


def _result(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "not compared"
    lines = [line for outcome in outcomes for line in outcome.differences]
    if lines:
        return "; ".join(lines)
    return next((f"needs {each.case.needs}" for each in outcomes if each.case.needs), "equal")
