"""Several listeners: addresses, arguments, and clients of this package."""

from __future__ import annotations

import re
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.broker import Broker, BrokerSasl, BrokerTls, make_unsecured_token
from aiokafkawire.errors import InvalidOption
from aiokafkawire.runtime import Address, RealRuntime, with_runtime
from aiokafkawire.runtime.tls_transport import connect_tls
from aiokafkawire.security import OAuthBearerToken, Secret
from aiokafkawire.testing.simulation import World
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest

from ..raw_client import RawClient

USERS = {"alice": "alice-pw"}
ALL: Any = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
LIMIT_S = 30


async def test_each_listener_has_its_own_addresses() -> None:
    async with Broker(3, tls=True, listeners=["PLAINTEXT", "SSL"]) as broker:
        assert broker.bootstrap_servers == broker.listeners["PLAINTEXT"]
        for name, servers in broker.listeners.items():
            ports = [int(text.rpartition(":")[2]) for text in servers.split(",")]
            transport = await RealRuntime().connect(Address("127.0.0.1", ports[0]))
            if name == "SSL":
                assert broker.authority is not None
                context = ssl.create_default_context(cadata=broker.authority.pem)
                transport = await connect_tls(transport, context, "127.0.0.1")
            client = RawClient(transport)
            metadata = await client.call(MetadataRequest(topics=[]), 1)
            assert [each.port for each in metadata.brokers] == ports
            found = await client.call(FindCoordinatorRequest(key="g"), 0)
            assert found.port == ports[found.node_id - 1]
            described = await client.call(
                DescribeClusterRequest(include_cluster_authorized_operations=False), 0
            )
            assert [each.port for each in described.brokers] == ports
            await transport.aclose()


@pytest.mark.parametrize("replicate", [False, True])
@pytest.mark.parametrize("protocol", ALL)
async def test_clients_use_every_listener(protocol: Any, replicate: bool) -> None:
    async with Broker(
        3, tls=True, sasl=USERS, listeners=ALL, replicate=replicate, default_partitions=3
    ) as broker:
        with anyio.fail_after(LIMIT_S):
            options = broker.client_options(protocol)
            async with Producer(**options) as producer:
                for number in range(20):
                    await producer.send_and_wait("orders", value=b"%d" % number, key=b"%d" % number)
            async with Consumer(
                "orders", group_id="g", auto_offset_reset="earliest", **options
            ) as consumer:
                values = {(await consumer.getone()).value for _ in range(20)}
    assert values == {b"%d" % number for number in range(20)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_clients_use_every_mechanism(mechanism: str) -> None:
    sasl = BrokerSasl(users=USERS, mechanisms=[mechanism])
    async with Broker(sasl=sasl) as broker:
        options = broker.client_options()
        assert options["sasl_mechanism"] == mechanism
        if mechanism == "OAUTHBEARER":

            async def provide() -> OAuthBearerToken:
                return OAuthBearerToken(Secret(make_unsecured_token("dora")))

            options["sasl_oauth_token_provider"] = provide
        with anyio.fail_after(LIMIT_S):
            async with Producer(**options) as producer:
                await producer.send_and_wait("orders", value=b"x")


async def test_nodes_replicate_without_a_plaintext_listener() -> None:
    async with Broker(3, tls=True, sasl=USERS, replicate=True) as broker:
        assert list(broker.listeners) == ["SASL_SSL"]
        await broker.create_topic("orders", 1, 3)
        with anyio.fail_after(LIMIT_S):
            async with Producer(**broker.client_options()) as producer:
                await producer.send_and_wait("orders", value=b"x")
            await broker.wait_for_isr("orders", 0, 1, 2, 3)


async def test_only_this_machine_reaches_the_listener_between_nodes() -> None:
    async with Broker(2, host="0.0.0.0", sasl=USERS, replicate=True) as broker:
        for node in broker._nodes.values():
            assert node.addresses["SASL_PLAINTEXT"].host == "0.0.0.0"
            assert node.addresses["INTERNAL"].host == "127.0.0.1"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def test_each_listener_may_have_given_ports() -> None:
    one, two, three, four = free_ports(4)
    async with Broker(2, tls=True, listeners={"SSL": [one, two], "PLAINTEXT": [three, four]}) as it:
        assert it.listeners == {
            "SSL": f"127.0.0.1:{one},127.0.0.1:{two}",
            "PLAINTEXT": f"127.0.0.1:{three},127.0.0.1:{four}",
        }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"listeners": ["SSL"]}, "the listener SSL needs tls"),
        ({"listeners": ["SASL_PLAINTEXT"]}, "the listener SASL_PLAINTEXT needs sasl"),
        ({"listeners": ["SASL_SSL"], "sasl": USERS}, "the listener SASL_SSL needs tls"),
        ({"listeners": ["TLS"]}, "'TLS' in listeners is not a security protocol"),
        ({"listeners": ["PLAINTEX"]}, "did you mean 'PLAINTEXT'"),
        ({"listeners": "SSL"}, "listeners must be a list of security protocols"),
        ({"listeners": []}, "listeners must be a list of security protocols"),
        ({"listeners": [3]}, "3 in listeners is not a security protocol"),
        ({"listeners": ["PLAINTEXT", "PLAINTEXT"]}, "must not name a security protocol twice"),
        ({"listeners": ["PLAINTEXT"], "tls": True}, "tls needs a listener SSL or SASL_SSL"),
        ({"listeners": ["PLAINTEXT"], "sasl": USERS}, "sasl needs a listener SASL_PLAINTEXT"),
        ({"listeners": {"PLAINTEXT": [1, 2]}}, "1 nodes need 1 ports of listener PLAINTEXT, not 2"),
        ({"listeners": {"PLAINTEXT": [70_000]}}, "each of ports of listener PLAINTEXT must be"),
        ({"listeners": {"PLAINTEXT": [0]}, "ports": [0]}, "ports contradicts listeners"),
        ({"tls": "yes"}, "tls must be True, BrokerTls or an SSLContext, not 'yes'"),
        ({"tls": BrokerTls(client_auth="always")}, "client_auth of BrokerTls must be one of"),
        ({"tls": BrokerTls(certfile="/missing.pem")}, "the TLS settings cannot be used"),
        (
            {"sasl": "alice"},
            "sasl must be a mapping of users to passwords or BrokerSasl, not",
        ),
        ({"sasl": {}}, "sasl needs users, a token_validator or mechanisms"),
        ({"sasl": {"": "x"}}, "a user name of SASL must be text without NUL, and not empty"),
        ({"sasl": {"a": ""}}, "the password of a user of SASL must be text"),
        ({"sasl": {"a": 3}}, "the password of a user of SASL must be text"),
        ({"sasl": BrokerSasl(mechanisms=["GSSAPI"])}, "'GSSAPI' is not a SASL mechanism"),
        ({"sasl": BrokerSasl(mechanisms=["plain"])}, "of the broker: use PLAIN, SCRAM-SHA-512"),
        (
            {"sasl": BrokerSasl(users=USERS, scram_iterations=1)},
            "scram_iterations of BrokerSasl must be from 4096",
        ),
    ],
)
def test_arguments_that_make_no_listener(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)):
        Broker(**arguments)


