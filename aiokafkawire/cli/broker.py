"""`aiokafkawire broker`: the embedded broker, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from aiokafkawire.broker import Broker
from aiokafkawire.cli.running import Interruption, run
from aiokafkawire.cli.shared import backend_option, quiet_option
from aiokafkawire.cli.streams import Output
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
    help="Port of the first node; the others follow. 0 takes free ones.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Nodes of the cluster.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--advertised-host", help="Name that clients are told, if not that of --host.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep topics, records and offsets in DIR; else they are gone at the end.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Partitions of a topic that is made on demand.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:REPLICAS]]",
    help="Make this topic at the start. May be repeated.",
)
@click.option(
    "--auto-create/--no-auto-create",
    default=True,
    show_default=True,
    help="Make topics when they are first asked for.",
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
    quiet: bool,
    backend: str,
) -> None:
    """Run an embedded Kafka cluster of one or more nodes until Ctrl-C.

    It is for development and tests. When it is ready, the first line on stdout is what clients
    take as bootstrap servers (-b).
    """
    if port and port + nodes - 1 > LAST_PORT:
        raise InvalidOption(f"--port {port} leaves no room for {nodes} nodes below {LAST_PORT}")
    wanted = [parse_topic(text) for text in topics]

    async def serve(_: Interruption) -> None:
        async with Broker(
            nodes,
            data_dir=data,
            host=host,
            advertised_host=advertised_host,
            ports=[port + index for index in range(nodes)] if port else None,
            auto_create_topics=auto_create,
            default_partitions=partitions,
        ) as served:
            for name, count, replicas in wanted:
                if name not in served.topics:
                    await served.create_topic(name, count, replicas)
            if not quiet:
                _greet(host, data)
            await Output(sys.stdout.fileno()).write(served.bootstrap_servers.encode() + b"\n")
            await anyio.sleep_forever()

    run(serve, backend=backend)


def parse_topic(text: str) -> tuple[str, int | None, int | None]:
    """Read NAME[:PARTITIONS[:REPLICAS]]; raises `InvalidOption`."""
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise InvalidOption(f"-t {text!r} is not of the form NAME[:PARTITIONS[:REPLICAS]]")
    counts: list[int | None] = [*map(int, numbers), None, None]
    return name, counts[0], counts[1]


def _greet(host: str, data: Path | None) -> None:
    kept = "in memory only" if data is None else f"in {data}"
    print(f"% ready; records are kept {kept}; Ctrl-C ends it", file=sys.stderr, flush=True)
    if host not in LOOPBACK:
        print(
            f"% anyone who reaches {host} can read and write: there is no authentication",
            file=sys.stderr,
            flush=True,
        )
