"""`aiokafkawire broker`: run the embedded broker until Ctrl-C."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import click

from aiokafkawire.broker import Broker, BrokerConfig, BrokerOptions, BrokerTls
from aiokafkawire.cli.arguments import parse_assignments
from aiokafkawire.cli.common_options import (
    IntegerRange,
    assignments_option,
    backend_option,
    quiet_option,
)
from aiokafkawire.cli.log_lines import show_log_times
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import print_stderr, require_stdout
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.errors import InvalidOption

__all__ = ("broker",)

LAST_PORT = 65_535

PASSWORD_VARIABLE = "AIOKAFKAWIRE_SASL_PASSWORD"
"""Environment variable with a client's password."""

TopicSpec = tuple[str, int | None, int | None]
"""Name, number of partitions and of replicas."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@click.command(short_help="Run the embedded broker.")
@click.option(
    "--port",
    type=IntegerRange(0, LAST_PORT),
    default=9092,
    show_default=True,
    help="Port of the first node; other nodes use the next ports. 0 picks free ports.",
)
@click.option(
    "--nodes",
    type=IntegerRange(1, 64),
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
    type=IntegerRange(1, 10_000),
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
    "--as-of", metavar="RELEASE", help="Behave as this release of Kafka, from 0.8 to 4.4."
)
@click.option("--racks", metavar="RACK,…", help="Rack of each node.")
@click.option(
    "--kafka07-port",
    type=IntegerRange(0, LAST_PORT),
    help="Also serve Kafka 0.7 on this port, with separate logs. 0 picks a free port.",
)
@click.option("--tls", is_flag=True, help="Encrypt, with a certificate made for this run.")
@click.option(
    "--tls-cafile",
    type=click.Path(dir_okay=False, path_type=Path),
    default="aiokafkawire-ca.pem",
    show_default=True,
    metavar="FILE",
    help="Write the authority of the certificate of --tls to FILE, for clients. Another broker in"
    " the same folder needs another FILE.",
)
@click.option(
    "--tls-certfile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Encrypt, with the certificate chain in this PEM file.",
)
@click.option(
    "--tls-keyfile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Private key of --tls-certfile.  [default: the key in that file]",
)
@click.option(
    "--tls-client-cafile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Require certificates of clients, signed by an authority in this PEM file.",
)
@click.option(
    "--sasl",
    "users",
    multiple=True,
    metavar="USER:PASSWORD",
    help="Require this user's password, by PLAIN or SCRAM. May be repeated.",
)
@click.option(
    "--super-user",
    "super_users",
    multiple=True,
    metavar="PRINCIPAL",
    help="Forbid everything that no ACL allows, except to this principal, such as User:admin, who"
    " can add ACLs. May be repeated.",
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="PROTOCOL[:PORT]",
    help="Listen for PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, on PORT and the next ones. May be"
    " repeated.  [default: one, as of --tls and --sasl, on --port]",
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
    tls: bool,
    tls_cafile: Path,
    tls_certfile: Path | None,
    tls_keyfile: Path | None,
    tls_client_cafile: Path | None,
    users: tuple[str, ...],
    super_users: tuple[str, ...],
    listeners: tuple[str, ...],
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
    _check_port("--port", port, nodes)
    tls_settings = _tls_settings(tls, tls_certfile, tls_keyfile, tls_client_cafile)
    if verbose:
        _show_log(logging.INFO if verbose == 1 else logging.DEBUG)
    topic_specs = [parse_topic(text) for text in topics]
    cluster = Broker(
        nodes,
        data_dir=data,
        host=host,
        advertised_host=advertised_host,
        ports=None if listeners else _ports(port, nodes),
        racks=None if racks is None else [rack.strip() or None for rack in racks.split(",")],
        kafka07_port=kafka07_port,
        acls=[] if super_users else None,
        super_users=super_users,
        tls=tls_settings or False,
        sasl=dict(map(parse_user, users)) or None,
        listeners=parse_listeners(listeners, nodes) if listeners else None,
        **_broker_options(auto_create, partitions, as_of, assignments),
    )
    notes: list[Callable[[Broker], None]] = []
    if not quiet:
        notes.append(partial(_print_ready, data, tls_cafile))
        if host not in LOOPBACK and not super_users:
            notes.append(partial(_print_open, host, tls_client_cafile is not None))
    serve = partial(_serve, cluster, topic_specs, tls_cafile, notes, kafka07_port is not None)
    run_command(serve, backend=backend)


def _broker_options(
    auto_create: bool, partitions: int, as_of: str | None, assignments: tuple[str, ...]
) -> BrokerOptions:
    options: BrokerOptions = {
        "auto_create_topics": auto_create,
        "default_partitions": partitions,
        **cast("BrokerOptions", parse_assignments(BrokerConfig, assignments)),
    }
    if as_of is not None:
        options["as_of"] = as_of
    return options


def _show_log(level: int) -> None:
    logging.getLogger("aiokafkawire.broker").setLevel(level)
    show_log_times()


def _tls_settings(
    make: bool, certfile: Path | None, keyfile: Path | None, client_cafile: Path | None
) -> BrokerTls | None:
    """Return the settings of the `--tls` options. Raises `InvalidOption`."""
    if keyfile is not None and certfile is None:
        raise InvalidOption("--tls-keyfile needs --tls-certfile")
    if make and certfile is not None:
        raise InvalidOption("--tls makes a certificate: omit it, or --tls-certfile")
    if not make and certfile is None:
        if client_cafile is not None:
            raise InvalidOption("--tls-client-cafile needs --tls or --tls-certfile")
        return None
    return BrokerTls(
        certfile=certfile,
        keyfile=keyfile,
        client_auth="none" if client_cafile is None else "required",
        client_cafile=client_cafile,
    )


async def _serve(
    cluster: Broker,
    topics: Sequence[TopicSpec],
    cafile: Path,
    notes: Sequence[Callable[[Broker], None]],
    with_kafka07: bool,
    _: Interruption,
) -> None:
    """Run the cluster until it is cancelled, and print its addresses to stdout."""
    async with cluster as served:
        for name, count, replicas in topics:
            if name not in served.topics:
                await served.create_topic(name, count, replicas)
        if served.authority is not None:
            served.authority.write(cafile)
        for print_note in notes:
            print_note(served)
        lines = [served.bootstrap_servers]
        if with_kafka07:
            lines.append(served.kafka07_server)
        text = "".join(f"{line}\n" for line in lines)
        await OutputStream(sys.stdout.fileno()).write(text.encode())
        await anyio.sleep_forever()


def parse_topic(text: str) -> TopicSpec:
    """Parse NAME[:PARTITIONS[:REPLICAS]]. Raises `InvalidOption`."""
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise InvalidOption(f"-t {text!r} is not of the form NAME[:PARTITIONS[:REPLICAS]]")
    counts: list[int | None] = [*map(int, numbers), None, None]
    return name, counts[0], counts[1]


def parse_user(text: str) -> tuple[str, str]:
    """Parse USER:PASSWORD. Raises `InvalidOption`, without the password."""
    name, colon, password = text.partition(":")
    if not (name and colon and password):
        raise InvalidOption("--sasl is not of the form USER:PASSWORD")
    return name, password


def parse_listeners(texts: tuple[str, ...], nodes: int) -> dict[SecurityProtocol, Sequence[int]]:
    """Parse PROTOCOL[:PORT] of each listener. Raises `InvalidOption`."""
    listeners: dict[SecurityProtocol, Sequence[int]] = {}
    for text in texts:
        name, colon, port = text.partition(":")
        if colon and not (port.isascii() and port.isdigit()):
            raise InvalidOption(f"--listener {text!r} is not of the form PROTOCOL[:PORT]")
        if name in listeners:
            raise InvalidOption(f"--listener {name} is there twice")
        _check_port("--listener", int(port or 0), nodes)
        listeners[cast("SecurityProtocol", name)] = _ports(int(port or 0), nodes) or [0] * nodes
    return listeners


def _ports(first: int, nodes: int) -> list[int] | None:
    """Return a port for each node, None for free ones."""
    return [first + index for index in range(nodes)] if first else None


def _check_port(option: str, first: int, nodes: int) -> None:
    if first and first + nodes - 1 > LAST_PORT:
        raise InvalidOption(f"{option} {first} leaves no room for {nodes} nodes below {LAST_PORT}")


def _print_ready(data: Path | None, cafile: Path, served: Broker) -> None:
    kept = "in memory only" if data is None else f"in {data}"
    print_stderr(f"% ready; records are stored {kept}; Ctrl-C stops the broker")
    for protocol, servers in served.listeners.items():
        if protocol != "PLAINTEXT":
            print_stderr(f"% {protocol}: -b {servers} {_client_flags(served, protocol, cafile)}")
        elif len(served.listeners) > 1:
            print_stderr(f"% PLAINTEXT: -b {servers}")


def _print_open(host: str, needs_certificate: bool, served: Broker) -> None:
    """Warn of a listener for which clients need neither a password nor a certificate."""
    open_protocols = {"PLAINTEXT"} if needs_certificate else {"PLAINTEXT", "SSL"}
    if open_protocols & {*served.listeners}:
        print_stderr(f"% {host} is reachable without authentication: any client can read and write")


def _client_flags(served: Broker, protocol: SecurityProtocol, cafile: Path) -> str:
    """Return the flags of a client, without the password."""
    options = served.client_options(protocol)
    flags: dict[str, str] = {"security_protocol": protocol}
    if "ssl_cadata" in options:
        flags["ssl_cafile"] = str(cafile)
    for name in ("sasl_mechanism", "sasl_username"):
        if name in options:
            flags[name] = options[name]
    text = " ".join(f"-X {shlex.quote(f'{name}={value}')}" for name, value in flags.items())
    is_password_needed = "sasl_password" in options
    return f"{text}, and the password in {PASSWORD_VARIABLE}" if is_password_needed else text
