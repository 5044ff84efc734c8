"""`aiokafkawire broker`: run the embedded broker until Ctrl-C."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import cast

import anyio
import click

from aiokafkawire.broker import Broker, BrokerConfig, BrokerOptions
from aiokafkawire.cli.arguments import parse_assignments
from aiokafkawire.cli.common_options import assignments_option, backend_option, quiet_option
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import print_stderr, require_stdout
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.errors import InvalidOption

__all__ = ("broker",)

LAST_PORT = 65_535
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@click.command(short_help="Run the embedded broker.")
@click.option(
    "--port",
    type=click.IntRange(0, LAST_PORT),
    default=9092,
    show_default=True,
    help="Port of the first node; other nodes use the next ports. 0 picks free ports.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of nodes.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--advertised-host", help="Host name in the metadata for clients.  [default: --host]")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep topics, records and offsets in DIR. Without it they are in memory only.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Partitions of an auto-created topic.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:REPLICAS]]",
    help="Create this topic at startup. May be repeated.",
)
@click.option(
    "--auto-create/--no-auto-create",
    default=True,
    show_default=True,
    help="Create topics on first use.",
)
@click.option(
    "--as-of", metavar="RELEASE", help="Behave as this release of Kafka, from 0.8 to 4.3."
)
@click.option("--racks", metavar="RACK,…", help="Rack of each node.")
@click.option(
    "--kafka07-port",
    type=click.IntRange(0, LAST_PORT),
    help="Also serve Kafka 0.7 on this port, with separate logs. 0 picks a free port.",
)
@assignments_option(BrokerConfig, "broker, such as group_initial_rebalance_delay_ms=3000")
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log clients, topics, groups and rejected requests; -vv also logs error responses.",
)
@quiet_option
@backend_option
def broker(
    *,
    port: int,
    nodes: int,
    host: str,
    advertised_host: str | None,
    data: Path | None,
    partitions: int,
    topics: tuple[str, ...],
    auto_create: bool,
    as_of: str | None,
    racks: str | None,
    kafka07_port: int | None,
    assignments: tuple[str, ...],
    verbose: int,
    quiet: bool,
    backend: str,
) -> None:
    """Run an embedded Kafka cluster of one or more nodes until Ctrl-C.

    For development and tests. When the cluster is ready, the first line on stdout has the
    bootstrap servers for clients (-b). With --kafka07-port the second line has the address for
    0.7 clients.
    """
    require_stdout()
    if port and port + nodes - 1 > LAST_PORT:
        raise InvalidOption(f"--port {port} leaves no room for {nodes} nodes below {LAST_PORT}")
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
        logging.getLogger("aiokafkawire.broker").setLevel(level)
    topic_specs = [parse_topic(text) for text in topics]
    options: BrokerOptions = {
        "auto_create_topics": auto_create,
        "default_partitions": partitions,
        **cast("BrokerOptions", parse_assignments(BrokerConfig, assignments)),
    }
    if as_of is not None:
        options["as_of"] = as_of
    cluster = Broker(
        nodes,
        data_dir=data,
        host=host,
        advertised_host=advertised_host,
        ports=[port + index for index in range(nodes)] if port else None,
        racks=None if racks is None else [rack.strip() or None for rack in racks.split(",")],
        kafka07_port=kafka07_port,
        **options,
    )

    async def serve(_: Interruption) -> None:
        async with cluster as served:
            for name, count, replicas in topic_specs:
                if name not in served.topics:
                    await served.create_topic(name, count, replicas)
            if not quiet:
                _print_ready(host, data)
            lines = [served.bootstrap_servers]
            if kafka07_port is not None:
                lines.append(served.kafka07_server)
            text = "".join(f"{line}\n" for line in lines)
            await OutputStream(sys.stdout.fileno()).write(text.encode())
            await anyio.sleep_forever()

    run_command(serve, backend=backend)


def parse_topic(text: str) -> tuple[str, int | None, int | None]:
    """Parse NAME[:PARTITIONS[:REPLICAS]]. Raises `InvalidOption`."""
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise InvalidOption(f"-t {text!r} is not of the form NAME[:PARTITIONS[:REPLICAS]]")
    counts: list[int | None] = [*map(int, numbers), None, None]
    return name, counts[0], counts[1]


def _print_ready(host: str, data: Path | None) -> None:
    kept = "in memory only" if data is None else f"in {data}"
    print_stderr(f"% ready; records are stored {kept}; Ctrl-C stops the broker")
    if host not in LOOPBACK:
        print_stderr(f"% {host} is reachable without authentication: any client can read and write")