def test_a_certificate_of_the_caller_needs_an_authority_for_clients(tmp_path: Path) -> None:
    from aiokafkawire.broker import CertificateAuthority

    certfile, keyfile = CertificateAuthority().issue("x").write(tmp_path)
    settings = BrokerTls(certfile=certfile, keyfile=keyfile, client_auth="required")
    with pytest.raises(InvalidOption, match="client_auth of BrokerTls needs client_cafile"):
        Broker(tls=settings)


def test_certificates_without_trustme_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(InvalidOption, match=r"pip install 'aiokafkawire\[testing\]'"):
        Broker(tls=True)


def test_passwords_do_not_show() -> None:
    sasl = BrokerSasl(users={"alice": "hunter2"})
    assert "hunter2" not in repr(sasl)
    assert "hunter2" not in repr(Broker(sasl=sasl))


async def test_options_for_clients_that_cannot_be_had() -> None:
    async with Broker(sasl=USERS) as broker:
        with pytest.raises(ValueError, match="the broker has no listener SSL; it has SASL_PLAIN"):
            broker.client_options("SSL")
        with pytest.raises(ValueError, match="the mechanism OAUTHBEARER is not enabled: PLAIN"):
            broker.client_options(mechanism="OAUTHBEARER")
        with pytest.raises(ValueError, match="no such user"):
            broker.client_options(username="bob")


# --- the simulated network ---


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_tls_and_sasl_work_on_the_simulated_network(backend: Any, mechanism: str) -> None:
    world, host = World(7, backend=backend), "10.0.0.1"
    hours = 2

    async def program() -> tuple[int, int]:
        async with Broker(
            3,
            host=host,
            runtime=world.runtime(host),
            tls=True,
            sasl=USERS,
            connections_max_reauth_ms=60_000,
        ) as broker:
            options = broker.client_options(mechanism=mechanism)
            producer = with_runtime(Producer(**options), world.runtime("10.0.1.1"))
            async with producer:
                sent = 0
                while world.now() < hours * 3600:
                    await producer.send_and_wait("orders", value=b"x")
                    sent += 1
                    await anyio.sleep(50)
            return sent, broker.end_offset("orders", 0)

    sent, end_offset = world.run(program)
    assert sent == end_offset > 100
