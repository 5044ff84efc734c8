"""`aiokafkawire cluster`: nodes, features, the metadata quorum and log directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Errors,
    admin_command,
    print_results,
    rows_table,
    split_errors,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.cli.error_text import one_line
from aiokafkawire.cli.features import features
from aiokafkawire.cli.tables import json_line
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.admin import (
        Admin,
        ClusterDescription,
        LogDirDescription,
        QuorumInfo,
        QuorumReplicaState,
    )

__all__ = ("cluster",)


@click.group(cls=SuggestingGroup, short_help="Print nodes, features, quorum and log directories.")
def cluster() -> None:
    """Print the nodes, features, metadata quorum and log directories of the cluster."""


@cluster.command("nodes", short_help="Print the brokers and the controller.")
@admin_command
@json_option
@click.option("--fenced", is_flag=True, help="Include brokers that are not alive (Kafka 4.0+).")
def nodes_command(admin: AdminCommand, *, as_json: bool, fenced: bool) -> int:
    """Print the brokers of the cluster, its id and its controller."""

    async def show(client: Admin) -> Errors:
        shown = nodes_to_dict(await client.describe_cluster(include_fenced_brokers=fenced))
        if as_json:
            await print_results(json_line(shown))
        else:
            controller = "none" if shown["controller"] is None else shown["controller"]
            head = f"cluster {shown['cluster_id'] or '(no id)'}, controller {controller}\n"
            await print_results(head + rows_table(shown["nodes"]))
        return ()

    return admin.execute(show)


def nodes_to_dict(described: ClusterDescription) -> dict[str, Any]:
    """Return the nodes as in `cluster nodes --json`."""
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "nodes": [
            {
                "node": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
            }
            for node in described.nodes
        ],
    }


cluster.add_command(features)


@cluster.command("quorum", short_help="Print the controllers and their progress.")
@admin_command
@json_option
def quorum_command(admin: AdminCommand, *, as_json: bool) -> int:
    """Print the leader of the metadata quorum, and the lag of each voter and observer."""

    async def show(client: Admin) -> Errors:
        shown = quorum_to_dict(await client.describe_metadata_quorum())
        if as_json:
            await print_results(json_line(shown))
        else:
            leader = "none" if shown["leader"] is None else shown["leader"]
            head = (
                f"leader {leader}, epoch {shown['leader_epoch']},"
                f" high watermark {shown['high_watermark']}\n"
            )
            columns = ("node", "role", "log_end_offset", "lag")
            rows = [{name: each[name] for name in columns} for each in shown["replicas"]]
            await print_results(head + rows_table(rows))
        return ()

    return admin.execute(show)


def quorum_to_dict(quorum: QuorumInfo) -> dict[str, Any]:
    """Return the quorum as in `cluster quorum --json`."""
    ends = [each.log_end_offset for each in quorum.voters if each.replica_id == quorum.leader_id]
    end = ends[0] if ends else None

    def replica(each: QuorumReplicaState, role: str) -> dict[str, Any]:
        known = end is not None and each.log_end_offset >= 0
        return {
            "node": each.replica_id,
            "role": "leader" if each.replica_id == quorum.leader_id else role,
            "log_end_offset": each.log_end_offset if each.log_end_offset >= 0 else None,
            "lag": max((end or 0) - each.log_end_offset, 0) if known else None,
            "last_fetch_timestamp_ms": each.last_fetch_timestamp_ms,
            "last_caught_up_timestamp_ms": each.last_caught_up_timestamp_ms,
            "directory_id": None
            if each.replica_directory_id is None
            else str(each.replica_directory_id),
        }

    return {
        "leader": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [
            *(replica(each, "voter") for each in quorum.voters),
            *(replica(each, "observer") for each in quorum.observers),
        ],
    }


@cluster.command("log-dirs", short_help="Print log directories and their sizes.")
@admin_command
@json_option
@click.option(
    "--broker",
    "broker_ids",
    type=IntegerRange(min=0),
    multiple=True,
    help="Node id of a broker. May be repeated.  [default: all]",
)
@click.option("--replicas", is_flag=True, help="Print one line per replica.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
def log_dirs_command(
    admin: AdminCommand,
    *,
    as_json: bool,
    broker_ids: tuple[int, ...],
    replicas: bool,
    topics: tuple[str, ...],
) -> int:
    """Print the log directories of the brokers: replicas, sizes in bytes, and free space.

    With a TOPIC, only its replicas count.
    """

    async def show(client: Admin) -> Errors:
        results = await client.describe_log_dirs(broker_ids or None, return_errors=True)
        found, errors = split_errors(results)
        shown = [
            _log_dir_to_dict(broker, path, each, topics)
            for broker, directories in sorted(found.items())
            for path, each in sorted(directories.items())
        ]
        if as_json:
            await print_results("".join(map(json_line, shown)))
        elif shown:
            await print_results(rows_table(_replica_rows(shown) if replicas else _totals(shown)))
        return errors

    return admin.execute(show)


def _log_dir_to_dict(
    broker: int, path: str, each: LogDirDescription, topics: Sequence[str]
) -> dict[str, Any]:
    """Return a log directory as in `cluster log-dirs --json`."""
    replicas = {
        tp: info
        for tp, info in sorted(each.replica_infos.items())
        if not topics or tp.topic in topics
    }
    return {
        "broker": broker,
        "log_dir": path,
        "error": None if each.error is None else _error_text(each.error),
        "total_bytes": each.total_bytes,
        "usable_bytes": each.usable_bytes,
        "size_bytes": sum(info.size_bytes for info in replicas.values()),
        "replicas": [
            {
                **TopicPartition(*tp)._asdict(),
                "size_bytes": info.size_bytes,
                "offset_lag": info.offset_lag,
                "is_future": info.is_future,
            }
            for tp, info in replicas.items()
        ],
    }


def _error_text(error: KafkaError) -> str:
    return one_line(error.reason)


def _totals(shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "replicas": len(each["replicas"])} for each in shown]


def _replica_rows(shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"broker": each["broker"], "log_dir": each["log_dir"], **replica}
        for each in shown
        for replica in each["replicas"]
    ]
