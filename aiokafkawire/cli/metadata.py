"""`aiokafkawire metadata`: print brokers, topics, partitions, leaders and replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from aiokafkawire.cli import kcat
from aiokafkawire.cli.admin_command import AdminCommand, admin_command, print_results
from aiokafkawire.cli.arguments import require_one_topic
from aiokafkawire.cli.client_session import ClientSession, open_session, require_topics
from aiokafkawire.cli.common_options import json_option, kcat_json_option
from aiokafkawire.cli.tables import json_line
from aiokafkawire.cli.topics import topic_to_dict
from aiokafkawire.cluster import MetadataSnapshot, TopicMetadata
from aiokafkawire.errors import InvalidOption

__all__ = ("metadata",)

ALL = "*"


@click.command(short_help="Print brokers, topics, partitions and replicas.")
@admin_command
@json_option
@kcat_json_option
@click.option("-t", "--topic", help="Topic; the same as TOPIC.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]")
def metadata(
    admin: AdminCommand,
    *,
    as_json: bool,
    as_kcat: bool,
    topic: str | None,
    topics: tuple[str, ...],
) -> int:
    """Print the brokers and, for TOPIC or all topics, the leader, replicas and in-sync replicas of
    each partition, in kcat's format."""
    if as_json and as_kcat:
        raise InvalidOption("--json and -J exclude each other")
    query = ALL
    if topic is not None or topics:
        query = require_one_topic(topic, topics, "give one topic, or none for all", "")

    async def show() -> Sequence[Exception]:
        async with open_session(admin.options) as session:
            await print_results(_text(session, query, as_json=as_json, as_kcat=as_kcat))
        return ()

    return admin.run(show)


def _text(session: ClientSession, query: str, *, as_json: bool, as_kcat: bool) -> str:
    if query != ALL:
        require_topics(session, [query])
    known = session.cluster.metadata
    names = sorted(known.topics) if query == ALL else [query]
    shown = [known.topics[name] for name in names]
    source = session.cluster.metadata_source
    if as_json:
        return json_line(cluster_to_dict(known, shown))
    if as_kcat:
        return json_line(kcat.metadata_to_dict(known, source, shown, query))
    return kcat.metadata_text(known, source, shown, query)


def cluster_to_dict(known: MetadataSnapshot, topics: list[TopicMetadata]) -> dict[str, Any]:
    """Return the metadata as in `metadata --json`; topics are as in `topics describe --json`."""
    return {
        "cluster_id": known.cluster_id,
        "controller": None if known.controller_id < 0 else known.controller_id,
        "brokers": [
            {
                "broker": number,
                "host": node.address.host,
                "port": node.address.port,
                "rack": node.rack,
            }
            for number, node in sorted(known.nodes.items())
        ],
        "topics": [topic_to_dict(topic) for topic in topics],
    }
