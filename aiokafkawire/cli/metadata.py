"""`aiokafkawire metadata`: brokers, topics, partitions, leaders and replicas."""

from __future__ import annotations

from typing import Any

import click

from aiokafkawire.cli import kcat
from aiokafkawire.cli.access import (
    Access,
    Administration,
    administration,
    print_out,
    require_topics,
)
from aiokafkawire.cli.arguments import one_topic
from aiokafkawire.cli.shared import json_option, kcat_json_option
from aiokafkawire.cli.tables import json_line
from aiokafkawire.cli.topics import form as topic_form
from aiokafkawire.cluster import MetadataSnapshot, TopicMetadata
from aiokafkawire.errors import InvalidOption, KafkaError

__all__ = ("metadata",)

ALL = "*"


@click.command(short_help="Print brokers, topics, partitions and replicas.")
@administration
@json_option
@kcat_json_option
@click.option("-t", "--topic", help="The topic; the same as TOPIC.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]")
def metadata(
    admin: Administration,
    *,
    as_json: bool,
    as_kcat: bool,
    topic: str | None,
    topics: tuple[str, ...],
) -> int:
    """Print the brokers of the cluster, and each partition of TOPIC, or of all topics, with its
    leader, its replicas and those in sync, in the form of kcat."""
    if as_json and as_kcat:
        raise InvalidOption("--json and -J exclude each other")
    query = ALL
    if topic is not None or topics:
        query = one_topic(topic, topics, "give one topic, or none for all", "")

    async def show(access: Access) -> list[KafkaError]:
        if query != ALL:
            require_topics(access, [query])
        known = access.cluster.metadata
        names = sorted(known.topics) if query == ALL else [query]
        shown = [known.topics[name] for name in names]
        source = access.cluster.metadata_source
        if as_json:
            text = json_line(own_form(known, shown))
        elif as_kcat:
            text = json_line(kcat.metadata_form(known, source, shown, query))
        else:
            text = kcat.metadata_text(known, source, shown, query)
        await print_out(text)
        return []

    return admin.carry_out(show, all_topics=True)


def own_form(known: MetadataSnapshot, topics: list[TopicMetadata]) -> dict[str, Any]:
    """The metadata as `metadata --json` has it; topics are as `topics describe --json` has them."""
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
        "topics": [topic_form(topic) for topic in topics],
    }
